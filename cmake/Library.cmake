# libtorch_xla.so: all layers below Python, usable from a LibTorch program; _XLAC: the bindings.
set(objects)
foreach(layer base pjrt hlo ir lazy aten ops dist)
  get_target_property(type xla_${layer} TYPE)
  if(NOT type STREQUAL INTERFACE_LIBRARY)
    # The objects and not the archives: kernels register by static initialisers, and an archive
    # gives only what somebody names.
    list(APPEND objects $<TARGET_OBJECTS:xla_${layer}>)
  endif()
endforeach()
add_library(torch_xla SHARED ${objects})
set_target_properties(torch_xla PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(torch_xla PUBLIC xla_torch PRIVATE ${CMAKE_DL_LIBS}
                      INTERFACE $<COMPILE_ONLY:xla_dist>)
target_link_options(torch_xla PRIVATE -Wl,--no-undefined)
set(targets torch_xla)

file(GLOB binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/bindings/*.cc)
if(binding_sources)
  set(root ${PROJECT_BINARY_DIR}/layers/bindings)
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/csrc/bindings ${root}/bindings SYMBOLIC)
  Python_add_library(_XLAC MODULE WITH_SOABI ${binding_sources})
  target_include_directories(_XLAC PRIVATE ${root})
  # pybind11 is torch's copy, so that both speak of the same registered types.
  target_link_libraries(_XLAC PRIVATE torch_xla ${torch_dir}/lib/libtorch_python.so)
  set_target_properties(_XLAC PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_precompile_headers(_XLAC PRIVATE ${PROJECT_SOURCE_DIR}/csrc/bindings/pch.h)
  list(APPEND targets _XLAC)
endif()

# Beside each other in the package; torch's libraries are those of the torch beside the package.
set_target_properties(${targets} PROPERTIES
  BUILD_RPATH_USE_ORIGIN ON
  BUILD_RPATH "$ORIGIN;${torch_dir}/lib"
  INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
if(XLA_INPLACE)
  set_target_properties(${targets} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/torch_xla)
endif()
install(TARGETS ${targets} LIBRARY DESTINATION torch_xla)
