// Collectives in place: the arrays of all ranks lie in registered memory. The results are those of
// calls through the arenas, bit for bit.
#include <cstddef>
#include <cstring>
#include <random>

#include "engine/collective/group_part.hpp"
#include "engine/collective/reduction.hpp"
#include "group_job.hpp"

namespace zerohop::testing {
namespace {

using engine::collective::kNoRoot;
using engine::collective::kOpNames;
using engine::collective::lies_in;
using engine::collective::why_no_reduction;
using Addresses = std::vector<std::uint64_t>;

constexpr std::array kNames{"bool",     "int8",    "int16",   "int32",     "int64",
                            "uint8",    "uint16",  "uint32",  "uint64",    "float16",
                            "bfloat16", "float32", "float64", "complex64", "complex128"};
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 21;

// Registered memory of one rank, from which arrays are taken.
struct Part {
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(kPartBytes / 8);
  std::uint64_t taken = 0;

  std::uint64_t begin() const { return address(words.data()); }
  // ahead: bytes after a multiple of 16.
  std::uint64_t take(std::uint64_t nbytes, std::uint64_t ahead) {
    const std::uint64_t at = (begin() + taken + 15) / 16 * 16 + ahead;
    taken = at + nbytes - begin();
    REQUIRE(taken <= kPartBytes);
    return at;
  }
};

// Numbers below 2: which of two NaNs a sum is depends on the compiler.
void fill(std::uint64_t at, std::uint64_t nbytes, const DType& dtype, std::mt19937& random) {
  const bool is_complex = dtype.code == kDTypeComplex;
  const bool is_float = is_complex || dtype.code == kDTypeFloat || dtype.code == kDTypeBfloat;
  const std::size_t width = dtype.itemsize() / (is_complex ? 2 : 1);
  auto* bytes = reinterpret_cast<unsigned char*>(at);
  for (std::size_t i = 0; i < nbytes; ++i) {
    const unsigned mask = dtype.code == kDTypeBool             ? 1
                          : is_float && i % width == width - 1 ? 0xbf
                                                               : 0xff;
    bytes[i] = static_cast<unsigned char>(random() & mask);
  }
}

// Calls of ranks, each with its registered memory.
struct PartCalls {
  Job job;
  const unsigned size;
  std::vector<Part> parts;
  std::vector<Launches> launches;
  std::vector<std::uint32_t> numbers;  // by rank: of the registered memory; 0: this rank has none

  explicit PartCalls(unsigned ranks)
      : job(ranks), size(ranks), parts(ranks), launches(ranks), numbers(ranks, 0xabcd1234) {}

  void add(unsigned rank, Kind kind, std::int32_t root, Op op, const DType& dtype,
           std::uint64_t nbytes, const Addresses& from, const Addresses& to) {
    const GroupArrays arrays{.kind = kind,
                             .root = root,
                             .reduction = {.op = op, .dtype = dtype, .factor = 0.3},
                             .nbytes = nbytes,
                             .from = from,
                             .to = to};
    launches[rank].push_back(plan({rank, size}, arrays, limits(size, false)));
    gpu::GroupCall& call = launches[rank].back().call;
    const Extent extent{.begin = parts[rank].begin(), .end = parts[rank].begin() + kPartBytes};
    if (numbers[rank] == 0 || !lies_in(call, extent)) return;
    for (unsigned each = 0; each < size; ++each) call.parts[each] = parts[each].begin();
    call.part = numbers[rank];
  }
  void go() {
    run(job, launches);
    for (const GroupEnd& end : job.ends) CHECK(end.what == GroupEnd::fine);
    for (Launches& each : launches) each.clear();
  }
  // Whether chunks have passed the arenas.
  bool used_arenas() const {
    const GroupArena arena{size};
    const std::uint64_t end = arena.chunk(kBlocks, 0, 1, 0);
    for (const auto& each : job.arenas) {
      const auto* bytes = static_cast<const std::byte*>(each.get());
      if (std::any_of(bytes + arena.chunks(), bytes + end,
                      [](std::byte b) { return b != std::byte{}; })) {
        return true;
      }
    }
    return false;
  }
};

Addresses split(std::uint64_t at, std::uint64_t nbytes, unsigned size) {
  Addresses found;
  for (unsigned rank = 0; rank < size; ++rank) found.push_back(at + rank * nbytes);
  return found;
}

// Takes arrays from the ranks' memory, at other offsets on each.
class Arrays {
 public:
  // ahead: bytes between the arrays and multiples of 16; at least an element if not 0.
  Arrays(PartCalls& calls, std::uint64_t ahead) : calls_(calls), ahead_(ahead) {
    for (unsigned rank = 0; rank < calls.size; ++rank) calls.parts[rank].take(48 * rank, 0);
  }
  std::uint64_t take(unsigned rank, const DType& dtype, std::uint64_t nbytes) {
    const std::uint64_t ahead = ahead_ % dtype.itemsize() == 0 ? ahead_ : dtype.itemsize();
    const std::uint64_t at = calls_.parts[rank].take(nbytes, ahead);
    fill(at, nbytes, dtype, random_);
    return at;
  }

 private:
  PartCalls& calls_;
  const std::uint64_t ahead_;
  std::mt19937 random_{7};  // NOLINT: the same each time
};

void add_types(PartCalls& calls, std::uint64_t ahead) {
  Arrays arrays(calls, ahead);
  for (const char* name : kNames) {
    const DType dtype = DType::parse(name);
    const std::uint64_t nbytes = 23 * dtype.itemsize();
    for (std::size_t number = 1; number < kOpNames.size(); ++number) {
      const auto op = static_cast<Op>(number);
      if (!why_no_reduction(op, dtype).empty()) continue;
      for (unsigned rank = 0; rank < calls.size; ++rank) {
        const Addresses at{arrays.take(rank, dtype, nbytes)};
        calls.add(rank, Kind::all_reduce, kNoRoot, op, dtype, nbytes, at, at);
      }
    }
  }
}

void add_kinds(PartCalls& calls, std::uint64_t ahead) {
  const unsigned size = calls.size;
  Arrays arrays(calls, ahead);
  for (const Op op : {Op::none, Op::sum}) {
    const DType dtype = DType::parse(op == Op::none ? "uint8" : "float32");
    const std::uint64_t nbytes = 101 * dtype.itemsize();
    const unsigned root = size - 1;
    const auto of = static_cast<std::int32_t>(root);
    for (unsigned rank = 0; rank < size; ++rank) {
      const auto take = [&](std::uint64_t wanted) { return arrays.take(rank, dtype, wanted); };
      const auto add = [&](Kind kind, std::int32_t whose, const Addresses& from,
                           const Addresses& to) {
        calls.add(rank, kind, whose, op, dtype, nbytes, from, to);
      };
      const Addresses none, mine{take(nbytes)}, out{take(nbytes)}, third{take(nbytes)};
      const Addresses parts = split(take(nbytes * size), nbytes, size);
      const Addresses into = split(take(nbytes * size), nbytes, size);
      const bool is_root = rank == root;
      if (op == Op::none) {
        add(Kind::broadcast, of, is_root ? mine : none, is_root ? none : mine);
        add(Kind::scatter, of, is_root ? parts : none, out);
        add(Kind::gather, of, mine, is_root ? into : none);
        add(Kind::all_gather, kNoRoot, out, into);
        add(Kind::all_to_all, kNoRoot, parts, into);
        add(Kind::all_gather, kNoRoot, {parts[rank]}, parts);
      } else {
        for (int time = 0; time < 3; ++time) add(Kind::all_reduce, kNoRoot, mine, mine);
        add(Kind::all_reduce, kNoRoot, mine, out);
        add(Kind::reduce, of, out, is_root ? third : none);
        add(Kind::reduce, of, mine, is_root ? mine : none);
        add(Kind::scan, kNoRoot, mine, third);
        add(Kind::reduce_scatter, kNoRoot, parts, {into[0]});
        add(Kind::reduce_scatter, kNoRoot, parts, {parts[rank]});
      }
    }
  }
}

// The same calls in place and through the arenas.
void compare(unsigned size, std::uint64_t ahead,
             void (*add)(PartCalls& calls, std::uint64_t ahead)) {
  CAPTURE(size);
  CAPTURE(ahead);
  PartCalls in_place(size), by_arenas(size);
  by_arenas.numbers.assign(size, 0);
  for (PartCalls* calls : {&in_place, &by_arenas}) {
    add(*calls, ahead);
    calls->go();
  }
  for (unsigned rank = 0; rank < size; ++rank) {
    CHECK(in_place.parts[rank].words == by_arenas.parts[rank].words);
  }
  CHECK_FALSE(in_place.used_arenas());
  CHECK(by_arenas.used_arenas());
}

}  // namespace

TEST_CASE("every operation of every type") { compare(3, 0, add_types); }

TEST_CASE("every call, for any number of ranks, at aligned addresses and at others") {
  for (unsigned size = 2; size <= gpu::kGroupRanks; ++size) compare(size, size % 2 * 4, add_kinds);
}

TEST_CASE("a rank whose arrays lie elsewhere makes it a call through the arenas on all") {
  constexpr unsigned kSize = 3;
  constexpr std::size_t kCount = 200;
  PartCalls calls(kSize);
  std::vector<Array> elsewhere;
  Addresses places;
  for (unsigned rank = 0; rank < kSize; ++rank) {
    elsewhere.push_back(numbers(rank, kCount));
    places.push_back(calls.parts[rank].take(kCount * 4, 16));
    std::memcpy(reinterpret_cast<void*>(places[rank]), elsewhere[rank].data(), kCount * 4);
  }
  const DType dtype = DType::parse("int32");
  std::int32_t factor = 1;
  const auto all_reduce = [&](auto lies_elsewhere) {
    for (unsigned rank = 0; rank < kSize; ++rank) {
      const Addresses at{lies_elsewhere(rank) ? address(elsewhere[rank].data()) : places[rank]};
      calls.add(rank, Kind::all_reduce, kNoRoot, Op::sum, dtype, kCount * 4, at, at);
    }
  };
  SUBCASE("in every other call") {
    const auto copy = [&](unsigned rank, bool back) {
      auto* part = reinterpret_cast<void*>(places[rank]);
      if (back) std::memcpy(part, elsewhere[rank].data(), kCount * 4);
      if (!back) std::memcpy(elsewhere[rank].data(), part, kCount * 4);
    };
    for (unsigned time = 0; time < 4; ++time) {
      all_reduce([&](unsigned rank) { return time % 2 == 1 && rank == 1; });
      calls.go();
      factor *= time == 0 ? 1 : kSize;
      copy(1, time % 2 == 1);
      CHECK(calls.used_arenas() == (time > 0));
    }
  }
  SUBCASE("another registered memory") {
    calls.numbers[2] ^= 0x10000;
    all_reduce([](unsigned) { return false; });
    calls.go();
    CHECK(calls.used_arenas());
  }
  for (const std::uint64_t at : places) {
    const auto* found = reinterpret_cast<const std::int32_t*>(at);
    for (std::size_t i = 0; i < kCount; ++i) REQUIRE(found[i] == factor * sum(kSize, i));
  }
}

TEST_CASE(
    "a rank that does not come ends the wait of the others, and then touches nothing of theirs") {
  for (const auto what : {GroupEnd::late, GroupEnd::cancelled, GroupEnd::left}) {
    CAPTURE(what);
    constexpr unsigned kSize = 3, kMissing = 2;
    constexpr std::uint64_t kNbytes = 400;
    constexpr std::uint64_t kShort = 100'000'000;
    const DType dtype = DType::parse("int32");
    PartCalls calls(kSize);
    calls.job.patience = what == GroupEnd::late ? kShort : kPatienceNs;
    if (what == GroupEnd::cancelled) calls.job.cancelled = {1, 1, 0};
    if (what == GroupEnd::left) calls.job.leaves(kMissing);
    Launches late;
    for (unsigned rank = 0; rank < kSize; ++rank) {
      const Addresses at{calls.parts[rank].take(kNbytes, 0)};
      for (int time = 0; time < 2; ++time) {
        calls.add(rank, Kind::all_reduce, kNoRoot, Op::sum, dtype, kNbytes, at, at);
      }
    }
    late.swap(calls.launches[kMissing]);
    run(calls.job, calls.launches);
    for (unsigned rank = 0; rank < kMissing; ++rank) {
      CHECK(calls.job.ends[rank].what == what);
      if (what == GroupEnd::left) CHECK(calls.job.ends[rank].rank == kMissing);
      std::ranges::fill(calls.parts[rank].words, 5);
    }
    calls.launches.assign(kSize, {});
    calls.launches[kMissing] = late;
    calls.job.patience = kShort;
    run(calls.job, calls.launches);
    CHECK(calls.job.ends[kMissing].what == GroupEnd::late);
    for (unsigned rank = 0; rank < kMissing; ++rank) {
      CHECK(std::ranges::count(calls.parts[rank].words, 5U) == kPartBytes / 8);
    }
  }
}

TEST_CASE("every block of threads has a chunk, so that in place each moves its share") {
  const Addresses from{4096};
  for (std::uint64_t nbytes = 16; nbytes < 40'000; nbytes += 16) {
    const GroupArrays arrays{.kind = Kind::broadcast,
                             .root = 0,
                             .reduction = {.op = Op::none, .dtype = DType::parse("uint8")},
                             .nbytes = nbytes,
                             .from = from,
                             .to = {}};
    for (const unsigned most : {1U, 5U, 100U, gpu::kGroupBlocks}) {
      GroupLimits few = limits(2, false);
      few.chunk_bytes = 1 << 16;
      few.blocks = most;
      const gpu::Group::Launch launch = plan({0, 2}, arrays, few);
      REQUIRE(launch.blocks <= most);
      REQUIRE((launch.blocks - 1) * launch.call.chunk < nbytes);
    }
  }
}

TEST_CASE("which arrays must lie in the memory") {
  constexpr std::uint64_t kBegin = 4096, kEnd = 8192, kNbytes = 1024, kOut = 100'000;
  const Extent memory{.begin = kBegin, .end = kEnd};
  const auto lies = [&](Kind kind, unsigned rank, const Addresses& from, const Addresses& to) {
    const bool reduces = kind == Kind::all_reduce || kind == Kind::reduce ||
                         kind == Kind::reduce_scatter || kind == Kind::scan;
    const bool rooted = kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather;
    const GroupArrays arrays{
        .kind = kind,
        .root = rooted ? 0 : kNoRoot,
        .reduction = {.op = reduces ? Op::sum : Op::none, .dtype = DType::parse("float32")},
        .nbytes = kNbytes,
        .from = from,
        .to = to};
    return lies_in(plan({rank, 2}, arrays, limits(2, false)).call, memory);
  };
  CHECK(lies(Kind::all_reduce, 0, {kBegin}, {kBegin}));
  CHECK(lies(Kind::all_reduce, 0, {kEnd - kNbytes}, {kBegin}));
  CHECK_FALSE(lies(Kind::all_reduce, 0, {kEnd - kNbytes + 4}, {kBegin}));
  CHECK_FALSE(lies(Kind::all_reduce, 0, {kBegin}, {kOut}));
  CHECK_FALSE(lies(Kind::all_reduce, 0, {kOut}, {kBegin}));
  CHECK(lies(Kind::all_gather, 0, {kBegin}, {kOut, kOut + kNbytes}));
  CHECK_FALSE(lies(Kind::all_gather, 0, {kOut}, {kBegin, kBegin + kNbytes}));
  CHECK(lies(Kind::reduce_scatter, 0, {kBegin, kBegin + kNbytes}, {kOut}));
  CHECK(lies(Kind::broadcast, 0, {kBegin}, {}));
  CHECK(lies(Kind::broadcast, 1, {}, {kBegin}));
  CHECK_FALSE(lies(Kind::broadcast, 1, {}, {kOut}));
  CHECK(lies(Kind::gather, 0, {kBegin}, {kOut, kOut + kNbytes}));
  CHECK(lies(Kind::gather, 1, {kBegin}, {}));
  CHECK_FALSE(lies(Kind::gather, 1, {kOut}, {}));
  CHECK(lies(Kind::reduce, 1, {kBegin}, {}));
  CHECK_FALSE(lies(Kind::reduce, 0, {kBegin}, {kOut}));
  CHECK(lies(Kind::scan, 0, {kBegin}, {kBegin + kNbytes}));
  CHECK_FALSE(lies(Kind::scan, 0, {kBegin}, {kBegin}));  // rank 1 may read it later
}

}  // namespace zerohop::testing
