// What the control messages of a connected peer mean. All of it runs on the progress thread.
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/control.hpp"

namespace zerohop::engine {
namespace {

constexpr std::size_t kMaxWaitingLookups = 1024;
constexpr std::size_t kMostDirectTargets = 256;  // of one peer: queue pairs are scarce

}  // namespace

void Control::on_message(Link& link, const ControlMessage& message) {
  const bool greets =
      std::holds_alternative<Hello>(message) || std::holds_alternative<Bye>(message);
  if (!greets && !link.peer) throw ProtocolError("a control message came before the Hello");
  std::visit([&](const auto& each) { on(link, each); }, message);
}

void Control::on(Link& link, const Lookup& lookup) {
  if (auto memory = shares_.find(lookup.name)) {
    return send(link, Found{.request = lookup.request, .memory = memory->to_bytes()});
  }
  if (link.lookups.size() >= kMaxWaitingLookups) link.lookups.erase(link.lookups.begin());
  link.lookups.emplace_back(lookup.request, lookup.name);
  send(link, NotFound{.request = lookup.request});
}

void Control::on_shared(const std::string& name) {
  progress_->run([this, name] {
    const auto memory = shares_.find(name);
    if (!memory) return;
    for (const auto& [fd, link] : links_) {
      std::erase_if(link->lookups, [&](const auto& lookup) {
        if (lookup.second != name) return false;
        send(*link, Found{.request = lookup.first, .memory = memory->to_bytes()});
        return true;
      });
    }
  });
}

void Control::on(Link& link, const Found& found) {
  link.peer->on_found(found.request, RemoteMemory::from_bytes(found.memory));
}

void Control::on(Link& link, const NotFound& not_found) {
  link.peer->on_found(not_found.request, std::nullopt);
}

void Control::on(Link& link, const OpenDirect& open) {
  DirectOpened answer{.request = open.request, .queue_pair = {}, .refusal = {}};
  try {
    if (link.direct_targets.size() >= kMostDirectTargets) {
      throw RouteUnavailable("it has " + std::to_string(kMostDirectTargets) +
                             " queue pairs for kernels of this process already: close some");
    }
    const auto target = link.peer->make_direct_target(open.rail, open.queue_pair);
    answer.queue_pair = target->address();
    answer.slots = target->slots();
    answer.slots_key = target->slots_key();
    link.direct_targets[open.request] = target;
  } catch (const std::exception& error) {
    answer.refusal = std::string(error.what()).substr(0, kMaxNameBytes);
  }
  send(link, answer);
}

void Control::on(Link& link, const DirectOpened& opened) { link.peer->on_direct_opened(opened); }

void Control::on(Link& link, const CloseDirect& close) { link.direct_targets.erase(close.request); }

void Control::on(Link& link, const SumUp& asked) { link.peer->on_sum_up(asked); }

void Control::on(Link& link, const SummedUp& answer) { link.peer->on_summed_up(answer); }

void Control::on(Link&, const Heartbeat&) {}  // that it came is all it says

}  // namespace zerohop::engine
