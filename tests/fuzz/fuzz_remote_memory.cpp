// A RemoteMemory from anywhere, sliced, and laid beside an array of the same shape.
#include <algorithm>
#include <stdexcept>

#include "base/error.hpp"
#include "base/runs.hpp"
#include "engine/memory/remote_memory.hpp"
#include "input.hpp"

namespace {

using namespace zerohop;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;

std::vector<Index> take_indices(Input& input) {
  std::vector<Index> indices;
  for (std::size_t left = input.below(10); left > 0; --left) {
    switch (input.below(4)) {
      case 0: indices.emplace_back(input.take<std::int64_t>()); break;
      case 1: indices.emplace_back(NewAxis{}); break;
      case 2: indices.emplace_back(EllipsisIndex{}); break;
      default:
        indices.emplace_back(Slice{.start = input.take<std::int64_t>(),
                                   .stop = input.take<std::int64_t>(),
                                   .step = input.take<std::int8_t>()});
    }
  }
  return indices;
}

void check_inside(const engine::RemoteMemory& memory) {
  const Extent extent = memory.layout.extent();
  const bool inside = memory.begin <= extent.begin && extent.end <= memory.end;
  require(extent.begin == extent.end || inside, "an array lies in its registered range");
  require(extent.begin <= extent.end, "an extent does not wrap around");
}

// The first of the pieces that a transfer would copy.
void check_runs(const engine::RemoteMemory& memory) {
  const Layout& far = memory.layout;
  const Layout near = Layout::contiguous(4096, far.dtype, far.shape.span());
  try {
    near.validate();
  } catch (const std::invalid_argument&) {
    return;  // no local array has so many bytes
  }
  Runs runs(near, far);
  Run run{};
  for (int i = 0; i < 100 && runs.next(run); ++i) {
    require(run.nbytes > 0 && memory.begin <= run.b_address, "a run begins in the range");
    require(run.nbytes <= memory.end - run.b_address, "a run ends in the range");
    require(run.a_address - 4096 + run.nbytes <= near.nbytes(), "a run lies in the local array");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  Input input(data, nbytes);
  const std::vector<Index> indices = take_indices(input);
  const std::vector<std::byte> bytes = input.rest();
  try {
    const auto memory = engine::RemoteMemory::from_bytes(bytes);
    check_inside(memory);
    check_runs(memory);
    require(engine::RemoteMemory::from_bytes(memory.to_bytes()) == memory, "it can be sent on");
    const auto part = memory.slice(indices);
    part.layout.validate();
    check_inside(part);
    check_runs(part);
  } catch (const ProtocolError&) {
  } catch (const std::out_of_range&) {
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
