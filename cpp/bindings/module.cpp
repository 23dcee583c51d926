// The extension module zerohop._core: lists the topics, each bound in its own file.
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, m) { m.doc() = "The C++ core of zerohop."; }
