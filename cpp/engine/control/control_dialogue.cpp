// Handles the control messages of a connected peer. All of it runs on the progress thread.
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

// For one peer: queue pairs are scarce, and on soft0 each takes a descriptor.
constexpr std::size_t kMostDirectTargets = 128;

}  // namespace

void Control::on_message(Link& link, const ControlMessage& message) {
  const bool greets =
      std::holds_alternative<Hello>(message) || std::holds_alternative<Bye>(message);
  // The initiator has made its Peer already; only the Hello proves that it is the right one.
  const bool is_known = link.greeted && link.peer;
  if (!greets && !is_known) throw ProtocolError("a control message came before the Hello");
  std::visit([&](const auto& each) { on(link, each); }, message);
}

void Control::on(Link& link, const Lookup& lookup) {
  if (auto memory = shares_.find(lookup.name)) {
    return send(link, Found{.request = lookup.request, .memory = memory->to_bytes()});
  }
  wanted_names_.add(link, lookup.request, lookup.name);
  send(link, NotFound{.request = lookup.request});
}

void Control::on_shared(const std::string& name) {
  progress_->run([this, name] {
    const auto memory = shares_.find(name);
    if (!memory) return;
    for (const auto& [link, request] : wanted_names_.take(name)) {
      send(*link, Found{.request = request, .memory = memory->to_bytes()});
    }
  });
}

void Control::on(Link& link, const Found& found) {
  link.peer->lookups().on_found(found.request, RemoteMemory::from_bytes(found.memory));
}

void Control::on(Link& link, const NotFound& not_found) {
  link.peer->lookups().on_found(not_found.request, std::nullopt);
}

void Control::on(Link& link, const OpenDirect& open) {
  if (link.direct_targets.size() >= kMostDirectTargets) {
    const RouteUnavailable refusal("it has " + std::to_string(kMostDirectTargets) +
                                   " queue pairs for kernels of this process already: close some");
    return answer_direct(link, open, nullptr, Failure{.message = refusal.what()});
  }
  if (!link.direct_targets.try_emplace(open.request).second) {
    throw ProtocolError("it asks for two queue pairs with the same request number");
  }
  const auto made = std::make_shared<std::shared_ptr<const DirectTarget>>();
  call_driver(
      [made, peer = link.peer, open] {
        *made = peer->kernels().links().make_target(open.rail, open.queue_pair);
      },
      [this, made, at = link.weak_from_this(), open](const std::optional<Failure>& failure) {
        const auto asker = at.lock();
        if (asker && links_.contains(*asker) && asker->direct_targets.contains(open.request)) {
          if (failure) asker->direct_targets.erase(open.request);
          return answer_direct(*asker, open, std::move(*made), failure);
        }
        retire(std::move(*made));  // no longer wanted
      });
}

void Control::answer_direct(Link& link, const OpenDirect& open,
                            std::shared_ptr<const DirectTarget> target,
                            const std::optional<Failure>& failure) {
  DirectOpened answer{.request = open.request, .queue_pair = {}, .refusal = {}};
  if (failure) {
    answer.refusal = failure->message.substr(0, kMaxNameBytes);
  } else {
    answer.queue_pair = target->address();
    answer.slots = target->slots();
    answer.slots_key = target->slots_key();
    link.direct_targets[open.request] = std::move(target);
  }
  send(link, answer);
}

void Control::on(Link& link, const DirectOpened& opened) {
  link.peer->kernels().links().on_opened(opened);
}

void Control::on(Link& link, const CloseDirect& close) {
  auto target = link.direct_targets.extract(close.request);
  if (!target.empty()) retire(std::move(target.mapped()));
}

void Control::on(Link& link, const SumUp& asked) { link.peer->checks().on_sum_up(asked); }

void Control::on(Link& link, const SummedUp& answer) { link.peer->checks().on_summed_up(answer); }

void Control::on(Link&, const Heartbeat&) {}  // on_ready() has noted the sign of life

}  // namespace zerohop::engine
