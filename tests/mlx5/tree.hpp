// The files of the simulation, below one folder (tests/mlx5/tree.py makes it): what programs see
// in /sys and /dev, and which queue pairs there are. All processes of a simulation share it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>

namespace zerohop::mlx5sim::tree {

// The folder, without a slash at its end; empty outside a simulation: nothing is intercepted.
const std::string& root();

// Where the path leads in the simulation: `path` itself, or what is written into `place`.
constexpr std::size_t kMostPath = 4096;
const char* redirect(const char* path, char (&place)[kMostPath]) noexcept;
// The number of the device whose file this path is; -1 if it is none.
int device_of(const char* path) noexcept;

// The GIDs of a device: link-local and IPv4, each as RoCE v1 and as v2.
constexpr int kGids = 4;
ibv_gid gid(int device, int index);
std::uint32_t gid_type(int index);  // ib_uverbs_gid_type
// The address on which its queue pairs are dialled.
std::string address(int device);

// Where a queue pair of the software HCA stands behind one of a device.
struct Where {
  ibv_gid gid;
};
// Takes the number for this device: false if another process has it.
bool announce(int device, std::uint32_t qp_number, const Where& where);
void withdraw(int device, std::uint32_t qp_number) noexcept;
// The device with that GID; -1 if there is none.
int device_with(const ibv_gid& gid);
std::optional<Where> find(int device, std::uint32_t qp_number);

// What a file in /sys/class/infiniband/<device> says, up to the first line end.
std::string attribute(int device, const std::string& name);
std::string attribute_path(int device, const std::string& name);

}  // namespace zerohop::mlx5sim::tree
