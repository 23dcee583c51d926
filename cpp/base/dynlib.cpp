#include "base/dynlib.hpp"

#include <dlfcn.h>

namespace zerohop {

DynamicLibrary::DynamicLibrary(const char* soname)
    : handle_(::dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
  if (handle_ != nullptr) return;
  const char* words = ::dlerror();
  reason_ = words != nullptr ? words : "the dynamic linker gives no reason";
}

void* DynamicLibrary::find(const char* symbol) const noexcept {
  // dlsym(NULL, ...) would search the whole program (RTLD_DEFAULT is null in glibc).
  return handle_ ? ::dlsym(handle_.get(), symbol) : nullptr;
}

void* DynamicLibrary::find(const char* symbol, const char* version) const noexcept {
  return handle_ ? ::dlvsym(handle_.get(), symbol, version) : nullptr;
}

void DynamicLibrary::Close::operator()(void* handle) const noexcept { ::dlclose(handle); }

}  // namespace zerohop
