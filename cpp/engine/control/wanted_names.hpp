// Names that peers have asked for, and that nothing is shared under yet.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace zerohop::engine {

struct Link;

// Progress thread only.
class WantedNames {
 public:
  static constexpr std::size_t kMost = 16384;  // of one link; one more takes the oldest's place

  struct Wish {
    Link* link;
    std::uint64_t request;
  };
  void add(Link& link, std::uint64_t request, const std::string& name);
  std::vector<Wish> take(const std::string& name);  // who has asked for it, who no longer does
  void forget(Link& link);                          // before it goes

  std::size_t size() const noexcept { return by_name_.size(); }

 private:
  using ByName = std::multimap<std::string, Wish>;

  ByName by_name_;
  // By request, the oldest first: their numbers rise.
  std::unordered_map<Link*, std::map<std::uint64_t, ByName::iterator>> by_link_;
};

}  // namespace zerohop::engine
