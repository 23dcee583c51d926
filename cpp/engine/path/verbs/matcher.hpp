// Matches what peers send with what is asked for by recv: by tag, each tag first come, first
// served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/layout.hpp"
#include "engine/path/message.hpp"
#include "engine/path/verbs/ended_contexts.hpp"
#include "engine/rail.hpp"
#include "engine/wait/transfer.hpp"
#include "gpu/device.hpp"

namespace zerohop::engine {

// A recv that waits for its message.
struct PostedReceive {
  std::uint64_t tag = 0;
  Layout into;
  RailKeys lkeys{};
  std::shared_ptr<const gpu::Device> gpu{};  // on which `into` lies; null: the host
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<std::optional<Seal>> seal{};  // where that of the message goes; null: nowhere
};

// A message that waits for its recv: eager with its payload, or an offer.
struct Arrived {
  Message message;
  std::vector<std::byte> payload;
  RailIndex rail = 0;  // that it came by
  std::optional<Seal> seal{};
};

class Matcher {
 public:
  // The oldest message of that tag, if one waits.
  std::optional<Arrived> find_arrived(std::uint64_t tag);
  // The oldest recv of that tag, if one waits.
  std::optional<PostedReceive> find_receive(std::uint64_t tag);

  void add(PostedReceive receive);
  void add(Arrived arrived);
  void put_back(Arrived arrived);  // in front of its tag's queue

  // Bytes that waiting messages take: the sender is held up when they grow too many.
  std::size_t waiting_nbytes() const noexcept { return waiting_nbytes_; }

  // Offers die with the queue pair they came by; eager messages are here already and stay.
  void drop_offers(RailIndex rail);
  std::vector<PostedReceive> take_receives();

  struct Waiting {
    std::vector<PostedReceive> receives;
    std::vector<Arrived> arrived;
  };
  // Takes what waits with tags of that context; from now on has_ended() is true of it.
  Waiting end(Context context);
  bool has_ended(Context context) const { return ended_.has(context); }

 private:
  std::unordered_map<std::uint64_t, std::deque<PostedReceive>> receives_;
  std::unordered_map<std::uint64_t, std::deque<Arrived>> arrived_;
  std::size_t waiting_nbytes_ = 0;
  EndedContexts ended_;
};

// Whether a message of nbytes fits; the sentence that says why not otherwise. A shorter message
// needs a contiguous destination, of which it fills the beginning.
std::optional<std::string> refuse_receive(const Layout& into, std::uint64_t nbytes);

// The part of `into` that a message of nbytes fills.
Layout receive_part(const Layout& into, std::uint64_t nbytes);

// Copies packed bytes into an array, or an array into packed bytes.
void unpack(std::span<const std::byte> packed, const Layout& into);
void pack(const Layout& from, std::span<std::byte> packed);

}  // namespace zerohop::engine
