#include "fake_verbs.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace zerohop::testing {
namespace {

FakeVerbs* current = nullptr;              // the table's functions have no context argument
std::array<ibv_device, 8> fake_devices{};  // of the adapters

const FakeVerbs::Adapter& adapter_of(const ibv_device* device) {
  return current->adapters.at(static_cast<std::size_t>(device - fake_devices.data()));
}

template <typename T>
T* null_with(int error_number) {
  errno = error_number;
  return nullptr;
}

template <typename T>
T* make(const char* function, const char* kind, ibv_context* context, std::vector<void*> parents) {
  if (current->fails(function)) return nullptr;
  auto* object = new T{};
  object->context = context;
  current->add(object, kind, std::move(parents));
  return object;
}

template <typename T>
int destroy(T* object, const char* kind) {
  const int result = current->remove(object, kind);
  delete object;
  return result;
}

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr**) {
  for (; wr != nullptr; wr = wr->next) ++current->posted;
  return 0;
}
int post_recv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr**) {
  for (; wr != nullptr; wr = wr->next) ++current->posted;
  return 0;
}
int poll_cq(ibv_cq*, int, ibv_wc*) { return 0; }
int req_notify_cq(ibv_cq*, int) { return 0; }

ibv_device** get_device_list(int* count) {
  if (current->fails("get_device_list")) return nullptr;
  const std::size_t most = current->adapters.size();
  auto** list = new ibv_device* [most + 1] {};
  for (std::size_t i = 0; i < most; ++i) {
    list[i] = &fake_devices.at(i);
    std::strcpy(list[i]->name, current->adapters[i].name.c_str());
    list[i]->transport_type = current->adapters[i].transport;
  }
  current->add(list, "device list", {});
  *count = static_cast<int>(most);
  return list;
}
void free_device_list(ibv_device** list) {
  current->remove(list, "device list");
  delete[] list;
}
const char* get_device_name(ibv_device* device) { return device->name; }

ibv_context* open_device(ibv_device* device) {
  if (current->fails("open_device")) return nullptr;
  if (const int error = adapter_of(device).open_error) return null_with<ibv_context>(error);
  auto* context = new ibv_context{};
  context->device = device;
  context->async_fd = ::eventfd(0, EFD_CLOEXEC);
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  current->add(context, "context", {});
  return context;
}
int close_device(ibv_context* context) {
  const int result = current->remove(context, "context");
  ::close(context->async_fd);
  delete context;
  return result;
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (current->fails("query_device")) return errno;
  *attributes = current->device;
  const auto& ports = adapter_of(context->device).ports;
  if (!ports.empty()) attributes->phys_port_cnt = static_cast<std::uint8_t>(ports.size());
  return 0;
}
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  if (current->fails("query_port")) return errno;
  const auto& ports = adapter_of(context->device).ports;
  *attributes = ports.empty() ? current->port : ports.at(port - 1u);
  return 0;
}
int query_gid(ibv_context*, std::uint8_t, int index, ibv_gid* gid) {
  if (current->fails("query_gid")) return -1;
  std::memset(gid, 0xab, sizeof *gid);
  gid->raw[15] = static_cast<std::uint8_t>(index);
  return 0;
}
ssize_t query_gid_table(ibv_context*, ibv_gid_entry* entries, std::size_t most, std::uint32_t,
                        std::size_t) {
  const auto& table = current->gid_table;
  if (current->fails("query_gid_table")) return -current->error_number;
  if (table.empty()) return -EOPNOTSUPP;
  if (most < table.size()) return -EINVAL;
  std::copy(table.begin(), table.end(), entries);
  return static_cast<ssize_t>(table.size());
}
int query_pkey(ibv_context*, std::uint8_t, int, __be16* pkey) {
  *pkey = 0xffff;
  return 0;
}

int no_event(std::deque<int>& errors) {
  errno = EAGAIN;
  if (!errors.empty()) {
    errno = errors.front();
    errors.pop_front();
  }
  return -1;
}

int get_async_event(ibv_context*, ibv_async_event* event) {
  if (current->async_events.empty()) return no_event(current->async_event_errors);
  *event = current->async_events.front();
  current->async_events.pop_front();
  return 0;
}
void ack_async_event(ibv_async_event*) { ++current->acknowledged_async_events; }

ibv_pd* alloc_pd(ibv_context* context) {
  return make<ibv_pd>("alloc_pd", "pd", context, {context});
}
int dealloc_pd(ibv_pd* pd) { return destroy(pd, "pd"); }

ibv_mr* register_with(const char* function, ibv_pd* pd, void* address, std::size_t nbytes,
                      int access) {
  if (current->fails(function)) return nullptr;
  const bool relaxed = (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
  if (relaxed && current->relaxed_ordering_error != 0) {
    return null_with<ibv_mr>(current->relaxed_ordering_error);
  }
  if (nbytes >= current->least_refused) return null_with<ibv_mr>(ENOMEM);
  current->registered_by = function;
  current->registered_access = access;
  auto* mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = nbytes;
  mr->lkey = 0x1111;
  mr->rkey = 0x2222;
  current->add(mr, "mr", {pd});
  return mr;
}
void announce(std::uint64_t address) {
  if (current->registering) current->registering(address);
}
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t nbytes, int access) {
  announce(reinterpret_cast<std::uint64_t>(address));
  if (current->address_error != 0) return null_with<ibv_mr>(current->address_error);
  return register_with("reg_mr", pd, address, nbytes, access);
}
ibv_mr* reg_mr_iova2(ibv_pd* pd, void* address, std::size_t nbytes, std::uint64_t,
                     unsigned access) {
  announce(reinterpret_cast<std::uint64_t>(address));
  if (current->address_error != 0) return null_with<ibv_mr>(current->address_error);
  return register_with("reg_mr_iova2", pd, address, nbytes, static_cast<int>(access));
}
ibv_mr* register_dmabuf_with(const char* function, ibv_pd* pd, std::uint64_t offset,
                             std::size_t nbytes, std::uint64_t iova, int fd, int access) {
  if (current->dmabuf_error != 0) return null_with<ibv_mr>(current->dmabuf_error);
  if (fd < 0) return null_with<ibv_mr>(EBADF);
  announce(iova);
  // As in libibverbs, the address of such a region is its offset.
  ibv_mr* mr = register_with(function, pd, reinterpret_cast<void*>(offset), nbytes, access);
  if (mr == nullptr) return nullptr;
  current->registered_offset = offset;
  current->registered_iova = iova;
  return mr;
}
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t nbytes, std::uint64_t iova,
                      int fd, int access) {
  return register_dmabuf_with("reg_dmabuf_mr", pd, offset, nbytes, iova, fd, access);
}
ibv_mr* mlx5_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t nbytes, std::uint64_t iova,
                           int fd, int access, int mlx5_access) {
  current->registered_mlx5_access = mlx5_access;
  return register_dmabuf_with("mlx5dv_reg_dmabuf_mr", pd, offset, nbytes, iova, fd, access);
}
int get_data_direct_sysfs_path(ibv_context*, char* path, std::size_t) {
  if (current->fails("get_data_direct_sysfs_path")) return errno;
  *path = '\0';
  return current->data_direct ? 0 : ENODEV;
}
int dereg_mr(ibv_mr* mr) { return destroy(mr, "mr"); }

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  auto* channel = make<ibv_comp_channel>("create_comp_channel", "channel", context, {context});
  if (channel != nullptr) channel->fd = ::eventfd(0, EFD_CLOEXEC);
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  const int result = current->remove(channel, "channel");
  ::close(channel->fd);
  delete channel;
  return result;
}

ibv_cq* create_cq(ibv_context* context, int cqe, void*, ibv_comp_channel* channel, int) {
  auto* cq = make<ibv_cq>("create_cq", "cq", context, {context, channel});
  if (cq == nullptr) return nullptr;
  cq->channel = channel;
  cq->cqe = cqe;
  return cq;
}
int resize_cq(ibv_cq* cq, int cqe) {
  if (current->fails("resize_cq")) return errno;
  cq->cqe = cqe;
  return 0;
}
int destroy_cq(ibv_cq* cq) { return destroy(cq, "cq"); }
int get_cq_event(ibv_comp_channel*, ibv_cq**, void**) {
  if (current->pending_cq_events == 0) return no_event(current->cq_event_errors);
  --current->pending_cq_events;
  return 0;
}
void ack_cq_events(ibv_cq*, unsigned count) { current->acknowledged_cq_events += count; }

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
  auto* srq = make<ibv_srq>("create_srq", "srq", pd->context, {pd});
  if (srq != nullptr) srq->pd = pd;
  return srq;
}
int destroy_srq(ibv_srq* srq) { return destroy(srq, "srq"); }

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (current->fails("create_qp")) return nullptr;
  if (attributes->cap.max_inline_data > current->most_inline) return null_with<ibv_qp>(EINVAL);
  current->created = *attributes;
  auto* qp = new ibv_qp{};
  qp->context = pd->context;
  qp->pd = pd;
  qp->qp_num = 0x123456;
  qp->state = IBV_QPS_RESET;
  current->add(qp, "qp", {pd, attributes->send_cq, attributes->recv_cq});
  return qp;
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if (current->fails("modify_qp")) return errno;
  current->transitions.emplace_back(*attributes, mask);
  qp->state = attributes->qp_state;
  return 0;
}
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
  if (current->fails("query_qp")) return errno;
  attributes->qp_state = qp->state;
  return 0;
}
int destroy_qp(ibv_qp* qp) { return destroy(qp, "qp"); }

std::shared_ptr<const driver::Verbs> make_table() {
  auto table = std::make_shared<driver::Verbs>();
  table->provider = "fake";
#define ZEROHOP_FAKE(member, symbol, version) table->member = member;
  ZEROHOP_VERBS_REQUIRED(ZEROHOP_FAKE)
#undef ZEROHOP_FAKE
  table->query_gid_table = query_gid_table;
  table->reg_mr_iova2 = reg_mr_iova2;
  table->reg_dmabuf_mr = reg_dmabuf_mr;
  table->query_port = query_port;
  table->reg_mr = reg_mr;
  return table;
}

std::shared_ptr<const driver::Mlx5dv> make_mlx5dv() {
  auto table = std::make_shared<driver::Mlx5dv>();
  table->get_data_direct_sysfs_path = get_data_direct_sysfs_path;
  table->reg_dmabuf_mr = mlx5_reg_dmabuf_mr;
  return table;
}

}  // namespace

FakeVerbs::FakeVerbs() : table_(make_table()), mlx5dv_(make_mlx5dv()) {
  current = this;
  device.phys_port_cnt = 1;
  device.atomic_cap = IBV_ATOMIC_HCA;
  device.max_mr_size = 1 << 20;
  device.max_qp_wr = 1024;
  device.max_sge = 4;
  device.max_cqe = 4096;
  device.max_pkeys = 1;
  device.max_qp_rd_atom = 16;
  device.max_qp_init_rd_atom = 8;
  port.state = IBV_PORT_ACTIVE;
  port.max_mtu = IBV_MTU_4096;
  port.active_mtu = IBV_MTU_4096;
  port.gid_tbl_len = 1;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
}

FakeVerbs::~FakeVerbs() { current = nullptr; }

bool FakeVerbs::fails(const char* function) {
  if (++calls != fail_at) return false;
  failed = function;
  errno = error_number;
  return true;
}

void FakeVerbs::add(void* object, const char* kind, std::vector<void*> parents) {
  objects_[object] = {kind, std::move(parents)};
}

int FakeVerbs::remove(void* object, const char* kind) {
  const auto found = objects_.find(object);
  if (found == objects_.end() || found->second.kind != kind) {
    violations_.push_back(std::string("no live ") + kind + " to destroy");
    return EINVAL;
  }
  objects_.erase(found);
  for (const auto& [child, description] : objects_) {
    for (void* parent : description.parents) {
      if (parent == object) violations_.push_back(description.kind + " outlives its " + kind);
    }
  }
  return fail_destroy ? EBUSY : 0;
}

}  // namespace zerohop::testing
