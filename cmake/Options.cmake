# Language, flags and tools common to all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_COLOR_DIAGNOSTICS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_compile_options(-Wall -Wextra)
if(XLA_WERROR)
  add_compile_options(-Werror)
endif()
# Paths in messages are the repository's (csrc/base/shape.h), whatever machine built it and through
# whichever include root (see Layer.cmake) a header was found.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
foreach(layer base pjrt hlo ir lazy aten ops dist bindings)
  add_compile_options("-ffile-prefix-map=${PROJECT_BINARY_DIR}/layers/${layer}/=csrc/")
endforeach()
add_compile_definitions(TORCH_XLA_VERSION="${PROJECT_VERSION}")

if(XLA_SANITIZE)
  add_compile_options(-fsanitize=${XLA_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -O1 -g1 -UNDEBUG)
  add_link_options(-fsanitize=${XLA_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for where precompiled headers are used; the base folder
  # lets two checkouts share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
