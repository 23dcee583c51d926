// The control connections of an Endpoint: which peers connect, are alive, and share memory. Except
// for the functions marked "any thread", everything runs on the progress thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/acceptor.hpp"
#include "base/executor.hpp"
#include "base/failure.hpp"
#include "base/locks.hpp"
#include "engine/channel/channel.hpp"
#include "engine/channel/control_message.hpp"
#include "engine/channel/endpoint_key.hpp"
#include "engine/channel/established.hpp"
#include "engine/control/dials.hpp"
#include "engine/control/links.hpp"
#include "engine/control/wanted_names.hpp"
#include "engine/memory/shares.hpp"
#include "engine/peer/peer.hpp"
#include "engine/stats/event_log.hpp"
#include "engine/wait/progress_thread.hpp"

namespace zerohop::engine {

class Control final : public std::enable_shared_from_this<Control>, private Acceptor::Owner {
 public:
  using Clock = std::chrono::steady_clock;
  // Makes a Peer that sends its messages through this Control. Called on the drivers' thread.
  using MakePeer =
      std::function<std::shared_ptr<Peer>(const std::weak_ptr<Control>&, Peer::Identity)>;

  // A flag that kernels read: there have been peers, but none is left.
  using Lonely = std::shared_ptr<std::atomic<std::uint32_t>>;
  // Listens on the host of `address` and fills in its port; its id must be that of `key`. Starts
  // the thread.
  // neighbourhood: the local server to serve as well; may be null.
  // drivers: runs driver calls that may take long. The progress thread must keep answering peers,
  // which would otherwise consider this process lost.
  static std::shared_ptr<Control> start(Address& address, std::shared_ptr<const EndpointKey> key,
                                        Rails rails, std::shared_ptr<Poller> poller,
                                        MakePeer make_peer,
                                        std::shared_ptr<Neighbourhood> neighbourhood = nullptr,
                                        Lonely lonely = std::make_shared<Lonely::element_type>(0),
                                        std::shared_ptr<Executor> drivers = make_drivers());
  static std::shared_ptr<Executor> make_drivers() {
    return std::make_shared<Executor>("zh-drivers", Executor::Thread::lasting);
  }

  // Refuses further Peers beyond this number, whichever side dials. Call it before the address is
  // handed out; 0: no limit.
  void limit_peers(std::size_t most) noexcept { most_peers_.store(most); }

  // --- any thread ---
  std::shared_ptr<Attempt> connect(const Address& address);
  void cancel(const std::shared_ptr<Attempt>& attempt);
  std::shared_ptr<Peer> take_accepted();  // null: none
  bool has_accepted() const;
  std::shared_ptr<Peer> find(const EndpointId& id) const;
  std::vector<std::shared_ptr<Peer>> peers() const;
  // Why the last peer was lost, if there have been peers and none is left; else empty.
  std::optional<std::string> lonely() const;
  Shares& shares() noexcept { return shares_; }
  const EventLog& events() const noexcept { return events_; }
  // How many connections the thread has looked at so far, for any purpose.
  std::uint64_t looks() const noexcept { return links_.looks(); }
  void on_shared(const std::string& name);
  void tell(const std::shared_ptr<Peer>& peer, ControlMessage message);
  void look();  // polls soon, without an event
  void repair(const std::shared_ptr<Peer>& peer, RailIndex rail);
  void disconnect(const std::shared_ptr<Peer>& peer, const std::string& reason);
  void stop();  // disconnects every peer, then joins the thread

 private:
  static constexpr std::chrono::seconds kHandshakeFor{10};

  Control(Address address, std::shared_ptr<const EndpointKey> key, UniqueFd listener, Rails rails,
          std::shared_ptr<Poller> poller, MakePeer make_peer, Lonely lonely,
          std::shared_ptr<Executor> drivers);

  std::chrono::milliseconds idle();
  void tick(Clock::time_point now);
  void check_link(Link& link, Clock::time_point now);
  void serve_neighbours();
  void accept_ready();
  void admit(UniqueFd connection) override;
  void turn_away(int fd, const char* why) override;
  void watch_listener(bool watched) noexcept override;

  // Makes the call on the drivers' thread, then calls `then` on this one, with nullopt or what the
  // call threw.
  using Then = std::function<void(const std::optional<Failure>& failure)>;
  void call_driver(std::function<void()> call, Then then);
  void retire(std::shared_ptr<const void> what);  // may drop the last reference

  void begin(const std::shared_ptr<Attempt>& attempt);
  void dial(const Address& address);
  using WithPeer =
      std::function<void(const std::shared_ptr<Peer>& peer, const std::optional<Failure>& failure)>;
  void make_peer(Peer::Identity identity, WithPeer then);
  void check_room(const EndpointId& newcomer) const;
  void finish(const EndpointId& id, const std::shared_ptr<Peer>& peer,
              const std::optional<Failure>& error);
  Link& add_link(std::unique_ptr<Channel> channel);
  void on_ready(const std::shared_ptr<Link>& link);
  void watch_output(Link& link);
  void lose(Link& link, const std::string& reason);
  void tell_end(const Link& link, const std::string& reason) const;  // logs it
  void disconnect(Link& link, const std::string& reason, std::uint8_t cause = Bye::kLeft);
  void send(Link& link, const ControlMessage& message);

  void on_message(Link& link, const ControlMessage& message);
  void on(Link& link, const Hello& hello);
  void on(Link& link, const Ready& ready);
  void on(Link& link, const Lookup& lookup);
  void on(Link& link, const Found& found);
  void on(Link& link, const NotFound& not_found);
  void on(Link& link, const Heartbeat& heartbeat);
  void on(Link& link, const Requeue& requeue);
  void on(Link& link, const Bye& bye);
  void on(Link& link, const OpenDirect& open);
  void answer_direct(Link& link, const OpenDirect& open, std::shared_ptr<const DirectTarget> target,
                     const std::optional<Failure>& failure);
  void on(Link& link, const DirectOpened& opened);
  void on(Link& link, const CloseDirect& close);
  void on(Link& link, const SumUp& asked);
  void on(Link& link, const SummedUp& answer);
  void on_hello_to_initiator(Link& link, const Hello& hello);
  void on_hello_to_acceptor(Link& link, const Hello& hello);
  void greet_back(Link& link, const Hello& hello, const std::shared_ptr<Peer>& peer);
  bool yields_to(const Hello& hello);
  void check_identity(const Link& link, const Hello& hello) const;
  Hello make_hello(const Link& link, const EndpointId& to, Peer& peer);
  void establish(Link& link);
  void connect_rails(Link& link, const Hello& hello);
  void complete(Link& link);

  // --- several rails, and their repair (control_rails.cpp) ---
  void check_rails(Link& link, Clock::time_point now);
  void check_settled(Link& link, Clock::time_point now);
  void check_dark(Link& link, Clock::time_point now);
  void end_rail(Link& link, RailIndex rail, const std::string& sentence);
  void tell_left(Link& link, RailIndex rail);
  void on_broken(Link& link, RailIndex rail);
  void renew(Link& link, RailIndex rail);
  void tell_renewed(Link& link, RailIndex rail);
  void reconnect(Link& link, RailIndex rail);
  void postpone(Link& link, RailIndex rail, const std::string& cause);

  // --- rails that a connection manager connects (control_managers.cpp) ---
  void watch_manager(Rail& rail);
  void on_connection_events(Rail& rail);
  void on_connection_event(Rail& rail, const rdma::ConnectionEvent& event);
  void connect_routed(RailIndex rail, const std::shared_ptr<rdma::Connection>& connection);
  void on_unconnected(Link& link, RailIndex rail, const std::string& cause);
  void on_refused_by_driver(Link& link, RailIndex rail, const Failure& failure);
  void note_connecting(Link& link, RailIndex rail);
  void check_connecting(Link& link, Clock::time_point now);
  std::shared_ptr<Link> link_of(RailIndex rail, const rdma::Connection& connection);

  // --- events of the devices (control_devices.cpp) ---
  void watch_device(Rail& rail);
  void on_completion_events(Rail& rail, std::uint32_t epoll_events);
  void on_async_events(Rail& rail, std::uint32_t epoll_events);
  void on_async_event(Rail& rail, const rdma::AsyncEvent& event);
  std::shared_ptr<PeerRail> path_of(RailIndex rail, std::uint32_t qp_number);
  void on_port_event(RailIndex rail, bool up, const std::string& sentence);
  void check_device(Rail& rail);
  void on_device_lost(Rail& rail, const std::string& cause);

  void forget_lost_peers();  // with the mutex held

  const Address address_;
  const std::shared_ptr<const EndpointKey> key_;
  const Rails rails_;
  const std::shared_ptr<Poller> poller_;
  const MakePeer make_peer_;
  Shares shares_;
  EventLog events_;

  const std::shared_ptr<Executor> drivers_;
  Acceptor acceptor_;
  std::multiset<EndpointId> peers_being_made_;
  Clock::time_point last_tick_{};
  Links links_;
  WantedNames wanted_names_;
  Established established_;
  Dials dials_;

  const Lonely lonely_;
  std::atomic<std::size_t> most_peers_{0};

  mutable Mutex<Rank::control> mutex_;  // guards all below
  std::map<EndpointId, std::shared_ptr<Peer>> peers_;
  std::deque<std::shared_ptr<Peer>> accepted_;
  std::string last_loss_;

  std::shared_ptr<Neighbourhood> neighbourhood_;
  std::unique_ptr<ProgressThread> progress_;  // last: its thread uses all of the above
};

}  // namespace zerohop::engine
