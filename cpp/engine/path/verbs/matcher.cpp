#include "engine/path/verbs/matcher.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "base/runs.hpp"

namespace zerohop::engine {
namespace {

template <typename T>
std::optional<T> take_front(std::unordered_map<std::uint64_t, std::deque<T>>& queues,
                            std::uint64_t tag) {
  const auto found = queues.find(tag);
  if (found == queues.end()) return std::nullopt;
  T front = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues.erase(found);
  return front;
}

// Moves all of that context out of the queues.
template <typename T>
std::vector<T> take_all(std::unordered_map<std::uint64_t, std::deque<T>>& queues, Context context) {
  std::vector<T> taken;
  for (auto queue = queues.begin(); queue != queues.end();) {
    if (context_of(queue->first) != context) {
      ++queue;
      continue;
    }
    for (T& each : queue->second) taken.push_back(std::move(each));
    queue = queues.erase(queue);
  }
  return taken;
}

Layout packed_like(const Layout& array, const void* bytes) {
  return Layout::contiguous(reinterpret_cast<std::uint64_t>(bytes), array.dtype,
                            array.shape.span());
}

// Empty messages and offers take memory too.
std::size_t cost(const Arrived& arrived) { return arrived.payload.size() + sizeof(Arrived); }

void copy(const Layout& from, const Layout& to) {
  Runs runs(from, to);
  Run run{};
  while (runs.next(run)) {
    std::memcpy(reinterpret_cast<void*>(run.b_address), reinterpret_cast<void*>(run.a_address),
                run.nbytes);
  }
}

}  // namespace

std::optional<Arrived> Matcher::find_arrived(std::uint64_t tag) {
  auto arrived = take_front(arrived_, tag);
  if (arrived) waiting_nbytes_ -= cost(*arrived);
  return arrived;
}

std::optional<PostedReceive> Matcher::find_receive(std::uint64_t tag) {
  return take_front(receives_, tag);
}

void Matcher::add(PostedReceive receive) { receives_[receive.tag].push_back(std::move(receive)); }

void Matcher::add(Arrived arrived) {
  waiting_nbytes_ += cost(arrived);
  arrived_[arrived.message.tag].push_back(std::move(arrived));
}

void Matcher::put_back(Arrived arrived) {
  waiting_nbytes_ += cost(arrived);
  arrived_[arrived.message.tag].push_front(std::move(arrived));
}

void Matcher::drop_offers(RailIndex rail) {
  for (auto queue = arrived_.begin(); queue != arrived_.end();) {
    std::erase_if(queue->second, [&](const Arrived& arrived) {
      if (arrived.message.kind != MessageKind::offer || arrived.rail != rail) return false;
      waiting_nbytes_ -= cost(arrived);
      return true;
    });
    queue = queue->second.empty() ? arrived_.erase(queue) : std::next(queue);
  }
}

std::vector<PostedReceive> Matcher::take_receives() {
  std::vector<PostedReceive> all;
  for (auto& [tag, queue] : receives_) {
    for (PostedReceive& receive : queue) all.push_back(std::move(receive));
  }
  receives_.clear();
  return all;
}

Matcher::Waiting Matcher::end(Context context) {
  ended_.add(context);
  Waiting waiting{take_all(receives_, context), take_all(arrived_, context)};
  for (const Arrived& arrived : waiting.arrived) waiting_nbytes_ -= cost(arrived);
  return waiting;
}

std::optional<std::string> refuse_receive(const Layout& into, std::uint64_t nbytes) {
  if (nbytes == into.nbytes() || (nbytes < into.nbytes() && into.is_contiguous())) {
    return std::nullopt;
  }
  const std::string sizes = "a message of " + std::to_string(nbytes) +
                            " bytes does not fit an array of " + std::to_string(into.nbytes()) +
                            " bytes";
  if (nbytes > into.nbytes()) return sizes + ": receive it into a larger one, it is still there";
  return sizes + " with gaps: receive it into a contiguous one, it is still there";
}

Layout receive_part(const Layout& into, std::uint64_t nbytes) {
  if (nbytes == into.nbytes()) return into;
  return Layout::bytes(into.address, nbytes);
}

void unpack(std::span<const std::byte> packed, const Layout& into) {
  copy(packed_like(into, packed.data()), into);
}

void pack(const Layout& from, std::span<std::byte> packed) {
  copy(from, packed_like(from, packed.data()));
}

}  // namespace zerohop::engine
