// XLA's CompileOptionsProto, encoded by hand: seven fields do not justify a protobuf dependency.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace torch_xla::pjrt {

// `device_ids` are global, one per replica; empty: one replica, portable. `cpu`: with the options
// that XLA's CPU compiler needs to treat NaN as other compilers do.
std::string EncodeCompileOptions(std::span<const int64_t> device_ids, bool cpu = false);

}  // namespace torch_xla::pjrt
