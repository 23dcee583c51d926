#include "bindings/interpreter.hpp"

#include <Python.h>

namespace zerohop::bindings {

const char* refusal_of_interpreter() noexcept {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return nullptr;
  return "zerohop cannot be imported in a subinterpreter, because its threads serve the main one: "
         "import it there, or use a process instead of the subinterpreter "
         "(multiprocessing.get_context(\"spawn\"))";
}

}  // namespace zerohop::bindings
