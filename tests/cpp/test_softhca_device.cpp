// What a soft0 device reports and grants, and in which order objects may be destroyed.
#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "soft_side.hpp"

using namespace zerohop::testing;

TEST_CASE("what is in use cannot be destroyed") {
  Side side({.events = true});
  CHECK(soft().dealloc_pd(side.pd) == EBUSY);
  CHECK(soft().destroy_cq(side.cq) == EBUSY);
  CHECK(soft().destroy_comp_channel(side.channel) == EBUSY);
  CHECK(soft().close_device(side.context) == EBUSY);
}

TEST_CASE("devices are found by interface and address") {
  using zerohop::softhca::canonical_name;
  CHECK(canonical_name("soft0") == "soft0");
  CHECK(canonical_name("soft0@lo") == "soft0");
  CHECK(canonical_name("soft0@127.0.0.1") == "soft0");
  CHECK_THROWS_AS(canonical_name("soft0@nowhere7"), zerohop::VerbsError);
  int count = 0;
  ibv_device** list = soft().get_device_list(&count);
  REQUIRE(count >= 1);
  CHECK(std::string(soft().get_device_name(list[0])) == "soft0");
  CHECK(list[count] == nullptr);
  for (int i = 0; i < count; ++i) {
    CHECK(canonical_name(soft().get_device_name(list[i])) == soft().get_device_name(list[i]));
  }
  soft().free_device_list(list);
}

TEST_CASE("queue pairs are granted what they ask, or refused") {
  Side side;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq;
  init.qp_type = IBV_QPT_UD;
  CHECK(soft().create_qp(side.pd, &init) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  init.qp_type = IBV_QPT_RC;
  init.cap = {100000, 1, 1, 1, 0};
  CHECK(soft().create_qp(side.pd, &init) == nullptr);
  CHECK(errno == EINVAL);
  init.cap = {100, 50, 3, 2, 200};
  ibv_qp* qp = soft().create_qp(side.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(init.cap.max_send_wr >= 100);
  CHECK(init.cap.max_inline_data >= 200);
  CHECK(soft().destroy_qp(qp) == 0);
}
