// CheckLine alone: what happens to checks in progress when the peer is lost.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "couple.hpp"
#include "engine/core/device_choice.hpp"
#include "engine/integrity/check_line.hpp"

namespace zerohop::testing {
namespace {

using namespace zerohop::engine;

constexpr std::size_t kTwoQuestions = 100;  // pairs; one question takes 64

class Line {
 public:
  Line()
      : line_(std::make_shared<CheckLine>(CheckLine::Services{
            .poller = poller_,
            .checker = checker_,
            .peer = "b",
            .ask =
                [this](SumUp asked) {
                  const std::lock_guard lock(mutex_);
                  asked_.push_back(std::move(asked));
                },
            .why_lost = [] { return std::string("peer 'b' is lost: a test says so"); }})) {}
  ~Line() { checker_->stop(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // Pairs of one byte each.
  std::shared_ptr<Transfer> put(std::size_t pairs, CheckLine::Notify notify = nullptr) {
    CheckLine::Call call{.notify = std::move(notify)};
    for (std::size_t i = 0; i < pairs; ++i) {
      const Layout byte = Layout::bytes(reinterpret_cast<std::uint64_t>(bytes_.data() + i), 1);
      RemoteMemory there;
      there.layout = byte;
      there.device = "cpu";
      call.pairs.push_back({{byte, 0, 1}, registration_, there});
    }
    return line_->put(std::move(call), route_);
  }
  // Moved already; compared at once, when that is known.
  std::shared_ptr<Transfer> put_behind(std::shared_ptr<Transfer> moved, CheckLine::Notify notify,
                                       std::optional<driver::CudaStream> stream) {
    return line_->put({.moved = std::move(moved), .notify = std::move(notify), .stream = stream},
                      nullptr);
  }
  std::shared_ptr<Transfer> transfer() { return std::make_shared<Transfer>(poller_, 0, route_); }
  std::vector<SumUp> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  CheckLine& operator*() { return *line_; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kTwoQuestions);
  std::shared_ptr<const Registration> registration_ =
      std::make_shared<const Registration>(nullptr, nullptr);
  std::shared_ptr<const Route> route_ = std::make_shared<const Route>(
      Route{.kind = "host", .device = "soft0", .reason = {}, .settings = {}});
  std::mutex mutex_;
  std::vector<SumUp> asked_;
  std::shared_ptr<Poller> poller_ = std::make_shared<Poller>(
      Poller::Devices{open_device("soft0")}, std::chrono::microseconds(200), nullptr);
  std::shared_ptr<Checker> checker_ =
      std::make_shared<Checker>(4096, std::make_shared<OwnMemories>());
  std::shared_ptr<CheckLine> line_;
};

TEST_CASE("a peer that is lost after a mismatch and before its last answer ends the check") {
  Line line;
  const auto differs = line.put(kTwoQuestions);
  // The asking thread has its own checksums of the first before it asks the second.
  REQUIRE(eventually([&] { return line.asked().size() == 2; }));
  const SumUp first = line.asked().front();
  const std::vector<std::uint32_t> others(first.parts.size(), 0xbad);
  (*line).on_answer({.request = first.request, .sums = others, .refusal = {}});
  CHECK_FALSE(differs->done());  // one question is left

  (*line).end();
  const std::string text = error_of(differs);
  CHECK(contains(text, "delivered wrong data"));  // the mismatch stands
}

TEST_CASE("checks of a lost peer end as its own, and notify nobody") {
  Line line;
  std::atomic<int> notified{0};
  const auto unanswered = line.put(kTwoQuestions);
  const auto notifies = line.put(1, [&] {
    ++notified;
    return nullptr;
  });
  REQUIRE(eventually([&] { return line.asked().size() == 3; }));
  (*line).end();
  for (const auto& transfer : {unanswered, notifies}) {
    CHECK(contains(error_of(transfer), "a test says so"));
  }
  CHECK(notified == 0);
  CHECK_FALSE((*line).pending());
}

TEST_CASE("calls in a stream come behind those of it and those without one, and no others") {
  Line line;
  std::mutex mutex;
  std::string order;
  const auto put = [&](char name, std::optional<int> stream) {
    const auto moved = line.transfer();
    const auto notify = [&, name] {
      const std::lock_guard lock(mutex);
      order += name;
      auto out = line.transfer();
      out->drop();
      return out;
    };
    std::optional<driver::CudaStream> handle;
    if (stream) handle = reinterpret_cast<driver::CudaStream>(static_cast<std::intptr_t>(*stream));
    return std::pair(moved, line.put_behind(moved, notify, handle));
  };
  const auto a = put('a', 1);
  const auto b = put('b', 2);
  const auto c = put('c', 1);
  const auto d = put('d', std::nullopt);
  const auto e = put('e', 2);
  for (const auto& each : {e, d, c, b}) each.first->drop();  // all but the first are moved
  REQUIRE(b.second->wait(soon()));
  CHECK_FALSE(c.second->done());
  a.first->drop();
  REQUIRE(e.second->wait(soon()));
  const std::lock_guard lock(mutex);
  CHECK(order == "bacde");
}

}  // namespace
}  // namespace zerohop::testing
