#include "pjrt/compile_options.h"

#include <string_view>

namespace torch_xla::pjrt {
namespace {

// Field numbers of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
enum CompileOptionsField {
  kExecutableBuildOptions = 3,
  kCompilePortableExecutable = 4,
  kEnvOptionOverrides = 7
};
enum MapEntryField { kMapKey = 1, kMapValue = 2 };
enum OptionOverrideField { kBoolField = 2 };
enum BuildOptionsField {
  kDeviceOrdinal = 1,
  kNumReplicas = 4,
  kNumPartitions = 5,
  kDeviceAssignment = 9
};
enum DeviceAssignmentField { kReplicaCount = 1, kComputationCount = 2, kComputationDevices = 3 };
enum ComputationDeviceField { kReplicaDeviceIds = 1 };

void PutVarint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

void PutInt(std::string& out, int field, int64_t value) {
  PutVarint(out, static_cast<uint64_t>(field) << 3);
  PutVarint(out, static_cast<uint64_t>(value));
}

void PutBytes(std::string& out, int field, std::string_view bytes) {
  PutVarint(out, static_cast<uint64_t>(field) << 3 | 2);
  PutVarint(out, bytes.size());
  out += bytes;
}

std::string DeviceAssignment(std::span<const int64_t> device_ids) {
  std::string ids;  // packed
  for (int64_t id : device_ids) PutVarint(ids, static_cast<uint64_t>(id));
  std::string computation;
  PutBytes(computation, kReplicaDeviceIds, ids);
  std::string out;
  PutInt(out, kReplicaCount, static_cast<int64_t>(device_ids.size()));
  PutInt(out, kComputationCount, 1);
  PutBytes(out, kComputationDevices, computation);
  return out;
}

void PutOverride(std::string& out, std::string_view option, bool value) {
  std::string field, entry;
  PutInt(field, kBoolField, value ? 1 : 0);
  PutBytes(entry, kMapKey, option);
  PutBytes(entry, kMapValue, field);
  PutBytes(out, kEnvOptionOverrides, entry);
}

}  // namespace

std::string EncodeCompileOptions(std::span<const int64_t> device_ids, bool cpu) {
  std::string build;
  PutInt(build, kDeviceOrdinal, -1);
  PutInt(build, kNumReplicas, device_ids.empty() ? 1 : static_cast<int64_t>(device_ids.size()));
  PutInt(build, kNumPartitions, 1);
  if (!device_ids.empty()) PutBytes(build, kDeviceAssignment, DeviceAssignment(device_ids));
  std::string out;
  PutBytes(out, kExecutableBuildOptions, build);
  if (device_ids.empty()) PutInt(out, kCompilePortableExecutable, 1);
  if (cpu) {
    // Else max(0, NaN) is 0, and relu, max pooling and reductions lose NaNs.
    PutOverride(out, "xla_cpu_enable_fast_min_max", false);
    // It keeps a packed copy of an operand with each matrix product for as long as the program
    // lives, for no speed that could be measured.
    PutOverride(out, "xla_cpu_use_xnnpack", false);
  }
  return out;
}

}  // namespace torch_xla::pjrt
