#include "rdma/devx.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::rdma {

template <>
void Devx::Destroy<mlx5dv_devx_uar>::operator()(mlx5dv_devx_uar* uar) const noexcept {
  if (is_this_process()) mlx5dv->devx_free_uar(uar);
}
template <>
void Devx::Destroy<mlx5dv_devx_umem>::operator()(mlx5dv_devx_umem* memory) const noexcept {
  if (is_this_process()) {
    driver::report_errno(mlx5dv->devx_umem_dereg(memory), "mlx5dv_devx_umem_dereg");
  }
}
template <>
void Devx::Destroy<mlx5dv_devx_obj>::operator()(mlx5dv_devx_obj* object) const noexcept {
  if (is_this_process()) {
    driver::report_errno(mlx5dv->devx_obj_destroy(object), "mlx5dv_devx_obj_destroy");
  }
}

Devx::Devx(std::shared_ptr<Device> device, std::shared_ptr<const driver::Mlx5dv> mlx5dv)
    : device_(std::move(device)), mlx5dv_(std::move(mlx5dv)) {
  if (driver::has_devx(*mlx5dv_)) return;
  throw VerbsError(
      "this libmlx5 lets no program make queues in memory of its choice (DEVX): install rdma-core "
      "35 or newer (43 for dma-bufs)",
      EOPNOTSUPP);
}

template <typename Handle>
Devx::Unique<Handle> Devx::own(Handle* handle) const {
  return {handle, Destroy<Handle>{{&device_->verbs()}, mlx5dv_}};
}

Devx::Uar Devx::alloc_uar() const {
  constexpr std::uint32_t kTypes[] = {driver::kMlx5OwnRegisters, MLX5DV_UAR_ALLOC_TYPE_BF,
                                      MLX5DV_UAR_ALLOC_TYPE_NC};
  mlx5dv_devx_uar* made = nullptr;
  for (const std::uint32_t type : kTypes) {
    made = mlx5dv_->devx_alloc_uar(device_->context(), type);
    if (made != nullptr) break;
  }
  return own(driver::check_null(made, "mlx5dv_devx_alloc_uar on " + device_->name()));
}

Devx::Umem Devx::reg_umem(std::span<const UmemRange> ranges) const {
  constexpr std::uint64_t kSmallestPage = 4096;
  int error_number = 0;
  for (const UmemRange& range : ranges) {
    mlx5dv_devx_umem_in wanted{};
    wanted.size = range.nbytes;
    wanted.access = IBV_ACCESS_LOCAL_WRITE;
    wanted.pgsz_bitmap = ~(kSmallestPage - 1);
    wanted.addr = reinterpret_cast<void*>(range.address);
    if (range.dmabuf >= 0) {
      wanted.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
      wanted.dmabuf_fd = range.dmabuf;
    }
    auto* const made = mlx5dv_->devx_umem_reg_ex(device_->context(), &wanted);
    if (made != nullptr) return own(made);
    if (error_number == 0) error_number = errno;
  }
  driver::throw_verbs_error("mlx5dv_devx_umem_reg_ex of " + std::to_string(ranges.front().nbytes) +
                                " bytes on " + device_->name(),
                            error_number);
}

void Devx::refuse(const mlx5::Command& command, int error_number) const {
  // The firmware's own answer says more than the errno of a remote error.
  const std::string said = error_number == EREMOTEIO ? " (" + command.outcome() + ")" : "";
  driver::throw_verbs_error(std::string(command.name()) + " by DEVX on " + device_->name() + said +
                                "; rings in host memory do without DEVX",
                            error_number);
}

Devx::Object Devx::create(mlx5::Command& command) const {
  const auto in = command.bytes();
  const auto out = command.answer();
  mlx5dv_devx_obj* made =
      mlx5dv_->devx_obj_create(device_->context(), in.data(), in.size(), out.data(), out.size());
  if (made == nullptr) refuse(command, errno);
  return own(made);
}

void Devx::ask(mlx5::Command& command) const {
  const auto in = command.bytes();
  const auto out = command.answer();
  const int result =
      mlx5dv_->devx_general_cmd(device_->context(), in.data(), in.size(), out.data(), out.size());
  if (result != 0) refuse(command, driver::errno_of(result));
}

void Devx::modify(const Object& object, mlx5::Command& command) const {
  const auto in = command.bytes();
  const auto out = command.answer();
  const int result =
      mlx5dv_->devx_obj_modify(object.get(), in.data(), in.size(), out.data(), out.size());
  if (result != 0) refuse(command, driver::errno_of(result));
}

void Devx::query(const Object& object, mlx5::Command& command) const {
  const auto in = command.bytes();
  const auto out = command.answer();
  const int result =
      mlx5dv_->devx_obj_query(object.get(), in.data(), in.size(), out.data(), out.size());
  if (result != 0) refuse(command, driver::errno_of(result));
}

std::uint32_t Devx::event_queue() const {
  std::uint32_t number = 0;
  driver::check_errno(mlx5dv_->devx_query_eqn(device_->context(), 0, &number),
                      "mlx5dv_devx_query_eqn on " + device_->name());
  return number;
}

std::uint32_t Devx::number_of(ibv_pd* domain) const {
  mlx5dv_pd found{};
  mlx5dv_obj objects{};
  objects.pd = {domain, &found};
  driver::check_errno(mlx5dv_->init_obj(&objects, MLX5DV_OBJ_PD),
                      "mlx5dv_init_obj of a protection domain");
  return found.pdn;
}

}  // namespace zerohop::rdma
