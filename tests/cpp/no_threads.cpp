#include "no_threads.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

namespace zerohop::testing {
namespace {

thread_local bool none = false;

}  // namespace

NoThreads::NoThreads() { none = true; }
NoThreads::~NoThreads() { none = false; }

}  // namespace zerohop::testing

// Overrides the C library's, and a sanitizer's.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*function)(void*),
                                                             void* argument) noexcept {
  if (zerohop::testing::none) return EAGAIN;
  static const auto real =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, function, argument);
}
