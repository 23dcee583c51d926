// A chain of work requests on the stack, posted with one doorbell.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace zerohop::engine {

class WorkChain {
 public:
  static constexpr std::uint32_t kRequests = 32;
  static constexpr std::uint32_t kElements = 128;  // scatter/gather elements in total

  // room: how many requests the send queue takes now; max_sge: elements per request.
  WorkChain(std::uint32_t room, std::uint32_t max_sge) noexcept
      : room_(room < kRequests ? room : kRequests), max_sge_(max_sge) {}

  std::uint32_t size() const noexcept { return requests_used_; }
  bool full() const noexcept { return requests_used_ == room_ || elements_used_ == kElements; }
  ibv_send_wr& front() noexcept { return requests_[0]; }
  ibv_send_wr& back() noexcept { return requests_[requests_used_ - 1]; }

  // Appends a request without elements. Not if full().
  ibv_send_wr& add(ibv_wr_opcode opcode) noexcept {
    ibv_send_wr& request = requests_[requests_used_];
    request = {};
    request.opcode = opcode;
    request.sg_list = &elements_[elements_used_];
    if (requests_used_ > 0) requests_[requests_used_ - 1].next = &request;
    ++requests_used_;
    return request;
  }

  // Appends an element to the last request.
  bool takes_element() const noexcept {
    return elements_used_ < kElements &&
           requests_[requests_used_ - 1].num_sge < static_cast<int>(max_sge_);
  }
  void add_element(std::uint64_t address, std::uint32_t nbytes, std::uint32_t lkey) noexcept {
    elements_[elements_used_++] = {.addr = address, .length = nbytes, .lkey = lkey};
    ++back().num_sge;
  }

 private:
  const std::uint32_t room_;
  const std::uint32_t max_sge_;
  std::uint32_t requests_used_ = 0;
  std::uint32_t elements_used_ = 0;
  std::array<ibv_send_wr, kRequests> requests_;  // each initialised in add()
  std::array<ibv_sge, kElements + 1> elements_;  // and one that confirms (JobLimits)
};

}  // namespace zerohop::engine
