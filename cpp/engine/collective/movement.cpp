#include "engine/collective/movement.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace zerohop::engine::collective {
namespace {

// Each piece costs messages: 64 MiB to 3 ranks, by p2p on a busy host with two cores, took 67 ms in
// pieces of 1 MiB, 36 ms in pieces of 4 MiB and 19 ms in pieces of 16 MiB.
constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;

// Bytes of an own block: no other rank waits for a longer copy. A short one takes less than a step.
constexpr std::uint64_t kCopiedFirst = 4096;

const Block& of_rank(const std::vector<Block>& blocks, Rank rank) {
  return blocks.size() > 1 ? blocks[rank] : blocks.front();
}

}  // namespace

void Movement::begin(Terms& terms) {
  terms_.take(terms);
  arrays_.swap(terms_.arrays);
  sources_.clear();
  targets_.clear();
  begins_.clear();
  pieces_ = 1;
  step_ = 0;
  pattern_ = pattern();
  find_neighbours();
  set_partners(sources_, targets_);
}

Movement::Pattern Movement::pattern() const {
  if (terms_.kind == Kind::broadcast) return Pattern::relay;
  if (terms_.kind != Kind::all_gather || terms_.size == 1) return Pattern::at_once;
  std::uint64_t most = 0, all = 0;
  for (const Block& block : terms_.outs) {
    most = std::max(most, block.nbytes);
    all += block.nbytes;
  }
  if (terms_.size <= kFew && most <= kEager) return Pattern::at_once;
  return all <= kEager ? Pattern::disseminate : Pattern::ring;
}

// Starting after this one, so that no rank is the first of all.
void Movement::add_others(std::vector<Rank>& ranks) const {
  for (Rank step = 1; step < terms_.size; ++step) ranks.push_back(after(terms_.rank, step));
}

void Movement::find_neighbours() {
  const Rank rank = terms_.rank, size = terms_.size;
  const auto root = static_cast<Rank>(terms_.root);
  if (pattern_ == Pattern::disseminate) {
    for (Rank there = 1; there < size; there *= 2) {
      targets_.push_back(before(rank, there));
      sources_.push_back(after(rank, there));
    }
    begins_.push_back(0);
    for (Rank step = 0; step < size; ++step) {
      begins_.push_back(begins_.back() + of_rank(terms_.outs, after(rank, step)).nbytes);
    }
    return;
  }
  if (pattern_ == Pattern::ring) {
    targets_.push_back(after(rank, 1));
    sources_.push_back(before(rank, 1));
    return;
  }
  switch (terms_.kind) {
    case Kind::broadcast: return relay_from_root();
    case Kind::scatter: rank == root ? add_others(targets_) : sources_.push_back(root); return;
    case Kind::gather: rank == root ? add_others(sources_) : targets_.push_back(root); return;
    case Kind::send_recv:
      if (terms_.to && *terms_.to != rank) targets_.push_back(*terms_.to);
      if (terms_.from && *terms_.from != rank) sources_.push_back(*terms_.from);
      return;
    default: add_others(targets_); add_others(sources_);
  }
}

// From the root along a binomial tree among hosts, and one within each host, in which a piece
// arrives after as many steps as the trees are deep, and the root sends it that many times; or
// along a chain, in which each rank sends it once: pieces + size - 2 steps in total, if that is
// fewer. Either way a block gets to each host once.
void Movement::relay_from_root() {
  const std::uint64_t nbytes = terms_.ins.front().nbytes;
  const Rank size = terms_.size;
  if (terms_.piece == 0) terms_.piece = kPiece;
  if (nbytes > kEager && size > 2) pieces_ = (nbytes + terms_.piece - 1) / terms_.piece;
  const auto root = static_cast<Rank>(terms_.root);
  const bool at_once = size <= kFew && nbytes <= kEager;
  if (at_once && (terms_.topology == nullptr || terms_.topology->hosts() == 1)) {
    terms_.rank == root ? add_others(targets_) : sources_.push_back(root);
    return;
  }
  const std::vector<Group> hosts = hosts_from(root);
  const auto longest = std::ranges::max_element(hosts, {}, &Group::size);
  const auto depth = std::bit_width(hosts.size() - 1) + std::bit_width(longest->size() - 1);
  if (!at_once && pieces_ + size - 2 < pieces_ * static_cast<std::uint64_t>(depth)) {
    Group all;
    for (const Group& host : hosts) all.insert(all.end(), host.begin(), host.end());
    const auto own = std::ranges::find(all, terms_.rank);
    if (own != all.begin()) sources_.push_back(own[-1]);
    if (own + 1 != all.end()) targets_.push_back(own[1]);
    return;
  }
  Group heads;
  for (const Group& host : hosts) heads.push_back(host.front());
  grow(heads, at_once);
  for (const Group& host : hosts) grow(host, at_once);
}

// The ranks of each host, from the root and its host on.
std::vector<Movement::Group> Movement::hosts_from(Rank root) const {
  std::vector<Group> found;
  if (terms_.topology != nullptr && terms_.topology->hosts() > 1) {
    found = terms_.topology->ranks_by_host();
  } else {
    found.emplace_back();
    for (Rank rank = 0; rank < terms_.size; ++rank) found.front().push_back(rank);
  }
  const auto of_root = [&](const Group& host) { return std::ranges::find(host, root); };
  const auto first =
      std::ranges::find_if(found, [&](const Group& host) { return of_root(host) != host.end(); });
  std::rotate(found.begin(), first, found.end());
  std::ranges::rotate(found.front(), std::ranges::find(found.front(), root));
  return found;
}

// This rank's neighbours in a tree whose root is the first of the group.
void Movement::grow(const Group& group, bool at_once) {
  const auto place = std::ranges::find(group, terms_.rank);
  if (place == group.end()) return;
  const auto own = static_cast<std::size_t>(place - group.begin());
  if (at_once) {
    if (own > 0) {
      sources_.push_back(group.front());
    } else {
      targets_.insert(targets_.end(), group.begin() + 1, group.end());
    }
    return;
  }
  const std::size_t lowest = own > 0 ? own & (~own + 1) : std::bit_ceil(group.size());
  if (own > 0) sources_.push_back(group[own - lowest]);
  for (std::size_t step = lowest / 2; step > 0; step /= 2) {
    if (own + step < group.size()) targets_.push_back(group[own + step]);
  }
}

std::uint64_t Movement::room() const { return begins_.empty() ? 0 : begins_.back(); }

bool Movement::next(Step& step, std::span<const Move>) {
  step.clear();
  const std::uint64_t number = step_++;
  switch (pattern_) {
    case Pattern::at_once: return at_once(number, step);
    case Pattern::relay: return relay(number, step);
    case Pattern::disseminate: return disseminate(number, step);
    case Pattern::ring: return go_round(number, step);
  }
  return false;
}

bool Movement::copies_own() const noexcept {
  switch (terms_.kind) {
    case Kind::scatter:
    case Kind::gather: return terms_.rank == static_cast<Rank>(terms_.root);
    case Kind::send_recv: return terms_.to == terms_.rank;
    default: return true;
  }
}

bool Movement::is_by_cpu(const Copy& copy) const noexcept {
  return array_of(copy.target).on_host && array_of(copy.source).on_host;
}

bool Movement::at_once(std::uint64_t number, Step& step) const {
  if (copies_own()) {
    const Copy own{of_rank(terms_.outs, terms_.rank), of_rank(terms_.ins, terms_.rank)};
    const bool first = own.target.nbytes <= kCopiedFirst;
    const std::uint64_t when = first || is_by_cpu(own) ? 0 : 1;
    if (number == when) (first || when > 0 ? step.copies : step.meanwhile).push_back(own);
    if (number > 0) return number == when;
  }
  for (const Rank rank : targets_) {
    const Block& block = of_rank(terms_.ins, rank);
    step.sends.push_back(move(rank, block, block.nbytes, 0));
  }
  for (const Rank rank : sources_) {
    const Block& block = of_rank(terms_.outs, rank);
    step.receives.push_back(move(rank, block, block.nbytes, 0));
  }
  return number == 0;
}

bool Movement::relay(std::uint64_t number, Step& step) const {
  const Block& block = terms_.ins.front();
  const auto piece = [&](std::uint64_t at) {
    if (pieces_ == 1) return block;
    const std::uint64_t begin = at * terms_.piece;
    return block.part(begin, std::min(terms_.piece, block.nbytes - begin));
  };
  if (sources_.empty()) ++number;
  if (number >= pieces_ + (targets_.empty() ? 0 : 1)) return false;
  for (const Rank rank : sources_) {
    if (number == pieces_) break;
    step.receives.push_back(move(rank, piece(number), block.nbytes, number));
  }
  for (const Rank rank : targets_) {
    if (number == 0) break;
    step.sends.push_back(move(rank, piece(number - 1), block.nbytes, number - 1));
  }
  return true;
}

// In the room, the blocks lie in the order of ranks, starting with this one's.
Block Movement::in_order(Rank first, Rank last) const {
  return {arrays_.size() - 1, begins_[first], begins_[last] - begins_[first]};
}

bool Movement::disseminate(std::uint64_t number, Step& step) const {
  const Rank rank = terms_.rank, size = terms_.size;
  if (number > targets_.size()) return false;
  if (number == 0) step.copies.push_back({in_order(0, 1), terms_.ins.front()});
  if (number == targets_.size()) {
    for (Rank at = 0; at < size; ++at) {
      step.copies.push_back({of_rank(terms_.outs, after(rank, at)), in_order(at, at + 1)});
    }
    return true;
  }
  const Rank there = Rank{1} << number, end = std::min(2 * there, size);
  const Block sent = in_order(0, end - there), taken = in_order(there, end);
  step.sends.push_back(move(targets_[number], sent, sent.nbytes, there));
  step.receives.push_back(move(sources_[number], taken, taken.nbytes, there));
  return true;
}

bool Movement::go_round(std::uint64_t number, Step& step) const {
  if (number + 1 >= terms_.size) return false;
  const Rank mine = before(terms_.rank, static_cast<Rank>(number)), next = before(mine, 1);
  const Block& taken = of_rank(terms_.outs, next);
  Block sent = of_rank(terms_.outs, mine);
  if (number == 0) {
    const Copy own{sent, terms_.ins.front()};
    (is_by_cpu(own) ? step.meanwhile : step.copies).push_back(own);
    // Over queue pairs one more array is registered than if the copy were made first, and sent. But
    // the copy is made while the block is under way: all_gather of 16 MiB between 2 ranks by soft0
    // took 4.8 ms, and 5.3 ms with the copy first.
    if (is_by_cpu(own)) sent = own.source;
  }
  step.sends.push_back(move(targets_.front(), sent, sent.nbytes, mine));
  step.receives.push_back(move(sources_.front(), taken, taken.nbytes, next));
  return true;
}

}  // namespace zerohop::engine::collective
