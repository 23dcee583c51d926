// Failures: kept as values, logged once each, reported where they cannot be thrown, and those of
// foreign libraries.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>
#include <typeinfo>

#include "base/causes.hpp"
#include "base/error.hpp"
#include "base/failure.hpp"
#include "base/report.hpp"
#include "driver/cuda.hpp"
#include "driver/cuda_call.hpp"
#include "driver/mlx5dv.hpp"
#include "driver/verbs.hpp"
#include "driver/verbs_call.hpp"
#include "reported.hpp"

namespace {

thread_local bool out_of_memory = false;

}  // namespace

void* operator new(std::size_t nbytes) {
  void* const memory = out_of_memory ? nullptr : std::malloc(nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace zerohop::testing {
namespace {

using namespace driver;

// --- an error kept as a value is rethrown with its type ---

TEST_CASE_TEMPLATE("a failure keeps type, message, code and effect", Thrown, Error, VerbsError,
                   CudaError, PeerLost, TransferTimeout, RegistrationError, RouteUnavailable,
                   ProtocolError, AuthenticationError) {
  Failure failure;
  try {
    throw Thrown("what failed", 7, Effect::some);
  } catch (const std::exception&) {
    failure = Failure::of_current_exception();
  }
  try {
    failure.raise();
  } catch (const Error& error) {
    CHECK(typeid(error) == typeid(Thrown));
    CHECK(std::string(error.what()) == "what failed");
    CHECK(error.code() == 7);
    CHECK(error.effect() == Effect::some);
  }
}

TEST_CASE("the words about the effect change with it, and stay at the end") {
  Failure failure = Failure{.message = "it failed"}.with_effect(Effect::all);
  CHECK(failure.message == "it failed (all of the data may have been written)");
  failure.set_effect(Effect::nothing);
  CHECK(failure.message == "it failed (nothing was written)");
  failure.explain("; nobody listened");
  CHECK(failure.message == "it failed; nobody listened (nothing was written)");
}

TEST_CASE("the words about the effect are known by their length, also once thrown") {
  // A message of a peer may end the same way: it stays.
  Failure failure{.message = "the peer says: no (nothing was written)"};
  failure.set_effect(Effect::some);
  CHECK(failure.message ==
        "the peer says: no (nothing was written) (some of the data may have been written)");
  try {
    failure.raise();
  } catch (const Error&) {
    failure = Failure::of_current_exception();
  }
  failure.set_effect(Effect::nothing);
  CHECK(failure.message == "the peer says: no (nothing was written) (nothing was written)");
}

TEST_CASE("causes are logged once each, and not without end") {
  zerohop::Causes causes;
  CHECK(causes.add("one"));
  CHECK(causes.add("two"));
  CHECK(!causes.add("one"));
  std::size_t reported = 2;
  for (int i = 0; i < 100; ++i) reported += causes.add(std::to_string(i)) ? 1 : 0;
  CHECK(reported == zerohop::Causes::kMost);
}

// --- reports ---

std::string reported;

TEST_CASE("parts are put together without memory from the heap") {
  reported.reserve(4096);
  const auto former =
      set_report_sink([](std::string_view text) noexcept { reported.assign(text); });
  const std::string cause(100, 'x');
  out_of_memory = true;
  report({"it cannot go on: ", cause, "."});
  out_of_memory = false;
  CHECK(reported == "it cannot go on: " + cause + ".");
  report({std::string(5000, 'y')});
  CHECK(reported == std::string(2048, 'y'));
  set_report_sink(former);
}

// --- foreign functions: how they fail, and what a library lacks ---

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

TEST_CASE("a failing destructor reports and does not throw") {
  const Reports reports;
  report_errno(0, "ibv_destroy_qp");
  CHECK(reports.count() == 0);
  report_errno(EBUSY, "ibv_destroy_qp");
  CHECK(reports.count("ibv_destroy_qp failed with errno " + std::to_string(EBUSY)) == 1);
}

TEST_CASE("an absent libibverbs, or one that lacks a symbol, is a sentence with a remedy") {
  const VerbsLibrary absent = load_verbs("libzerohop-absent.so.1");
  CHECK(absent.verbs == nullptr);
  CHECK(contains(absent.reason, "libzerohop-absent.so.1"));
  CHECK(contains(absent.reason, "soft0"));
  const VerbsLibrary other = load_verbs("libc.so.6");
  CHECK(other.verbs == nullptr);
  CHECK(contains(other.reason, "ibv_get_device_list@IBVERBS_1.1"));
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
  CHECK(contains(old.reason, "rdma-core 22"));
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
}  // namespace zerohop::testing
