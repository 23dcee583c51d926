#include "base/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace zerohop {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

// The number behind `key` in a file of "key number" lines.
std::optional<std::uint64_t> find_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  std::uint64_t number = 0;
  while (file >> word) {
    if (word == key && file >> number) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// The number that is all of a file; nullopt for "max" and where there is no such file.
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
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
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) return line.substr(3);
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
