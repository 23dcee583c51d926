// Queue pairs that kernels drive, as the engine makes them by libmlx5.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "driver/mlx5dv.hpp"
#include "driver/verbs.hpp"
#include "engine/path/verbs/direct_queue_pair.hpp"
#include "eventually.hpp"

namespace zerohop::testing {
namespace {

using engine::DirectQueuePair;
using engine::Rail;
using engine::RingPlace;
using engine::RingPlaces;

constexpr RingPlaces kOnHost{RingPlace::host, RingPlace::host};

std::unique_ptr<DirectQueuePair> on_host(const Rail& rail) {
  return std::make_unique<DirectQueuePair>(rail, rdma::QueuePairOptions{}, kOnHost, nullptr,
                                           soon());
}

struct Adapter {
  std::shared_ptr<const driver::Verbs> verbs = driver::libibverbs().verbs;
  std::shared_ptr<rdma::Device> device;
  std::unique_ptr<Rail> rail;

  explicit Adapter(const std::string& name)
      : device(rdma::Device::open(verbs, name)),
        rail(std::make_unique<Rail>(engine::RailIndex{0}, rdma::ProtectionDomain::create(device),
                                    "the only one")) {}
};

std::string first_name() { return rdma::Device::names(*driver::libibverbs().verbs).front(); }

const void* register_of(rdma::QueuePair& pair) {
  mlx5dv_qp parts{};
  mlx5dv_obj objects{};
  objects.qp = {pair.handle(), &parts};
  REQUIRE(driver::libmlx5().mlx5dv->init_obj(&objects, MLX5DV_OBJ_QP) == 0);
  return parts.bf.reg;
}

TEST_CASE("each queue pair for kernels has a doorbell register of its own") {
  const Adapter adapter(first_name());
  const auto domain = adapter.rail->domain();
  const auto queue = rdma::CompletionQueue::create(adapter.device, 64);
  std::vector<std::unique_ptr<rdma::QueuePair>> others;
  std::set<const void*> registers;
  for (int i = 0; i < 40; ++i) {  // more than a context has, which take turns
    others.push_back(rdma::QueuePair::create(domain, queue, queue));
    registers.insert(register_of(*others.back()));
  }
  REQUIRE(registers.size() < others.size());
  std::vector<std::unique_ptr<DirectQueuePair>> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(on_host(*adapter.rail));
    CHECK(registers.insert(made.back()->sends().bf.reg).second);
  }
  // For the next one, that of a queue pair that is gone may serve again.
  made.erase(made.begin());
  const auto next = on_host(*adapter.rail);
  for (const auto& pair : made) CHECK(pair->sends().bf.reg != next->sends().bf.reg);
  for (const auto& pair : others) CHECK(register_of(*pair) != next->sends().bf.reg);
}

TEST_CASE("an adapter may have any name") {
  const driver::Verbs& verbs = *driver::libibverbs().verbs;
  ibv_device** const list = verbs.get_device_list(nullptr);
  REQUIRE(list != nullptr);
  const std::string before = list[0]->name;
  std::strcpy(list[0]->name, "rocep1s0f0");  // as udev renames mlx5_0
  const Adapter adapter(first_name());
  std::strcpy(list[0]->name, before.c_str());  // for other tests: libibverbs keeps it
  verbs.free_device_list(list);
  CHECK(adapter.rail->name() == "rocep1s0f0");
  CHECK(on_host(*adapter.rail)->sends().sq.wqe_cnt >= DirectQueuePair::kEntries);
}

}  // namespace
}  // namespace zerohop::testing
