#include "engine/memory/memory.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/reshape.hpp"
#include "base/view.hpp"
#include "engine/memory/closing.hpp"

namespace zerohop::engine {
Memory::Memory(EndpointId endpoint, Layout layout, std::shared_ptr<const Registration> registration,
               Kind kind)
    : endpoint_(endpoint),
      layout_(std::move(layout)),
      lease_(std::make_shared<Lease<const Registration>>(std::move(registration))),
      kind_(std::move(kind)) {}

Memory Memory::slice(std::span<const Index> indices) const {
  Memory part = *this;
  part.layout_ = apply_index(layout_, indices);
  return part;
}

Memory Memory::reshape(std::span<const std::int64_t> shape) const {
  Memory same = *this;
  same.layout_ = zerohop::reshape(layout_, shape);
  return same;
}

Memory Memory::range(std::uint64_t address, std::uint64_t nbytes) const {
  Memory same = *this;
  same.layout_ = Layout::bytes(address, nbytes);
  return same;
}

Memory Memory::view(DType dtype) const {
  Memory same = *this;
  same.layout_ = zerohop::view(layout_, dtype);
  return same;
}

void Grants::add(WeakMemory grant) {
  const std::lock_guard lock(mutex_);
  if (all_.size() >= next_sweep_) {
    std::erase_if(all_, [](const WeakMemory& each) { return each.gone(); });
    next_sweep_ = std::max<std::size_t>(16, 2 * all_.size());
  }
  all_.push_back(std::move(grant));
}

void Grants::close() noexcept {
  std::vector<WeakMemory> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(all_);
  }
  WeakMemory::close(all);
}

void Memory::close() noexcept { weak().close(); }

void WeakMemory::close() const noexcept { close({this, 1}); }

void WeakMemory::close(std::span<const WeakMemory> all) noexcept {
  std::vector<Closing> ours;
  std::vector<const WeakMemory*> others;
  for (const WeakMemory& memory : all) {
    if (auto closing = Closing::begin(memory)) {
      ours.push_back(std::move(*closing));
    } else {
      others.push_back(&memory);
    }
  }
  const Deadline deadline = Deadline::after(shm::kLongestCopy);
  for (Closing& each : ours) each.finish(deadline);
  for (const WeakMemory* each : others) each->await_finish();
}

void WeakMemory::await_finish() const noexcept {
  const auto lease = lease_.lock();
  // The first closer waits for copies, and then for those of its grants.
  if (!lease || lease->await_finish(Deadline::after(2 * shm::kLongestCopy))) return;
  report({"memory on ", device_,
          " is being closed by another thread, which does not finish: a device or GPU "
          "hangs, and peers may access the memory until it continues"});
}

bool Memory::closed() const noexcept { return lease_->closed(); }

bool Memory::withdrawn() const noexcept { return lease_->finished(); }

void Memory::check_open() const {
  if (closed()) {
    throw RegistrationError("this memory is closed, or its Endpoint is: register the array again");
  }
}

std::shared_ptr<const Registration> Memory::registration() const {
  const Use used = use();
  if (!used) check_open();
  return used.what();
}

bool Memory::staged() const {
  if (on_host()) return false;
  const auto registration = this->registration();
  return registration->regions && registration->regions->staged_key() != 0;
}

RemoteMemory Memory::remote() const {
  if (lease_->is_of_parent()) {
    throw Error(
        "this memory is registered by the process that made it: after fork(), take its remote "
        "before, or register in the child with an Endpoint of its own");
  }
  const auto registration = this->registration();
  RemoteMemory remote;
  remote.endpoint = endpoint_;
  remote.layout = layout_;
  remote.access = kind_.writable ? kRemoteRead | kRemoteWrite : kRemoteRead;
  remote.device = kind_.device;
  if (registration->regions) {
    remote.rkeys = registration->regions->rkeys();
    remote.local_key = registration->regions->local_key();
    remote.staged_key = registration->regions->staged_key();
    remote.begin = registration->regions->covered().begin;
    remote.end = registration->regions->covered().end;
    if (kind_.writable && !registration->regions->atomics()) remote.access |= kRemoteNoAtomics;
  }
  return remote;
}

}  // namespace zerohop::engine
