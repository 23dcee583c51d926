#include "softhca/frame_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "softhca/context.hpp"
#include "softhca/queue_pair.hpp"

namespace zerohop::softhca {
namespace {

constexpr int kFramesAtOnce = 4;  // then the caller returns; others continue

bool has_something_to_say(const QueuePair& qp, bool acknowledge) {
  return qp.requester.has_work() || qp.responder.has_answers() ||
         (acknowledge && qp.responder.owes_acknowledgement());
}

}  // namespace

std::byte* FrameWriter::put(const wire::Packet& packet, std::size_t extra_nbytes) noexcept {
  std::memcpy(&frame_->control[control_nbytes_], &packet, sizeof packet);
  std::byte* extra = &frame_->control[control_nbytes_ + sizeof packet];
  const std::size_t padded = wire::padded(extra_nbytes);
  if (padded != extra_nbytes) std::memset(extra + padded - 8, 0, 8);  // no stale bytes may be sent
  control_nbytes_ += sizeof packet + padded;
  ++packets_;
  return extra;
}

void FrameWriter::attach_request(std::uint32_t number, std::uint32_t offset,
                                 std::uint32_t nbytes) noexcept {
  if (nbytes > 0) frame_->segments[segment_count_++] = {offset, number, nbytes, true};
}

void FrameWriter::attach_memory(std::uint32_t key, std::uint64_t address,
                                std::uint32_t nbytes) noexcept {
  if (nbytes > 0) frame_->segments[segment_count_++] = {address, key, nbytes, false};
}

void FrameWriter::start_requests(std::uint32_t first, bool restart) noexcept {
  auto* prefix = reinterpret_cast<wire::Prefix*>(frame_->control.data());
  prefix->first_request = first;
  prefix->flags = restart ? wire::kRestart : 0;
}

void FrameWriter::finish() noexcept {
  control_nbytes_ = 0;
  frame_.give_back();
}

bool FrameWriter::build(QueuePair& qp, bool acknowledge) noexcept {
  if (!frame_.take()) {
    qp.fail({.kind = Failure::Kind::lost});
    return false;
  }
  auto* prefix = new (frame_->control.data()) wire::Prefix{};
  prefix->first_request = qp.requester.next();
  faulty_ = qp.faulty != nullptr;
  control_nbytes_ = sizeof(wire::Prefix) + (faulty_ ? sizeof(wire::Check) : 0);
  control_sent_ = packets_ = segment_count_ = segment_ = 0;
  segment_sent_ = 0;
  if (qp.responder.has_answers()) qp.responder.emit(*this);
  if (!qp.is_closing()) qp.requester.emit(*this);
  if (packets_ == 0 && !(acknowledge && qp.responder.owes_acknowledgement())) {
    finish();
    return false;
  }
  prefix->control_bytes = static_cast<std::uint16_t>(control_nbytes_);
  prefix->packets = static_cast<std::uint16_t>(packets_);
  prefix->acknowledged = qp.responder.acknowledge();
  if (faulty_) prefix->flags |= wire::kChecked;
  return true;
}

FrameWriter::Io FrameWriter::flush(QueuePair& qp, bool acknowledge) noexcept {
  for (int i = 0; i < kFramesAtOnce; ++i) {
    if (qp.faulty && qp.faulty->holds()) {
      if (const Io result = send_faulty(qp); result != Io::done) return result;
    }
    if (idle() && !(has_something_to_say(qp, acknowledge) && build(qp, acknowledge))) {
      return Io::done;
    }
    const Io result = send(qp);
    if (result != Io::done) return result;
    finish();
    if (!faulty_) continue;
    qp.faulty->seal();
    if (const Io sent = send_faulty(qp); sent != Io::done) return sent;
  }
  return Io::more;
}

FrameWriter::Io FrameWriter::send_faulty(QueuePair& qp) noexcept {
  switch (qp.faulty->send()) {
    case FaultyWire::Sent::all: break;
    case FaultyWire::Sent::blocked: return Io::blocked;
    case FaultyWire::Sent::held: return Io::held;
    case FaultyWire::Sent::failed: return Io::failed;
  }
  return Io::done;
}

FrameWriter::Io FrameWriter::send(QueuePair& qp) noexcept {
  while (control_sent_ < control_nbytes_ || segment_ < segment_count_) {
    Pins pins;
    IoVector parts(qp.bounce, Bounce::Direction::out);
    const bool gathered = gather(qp, pins, parts);
    const ssize_t sent = gathered ? send_vector(qp, parts) : -1;
    const int error_number = errno;
    if (const int error = qp.bounce.settle(); error != 0) return copy_failed(qp, error);
    if (!gathered) return Io::failed;
    errno = error_number;
    if (sent >= 0) {
      continue;
    } else if (errno == EAGAIN) {
      return Io::blocked;
    } else if (errno == EFAULT) {  // the user unmapped memory that is still registered
      qp.fail({.kind = Failure::Kind::request, .status = IBV_WC_LOC_PROT_ERR});
      return Io::failed;
    } else if (errno != EINTR) {
      qp.reader.read_rest(qp);  // what the peer sent before it closed still counts
      qp.fail({.kind = Failure::Kind::lost});
      return Io::failed;
    }
  }
  return Io::done;
}

// Returns result and errno of the last system call. Sent bytes are counted already.
ssize_t FrameWriter::send_vector(QueuePair& qp, IoVector& parts) noexcept {
  std::size_t first = 0;
  ssize_t sent = 0;
  while (first < parts.count()) {
    const std::size_t end = qp.bounce.ready(parts.count());
    if (end == 0) return 0;  // a copy failed, which settle() reports
    std::size_t nbytes = 0;
    for (std::size_t i = first; i < end; ++i) nbytes += parts.data()[i].iov_len;
    sent = faulty_ ? qp.faulty->take(parts, first, end)
                   : send_parts(qp.connection.fd(), parts, first, end);
    if (sent < 0) break;
    advance(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < nbytes) break;
    first = end;
  }
  return sent;
}

// The rest of the frame cannot be sent, so the stream ends here.
FrameWriter::Io FrameWriter::copy_failed(QueuePair& qp, int error) noexcept {
  const bool request = segment_ < segment_count_ && frame_->segments[segment_].request;
  qp.fail({.kind = request ? Failure::Kind::request : Failure::Kind::withdrawn,
           .status = IBV_WC_GENERAL_ERR,
           .copy_error = error});
  return Io::failed;
}

// False if memory of the frame is no longer registered: the stream cannot continue.
bool FrameWriter::gather(QueuePair& qp, Pins& pins, IoVector& out) noexcept {
  if (control_sent_ < control_nbytes_) {
    out.add(&frame_->control[control_sent_], control_nbytes_ - control_sent_);
  }
  std::uint32_t done = segment_sent_;
  for (std::size_t i = segment_; i < segment_count_ && !out.full(); ++i, done = 0) {
    const std::size_t before = out.nbytes();
    if (!add_segment(qp, frame_->segments[i], done, pins, out)) {
      // Send everything before it first; the failing segment fails once it is the first.
      if (out.nbytes() > 0) return true;
      qp.fail(
          {.kind = frame_->segments[i].request ? Failure::Kind::request : Failure::Kind::withdrawn,
           .status = IBV_WC_LOC_PROT_ERR});
      return false;
    }
    if (out.nbytes() - before < frame_->segments[i].nbytes - done) break;
  }
  return true;
}

bool FrameWriter::add_segment(QueuePair& qp, const Segment& segment, std::uint32_t done, Pins& pins,
                              IoVector& out) noexcept {
  const std::uint32_t nbytes = segment.nbytes - done;
  MemoryTable& memory = qp.device.memory;
  if (!segment.request) {
    const Place place =
        memory.pin(segment.name, qp.pd, segment.place + done, nbytes, IBV_ACCESS_REMOTE_READ, pins);
    if (place) out.add(place, nbytes);
    return static_cast<bool>(place);
  }
  const SendEntry& entry = qp.sends.at(segment.name);
  if (entry.inlined) {
    out.add(qp.sends.inline_data(segment.name) + segment.place + done, nbytes);
    return true;
  }
  return add_elements(memory, qp.pd, {qp.sends.sges(segment.name), entry.sge_count},
                      segment.place + done, nbytes, 0, pins, out) >= 0;
}

void FrameWriter::advance(std::size_t nbytes) noexcept {
  const std::size_t control = std::min(nbytes, control_nbytes_ - control_sent_);
  control_sent_ += control;
  nbytes -= control;
  while (nbytes > 0) {
    const std::size_t step =
        std::min<std::size_t>(nbytes, frame_->segments[segment_].nbytes - segment_sent_);
    segment_sent_ += static_cast<std::uint32_t>(step);
    nbytes -= step;
    if (segment_sent_ == frame_->segments[segment_].nbytes) {
      ++segment_;
      segment_sent_ = 0;
    }
  }
}

std::uint32_t FrameWriter::unsent_from(std::uint32_t next) const noexcept {
  if (idle()) return next;
  if (control_sent_ < control_nbytes_) {
    return reinterpret_cast<const wire::Prefix*>(frame_->control.data())->first_request;
  }
  for (std::size_t i = segment_; i < segment_count_; ++i) {
    if (frame_->segments[i].request) return frame_->segments[i].name;
  }
  return next;
}

}  // namespace zerohop::softhca
