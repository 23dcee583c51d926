#include "driver/mlx5dv.hpp"

#include <array>
#include <utility>

#include "base/dynlib.hpp"

namespace zerohop::driver {

Mlx5dvLibrary load_mlx5dv(const char* soname) {
  const DynamicLibrary library(soname);
  if (!library) {
    return {nullptr, std::string(soname) + " cannot be loaded (" + library.reason() +
                         "): install ibverbs-providers (Debian, Ubuntu) or rdma-core"};
  }
  auto mlx5dv = std::make_shared<Mlx5dv>();
#define ZEROHOP_MLX5DV_FILL(member, symbol, version, result, parameters) \
  mlx5dv->member = reinterpret_cast<decltype(mlx5dv->member)>(library.find(#symbol, version));
#define ZEROHOP_MLX5DV_INSIST(member, symbol, version, result, parameters)     \
  if (mlx5dv->member == nullptr) {                                             \
    return {nullptr, std::string(soname) + " lacks " #symbol "@" version       \
                                           ": install rdma-core 22 or newer"}; \
  }
  ZEROHOP_MLX5DV_REQUIRED(ZEROHOP_MLX5DV_FILL)
  ZEROHOP_MLX5DV_REQUIRED(ZEROHOP_MLX5DV_INSIST)
  ZEROHOP_MLX5DV_OPTIONAL(ZEROHOP_MLX5DV_FILL)
#undef ZEROHOP_MLX5DV_INSIST
#undef ZEROHOP_MLX5DV_FILL
  return {std::move(mlx5dv), ""};
}

bool has_data_direct(const Mlx5dv& mlx5dv, ibv_context* context) {
  std::array<char, 256> path{};
  return mlx5dv.get_data_direct_sysfs_path != nullptr &&
         mlx5dv.get_data_direct_sysfs_path(context, path.data(), path.size()) == 0;
}

const Mlx5dvLibrary& libmlx5() {
  static const Mlx5dvLibrary library = load_mlx5dv("libmlx5.so.1");
  return library;
}

}  // namespace zerohop::driver
