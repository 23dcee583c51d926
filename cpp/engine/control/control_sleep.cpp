// Which queue pairs sleep, and when they are woken. All of it runs on the progress thread.
//
// An Endpoint with more Peers awake than max_awake_peers asks those that were used least lately
// (Sleep). Each answers for itself (Slept); what it has under way it keeps, so that more are awake
// for as long as all are in use. Nobody waits for a place: two ends that waited for each other's
// would wait for ever. The end that needs its queue pair again says so by a fresh one (Requeue).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "engine/control/control.hpp"

namespace zerohop::engine {
namespace {

using Clock = Control::Clock;
using std::chrono::milliseconds;

constexpr int kAskAgainAfter = 10;  // times as long as it had to be unused, if it did not agree
constexpr milliseconds kAnswersWithin{4000};
constexpr int kWokenAtOnce = 8;
// Between two looks at all of them, however many come and wake meanwhile.
constexpr milliseconds kLookEvery{25};

// When it was used last, to a tick.
Clock::time_point last_use(Link& link, Clock::time_point now) {
  const std::uint64_t activity = link.peer->rails().activity();
  if (activity != link.rest.activity) link.rest.used = now;
  link.rest.activity = activity;
  return link.rest.used;
}

}  // namespace

// Once a turn of the thread.
void Control::look_at_sleepers(Clock::time_point now) {
  // A few: what the peers of those woken before have answered is read in between. Theirs are ready
  // to post then, and ours to receive.
  for (int i = 0; i < kWokenAtOnce && !to_wake_.empty(); ++i) {
    const auto link = to_wake_.front().lock();
    to_wake_.pop_front();
    if (link && links_.contains(*link)) wake(*link);
  }
  if (!more_awake_ || now - looked_at_sleepers_ < kLookEvery) return;
  more_awake_ = false;
  looked_at_sleepers_ = now;
  put_to_sleep(now);
}

void Control::put_to_sleep(Clock::time_point now) {
  if (awake_.most == 0) return;
  std::size_t awake = 0;
  std::vector<Link*> unused;
  links_.each([&](Link& link) {
    if (!link.established || link.rest.asked || link.peer->rails().asleep()) return;
    ++awake;
    const bool lately = now - last_use(link, now) < awake_.after_use;
    const auto& refused = link.rest.refused;
    if (lately || (refused && now - *refused < kAskAgainAfter * awake_.after_use)) return;
    unused.push_back(&link);
  });
  if (awake <= awake_.most) return;
  std::ranges::sort(unused, {}, [](const Link* link) { return link->rest.used; });
  std::size_t excess = awake - awake_.most;
  for (Link* link : unused) {
    if (excess == 0) return;
    const auto tallies = link->peer->rails().drowse();
    if (!tallies) continue;
    link->rest.asked = now;
    send(*link, Sleep{.rails = *tallies});
    --excess;
  }
}

void Control::on(Link& link, const Sleep& asked) {
  if (!link.established) throw ProtocolError("it wants to sleep before it is there");
  // Both ask at once: the question of the lower id stands, and the other is not answered.
  if (link.rest.asked && address_.id < link.peer->identity().id) return;
  link.rest.asked.reset();
  const auto now = Clock::now();
  const bool in_repair = std::ranges::any_of(
      link.rails, [](const LinkRail& rail) { return rail.renewing || rail.requeue.has_value(); });
  const bool lately = now - last_use(link, now) < awake_.after_use;
  const bool agrees = !in_repair && !lately && link.peer->rails().fall_asleep_with(asked.rails);
  if (!agrees) link.peer->rails().rouse();  // from a question of its own
  send(link, Slept{.agrees = agrees ? std::uint8_t{1} : std::uint8_t{0}});
}

void Control::on(Link& link, const Slept& answer) {
  if (!link.rest.asked) throw ProtocolError("it answers that it sleeps, and was not asked");
  link.rest.asked.reset();
  if (answer.agrees != 0) return link.peer->rails().fall_asleep();
  link.rest.refused = Clock::now();
  link.peer->rails().rouse();
}

void Control::check_answer(Link& link, Clock::time_point now) {
  last_use(link, now);
  if (link.rest.asked && now - *link.rest.asked > kAnswersWithin) {
    part(link, "it does not answer whether its queue pair may sleep");
  }
}

void Control::wake(Link& link) {
  for (RailIndex rail = 0; rail < link.peer->rails().count(); ++rail) {
    const auto path = link.peer->rails().path(rail);
    if (path && path->asleep()) renew(link, rail);  // which may end the link
  }
  more_awake_ = true;
}

}  // namespace zerohop::engine
