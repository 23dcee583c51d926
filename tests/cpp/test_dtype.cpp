#include <doctest/doctest.h>

#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/dtype.hpp"

using zerohop::DType;

TEST_CASE("every supported name parses, prints itself and has whole bytes") {
  std::istringstream names(
      "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 "
      "float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
      "float8_e5m2fnuz float8_e8m0fnu complex32 complex64 complex128");
  std::set<std::string> seen;
  for (std::string name; names >> name;) {
    const DType dtype = DType::parse(name);
    CHECK(dtype.name() == name);
    CHECK(dtype.supported());
    CHECK(dtype.itemsize() * 8 == dtype.bits);
    seen.insert(name);
  }
  CHECK(seen.size() == 24);
}

TEST_CASE("item sizes and codes are DLPack's") {
  CHECK(DType::parse("bool") == DType{6, 8, 1});
  CHECK(DType::parse("complex128").itemsize() == 16);
  CHECK(DType::parse("bfloat16") == DType{4, 16, 1});
  CHECK(DType::parse("float8_e5m2").itemsize() == 1);
}

TEST_CASE("an unknown name is refused with the families of known ones") {
  CHECK_THROWS_WITH_AS(DType::parse("float128"), doctest::Contains("float16 to float64"),
                       std::invalid_argument);
  CHECK_FALSE(DType{17, 4, 2}.supported());
  CHECK(DType{17, 4, 2}.name() == "dtype(code=17, bits=4, lanes=2)");
}
