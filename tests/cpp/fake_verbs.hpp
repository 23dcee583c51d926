// A verbs table that moves no bytes: it counts live objects, detects wrong destruction order, and
// fails the n-th call on demand.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/mlx5dv.hpp"
#include "driver/verbs.hpp"

namespace zerohop::testing {

class FakeVerbs {
 public:
  FakeVerbs();   // becomes the one behind table()
  ~FakeVerbs();  // must outlive every object made through the table
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  std::shared_ptr<const driver::Verbs> table() const { return table_; }
  // Its calls are counted and fail like those of table().
  std::shared_ptr<const driver::Mlx5dv> mlx5dv() const { return mlx5dv_; }

  // The fail_at-th call (from 1; 0: none) fails with error_number, in its own convention.
  int fail_at = 0;
  int error_number = 0;
  int calls = 0;
  std::string failed;               // the function that was made to fail
  bool fail_destroy = false;        // destroy functions report EBUSY (and destroy all the same)
  std::uint32_t most_inline = 512;  // create_qp refuses more with EINVAL

  ibv_device_attr device{};
  ibv_port_attr port{};                  // of every port
  std::vector<ibv_gid_entry> gid_table;  // empty: query_gid_table is not supported

  struct Adapter {
    std::string name = "fake0";
    ibv_transport_type transport = IBV_TRANSPORT_IB;
    int open_error = 0;                // errno of open_device; 0: it opens
    std::vector<ibv_port_attr> ports;  // none: as `device` and `port` say
  };
  std::vector<Adapter> adapters{{}};  // 8 at most
  std::deque<ibv_async_event> async_events;
  int pending_cq_events = 0;
  // Errors of the next event calls, once there is no event; then EAGAIN.
  std::deque<int> async_event_errors;
  std::deque<int> cq_event_errors;
  unsigned acknowledged_cq_events = 0;
  int acknowledged_async_events = 0;
  int posted = 0;  // work requests taken by post_send and post_recv

  std::vector<std::pair<ibv_qp_attr, int>> transitions;  // modify_qp: attributes and mask
  ibv_qp_init_attr created{};                            // create_qp: last accepted
  std::function<void(std::uint64_t)> registering;        // called first in each, with the address
  std::string registered_by;                             // reg_mr, reg_mr_iova2, ...
  int registered_access = 0;
  std::uint64_t registered_offset = 0;  // of reg_dmabuf_mr, as the next
  std::uint64_t registered_iova = 0;
  int registered_mlx5_access = 0;

  // For every registration of a dma-buf, and every one by address; 0: they work.
  int dmabuf_error = 0;
  int address_error = 0;
  int relaxed_ordering_error = 0;                   // of those that ask for it
  bool data_direct = false;                         // whether the device has such a function
  std::uint64_t least_refused = ~std::uint64_t{0};  // nbytes from which on: ENOMEM

  std::size_t live() const { return objects_.size(); }
  const std::vector<std::string>& violations() const { return violations_; }

  // For the table's functions.
  bool fails(const char* function);
  void add(void* object, const char* kind, std::vector<void*> parents);
  int remove(void* object, const char* kind);  // 0, or EBUSY

 private:
  struct Object {
    std::string kind;
    std::vector<void*> parents;
  };
  std::shared_ptr<const driver::Verbs> table_;
  std::shared_ptr<const driver::Mlx5dv> mlx5dv_;
  std::map<void*, Object> objects_;
  std::vector<std::string> violations_;
};

}  // namespace zerohop::testing
