// Text files of the system (/proc, /sys), read with stdio and never with iostreams: frameworks
// bring other copies of the C++ library into the process, streams of two copies share locale state,
// and beside PyTorch and JAX that hangs or crashes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace zerohop {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using TextFile = std::unique_ptr<std::FILE, CloseFile>;

// Null when the file is absent or unreadable.
inline TextFile open_text(const std::string& path) {
  return TextFile(std::fopen(path.c_str(), "re"));
}

// The number at the start of a file; empty for a word ("max") and when there is no such file.
inline std::optional<std::uint64_t> number_in(const std::string& path) {
  const TextFile file = open_text(path);
  unsigned long long number = 0;
  return file && std::fscanf(file.get(), "%llu", &number) == 1 ? std::optional(number)
                                                               : std::nullopt;
}

}  // namespace zerohop
