// A shared library that may be absent, opened at run time.
#pragma once

#include <memory>
#include <string>

namespace zerohop {

// Opens with RTLD_LOCAL | RTLD_NODELETE: its symbols stay private, and its code stays mapped after
// close, because drivers register fork and exit handlers that outlive every owner.
class DynamicLibrary {
 public:
  // Does not throw for an absent library: the object is then false and reason() says why.
  explicit DynamicLibrary(const char* soname);

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  const std::string& reason() const noexcept { return reason_; }  // dlerror()'s text

  // Null when the library, the symbol or that version of the symbol is not there.
  void* find(const char* symbol) const noexcept;
  void* find(const char* symbol, const char* version) const noexcept;

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  std::unique_ptr<void, Close> handle_;
  std::string reason_;
};

}  // namespace zerohop
