#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/report.hpp"
#include "driver/cuda.hpp"
#include "driver/cuda_call.hpp"
#include "driver/mlx5dv.hpp"
#include "driver/verbs.hpp"
#include "driver/verbs_call.hpp"

namespace zerohop::driver {
namespace {

// Runs `call` and returns the error that it throws; code 0 if it throws none.
template <typename Exception, typename Call>
Exception thrown_by(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error;
  }
  return Exception("");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("calls that return errno are read in every form that providers use") {
  CHECK_NOTHROW(check_errno(0, "ibv_modify_qp"));
  CHECK(thrown_by<VerbsError>([] { check_errno(EBUSY, "x"); }).code() == EBUSY);
  CHECK(thrown_by<VerbsError>([] { check_errno(-EBUSY, "x"); }).code() == EBUSY);
  CHECK(thrown_by<VerbsError>([] {
          errno = ENODEV;
          check_errno(-1, "x");
        }).code() == ENODEV);
}

TEST_CASE("calls that return -1 take errno") {
  CHECK_NOTHROW(check_minus_one(0, "ibv_query_gid"));
  errno = ENODATA;
  const auto error = thrown_by<VerbsError>([] { check_minus_one(-1, "ibv_query_gid"); });
  CHECK(error.code() == ENODATA);
  CHECK(contains(error.what(), "ibv_query_gid"));
  CHECK(contains(error.what(), "gid_index"));
}

TEST_CASE("calls that return NULL take errno") {
  int value = 0;
  CHECK(check_null(&value, "ibv_alloc_pd") == &value);
  errno = ENOMEM;
  const auto error =
      thrown_by<VerbsError>([] { check_null(static_cast<int*>(nullptr), "ibv_alloc_pd"); });
  CHECK(error.code() == ENOMEM);
  CHECK(contains(error.what(), "ulimit -l"));
  CHECK(error.effect() == Effect::nothing);
}

std::string reported;
void keep(std::string_view message) noexcept { reported = message; }

TEST_CASE("a failing destructor reports and does not throw") {
  const ReportSink former = set_report_sink(keep);
  report_errno(0, "ibv_destroy_qp");
  CHECK(reported.empty());
  report_errno(EBUSY, "ibv_destroy_qp");
  CHECK(contains(reported, "ibv_destroy_qp"));
  CHECK(contains(reported, std::to_string(EBUSY)));
  set_report_sink(former);
}

TEST_CASE("an absent libibverbs is a sentence with a remedy") {
  const VerbsLibrary library = load_verbs("libzerohop-absent.so.1");
  CHECK(library.verbs == nullptr);
  CHECK(contains(library.reason, "libzerohop-absent.so.1"));
  CHECK(contains(library.reason, "soft0"));
}

TEST_CASE("a library without a required symbol is refused by the symbol's name") {
  const VerbsLibrary library = load_verbs("libc.so.6");
  CHECK(library.verbs == nullptr);
  CHECK(contains(library.reason, "ibv_get_device_list@IBVERBS_1.1"));
}

TEST_CASE("libibverbs gives a whole table or a reason, always the same") {
  const VerbsLibrary& library = libibverbs();
  CHECK(&library == &libibverbs());
  CHECK((library.verbs != nullptr) == library.reason.empty());
  if (library.verbs == nullptr) return;
#define ZEROHOP_CHECK(member, symbol, version) CHECK(bool(library.verbs->member));
  ZEROHOP_VERBS_REQUIRED(ZEROHOP_CHECK)
#undef ZEROHOP_CHECK
  CHECK(bool(library.verbs->reg_mr));
  CHECK(bool(library.verbs->query_port));
}

TEST_CASE("an absent or too old libmlx5 is a sentence with a remedy") {
  const Mlx5dvLibrary absent = load_mlx5dv("libzerohop-absent.so.1");
  CHECK(absent.mlx5dv == nullptr);
  CHECK(contains(absent.reason, "libzerohop-absent.so.1"));
  const Mlx5dvLibrary old = load_mlx5dv("libc.so.6");
  CHECK(old.mlx5dv == nullptr);
  CHECK(contains(old.reason, "mlx5dv_init_obj@MLX5_1.2"));
  CHECK(contains(old.reason, "rdma-core 15"));
}

TEST_CASE("libmlx5 gives its direct objects whether or not it knows Data Direct") {
  const Mlx5dvLibrary& library = libmlx5();
  CHECK(&library == &libmlx5());
  CHECK((library.mlx5dv != nullptr) == library.reason.empty());
  if (library.mlx5dv == nullptr) return;
  CHECK(bool(library.mlx5dv->init_obj));
  CHECK((library.mlx5dv->reg_dmabuf_mr != nullptr) ==
        (library.mlx5dv->get_data_direct_sysfs_path != nullptr));
  CHECK(!bool(library.mlx5dv->place_send_queue));
}

// A driver that has every symbol but the one called `absent_symbol`.
std::string absent_symbol;
CudaResult fake_get_proc_address(const char* symbol, void** function, int version, std::uint64_t,
                                 int*) {
  CHECK(version >= 2000);
  *function = absent_symbol == symbol ? nullptr : reinterpret_cast<void*>(&fake_get_proc_address);
  return kCudaSuccess;
}

TEST_CASE("a CUDA driver that lacks any one symbol is refused by the symbol's name") {
  absent_symbol.clear();
  CHECK(fill_cuda(fake_get_proc_address).cuda != nullptr);
#define ZEROHOP_CHECK(member, symbol, version, parameters)        \
  {                                                               \
    absent_symbol = #symbol;                                      \
    const CudaLibrary library = fill_cuda(fake_get_proc_address); \
    CHECK(library.cuda == nullptr);                               \
    CHECK(contains(library.reason, #symbol));                     \
  }
  ZEROHOP_CUDA_SYMBOLS(ZEROHOP_CHECK)
#undef ZEROHOP_CHECK
}

TEST_CASE("an absent or too old CUDA driver is a sentence with a remedy") {
  const CudaLibrary absent = load_cuda("libzerohop-absent.so.1");
  CHECK(absent.cuda == nullptr);
  CHECK(contains(absent.reason, "install the NVIDIA driver"));
  const CudaLibrary old = load_cuda("libc.so.6");
  CHECK(old.cuda == nullptr);
  CHECK(contains(old.reason, "525"));
  CHECK((libcuda().cuda != nullptr) == libcuda().reason.empty());
}

TEST_CASE("a CUresult becomes a CudaError with the driver's words and the code") {
  Cuda cuda;
  cuda.get_error_name = [](CudaResult, const char** text) {
    *text = "CUDA_ERROR_OUT_OF_MEMORY";
    return kCudaSuccess;
  };
  cuda.get_error_string = [](CudaResult, const char** text) {
    *text = "out of memory";
    return kCudaSuccess;
  };
  CHECK_NOTHROW(check_cuda(cuda, kCudaSuccess, "cuMemAlloc"));
  const auto error = thrown_by<CudaError>([&] { check_cuda(cuda, 2, "cuMemAlloc"); });
  CHECK(error.code() == 2);
  CHECK(contains(error.what(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory"));
}

}  // namespace
}  // namespace zerohop::driver
