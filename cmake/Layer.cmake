# xla_layer(name [DEPENDS layer...] [PUBLIC lib...] [PRIVATE lib...]): static library xla_<name> of
# csrc/<name>/*.cc. Each layer has an include root of its own that holds nothing but the layer
# (<build>/layers/<name>/<name> -> csrc/<name>), and sees its dependencies' roots alone: an include
# against the direction of the layers finds no file.
function(xla_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;PUBLIC;PRIVATE" ${ARGN})
  set(root ${PROJECT_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/csrc/${name} ${root}/${name} SYMBOLIC)
  list(TRANSFORM arg_DEPENDS PREPEND xla_)

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/${name}/*.cc)
  if(NOT sources)
    add_library(xla_${name} INTERFACE)
    target_include_directories(xla_${name} INTERFACE ${root})
    target_link_libraries(xla_${name} INTERFACE ${arg_DEPENDS} ${arg_PUBLIC})
    return()
  endif()
  add_library(xla_${name} STATIC ${sources})
  target_include_directories(xla_${name} PUBLIC ${root})
  target_link_libraries(xla_${name} PUBLIC ${arg_DEPENDS} ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

# The named layers compile with the first one's csrc/<layer>/pch.h.
function(xla_precompile first)
  get_target_property(type xla_${first} TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)  # no sources yet
    return()
  endif()
  target_precompile_headers(xla_${first} PRIVATE ${PROJECT_SOURCE_DIR}/csrc/${first}/pch.h)
  foreach(layer ${ARGN})
    get_target_property(type xla_${layer} TYPE)
    if(NOT type STREQUAL INTERFACE_LIBRARY)
      target_precompile_headers(xla_${layer} REUSE_FROM xla_${first})
    endif()
  endforeach()
endfunction()
