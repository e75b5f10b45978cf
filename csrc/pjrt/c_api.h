// Thin helpers over the PJRT C API: argument structs, errors, events, element types, options.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "pjrt/client.h"
#include "pjrt_c_api.h"

// Declares a zeroed argument struct. A plugin that is older than the header leaves the fields that
// it does not know at zero; a newer one reads no further than struct_size.
#define PJRT_ARGS(Fn, name) \
  Fn##_Args name{};         \
  name.struct_size = Fn##_Args_STRUCT_SIZE

// Calls and throws the plugin's error under the function's name.
#define PJRT_CALL(api, Fn, args) ::torch_xla::pjrt::ThrowIfError((api), (api)->Fn(&(args)), #Fn)

// Whether the plugin is new enough to have the function at all.
#define PJRT_HAS(api, Fn) \
  ((api)->struct_size >= offsetof(PJRT_Api, Fn) + sizeof((api)->Fn) && (api)->Fn != nullptr)

namespace torch_xla::pjrt {

// Reads and frees `error` (null: ok).
Status TakeError(const PJRT_Api* api, PJRT_Error* error, const char* call);

inline void ThrowIfError(const PJRT_Api* api, PJRT_Error* error, const char* call) {
  if (error != nullptr) [[unlikely]]
    TakeError(api, error, call).ThrowIfError();
}

// Takes the event over; `call` names in errors what it is the completion of.
Event MakeEvent(const PJRT_Api* api, PJRT_Event* event, const char* call);
void DestroyEvent(const PJRT_Api* api, PJRT_Event* event);

// A newer plugin's enumerators may lie outside of the range that ours can hold.
template <typename Enum>
int RawEnum(const Enum& e) {
  static_assert(sizeof(Enum) == sizeof(int));
  int value;
  std::memcpy(&value, &e, sizeof(value));
  return value;
}

PJRT_Buffer_Type ToPjrt(DType dtype);
std::optional<DType> FromPjrt(
    int type);  // a raw PJRT_Buffer_Type; nullopt: a type that we do not have

// Points into `options`, which must outlive the result.
std::vector<PJRT_NamedValue> ToNamedValues(const Options& options);
Options FromNamedValues(const PJRT_NamedValue* values, size_t count);

// The store as callbacks of a client.
class KeyValueStore;
void SetCallbacks(PJRT_Client_Create_Args& args, KeyValueStore& store);

}  // namespace torch_xla::pjrt
