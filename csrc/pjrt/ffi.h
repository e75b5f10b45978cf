// The part of XLA's FFI interface (C structs, version 0.1) that a handler of ours touches. The
// structs only grow at their ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla::ffi {

inline constexpr int kMetadata = 1;    // Extension::type
inline constexpr int kStringAttr = 4;  // Attrs::types
inline constexpr int kInternalError = 13;

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
struct Version {
  size_t struct_size;
  Extension* extensions;
  int major_version, minor_version;
};
struct Metadata {
  size_t struct_size;
  Version api_version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};
struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};
struct FutureArgs {
  size_t struct_size;
  Extension* extensions;
  void* future;
};
struct FutureErrorArgs {
  size_t struct_size;
  Extension* extensions;
  void* future;
  void* error;  // taken over
};
struct Api {
  size_t struct_size;
  Extension* extensions;
  Version api_version;
  void* internal_api;
  void* (*error_create)(ErrorCreateArgs*);
  void* others[12];  // that no handler of ours calls
  void* (*future_create)(FutureArgs*);
  void* (*future_set_available)(FutureArgs*);
  void* (*future_set_error)(FutureErrorArgs*);
};
struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int dtype;  // XLA's PrimitiveType
  void* data;
  int64_t rank;
  int64_t* dims;
};
struct Values {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  void** values;
};
struct Text {
  const char* data;
  size_t size;
};
struct Attrs {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  Text** names;
  void** values;
};
struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Values args;
  Values rets;
  Attrs attrs;
  void* future;  // set by the handler that goes on after it has returned
};

// The plugin asks a handler for its version before it uses it, and drops one that reports a newer
// version than its own; true when this was the question.
inline bool AnswerMetadata(CallFrame* frame) {
  if (frame->extensions == nullptr || frame->extensions->type != kMetadata) return false;
  Metadata* metadata = reinterpret_cast<MetadataExtension*>(frame->extensions)->metadata;
  metadata->api_version.major_version = 0;
  metadata->api_version.minor_version = 1;
  return true;
}

}  // namespace torch_xla::ffi
