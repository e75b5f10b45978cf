// The one table of environment variables. Docs are written from it (python -m torch_xla.debug.env).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace torch_xla::flags {

enum class Flag {
  kPjrtDevice,
  kPjrtLibraryPath,
  kCpuNumDevices,
  kGpuNumDevices,
  kAllocatorPreallocate,
  kAllocatorFraction,
  kWaitTimeoutS,
  kCompileNoticeS,
  kCompilationCacheSize,
  kVerify,
  kIrDebug,
  kUseBf16,
  kBucketSizeMb,
  kSharedMemory,
  kXlaFlags,
  kMetricsSamples,
  kNum,
};

struct Info {
  Flag flag;
  const char* name;           // of the environment variable
  const char* default_value;  // as text; "" means unset
  const char* help;           // one sentence
};

std::span<const Info> All();

// Read the environment at each call: none of these stands on a hot path. A value that does not
// parse raises kInvalidArgument with the variable's name.
std::string GetString(Flag flag);
int64_t GetInt(Flag flag);
double GetDouble(Flag flag);
bool GetBool(Flag flag);
bool IsSet(Flag flag);

// XLA_USE_BF16 for the hot path: read again only after EnvironmentChanged, which the bindings call
// whenever Python's os.environ is written.
bool UseBf16();
void EnvironmentChanged();

}  // namespace torch_xla::flags
