# Finds dlpack/dlpack.h, version 1.0 or newer: in apache-tvm-ffi (a PyPI package that carries it), in
# torch, or on the system. Sets DLPACK_INCLUDE (the folder to include) and DLPACK_HEADER (relative to it).
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "
import importlib.util, pathlib
for package, folder in (('tvm_ffi', 'include'), ('torch', 'include')):
    spec = importlib.util.find_spec(package)
    if spec and spec.origin:
        print(pathlib.Path(spec.origin).parent / folder)
"
  OUTPUT_VARIABLE dlpack_hints OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "\n" ";" dlpack_hints "${dlpack_hints}")

foreach(folder IN LISTS DLPACK_INCLUDE dlpack_hints ITEMS /usr/local/include /usr/include)
  foreach(header dlpack/dlpack.h ATen/dlpack.h)
    if(NOT DLPACK_HEADER AND EXISTS ${folder}/${header})
      file(STRINGS ${folder}/${header} version REGEX "#define DLPACK_MAJOR_VERSION +1$")
      if(version)
        set(DLPACK_INCLUDE ${folder} CACHE PATH "Folder of the DLPack header" FORCE)
        set(DLPACK_HEADER ${header})
      endif()
    endif()
  endforeach()
endforeach()
if(NOT DLPACK_HEADER)
  message(FATAL_ERROR "dlpack.h 1.0 or newer not found: pip install apache-tvm-ffi (headers only; nothing is linked)")
endif()
message(STATUS "zerohop: DLPack header ${DLPACK_INCLUDE}/${DLPACK_HEADER}")
