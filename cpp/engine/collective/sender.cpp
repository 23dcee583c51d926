#include "engine/collective/sender.hpp"

namespace zerohop::engine::collective {

Sender::UnderWay Sender::send(Line& line, const Header& header, std::span<const std::byte> payload,
                              const RunLimits& limits) {
  if (auto waiting = await_checked(line, limits)) return waiting;
  Outbox& outbox = lines_->outbox();
  for (const Outbox::Use& use : outbox.uses_of_next()) {
    if (auto waiting = await(*use.line, use.transfer, limits)) return waiting;
  }
  culprit_ = line.rank();
  auto posted = line.send(outbox.put(header, payload), limits.last());
  culprit_.reset();
  if (posted) outbox.use({std::move(posted), &line});
  if (header.what != What::data) outbox.forget();  // the payload is about to change
  return {};
}

bool Sender::write_part(BlockWrites& writes, const RunLimits& limits) {
  Line& line = writes.line();
  culprit_ = line.rank();
  line.look();
  const bool all = writes.post_part(limits.last());
  culprit_.reset();
  return all;
}

Sender::UnderWay Sender::settle(Line& line, const RunLimits& limits) {
  while (auto transfer = line.oldest_before_blocks_end()) {
    if (auto waiting = await(line, transfer, limits)) return waiting;
  }
  // A small message may have failed: the next one over its line reports it. Its rank may have
  // received it and left: what the call waited for is there.
  return await_checked(line, limits);
}

Sender::UnderWay Sender::await(Line& line, const std::shared_ptr<Transfer>& transfer,
                               const RunLimits& limits) {
  if (!transfer->done() && !transfer->wait(limits.until())) return {transfer, line.rank()};
  culprit_ = line.rank();
  (void)transfer->result();
  line.look();
  culprit_.reset();
  return {};
}

Sender::UnderWay Sender::await_checked(Line& line, const RunLimits& limits) {
  while (line.checked() && line.oldest()) {
    if (auto waiting = await(line, line.oldest(), limits)) return waiting;
  }
  return {};
}

}  // namespace zerohop::engine::collective
