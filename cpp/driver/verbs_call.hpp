// Verbs calls report failure in three ways. Only these functions turn them into a VerbsError.
#pragma once

#include <string_view>

namespace zerohop::driver {

// The errno of a result of the first convention below: errno, -errno, or -1 with errno set.
int errno_of(int result) noexcept;

// Throws VerbsError("<what>: <errno text> ...; <remedy>") with the errno kept as code().
[[noreturn]] void throw_verbs_error(std::string_view what, int error_number);

// For calls that return errno itself: modify_qp, query_qp, post_*, dereg_mr, destroy_*, dealloc_*,
// req_notify_cq, query_device, query_port, close_device (see errno_of for what providers do).
void check_errno(int result, std::string_view what);

// For calls that return -1 and set errno: query_gid, query_pkey, get_cq_event, get_async_event.
void check_minus_one(int result, std::string_view what);

// For calls that return NULL and set errno: create_*, alloc_*, reg_*, open_device, get_device_list.
template <typename T>
T* check_null(T* result, std::string_view what);

// For destructors, with the convention of check_errno: the failure goes to report() instead.
void report_errno(int result, std::string_view what) noexcept;

}  // namespace zerohop::driver

#include <cerrno>

namespace zerohop::driver {

template <typename T>
T* check_null(T* result, std::string_view what) {
  if (result == nullptr) throw_verbs_error(what, errno);
  return result;
}

}  // namespace zerohop::driver
