# xla_pjrt_header and xla_torch: found through the Python that runs us, without torch's own CMake
# package (it looks for CUDA, MKL and more; we need two folders and three libraries).
if(Python_EXECUTABLE)  # relative to the source; FindPython would silently look for another one
  cmake_path(ABSOLUTE_PATH Python_EXECUTABLE BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
endif()
set(components Interpreter)
if(XLA_TORCH)
  list(APPEND components Development.Module)
endif()
find_package(Python 3.10 REQUIRED COMPONENTS ${components})

function(xla_ask_python result code)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${code}" OUTPUT_VARIABLE out
                  ERROR_VARIABLE error RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    set(out "")
  endif()
  set(${result} "${out}" PARENT_SCOPE)
endfunction()

# Also where PJRT_INCLUDE_DIR is given: the C++ tests run on this plugin.
xla_ask_python(plugin_dir "
import importlib.util
print(importlib.util.find_spec('xla_plugins.xla_cpu_pjrt').submodule_search_locations[0])")
if(NOT plugin_dir)
  set(plugin_dir "<xla-cpu-pjrt is not installed>")
endif()
set(XLA_TEST_PLUGIN "${plugin_dir}/xla_cpu_pjrt.so")
set(pjrt_include_dir "${plugin_dir}/include")
if(PJRT_INCLUDE_DIR)
  set(pjrt_include_dir ${PJRT_INCLUDE_DIR})
endif()
find_file(pjrt_header pjrt_c_api.h PATHS ${pjrt_include_dir} NO_DEFAULT_PATH NO_CACHE)
if(NOT pjrt_header)
  message(FATAL_ERROR "pjrt_c_api.h is not in '${pjrt_include_dir}'. It comes with the default "
    "plugin: run `${Python_EXECUTABLE} -m pip install xla-cpu-pjrt==0.0.1`, or name the header's "
    "folder with -DPJRT_INCLUDE_DIR=... (and the Python to use with -DPython_EXECUTABLE=...).")
endif()
add_library(xla_pjrt_header INTERFACE)
target_include_directories(xla_pjrt_header SYSTEM INTERFACE ${pjrt_include_dir})

if(XLA_TORCH)
  xla_ask_python(torch_facts "
import os, torch
print(os.path.dirname(torch.__file__), torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=';')")
  if(NOT torch_facts)
    message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch: run `${Python_EXECUTABLE} -m pip "
      "install torch==${PROJECT_VERSION}`, or name another Python with -DPython_EXECUTABLE=...")
  endif()
  list(GET torch_facts 0 torch_dir)
  list(GET torch_facts 1 torch_version)
  list(GET torch_facts 2 torch_cxx11_abi)
  if(NOT torch_version MATCHES "^${PROJECT_VERSION_MAJOR}\\.${PROJECT_VERSION_MINOR}\\.")
    message(FATAL_ERROR "torch-xla ${PROJECT_VERSION} is built against torch ${PROJECT_VERSION_MAJOR}."
      "${PROJECT_VERSION_MINOR}, but ${Python_EXECUTABLE} has torch ${torch_version}.")
  endif()
  add_library(xla_torch INTERFACE)
  target_include_directories(xla_torch SYSTEM INTERFACE ${torch_dir}/include)
  # As torch's wheels are built; c10d's headers ask for USE_DISTRIBUTED.
  target_compile_definitions(xla_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi}
                             USE_DISTRIBUTED)
  target_link_libraries(xla_torch INTERFACE ${torch_dir}/lib/libtorch_cpu.so ${torch_dir}/lib/libc10.so)
endif()
