// The kernels of collectives among GPUs, with the plans of their calls, run by CPU threads.
#include "group_job.hpp"

namespace zerohop::testing {
namespace {

template <typename Each>
void for_all(Each each) {
  for (const unsigned size : {2U, 3U, 5U}) {
    for (const bool by_packets : {true, false}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{500}}) {
        CAPTURE(size);
        CAPTURE(by_packets);
        CAPTURE(count);
        each(size, by_packets, count);
      }
    }
  }
}

}  // namespace

TEST_CASE("all_reduce, several times in place, by packets, whole and in slices") {
  for_all([](unsigned size, bool by_packets, std::size_t count) {
    constexpr unsigned kTimes = 4;  // more than there are sets of packets and turns of chunks
    Calls calls(size, by_packets);
    calls.job.leave = true;  // what a rank stored before counts
    std::vector<Array> arrays;
    for (unsigned rank = 0; rank < size; ++rank) arrays.push_back(numbers(rank, count));
    for (unsigned rank = 0; rank < size; ++rank) {
      const std::vector at{address(arrays[rank].data())};
      for (unsigned time = 0; time < kTimes; ++time) {
        calls.add(rank, Kind::all_reduce, engine::collective::kNoRoot, Op::sum, count, at, at);
      }
    }
    calls.go();
    std::int32_t factor = 1;
    for (unsigned time = 1; time < kTimes; ++time) factor *= static_cast<std::int32_t>(size);
    for (const Array& array : arrays) {
      for (std::size_t i = 0; i < count; ++i) REQUIRE(array[i] == factor * sum(size, i));
    }
  });
}

TEST_CASE("reduce, scan and reduce_scatter") {
  for_all([](unsigned size, bool by_packets, std::size_t count) {
    Calls calls(size, by_packets);
    const auto root = static_cast<unsigned>(count % size);
    std::vector<Array> arrays, reduced, scanned, parts, scattered;
    for (unsigned rank = 0; rank < size; ++rank) {
      arrays.push_back(numbers(rank, count));
      reduced.emplace_back(count, -1);
      scanned.emplace_back(count, -1);
      parts.push_back(numbers(rank, count * size));
      scattered.emplace_back(count, -1);
    }
    for (unsigned rank = 0; rank < size; ++rank) {
      const std::vector at{address(arrays[rank].data())};
      const std::vector there{address(reduced[rank].data())};
      calls.add(rank, Kind::reduce, static_cast<std::int32_t>(root), Op::max, count, at,
                rank == root ? there : kNone);
      calls.add(rank, Kind::scan, engine::collective::kNoRoot, Op::sum, count, at,
                {address(scanned[rank].data())});
      calls.add(rank, Kind::reduce_scatter, engine::collective::kNoRoot, Op::sum, count,
                rows(parts[rank], size), {address(scattered[rank].data())});
    }
    calls.go();
    for (unsigned rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(reduced[rank][i] == (rank == root ? number(size - 1, i) : -1));
        REQUIRE(scanned[rank][i] == sum(rank + 1, i));
        REQUIRE(scattered[rank][i] == sum(size, rank * count + i));
      }
    }
  });
}

TEST_CASE("broadcast, scatter, gather, all_gather and all_to_all") {
  for_all([](unsigned size, bool by_packets, std::size_t count) {
    Calls calls(size, by_packets);
    const auto root = static_cast<unsigned>(count % size);
    const auto of = static_cast<std::int32_t>(root);
    std::vector<Array> shared, parts, part, gathered, all, exchanged;
    for (unsigned rank = 0; rank < size; ++rank) {
      shared.push_back(numbers(rank, count));
      parts.push_back(numbers(rank, count * size));
      part.emplace_back(count, -1);
      for (auto* each : {&gathered, &all, &exchanged}) each->emplace_back(count * size, -1);
    }
    for (unsigned rank = 0; rank < size; ++rank) {
      const bool is_root = rank == root;
      const std::vector at{address(shared[rank].data())}, mine{address(part[rank].data())};
      const auto add = [&](Kind kind, std::int32_t whose, const std::vector<std::uint64_t>& from,
                           const std::vector<std::uint64_t>& to) {
        calls.add(rank, kind, whose, Op::none, count, from, to);
      };
      add(Kind::scatter, of, is_root ? rows(parts[rank], size) : kNone, mine);
      add(Kind::gather, of, mine, is_root ? rows(gathered[rank], size) : kNone);
      add(Kind::all_gather, engine::collective::kNoRoot, mine, rows(all[rank], size));
      add(Kind::all_to_all, engine::collective::kNoRoot, rows(parts[rank], size),
          rows(exchanged[rank], size));
      add(Kind::broadcast, of, is_root ? at : kNone, is_root ? kNone : at);
    }
    calls.go();
    for (unsigned rank = 0; rank < size; ++rank) {
      for (std::size_t i = 0; i < count; ++i) REQUIRE(shared[rank][i] == number(root, i));
      for (std::size_t i = 0; i < count * size; ++i) {
        REQUIRE(all[rank][i] == number(root, i));
        if (rank == root) REQUIRE(gathered[rank][i] == number(root, i));
        const auto from = static_cast<unsigned>(i / count);
        REQUIRE(exchanged[rank][i] == number(from, rank * count + i % count));
      }
    }
  });
}

TEST_CASE("ranks that make different calls both see the other's, whatever the way") {
  for (const bool same_way : {true, false}) {
    CAPTURE(same_way);
    Calls calls(2, true);
    std::vector<Array> arrays{numbers(0, 2000), numbers(1, 2000)};
    const std::array<std::size_t, 2> counts{10, same_way ? std::size_t{20} : std::size_t{2000}};
    for (unsigned rank = 0; rank < 2; ++rank) {
      const std::vector at{address(arrays[rank].data())};
      calls.add(rank, Kind::all_reduce, engine::collective::kNoRoot, Op::sum, 5, at, at);
      calls.add(rank, Kind::all_reduce, engine::collective::kNoRoot, Op::sum, counts[rank], at, at);
    }
    run(calls.job, calls.launches);
    for (unsigned rank = 0; rank < 2; ++rank) {
      const GroupEnd& end = calls.job.ends[rank];
      CHECK(end.what == GroupEnd::differs);
      CHECK(end.rank == 1 - rank);
      CHECK(engine::collective::text_of_code(end.other) ==
            "all_reduce, sum, of " + std::to_string(4 * counts[1 - rank]) + " bytes of int32");
    }
  }
}

TEST_CASE("a rank that comes late sees that a call with more chunks is another") {
  Calls calls(2, false);
  std::vector<Array> arrays{numbers(0, 2000), numbers(1, 2000)};
  const std::array<std::size_t, 2> counts{2000, 16};
  for (unsigned rank = 0; rank < 2; ++rank) {
    const std::vector at{address(arrays[rank].data())};
    calls.add(rank, Kind::broadcast, 0, Op::none, counts[rank], rank == 0 ? at : kNone,
              rank == 0 ? kNone : at);
  }
  calls.job.late = 1;
  run(calls.job, calls.launches);
  for (const GroupEnd& end : calls.job.ends) CHECK(end.what == GroupEnd::differs);
  CHECK(arrays[1] == numbers(1, 2000));
}

TEST_CASE("an operation that differs is not carried out") {
  Calls calls(2, true);
  std::vector<Array> arrays{numbers(0, 10), numbers(1, 10)};
  for (unsigned rank = 0; rank < 2; ++rank) {
    const std::vector at{address(arrays[rank].data())};
    calls.add(rank, Kind::all_reduce, engine::collective::kNoRoot, rank == 0 ? Op::sum : Op::max,
              10, at, at);
  }
  run(calls.job, calls.launches);
  for (const GroupEnd& end : calls.job.ends) CHECK(end.what == GroupEnd::differs);
}

TEST_CASE("a rank that does not come ends the wait of the others, and their later calls") {
  for (const bool by_packets : {true, false}) {
    for (const auto what : {GroupEnd::late, GroupEnd::cancelled, GroupEnd::left}) {
      CAPTURE(by_packets);
      CAPTURE(what);
      Calls calls(3, by_packets);
      calls.job.patience = what == GroupEnd::late ? 100'000'000 : kPatienceNs;
      if (what == GroupEnd::cancelled) calls.job.cancelled = {1, 1, 1};
      if (what == GroupEnd::left) calls.job.leaves(2);
      std::vector<Array> arrays;
      for (unsigned rank = 0; rank < 3; ++rank) arrays.push_back(numbers(rank, 100));
      for (unsigned rank = 0; rank < 2; ++rank) {
        const std::vector at{address(arrays[rank].data())};
        for (int time = 0; time < 2; ++time) {
          calls.add(rank, Kind::all_reduce, engine::collective::kNoRoot, Op::sum, 100, at, at);
        }
      }
      run(calls.job, calls.launches);
      for (unsigned rank = 0; rank < 2; ++rank) {
        CHECK(calls.job.ends[rank].what == what);
        CHECK(calls.job.ends[rank].rank != rank);
        if (what == GroupEnd::left) CHECK(calls.job.ends[rank].rank == 2);
      }
    }
  }
}

TEST_CASE("a call is described to other ranks") {
  const GroupArrays arrays{.kind = Kind::reduce,
                           .root = 3,
                           .reduction = {.op = Op::max, .dtype = DType::parse("bfloat16")},
                           .nbytes = std::uint64_t{1} << 40,
                           .from = {},
                           .to = {}};
  CHECK(engine::collective::text_of_code(to_code(arrays)) ==
        "reduce, max, (root 3) of 1099511627776 bytes of bfloat16");
  CHECK(engine::collective::text_of_code(~std::uint64_t{0}) == "something unknown");
}

}  // namespace zerohop::testing
