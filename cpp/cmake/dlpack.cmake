# Target zerohop_dlpack: brings dlpack.h, recent enough to have the C exchange table (DLPack 1.2 and
# newer), as ZEROHOP_DLPACK_HEADER. It is looked for in apache-tvm-ffi (a PyPI package that carries
# it), in torch and on the system.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "
import importlib.util, pathlib
for package in ('tvm_ffi', 'torch'):
    spec = importlib.util.find_spec(package)
    if spec and spec.origin:
        print(pathlib.Path(spec.origin).parent / 'include')
"
  OUTPUT_VARIABLE dlpack_folders OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" dlpack_folders "${dlpack_folders}")

set(dlpack_folder)
foreach(folder IN LISTS dlpack_folders ITEMS /usr/local/include /usr/include)
  foreach(header dlpack/dlpack.h ATen/dlpack.h)
    if(NOT dlpack_folder AND EXISTS ${folder}/${header})
      file(STRINGS ${folder}/${header} exchange_table REGEX "^} DLPackExchangeAPI;")
      if(exchange_table)
        set(dlpack_folder ${folder})
        set(dlpack_header ${header})
      endif()
    endif()
  endforeach()
endforeach()
if(NOT dlpack_folder)
  message(FATAL_ERROR "dlpack.h with the C exchange table not found: pip install apache-tvm-ffi (headers only; nothing is linked)")
endif()
message(STATUS "zerohop: DLPack header ${dlpack_folder}/${dlpack_header}")

add_library(zerohop_dlpack INTERFACE)
target_include_directories(zerohop_dlpack SYSTEM INTERFACE ${dlpack_folder})
target_compile_definitions(zerohop_dlpack INTERFACE ZEROHOP_DLPACK_HEADER=<${dlpack_header}>)
