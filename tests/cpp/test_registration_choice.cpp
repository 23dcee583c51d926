// Every branch of the decision how to register GPU memory, from facts alone.
#include <doctest/doctest.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/registration_choice.hpp"

namespace zerohop::engine {
namespace {

using gpu::MemoryKind;
using Way = RegistrationWay;
using Demand = RegistrationDemand;

// Everything works: each test removes something.
PairFacts sound_pair() {
  PairFacts pair;
  pair.adapter = "mlx5_0";
  pair.kernel = 6001;
  pair.peermem = "nvidia_peermem";
  pair.library_has_dmabuf = true;
  pair.dmabuf = {.made = true};
  pair.peermem_trial = {.made = true};
  pair.relaxed_ordering = true;
  pair.gpu.name = "Fake GPU";
  pair.gpu.gpudirect = true;
  pair.gpu.dmabuf = true;
  pair.gpu.bar1_nbytes = std::uint64_t{1} << 30;
  return pair;
}

MemoryFacts sound_memory() {
  return {.kind = MemoryKind::plain, .gpudirect_capable = true, .chunks = 1, .nbytes = 4096};
}

struct Case {
  PairFacts pair = sound_pair();
  MemoryFacts memory = sound_memory();
  RegistrationOrder order;

  RegistrationChoice choose(Demand demand) {
    order.demand = demand;
    return choose_registration(pair, memory, order);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void check_says(const RegistrationChoice& choice, Way way, const std::string& words) {
  CAPTURE(choice.reason);
  CHECK(std::string(way_name(choice.way)) == way_name(way));
  CHECK(contains(choice.reason, words));
}

TEST_CASE("dma-buf comes first, and each way can be had by asking for it") {
  Case c;
  check_says(c.choose(Demand::automatic), Way::dmabuf, "mlx5_0 registers memory of cuda:0");
  check_says(c.choose(Demand::automatic), Way::dmabuf, "through dma-buf");
  check_says(c.choose(Demand::dmabuf), Way::dmabuf, "dma-buf");
  check_says(c.choose(Demand::peermem), Way::peermem, "nvidia_peermem");
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
}

// Without dma-buf the choice is peermem, with the reason; a demand for dma-buf is refused with the
// remedy; without peermem as well it is staged, with both reasons.
void check_no_dmabuf(Case c, const std::string& fix) {
  check_says(c.choose(Demand::automatic), Way::peermem, fix);
  check_says(c.choose(Demand::dmabuf), Way::refused, fix);
  check_says(c.choose(Demand::peermem), Way::peermem, "nvidia_peermem");
  c.pair.peermem = "";
  check_says(c.choose(Demand::automatic), Way::staged, fix);
  check_says(c.choose(Demand::automatic), Way::staged, "modprobe nvidia-peermem");
}

TEST_CASE("each lack of dma-buf is named with its fix") {
  Case c;
  SUBCASE("closed kernel modules") {
    c.pair.gpu.dmabuf = false;
    check_no_dmabuf(c, "open kernel modules (nvidia-open)");
  }
  SUBCASE("old library") {
    c.pair.library_has_dmabuf = false;
    check_no_dmabuf(c, "rdma-core 34");
  }
  SUBCASE("old kernel") {
    c.pair.kernel = 5011;
    check_no_dmabuf(c, "Linux 5.11 does not register dma-bufs: boot 5.12");
  }
  SUBCASE("the export fails") {
    c.pair.dmabuf.cuda_error = 801;
    check_no_dmabuf(c, "CUDA error 801");
  }
  SUBCASE("chunks that do not go together") {
    c.pair.dmabuf.cuda_error = 1;
    c.memory.chunks = 2;
    check_says(c.choose(Demand::automatic), Way::staged, "different properties");
    check_says(c.choose(Demand::dmabuf), Way::refused, "register it in parts");
  }
  SUBCASE("the trial fails") {
    const std::pair<int, const char*> fixes[] = {
        {EOPNOTSUPP, "its driver does not offer it"},
        {EPROTONOSUPPORT, "its driver does not offer it"},  // an older library's word for it
        {ENOSYS, "its driver does not offer it"},           // a provider without the function
        {ENOMEM, "BAR1"},
        {EACCES, "/dev/infiniband/uverbs"},
        {EPERM, "/dev/infiniband/uverbs"},
        {EFAULT, "it cannot map what the NVIDIA driver exports"},
        {EIO, "errno 5"},
    };
    for (const auto& [error_number, fix] : fixes) {
      c.pair.dmabuf.error_number = error_number;
      check_no_dmabuf(c, fix);
    }
    c.pair.dmabuf.error_number = EFAULT;
    CHECK(!contains(c.choose(Demand::dmabuf).reason, "DOCA-OFED"));
    CHECK(!contains(c.choose(Demand::dmabuf).reason, "use dma-buf"));
  }
  SUBCASE("not tried") {
    c.pair.dmabuf.made = false;
    check_no_dmabuf(c, "not tried");
  }
}

TEST_CASE("each lack of peer memory is named with its fix") {
  Case c;
  SUBCASE("module not loaded") {
    c.pair.peermem = "";
    check_says(c.choose(Demand::peermem), Way::refused, "`modprobe nvidia-peermem`");
  }
  SUBCASE("several chunks") {
    c.memory.kind = MemoryKind::vmm;
    c.memory.chunks = 3;
    check_says(c.choose(Demand::peermem), Way::refused, "3 chunks");
  }
  SUBCASE("the trial fails") {
    const std::pair<int, const char*> fixes[] = {
        {EFAULT, "DOCA-OFED"},  // an RDMA driver that does not use it
        {ENOMEM, "through nvidia_peermem"},
        {ENOMEM, "(BAR1) or the adapter's memory is used up"},
        {EPERM, "/dev/infiniband/uverbs"},
        {ENOSYS, "its driver does not offer it"},
    };
    for (const auto& [error_number, fix] : fixes) {
      c.pair.peermem_trial.error_number = error_number;
      check_says(c.choose(Demand::peermem), Way::refused, fix);
    }
  }
  check_says(c.choose(Demand::automatic), Way::dmabuf, "dma-buf");
}

// No way at all: staged, or refused on demand; the remedy of the one cause appears once.
void check_unreachable(Case c, const std::string& fix) {
  check_says(c.choose(Demand::automatic), Way::staged, fix);
  CHECK(!contains(c.choose(Demand::automatic).reason, "no peer memory"));
  check_says(c.choose(Demand::dmabuf), Way::refused, fix);
  check_says(c.choose(Demand::peermem), Way::refused, fix);
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
}

TEST_CASE("memory that no adapter reaches is staged, with the fix") {
  Case c;
  SUBCASE("managed") {
    c.memory = {.kind = MemoryKind::managed, .nbytes = 4096};
    check_unreachable(c, "managed memory migrates");
  }
  SUBCASE("pool") {
    c.memory = {.kind = MemoryKind::pool, .nbytes = 4096};
    check_unreachable(c, "cupy.cuda.set_allocator");
  }
  SUBCASE("a GPU without GPUDirect") {
    c.pair.gpu.gpudirect = false;
    check_unreachable(c, "does not support GPUDirect RDMA");
  }
  SUBCASE("cuMemCreate without the flag") {
    c.memory.kind = MemoryKind::vmm;
    c.memory.gpudirect_capable = false;
    check_unreachable(c, "gpuDirectRDMACapable");
  }
  SUBCASE("one chunk of cuMemCreate without the flag") {
    c.memory = {.kind = MemoryKind::vmm, .gpudirect_capable = false, .chunks = 3, .nbytes = 4096};
    check_unreachable(c, "part of the 3 chunks that the array lies across was made without");
  }
  SUBCASE("the driver says no") {
    c.memory.gpudirect_capable = false;
    check_unreachable(c, "not open to adapters");
  }
  SUBCASE("larger than BAR1") {
    c.memory.nbytes = (std::uint64_t{1} << 30) + 1;
    check_unreachable(c, "Resizable BAR");
  }
}

TEST_CASE("an unknown size of BAR1 refuses nothing") {
  Case c;
  c.pair.gpu.bar1_nbytes.reset();
  c.memory.nbytes = std::uint64_t{1} << 40;
  check_says(c.choose(Demand::automatic), Way::dmabuf, "dma-buf");
}

TEST_CASE("host memory and addresses that CUDA does not know are refused") {
  Case c;
  for (const Demand demand : {Demand::automatic, Demand::dmabuf, Demand::peermem, Demand::staged}) {
    c.memory.kind = MemoryKind::pinned;
    check_says(c.choose(demand), Way::refused, "pinned host memory");
    c.memory.kind = MemoryKind::unknown;
    check_says(c.choose(demand), Way::refused, "unknown to CUDA");
  }
}

TEST_CASE("relaxed ordering is used where the adapter takes it, unless it is switched off") {
  Case c;
  CHECK(c.choose(Demand::automatic).relaxed_ordering);
  check_says(c.choose(Demand::automatic), Way::dmabuf, "relaxed ordering asked for");
  CHECK(!c.choose(Demand::staged).relaxed_ordering);
  c.order.relaxed_ordering = RelaxedOrdering::off;
  CHECK(!c.choose(Demand::automatic).relaxed_ordering);
  c.pair.relaxed_ordering = false;
  c.order.relaxed_ordering = RelaxedOrdering::automatic;
  CHECK(!c.choose(Demand::automatic).relaxed_ordering);
  c.order.relaxed_ordering = RelaxedOrdering::on;
  check_says(c.choose(Demand::automatic), Way::refused, "leave it at 2");
  check_says(c.choose(Demand::staged), Way::staged, "asked for");
  c.pair.relaxed_ordering = true;
  CHECK(c.choose(Demand::peermem).relaxed_ordering);
}

TEST_CASE("Data Direct goes with dma-buf alone") {
  Case c;
  c.pair.data_direct = true;
  CHECK(c.choose(Demand::automatic).data_direct);
  check_says(c.choose(Demand::automatic), Way::dmabuf, "Data Direct");
  CHECK(!c.choose(Demand::peermem).data_direct);
}

TEST_CASE("the words for a demand are checked") {
  CHECK(parse_registration("auto") == Demand::automatic);
  CHECK_THROWS_AS(parse_registration(""), std::invalid_argument);
  for (const char* word : {"dmabuf", "peermem", "staged"}) {
    Case c;
    CHECK(way_name(c.choose(parse_registration(word)).way) == std::string(word));
    CHECK(demand_name(parse_registration(word)) == std::string(word));
  }
  CHECK_THROWS_AS(parse_registration("dma-buf"), std::invalid_argument);
}

}  // namespace
}  // namespace zerohop::engine
