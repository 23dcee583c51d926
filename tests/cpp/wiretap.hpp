// Two channels whose bytes pass through the test: it may read, change, cut and repeat them.
// Everything runs in one thread, so a test knows when everything has been delivered.
#pragma once

#include <sys/socket.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "engine/channel/channel.hpp"

namespace zerohop::testing {

using Bytes = std::vector<std::byte>;
using engine::Channel;
using engine::ChannelFailure;

inline Bytes to_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<Bytes> messages(std::initializer_list<const char*> texts) {
  std::vector<Bytes> list;
  for (const char* text : texts) list.push_back(to_bytes(text));
  return list;
}

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw Error("socketpair");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Small kernel buffers: almost every write is partial, almost every read ends inside a frame.
inline std::pair<UniqueFd, UniqueFd> narrow_socket_pair() {
  auto pair = socket_pair();
  const int nbytes = 1;  // the kernel rounds up to its minimum
  for (const int fd : {pair.first.get(), pair.second.get()}) {
    if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &nbytes, sizeof(nbytes)) != 0) {
      throw Error("setsockopt");
    }
  }
  return pair;
}

// The bytes waiting in the socket, at most 4 KiB.
inline Bytes take_bytes(int fd) {
  Bytes bytes(4096);
  const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

// The receiver may have closed already: as on a network, that is not the sender's concern.
inline void put_bytes(int fd, const Bytes& bytes) {
  (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

enum Side { kInitiator = 0, kAcceptor = 1 };

class Wiretap {
 public:
  // Receives the bytes that `from` sent and how many came before; returns what the other side gets.
  using Edit = std::function<Bytes(Side from, std::size_t at, Bytes bytes)>;

  explicit Wiretap(const engine::Secret& used = {}, const engine::Secret& right = {}) {
    auto [initiator, first_tap] = socket_pair();
    auto [acceptor, second_tap] = socket_pair();
    taps_ = {std::move(first_tap), std::move(second_tap)};
    sides_ = {Channel::initiate(std::move(initiator), used),
              Channel::accept(std::move(acceptor), right)};
  }

  Channel& operator[](Side side) { return *sides_[side]; }
  const std::vector<Bytes>& received(Side side) const { return received_[side]; }
  const Bytes& sent(Side side) const { return sent_[side]; }  // every byte, before the edit
  int tap(Side side) const { return taps_[side].get(); }

  void edit(Edit edit) { edit_ = std::move(edit); }

  // Until nothing moves any more.
  void run() {
    bool moved = true;
    while (moved) {
      for (const Side side : {kInitiator, kAcceptor}) {
        sides_[side]->progress([&](std::span<const std::byte> message) {
          received_[side].emplace_back(message.begin(), message.end());
        });
      }
      moved = forward(kInitiator);
      moved = forward(kAcceptor) || moved;
    }
  }

  // Ends the stream that `side` receives; the channels see its end.
  void hang_up(Side side) { ::shutdown(taps_[side].get(), SHUT_WR); }

  ChannelFailure::Kind kind(Side side) const { return sides_[side]->failure().value().kind; }
  std::string cause(Side side) const { return sides_[side]->failure().value().message; }

 private:
  bool forward(Side from) {
    const Side to = from == kInitiator ? kAcceptor : kInitiator;
    const Bytes bytes = take_bytes(taps_[from].get());
    if (bytes.empty()) return false;
    const std::size_t at = sent_[from].size();
    sent_[from].insert(sent_[from].end(), bytes.begin(), bytes.end());
    put_bytes(taps_[to].get(), edit_ ? edit_(from, at, bytes) : bytes);
    return true;
  }

  std::array<UniqueFd, 2> taps_;
  std::array<std::unique_ptr<Channel>, 2> sides_;
  std::array<std::vector<Bytes>, 2> received_;
  std::array<Bytes, 2> sent_;
  Edit edit_;
};

}  // namespace zerohop::testing
