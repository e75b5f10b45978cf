// XLA's CompileOptionsProto, encoded by hand: six fields do not justify a protobuf dependency.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace torch_xla::pjrt {

// `device_ids` are global, one per replica; empty: one replica, portable.
std::string EncodeCompileOptions(std::span<const int64_t> device_ids);

}  // namespace torch_xla::pjrt
