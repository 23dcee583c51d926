// The descriptors of the simulation in this process, by their numbers.
#pragma once

#include <memory>
#include <vector>

#include "event_file.hpp"
#include "ucontext.hpp"

namespace zerohop::mlx5sim::files {

// Whether the number is one of them: cheap, for every call of read(2) and close(2).
bool is_one(int fd) noexcept;

// Makes `fd` an open device. 0 or errno.
int add_device(int fd, int device) noexcept;
// Throws Error.
std::shared_ptr<EventFile> add_events();

std::shared_ptr<Ucontext> device(int fd) noexcept;   // null: it is something else
std::shared_ptr<EventFile> events(int fd) noexcept;  // likewise
std::vector<std::shared_ptr<Ucontext>> devices();
// One of them, before it is closed. Whether that has closed it.
bool forget(int fd) noexcept;

}  // namespace zerohop::mlx5sim::files
