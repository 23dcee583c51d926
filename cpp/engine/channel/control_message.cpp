#include "engine/channel/control_message.hpp"

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include "base/wire.hpp"

namespace zerohop::engine {
namespace {

// Encoder and Decoder visit the same list of fields (below), so they cannot disagree on them.
class Encoder {
 public:
  explicit Encoder(WireWriter& writer) : writer_(writer) {}

  template <std::unsigned_integral T>
  void operator()(T value) {
    writer_.number(value);
  }
  template <class Byte, std::size_t n>
  void operator()(std::span<Byte, n> bytes) {
    writer_.fixed(std::as_bytes(bytes));
  }
  void count(std::size_t items) { writer_.number(static_cast<std::uint8_t>(items)); }
  void many(std::size_t items) {
    if (items > kMaxSums) throw ProtocolError("too many checksums for one message");
    writer_.number(static_cast<std::uint16_t>(items));
  }
  void operator()(const std::string& text) { writer_.text(text, kMaxNameBytes); }
  void key(const std::string& text) { writer_.text(text, kMaxNameBytes); }
  void operator()(const std::vector<std::byte>& bytes) {
    writer_.blob(bytes, kMaxRemoteMemoryBytes);
  }

 private:
  WireWriter& writer_;
};

class Decoder {
 public:
  explicit Decoder(WireReader& reader) : reader_(reader) {}

  template <std::unsigned_integral T>
  void operator()(T& value) {
    value = reader_.number<T>();
  }
  template <class Byte, std::size_t n>
  void operator()(std::span<Byte, n> bytes) {
    reader_.fixed(std::as_writable_bytes(bytes));
  }
  // At most kMaxRails, whatever the bytes say.
  std::size_t count() {
    const std::size_t items = reader_.number<std::uint8_t>();
    if (items > kMaxRails) reader_.fail(std::to_string(items) + " rails");
    return items;
  }
  // At most kMaxSums, and no more than the remaining bytes can hold.
  std::size_t many() {
    const std::size_t items = reader_.number<std::uint16_t>();
    if (items > kMaxSums || items > reader_.left() / sizeof(std::uint32_t)) {
      reader_.fail(std::to_string(items) + " checksums");
    }
    return items;
  }
  void operator()(std::string& text) { text = reader_.text(kMaxNameBytes); }
  void key(std::string& text) { text = reader_.key(kMaxNameBytes); }  // never displayed
  void operator()(std::vector<std::byte>& bytes) {
    const std::span<const std::byte> view = reader_.blob(kMaxRemoteMemoryBytes);
    bytes.assign(view.begin(), view.end());
  }

 private:
  WireReader& reader_;
};

// A message, const for the Encoder and mutable for the Decoder.
template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

void fields(auto& each, Is<rdma::QueuePairAddress> auto& m) {
  each(m.number);
  each(m.psn);
  each(std::span(m.gid.raw));
  each(m.lid);
  each(m.mtu);
  each(m.reads_in);
  each(m.reads_out);
  each(m.managed.port);
  each(m.managed.word_key);
  each(m.managed.word);
}

void fields(Encoder& each, const std::vector<rdma::QueuePairAddress>& all) {
  each.count(all.size());
  for (const rdma::QueuePairAddress& one : all) fields(each, one);
}
void fields(Decoder& each, std::vector<rdma::QueuePairAddress>& all) {
  all.resize(each.count());
  for (rdma::QueuePairAddress& one : all) fields(each, one);
}

void fields(auto& each, Is<Hello> auto& m) {
  each(m.version);
  each(std::span(m.id));
  each(std::span(m.proof.public_key));
  each(std::span(m.proof.signature));
  each(m.name);
  each(m.host_name);
  each(m.pid);
  fields(each, m.queue_pairs);
  each(m.global_atomics);
  each(m.receive_slots);
  each(m.slot_nbytes);
  each.key(m.local_server);
  each(std::span(m.token));
  each(m.established);
  each(m.integrity);
}

void fields(auto&, Is<Ready> auto&) {}

void fields(auto& each, Is<Lookup> auto& m) {
  each(m.request);
  each.key(m.name);
}

void fields(auto& each, Is<Found> auto& m) {
  each(m.request);
  each(m.memory);
}

void fields(auto& each, Is<NotFound> auto& m) { each(m.request); }

void fields(auto& each, Is<Heartbeat> auto& m) { each(m.sequence); }

void fields(auto& each, Is<Requeue> auto& m) {
  each(m.rail);
  each(m.generation);
  fields(each, m.queue_pair);
}

void fields(auto& each, Is<Bye> auto& m) {
  each(m.reason);
  each(m.cause);
}

void fields(auto& each, Is<OpenDirect> auto& m) {
  each(m.request);
  each(m.rail);
  fields(each, m.queue_pair);
}

void fields(auto& each, Is<DirectOpened> auto& m) {
  each(m.request);
  fields(each, m.queue_pair);
  each(m.slots);
  each(m.slots_key);
  each(m.refusal);
}

void fields(auto& each, Is<CloseDirect> auto& m) { each(m.request); }

void fields(auto& each, Is<SumUp::Part> auto& m) {
  each(m.memory);
  each(m.first);
  each(m.nbytes);
}

void fields(Encoder& each, const SumUp& m) {
  each(m.request);
  each.many(m.parts.size());
  for (const SumUp::Part& part : m.parts) fields(each, part);
}
void fields(Decoder& each, SumUp& m) {
  each(m.request);
  m.parts.resize(each.many());
  for (SumUp::Part& part : m.parts) fields(each, part);
}

void fields(Encoder& each, const SummedUp& m) {
  each(m.request);
  each.many(m.sums.size());
  for (const std::uint32_t sum : m.sums) each(sum);
  each(m.status);
  each(m.refusal);
}
void fields(Decoder& each, SummedUp& m) {
  each(m.request);
  m.sums.resize(each.many());
  for (std::uint32_t& sum : m.sums) each(sum);
  each(m.status);
  each(m.refusal);
}

template <std::size_t kind>
ControlMessage decode_kind(WireReader& reader) {
  std::variant_alternative_t<kind, ControlMessage> message;
  Decoder decoder(reader);
  fields(decoder, message);
  return message;
}

template <std::size_t... kinds>
ControlMessage decode_any(WireReader& reader, std::size_t kind, std::index_sequence<kinds...>) {
  static constexpr std::array decoders = {&decode_kind<kinds>...};
  if (kind >= decoders.size()) reader.fail("unknown kind " + std::to_string(kind));
  return decoders[kind](reader);
}

}  // namespace

std::vector<std::byte> encode(const ControlMessage& message) {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(message.index()));
  Encoder encoder(writer);
  std::visit([&](const auto& m) { fields(encoder, m); }, message);
  return writer.take();
}

ControlMessage decode_control_message(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "control message");
  const std::size_t kind = reader.number<std::uint8_t>();
  ControlMessage message =
      decode_any(reader, kind, std::make_index_sequence<std::variant_size_v<ControlMessage>>{});
  reader.finish();
  return message;
}

}  // namespace zerohop::engine
