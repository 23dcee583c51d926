#include "base/host_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

namespace zerohop {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
// stdio, not iostreams: frameworks bring other copies of the C++ library into the process, and
// streams of two copies share locale state.
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_file(const std::string& path) { return File(std::fopen(path.c_str(), "re")); }

// The number behind `key` in a file of "key number" lines.
std::optional<std::uint64_t> find_number(const std::string& path, const std::string& key) {
  const File file = open_file(path);
  std::array<char, 256> line{};
  while (file && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const std::string_view text = line.data();
    if (!text.starts_with(key) || text.size() == key.size() || text[key.size()] != ' ') continue;
    return std::strtoull(line.data() + key.size(), nullptr, 10);
  }
  return std::nullopt;
}

// The number that is all of a file; nullopt for "max" and where there is no such file.
std::optional<std::uint64_t> read_number(const std::string& path) {
  const File file = open_file(path);
  unsigned long long number = 0;
  return file && std::fscanf(file.get(), "%llu", &number) == 1 ? std::optional(number)
                                                               : std::nullopt;
}

// What one control group leaves. File pages that nobody uses do not count as taken.
std::uint64_t left_by_group(const std::string& folder) {
  const auto most = read_number(folder + "/memory.max");
  const auto used = read_number(folder + "/memory.current");
  if (!most || !used) return kUnknown;
  const auto reclaimable = find_number(folder + "/memory.stat", "inactive_file").value_or(0);
  const std::uint64_t taken = *used - std::min(*used, reclaimable);
  return *most - std::min(*most, taken);
}

// Below the mount point: "/" in most containers, which see their own group as the top.
std::string own_group(const std::string& root) {
  const File file = open_file(root + "/proc/self/cgroup");
  std::array<char, 4096> line{};
  while (file && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const std::string_view text = line.data();
    if (text.starts_with("0::")) return std::string(text.substr(3, text.find('\n') - 3));
  }
  return "/";
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  const auto free = find_number(root + "/proc/meminfo", "MemAvailable:");
  std::uint64_t least = free ? *free * 1024 : kUnknown;  // the unit is always kB (man 5 proc)
  for (std::string group = own_group(root);;) {
    least = std::min(least, left_by_group(root + "/sys/fs/cgroup" + group));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos || group.empty()) return least;
    group.resize(slash);
  }
}

}  // namespace zerohop
