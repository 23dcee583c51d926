// Names that peers have looked up but nothing is shared under yet.
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
  static constexpr std::size_t kMost = 16384;  // per link; a further one replaces the oldest

  struct Wish {
    Link* link;
    std::uint64_t request;
  };
  void add(Link& link, std::uint64_t request, const std::string& name);
  std::vector<Wish> take(const std::string& name);  // removes and returns the wishes for it
  void forget(Link& link);                          // call before the link is destroyed

  std::size_t size() const noexcept { return by_name_.size(); }

 private:
  using ByName = std::multimap<std::string, Wish>;

  ByName by_name_;
  // By request number, which rises: the oldest first.
  std::unordered_map<Link*, std::map<std::uint64_t, ByName::iterator>> by_link_;
};

}  // namespace zerohop::engine
