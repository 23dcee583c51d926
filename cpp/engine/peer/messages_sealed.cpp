// Messages with integrity=1: the checksum travels with the message, and the receiver compares.
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "base/error.hpp"
#include "engine/integrity/check_line.hpp"
#include "engine/peer/messages.hpp"

namespace zerohop::engine {
namespace {

// Of a whole message, from the checksums of its parts.
Seal seal_of_sums(const std::vector<std::uint32_t>& sums) {
  return crc32c(std::as_bytes(std::span(sums)));
}

// A recv whose message has arrived.
struct Received {
  std::shared_ptr<Transfer> moved;
  std::shared_ptr<std::optional<Seal>> seal;  // received with it
  Layout into;
  std::shared_ptr<const Registration> registration;
  std::string peer;
};

// Runs in a task of the Checker.
std::optional<Failure> check_seal(Checker& checker, const Received& received) {
  const Transfer& moved = *received.moved;
  const std::optional<Seal>& seal = *received.seal;
  if (const Failure* failure = moved.failure()) return *failure;
  Failure failure{.kind = Failure::Kind::integrity, .message = {}};
  failure.nbytes = moved.result();
  try {
    std::vector<std::uint32_t> sums;
    if (failure.nbytes > 0) {
      sums = checker.sums_of({receive_part(received.into, failure.nbytes), 0, failure.nbytes},
                             received.registration->device.get());
    }
    const Seal here = seal_of_sums(sums);
    if (here == seal) return std::nullopt;
    failure.message =
        "recv from peer '" + received.peer + "' by " + moved.route().kind + " (" +
        moved.route().device + ") received different bytes than were sent: the " +
        std::to_string(failure.nbytes) + " bytes have checksum " + checksum_text(here) +
        " here and " + (seal ? checksum_text(*seal) : "none") +
        " there: send them again, leave both arrays alone until the Transfers are done, and "
        "test the memory and the route with `zerohop verify` if it happens again";
  } catch (const std::exception&) {
    failure = Failure::of_current_exception();
  }
  return std::move(failure).with_effect(Effect::all);
}

}  // namespace

// For GPU memory, computes it on the checksum thread and waits.
Seal Messages::seal_of(const Memory& memory, const Deadline& until) const {
  const SummedPart all{memory.layout(), 0, memory.layout().nbytes()};
  if (all.nbytes == 0) return seal_of_sums({});
  if (memory.on_host()) return seal_of_sums(Checksums(0).of(all, nullptr));
  struct Result {
    std::atomic<bool> done{false};
    Seal seal = 0;
    std::optional<Failure> failure;
  };
  const auto result = std::make_shared<Result>();
  s_.checker->put([result, all, registration = memory.registration(), poller = s_.poller,
                   checker = s_.checker.get()] {
    try {
      result->seal = seal_of_sums(checker->sums_of(all, registration->device.get()));
    } catch (const std::exception&) {
      result->failure = Failure::of_current_exception();
    }
    result->done.store(true);
    poller->wake();
  });
  if (!s_.poller->wait([&] { return result->done.load(); }, until)) {
    throw TransferTimeout("the checksum of memory on " + memory.device() +
                          " was not there in time, so nothing was sent: give a longer timeout");
  }
  if (result->failure) result->failure->raise();
  return result->seal;
}

TransferPtr Messages::receive_sealed(const Memory& into, std::uint64_t tag) {
  if (!into.on_host()) Checksums::check(into.layout(), into.layout().nbytes());
  Received received{.moved = nullptr,
                    .seal = std::make_shared<std::optional<Seal>>(),
                    .into = into.layout(),
                    .registration = into.registration(),
                    .peer = s_.state->name()};
  received.moved = post_receive(into, tag, received.seal);
  const TransferPtr moved = received.moved;
  auto transfer = std::make_shared<Transfer>(s_.poller, moved->nbytes(), moved->shared_route());
  transfer->note_begun();
  const auto compare = [transfer, received, checker = s_.checker.get()]() mutable noexcept {
    if (auto failure = check_seal(*checker, received)) transfer->fail(std::move(*failure));
    received.registration
        .reset();  // before it is done: a waiter may expect its memory to be released
    if (!received.moved->failed()) transfer->set_result(received.moved->result());
    transfer->drop();
  };
  moved->on_done([checker = s_.checker, transfer, moved, compare] {
    try {
      if (moved->failure() == nullptr) return checker->put(compare);
      transfer->fail(*moved->failure());  // nothing to compare: fail at once
    } catch (const std::exception&) {     // the Endpoint is being closed
      transfer->fail(Failure::of_current_exception().with_effect(Effect::all));
    }
    transfer->drop();
  });
  return transfer;
}

}  // namespace zerohop::engine
