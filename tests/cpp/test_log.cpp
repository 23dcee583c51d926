// What is logged about connections and routes, and how often.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/causes.hpp"
#include "base/log.hpp"
#include "gpu_couple.hpp"

namespace zerohop::testing {
namespace {

struct Line {
  Level level;
  std::string topic;
  std::string text;
};

// Collects the log during its lifetime; one at a time.
class Keeper {
 public:
  Keeper() {
    lines_.clear();
    set_log_sink([](Level level, const char* topic, const std::string& text) noexcept {
      const std::lock_guard lock(mutex_);
      lines_.push_back({level, topic, text});
      more_.notify_all();
    });
  }
  ~Keeper() { set_log_sink(nullptr); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  static std::vector<Line> about(const char* topic) {
    const std::lock_guard lock(mutex_);
    std::vector<Line> found;
    std::ranges::copy_if(lines_, std::back_inserter(found),
                         [&](const Line& line) { return line.topic == topic; });
    return found;
  }

  static bool await(const std::string& topic, std::ptrdiff_t count) {
    const auto same = [&](const Line& line) { return line.topic == topic; };
    std::unique_lock lock(mutex_);
    return more_.wait_for(lock, std::chrono::duration<double>(kTimeout),
                          [&] { return std::ranges::count_if(lines_, same) >= count; });
  }

 private:
  static inline std::mutex mutex_;
  static inline std::condition_variable more_;
  static inline std::vector<Line> lines_;
};

TEST_CASE("a connection is logged when it is made and when it ends, on both sides") {
  const Keeper keeper;
  {
    Couple couple;
    REQUIRE(Keeper::await("connection", 2));
    const auto made = Keeper::about("connection");
    REQUIRE(made.size() == 2);
    for (const Line& line : made) {
      CHECK(line.level == Level::info);
      CHECK(contains(line.text, "is connected to peer '"));
    }
    couple.to_right->close(soon());
    REQUIRE(Keeper::await("connection", 4));
  }
  const auto all = Keeper::about("connection");
  REQUIRE(all.size() == 4);
  for (const Line& line : {all[2], all[3]}) {
    CHECK(line.level == Level::info);
    CHECK(contains(line.text, "is no longer connected to peer '"));
  }
}

TEST_CASE("a route is logged once for each peer, with the reason") {
  Couple couple;
  const Memory near = StagedCouple::host_array(couple.left, {100});
  const Memory far = StagedCouple::host_array(couple.right, {100});
  const Keeper keeper;
  for (int i = 0; i < 3; ++i) finish(write(*couple.to_right, near, far.remote()));
  const auto told = Keeper::about("route");
  REQUIRE(told.size() == 1);
  CHECK(told[0].level == Level::debug);
  CHECK(contains(told[0].text, "transfers with peer 'right' take host ("));
  CHECK(contains(told[0].text, "both arrays lie in host memory"));
}

TEST_CASE("causes are reported once each, and not without end") {
  Causes causes;
  CHECK(causes.add("one"));
  CHECK(causes.add("two"));
  CHECK(!causes.add("one"));
  std::size_t told = 2;
  for (int i = 0; i < 100; ++i) told += causes.add(std::to_string(i)) ? 1 : 0;
  CHECK(told == Causes::kMost);
}

}  // namespace
}  // namespace zerohop::testing
