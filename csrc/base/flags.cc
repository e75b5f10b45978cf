#include "base/flags.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"

namespace torch_xla::flags {
namespace {

constexpr Info kTable[] = {
    {Flag::kPjrtDevice, "PJRT_DEVICE", "",
     "Which platform to use: CPU, CUDA, TPU or the name of an installed PJRT plugin. Unset: the "
     "first of CUDA, TPU and ROCm whose plugin is installed and whose hardware is there, else "
     "CPU."},
    {Flag::kPjrtLibraryPath, "PJRT_LIBRARY_PATH", "",
     "Path of the PJRT plugin's shared library; goes before what is installed."},
    {Flag::kCpuNumDevices, "CPU_NUM_DEVICES", "1", "Number of XLA devices on the CPU platform."},
    {Flag::kGpuNumDevices, "GPU_NUM_DEVICES", "",
     "Number of GPUs to use. Unset: those that CUDA_VISIBLE_DEVICES or /dev show."},
    {Flag::kAllocatorPreallocate, "PJRT_ALLOCATOR_PREALLOCATE", "",
     "On GPUs: 0 takes memory as it is needed, 1 takes it at the start. Unset: as the plugin "
     "likes."},
    {Flag::kAllocatorFraction, "PJRT_ALLOCATOR_FRACTION", "",
     "On GPUs: which part of the memory to use at most. Unset: as the plugin likes."},
    {Flag::kWaitTimeoutS, "XLA_WAIT_TIMEOUT_S", "300",
     "Seconds after which a wait on the device gives up with an error (compiling has no limit)."},
    {Flag::kCompileNoticeS, "XLA_COMPILE_NOTICE_S", "5",
     "Seconds after which a running compilation is announced in the log."},
    {Flag::kCompilationCacheSize, "XLA_COMPILATION_CACHE_SIZE", "2048",
     "Compiled graphs kept in memory; the least recently used goes first."},
    {Flag::kVerify, "XLA_VERIFY", "0",
     "1 checks every node: the shape rule's type against the lowering's and PyTorch's."},
    {Flag::kIrDebug, "XLA_IR_DEBUG", "0",
     "1 records the Python line of every operation, for errors, dumps and HLO locations."},
    {Flag::kUseBf16, "XLA_USE_BF16", "0",
     "1 turns float32 tensors that enter the device into bfloat16."},
    {Flag::kBucketSizeMb, "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", "25",
     "Megabytes of gradients that xm.reduce_gradients sends together."},
    {Flag::kSharedMemory, "XLA_SHARED_MEMORY", "1",
     "0 lets the processes of one host talk over TCP, as those of several hosts do."},
    {Flag::kXlaFlags, "XLA_FLAGS", "", "Options that XLA itself reads; part of the cache key."},
    {Flag::kMetricsSamples, "XLA_METRICS_SAMPLES", "1024",
     "How many of the latest samples each metric keeps."},
};
static_assert(sizeof(kTable) / sizeof(kTable[0]) == static_cast<size_t>(Flag::kNum));

const Info& Find(Flag flag) { return kTable[static_cast<size_t>(flag)]; }

template <typename T, typename F>
T Parse(Flag flag, const char* what, F parse) {
  std::string text = GetString(flag);
  char* end = nullptr;
  errno = 0;
  T value = parse(text.c_str(), &end);
  XLA_CHECK(!text.empty() && *end == '\0' && errno != ERANGE, kInvalidArgument, Find(flag).name,
            "='", text, "' is not ", what);
  return value;
}

}  // namespace

std::span<const Info> All() { return kTable; }

bool IsSet(Flag flag) {
  const char* value = std::getenv(Find(flag).name);
  return value != nullptr && *value != '\0';
}

std::string GetString(Flag flag) {
  const char* value = std::getenv(Find(flag).name);
  return value != nullptr && *value != '\0' ? value : Find(flag).default_value;
}

int64_t GetInt(Flag flag) {
  return Parse<int64_t>(flag, "a whole number",
                        [](const char* s, char** end) { return std::strtoll(s, end, 10); });
}

double GetDouble(Flag flag) {
  return Parse<double>(flag, "a number",
                       [](const char* s, char** end) { return std::strtod(s, end); });
}

bool GetBool(Flag flag) {
  std::string v = GetString(flag);
  if (v == "1" || v == "true" || v == "True" || v == "TRUE" || v == "on" || v == "yes") return true;
  if (v.empty() || v == "0" || v == "false" || v == "False" || v == "FALSE" || v == "off" ||
      v == "no") {
    return false;
  }
  Throw(Code::kInvalidArgument, Find(flag).name, "='", v, "' is neither 0 nor 1");
}

namespace {
enum Cached : int { kUnread, kOff, kOn };
std::atomic<int> use_bf16{kUnread};
}  // namespace

bool UseBf16() {
  int cached = use_bf16.load(std::memory_order_relaxed);
  if (cached == kUnread) [[unlikely]] {
    cached = GetBool(Flag::kUseBf16) ? kOn : kOff;
    use_bf16.store(cached, std::memory_order_relaxed);
  }
  return cached == kOn;
}

void EnvironmentChanged() { use_bf16.store(kUnread, std::memory_order_relaxed); }

}  // namespace torch_xla::flags
