// What a program makes on an mlx5 adapter by commands of its own (DEVX of libmlx5): registers,
// memory for rings, and objects of the firmware. Source: mlx5dv.h and the manual pages of libmlx5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/mlx5dv.hpp"
#include "rdma/device.hpp"
#include "rdma/mlx5_command.hpp"

namespace zerohop::rdma {

// Memory of the program, of the host or a GPU, as it is shown to the adapter. Whole pages.
struct UmemRange {
  std::uint64_t address = 0;  // for a dma-buf its offset in that
  std::size_t nbytes = 0;
  int dmabuf = -1;  // -1: none; may be closed once registered
};

class Devx {
 public:
  // Throws VerbsError (EOPNOTSUPP) if this libmlx5 has no DEVX.
  Devx(std::shared_ptr<Device> device, std::shared_ptr<const driver::Mlx5dv> mlx5dv);

  template <typename Handle>
  struct Destroy : Maker {
    std::shared_ptr<const driver::Mlx5dv> mlx5dv;
    void operator()(Handle* handle) const noexcept;
  };
  template <typename Handle>
  using Unique = std::unique_ptr<Handle, Destroy<Handle>>;
  using Uar = Unique<mlx5dv_devx_uar>;
  using Umem = Unique<mlx5dv_devx_umem>;
  using Object = Unique<mlx5dv_devx_obj>;

  // All throw VerbsError.
  // A page of doorbell registers, if possible of this object's alone.
  Uar alloc_uar() const;
  Umem reg_umem(const UmemRange& range) const;
  Object create(mlx5::Command& command) const;
  void modify(const Object& object, mlx5::Command& command) const;
  void query(const Object& object, mlx5::Command& command) const;
  std::uint32_t event_queue() const;  // of completion vector 0
  std::uint32_t number_of(ibv_pd* domain) const;

  Device& device() const noexcept { return *device_; }
  const driver::Mlx5dv& mlx5dv() const noexcept { return *mlx5dv_; }

 private:
  template <typename Handle>
  Unique<Handle> own(Handle* handle) const;
  [[noreturn]] void refuse(const mlx5::Command& command, int error_number) const;

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<const driver::Mlx5dv> mlx5dv_;
};

}  // namespace zerohop::rdma
