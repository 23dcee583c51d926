// How Python holds engine objects: the object, and what must live as long.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "bindings/array_import.hpp"
#include "bindings/gil.hpp"
#include "bindings/owner.hpp"
#include "engine/core/endpoint.hpp"

namespace zerohop::bindings {

using EndpointHandle = std::shared_ptr<engine::Endpoint>;

struct PeerHandle {
  EndpointHandle endpoint;  // its thread serves the peer
  std::shared_ptr<engine::Peer> peer;
  unsigned process = fork_generation();  // the process that is connected

  bool alive() const noexcept { return process == fork_generation() && peer->alive(); }
};

// The one handle of a peer: Python sees the same object for the same connection.
std::shared_ptr<PeerHandle> face_of(const EndpointHandle& endpoint,
                                    const std::shared_ptr<engine::Peer>& peer);

// What wait() returns.
enum class ResultKind { none, nbytes, signed_word, unsigned_word };

// A description of the call behind a Transfer, for timeout messages.
struct Asked {
  const char* call = "transfer";
  const char* side = "";               // precedes the peer: "to", "from", "at"
  std::optional<std::uint64_t> tag{};  // of a message
};

struct TransferHandle {
  EndpointHandle endpoint;
  std::shared_ptr<engine::Transfer> transfer;
  ResultKind kind = ResultKind::none;
  Asked asked{};

  // Each call makes and drops one, with the GIL held: a few are kept for the next calls.
  static void* operator new(std::size_t nbytes);
  static void operator delete(void* memory) noexcept;
};

// The Memory inside `object`, valid while the object lives; null for any other type.
const engine::Memory* find_memory(py::handle object);

// The Memory inside a Python object, or an array registered for this one use.
class LocalArray {
 public:
  LocalArray(engine::Endpoint& endpoint, py::handle object);
  const engine::Memory& operator*() const { return registered_ ? *registered_ : *found_; }

 private:
  const engine::Memory* found_;  // kept alive by the caller's reference to the object
  std::optional<engine::Memory> registered_;
};

// Registers an array. writable nullopt: if the array is; registration nullopt: the best available.
engine::Memory register_array(engine::Endpoint& endpoint, py::handle array,
                              std::optional<bool> writable, bool cache,
                              const std::optional<std::string>& registration = {});

// Runs a possibly blocking function without the GIL.
template <typename Function>
auto without_gil(Function&& function) {
  const GilReleased released;
  return std::forward<Function>(function)();
}

// " (waited 2.5 s)"
std::string waited(double seconds);

// The same for waits: a timeout's message says how long it waited.
template <typename Function>
auto waiting(const engine::Endpoint& endpoint, std::optional<double> timeout, Function&& function) {
  const Deadline deadline = endpoint.deadline(timeout);
  try {
    return without_gil([&] { return function(deadline); });
  } catch (const TransferTimeout& late) {
    throw TransferTimeout(late.what() + waited(timeout.value_or(endpoint.timeout())), late.code(),
                          late.effect());
  }
}

}  // namespace zerohop::bindings
