#include "base/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text_file.hpp"

namespace zerohop {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

// The number after `key` in a file of "key number" lines.
std::optional<std::uint64_t> find_number(const std::string& path, const std::string& key) {
  const TextFile file = open_text(path);
  std::array<char, 256> line{};
  while (file && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const std::string_view text = line.data();
    if (!text.starts_with(key) || text.size() == key.size() || text[key.size()] != ' ') continue;
    return std::strtoull(line.data() + key.size(), nullptr, 10);
  }
  return std::nullopt;
}

// What one control group still allows. Reclaimable file pages do not count as used.
std::uint64_t left_by_group(const std::string& folder) {
  const auto most = number_in(folder + "/memory.max");
  const auto used = number_in(folder + "/memory.current");
  if (!most || !used) return kUnknown;
  const auto reclaimable = find_number(folder + "/memory.stat", "inactive_file").value_or(0);
  const std::uint64_t taken = *used - std::min(*used, reclaimable);
  return *most - std::min(*most, taken);
}

// Relative to the mount point: "/" in most containers, which see their own group as the root.
std::string own_group(const std::string& root) {
  const TextFile file = open_text(root + "/proc/self/cgroup");
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

bool populate(void* begin, std::size_t nbytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
  constexpr int kPopulateWrite = 23;  // older C libraries do not name it
#endif
  return ::madvise(begin, nbytes, kPopulateWrite) == 0;
}

}  // namespace zerohop
