// The choice of the plugin.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pjrt/platform.h"
#include "pjrt_testing.h"

namespace torch_xla::pjrt {
namespace {

class PlatformTest : public testing::Test {
 protected:
  void TearDown() override { SetResolver({}); }

  ScopedEnv device_{"PJRT_DEVICE", nullptr};
  ScopedEnv path_{"PJRT_LIBRARY_PATH", nullptr};
  ScopedEnv cpus_{"CPU_NUM_DEVICES", nullptr};
  ScopedEnv gpus_{"GPU_NUM_DEVICES", nullptr};
};

TEST_F(PlatformTest, RequestedPlatformIsUpperCaseWithAliases) {
  EXPECT_EQ(RequestedPlatform(), "");
  ScopedEnv lower("PJRT_DEVICE", "cpu");
  EXPECT_EQ(RequestedPlatform(), "CPU");
  ScopedEnv alias("PJRT_DEVICE", "gpu");
  EXPECT_EQ(RequestedPlatform(), "CUDA");
  ScopedEnv other("PJRT_DEVICE", "MyChip");
  EXPECT_EQ(RequestedPlatform(), "MYCHIP");
}

TEST_F(PlatformTest, WithoutAnythingTheErrorSaysWhatToDo) {
  Status s = StatusOf([] { ResolvePlugin(); });
  EXPECT_EQ(s.code, Code::kNotFound);
  EXPECT_TRUE(Contains(s.message, "pip install xla-cpu-pjrt")) << s.message;
  EXPECT_TRUE(Contains(s.message, "PJRT_LIBRARY_PATH")) << s.message;
  ScopedEnv device("PJRT_DEVICE", "tpu");
  s = StatusOf([] { ResolvePlugin(); });
  EXPECT_EQ(s.code, Code::kNotFound);
  EXPECT_TRUE(Contains(s.message, "PJRT_DEVICE=TPU")) << s.message;
}

TEST_F(PlatformTest, TheResolverIsAskedForTheRequestedPlatform) {
  std::vector<std::string> asked;
  SetResolver([&](const std::string& platform) {
    asked.push_back(platform);
    return Plugin{"CUDA", "/plugins/cuda.so", {{"preallocate", false}}};
  });
  Plugin plugin = ResolvePlugin();
  EXPECT_EQ(plugin.library_path, "/plugins/cuda.so");
  EXPECT_EQ(plugin.options, (Options{{"preallocate", false}}));
  ScopedEnv device("PJRT_DEVICE", "gpu");
  ResolvePlugin();
  EXPECT_EQ(asked, (std::vector<std::string>{"", "CUDA"}));
}

TEST_F(PlatformTest, TheResolversErrorPasses) {
  SetResolver([](const std::string& platform) -> Plugin {
    Throw(Code::kNotFound, "PJRT_DEVICE=", platform, " is not installed; installed: CPU");
  });
  ScopedEnv device("PJRT_DEVICE", "xpu");
  Status s = StatusOf([] { ResolvePlugin(); });
  EXPECT_EQ(s.code, Code::kNotFound);
  EXPECT_EQ(s.message, "PJRT_DEVICE=XPU is not installed; installed: CPU");
}

TEST_F(PlatformTest, LibraryPathGoesBeforeTheResolver) {
  SetResolver([](const std::string&) -> Plugin { Throw(Code::kInternal, "asked"); });
  ScopedEnv path("PJRT_LIBRARY_PATH", "/somewhere/my_plugin.so");
  Plugin plugin = ResolvePlugin();
  EXPECT_EQ(plugin.library_path, "/somewhere/my_plugin.so");
  EXPECT_EQ(plugin.name, "");
  EXPECT_TRUE(plugin.options.empty());
  ScopedEnv device("PJRT_DEVICE", "CPU");
  EXPECT_EQ(ResolvePlugin().name, "CPU");
  EXPECT_EQ(ResolvePlugin().options.count("cpu_device_count"), 1u);
}

TEST_F(PlatformTest, CpuDeviceCountFollowsTheEnvironment) {
  SetResolver([](const std::string&) { return Plugin{"CPU", "/plugins/cpu.so", {}}; });
  EXPECT_EQ(ResolvePlugin().options, (Options{{"cpu_device_count", int64_t{1}}}));
  {
    ScopedEnv cpus("CPU_NUM_DEVICES", "4");
    EXPECT_EQ(ResolvePlugin().options, (Options{{"cpu_device_count", int64_t{4}}}));
  }
  for (const char* bad : {"0", "-2", "100000000", "two"}) {
    ScopedEnv cpus("CPU_NUM_DEVICES", bad);
    Status s = StatusOf([] { ResolvePlugin(); });
    EXPECT_EQ(s.code, Code::kInvalidArgument) << bad;
    EXPECT_TRUE(Contains(s.message, "CPU_NUM_DEVICES")) << s.message;
  }
  SetResolver([](const std::string&) {
    return Plugin{"CPU", "/plugins/cpu.so", {{"cpu_device_count", int64_t{2}}}};
  });
  EXPECT_EQ(ResolvePlugin().options, (Options{{"cpu_device_count", int64_t{2}}}));
}

TEST_F(PlatformTest, GpuDeviceCountNamesTheFirstOnes) {
  SetResolver([](const std::string&) { return Plugin{"CUDA", "/plugins/cuda.so", {}}; });
  EXPECT_TRUE(ResolvePlugin().options.empty());
  ScopedEnv gpus("GPU_NUM_DEVICES", "2");
  EXPECT_EQ(ResolvePlugin().options, (Options{{"visible_devices", std::vector<int64_t>{0, 1}}}));
}

TEST_F(PlatformTest, GpuMemoryFollowsTheEnvironment) {
  SetResolver([](const std::string&) { return Plugin{"CUDA", "/plugins/cuda.so", {}}; });
  ScopedEnv preallocate("PJRT_ALLOCATOR_PREALLOCATE", "0");
  ScopedEnv fraction("PJRT_ALLOCATOR_FRACTION", "0.5");
  EXPECT_EQ(ResolvePlugin().options, (Options{{"preallocate", false}, {"memory_fraction", 0.5}}));
  for (const char* bad : {"0", "1.5", "half"}) {
    ScopedEnv wrong("PJRT_ALLOCATOR_FRACTION", bad);
    Status s = StatusOf([] { ResolvePlugin(); });
    EXPECT_EQ(s.code, Code::kInvalidArgument) << bad;
    EXPECT_TRUE(Contains(s.message, "PJRT_ALLOCATOR_FRACTION")) << s.message;
  }
}

TEST_F(PlatformTest, APathWithCpuInItsFileNameIsTheCpuPlatform) {
  ScopedEnv path("PJRT_LIBRARY_PATH", "/cpu/other.so");
  EXPECT_EQ(ResolvePlugin().name, "");
  ScopedEnv cpu("PJRT_LIBRARY_PATH", "/x/xla_cpu_pjrt.so");
  EXPECT_EQ(ResolvePlugin().name, "CPU");
}

}  // namespace
}  // namespace torch_xla::pjrt
