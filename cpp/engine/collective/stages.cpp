#include "engine/collective/stages.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>
#include <utility>

namespace zerohop::engine::collective {
namespace {

using Group = std::vector<Rank>;
using Level = std::vector<Stage>;  // of different ranks, at the same time

bool has(const Group& group, Rank rank) { return std::ranges::find(group, rank) != group.end(); }

// The first ranks of a host, as many as every host has.
Group heads_of(const Group& host, std::size_t lanes) {
  return {host.begin(), host.begin() + static_cast<std::ptrdiff_t>(lanes)};
}

// What a power of two of the ranks remains of a lane: some of the others combine with them first.
struct Folded {
  Group kept;
  std::vector<std::pair<Rank, Rank>> folded;  // a kept rank, and the one after it

  explicit Folded(const Group& lane) {
    const std::size_t extra = lane.size() - std::bit_floor(lane.size());
    for (std::size_t at = 0; at < lane.size(); ++at) {
      kept.push_back(lane[at]);
      if (folded.size() == extra) continue;
      folded.emplace_back(lane[at], lane[at + 1]);
      ++at;
    }
  }
};

Level pairs_at(const std::vector<Folded>& lanes, std::size_t distance, bool combines, bool sliced) {
  Level made;
  for (const auto& [kept, folded] : lanes) {
    for (std::size_t at = 0; at < kept.size(); ++at) {
      if ((at & distance) != 0) continue;
      const Group pair{kept[at], kept[at | distance]};
      made.push_back({.from = pair, .to = pair, .combines = combines, .sliced = sliced});
    }
  }
  return made;
}

void add_pairs(std::vector<Level>& levels, const std::vector<Group>& lanes, bool sliced) {
  const std::vector<Folded> all(lanes.begin(), lanes.end());
  const std::size_t most = all.front().kept.size();
  Level fold, unfold;
  for (const Folded& each : all) {
    for (const auto& [kept, folded] : each.folded) {
      fold.push_back({.from = {kept, folded}, .to = {kept}, .combines = true, .sliced = sliced});
      unfold.push_back({.from = {kept}, .to = {kept, folded}, .sliced = sliced});
    }
  }
  if (!fold.empty()) levels.push_back(std::move(fold));
  for (std::size_t distance = 1; distance < most; distance *= 2) {
    levels.push_back(pairs_at(all, distance, /*combines=*/true, sliced));
  }
  for (std::size_t distance = most / 2; sliced && distance > 0; distance /= 2) {
    levels.push_back(pairs_at(all, distance, /*combines=*/false, sliced));
  }
  if (!unfold.empty()) levels.push_back(std::move(unfold));
}

// Whole blocks go to one rank of each host, and then to the root.
std::vector<Level> to_root(const std::vector<Group>& hosts, Rank root) {
  Level local;
  Group leaders;
  for (const Group& host : hosts) {
    leaders.push_back(has(host, root) ? root : host.front());
    if (host.size() == 1) continue;
    local.push_back({.from = host, .to = {leaders.back()}, .combines = true, .sliced = false});
  }
  std::vector<Level> made;
  if (!local.empty()) made.push_back(std::move(local));
  if (hosts.size() > 1 || made.empty()) {
    made.push_back({{.from = leaders, .to = {root}, .combines = true, .sliced = false}});
  }
  return made;
}

std::vector<Level> levels_of(const std::vector<Group>& hosts, const Algorithm& algorithm,
                             std::int32_t root) {
  const bool sliced = !algorithm.whole, to_all = root == kNoRoot;
  if (!to_all && !sliced) return to_root(hosts, static_cast<Rank>(root));
  const std::size_t count = std::ranges::min_element(hosts, {}, &Group::size)->size();
  std::vector<Group> lanes(count);
  std::size_t root_host = 0;
  Level local, spread;
  for (const Group& host : hosts) {
    const Group heads = heads_of(host, count);
    for (std::size_t at = 0; at < count; ++at) lanes[at].push_back(host[at]);
    const bool has_root = !to_all && has(host, static_cast<Rank>(root));
    if (has_root) root_host = lanes.front().size() - 1;
    if (host.size() == 1) continue;
    local.push_back({.from = host, .to = heads, .combines = true, .sliced = sliced});
    const Group wanting = has_root ? Group{static_cast<Rank>(root)} : host;
    const bool wants = to_all ? sliced || host.size() > count : has_root;
    if (wants) spread.push_back({.from = heads, .to = wanting, .sliced = sliced});
  }
  std::vector<Level> made;
  if (!local.empty()) made.push_back(std::move(local));
  if (hosts.size() > 1 && to_all && (algorithm.pairs || (!sliced && hosts.size() > kFew))) {
    add_pairs(made, lanes, sliced);
  } else if (hosts.size() > 1 || made.empty()) {
    Level combine, pass;
    for (const Group& lane : lanes) {
      combine.push_back({.from = lane, .to = lane, .combines = true, .sliced = sliced});
      pass.push_back({.from = lane, .to = to_all ? lane : Group{lane[root_host]}});
    }
    made.push_back(std::move(combine));
    if (sliced) made.push_back(std::move(pass));
  }
  if (!spread.empty()) made.push_back(std::move(spread));
  return made;
}

}  // namespace

Topology::Topology(std::span<const std::uint32_t> host_of, std::vector<AlgorithmRow> table)
    : rows_(std::move(table)), size_(static_cast<Rank>(host_of.size())) {
  std::map<std::uint32_t, std::size_t> known;
  for (Rank rank = 0; rank < size_; ++rank) {
    const auto [at, is_new] = known.try_emplace(host_of[rank], hosts_.size());
    if (is_new) hosts_.emplace_back();
    hosts_[at->second].push_back(rank);
    apart_.push_back({rank});
  }
  std::erase_if(rows_, [&](const AlgorithmRow& row) {
    return row.hosts < hosts_.size() || row.ranks < size_;
  });
  const auto of_any_size = [](const AlgorithmRow& row) { return row.nbytes == kAnyBytes; };
  if (size_ == 0 || std::ranges::none_of(rows_, of_any_size)) {
    throw std::invalid_argument(
        "a table of algorithms must have a row for every number of hosts and ranks, and every "
        "size");
  }
}

const Algorithm& Topology::algorithm(std::uint64_t nbytes) const noexcept {
  return std::ranges::find_if(rows_, [&](const AlgorithmRow& row) { return nbytes <= row.nbytes; })
      ->algorithm;
}

bool Topology::is_direct(const Algorithm& algorithm, std::uint64_t nbytes) const noexcept {
  const std::size_t hosts = algorithm.by_host || hosts_.size() == 1 ? hosts_.size() : size_;
  const bool flat = hosts == 1 || hosts == size_;
  const bool at_once = hosts <= 2 || !algorithm.pairs;  // of two, it is the same
  return algorithm.whole && at_once && flat && size_ <= kFew && nbytes <= kEager;
}

Stages Topology::stages(const Algorithm& algorithm, Rank rank, std::int32_t root) const {
  const bool by_host = algorithm.by_host || hosts_.size() == 1;
  Stages made;
  for (Level& level : levels_of(by_host ? hosts_ : apart_, algorithm, root)) {
    const Stage& any = level.front();
    if (made.stages.empty() && any.sliced) made.shares = any.to.size();
    const auto own = std::ranges::find_if(
        level, [&](const Stage& stage) { return has(stage.from, rank) || has(stage.to, rank); });
    made.stages.push_back(own == level.end() ? Stage{.from = {}, .to = {}, .combines = any.combines}
                                             : std::move(*own));
  }
  return made;
}

}  // namespace zerohop::engine::collective
