// Loading plugins, the version of their interface, and client options, on altered function tables.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/compile_options.h"
#include "pjrt/key_value.h"
#include "pjrt/plugin_library.h"
#include "pjrt_testing.h"

namespace torch_xla::pjrt {
namespace {

// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const Shape kF4{DType::kF32, {4}};

class PluginTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(ConformanceLibrary(), "") << "PJRT_CONFORMANCE_LIBRARY must name a PJRT plugin";
    real = PluginLibrary::Open(ConformanceLibrary()).api();
    // Not more than our header knows: what is behind belongs to a newer plugin.
    table = {};
    std::memcpy(static_cast<void*>(&table), real, std::min(real->struct_size, sizeof(table)));
    table.struct_size = std::min(real->struct_size, sizeof(table));
  }

  Status OpenError(const std::string& path) {
    Status s = StatusOf([&] { MakePluginClient(path, {}); });
    EXPECT_TRUE(Contains(s.message, path)) << s.message;
    return s;
  }
  Status AdoptError(const char* name) {
    return StatusOf([&] { PluginLibrary::Adopt(name, &table); });
  }

  static const PJRT_Api* real;
  static PJRT_Api table;  // static: adopted libraries point to it for ever
};
const PJRT_Api* PluginTest::real;
PJRT_Api PluginTest::table;

TEST_F(PluginTest, FilesThatAreNoPlugins) {
  Status s = OpenError("/no/such/plugin.so");
  EXPECT_EQ(s.code, Code::kNotFound);
  EXPECT_TRUE(Contains(s.message, "No such file")) << s.message;
  s = OpenError("/");
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_TRUE(Contains(s.message, "directory")) << s.message;
  s = OpenError("libthere_is_no_such_plugin.so");
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_TRUE(Contains(s.message, "cannot be loaded")) << s.message;
  EXPECT_FALSE(StatusOf([] { MakePluginClient("", {}); }).ok());

  std::string text = testing::TempDir() + "/not_a_library.so";
  FILE* file = std::fopen(text.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("no ELF here", file);
  std::fclose(file);
  s = OpenError(text);
  std::remove(text.c_str());
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_TRUE(Contains(s.message, "cannot be loaded as a shared library")) << s.message;

  s = OpenError("libm.so.6");
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_TRUE(Contains(s.message, "GetPjrtApi")) << s.message;
}

TEST_F(PluginTest, OneLibraryForOneFile) {
  PluginLibrary& first = PluginLibrary::Open(ConformanceLibrary());
  std::string detour = ConformanceLibrary();
  detour.insert(detour.rfind('/'), "/.");
  EXPECT_EQ(&first, &PluginLibrary::Open(detour));
}

TEST_F(PluginTest, VersionsThatDoNotFit) {
  EXPECT_EQ(StatusOf([] { PluginLibrary::Adopt("null", nullptr); }).code,
            Code::kFailedPrecondition);
  table.pjrt_api_version.major_version = 1;
  Status s = AdoptError("major");
  EXPECT_EQ(s.code, Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(s.message, "speaks PJRT 1.")) << s.message;
  table.pjrt_api_version.major_version = 0;
  table.pjrt_api_version.minor_version = 56;
  s = AdoptError("minor");
  EXPECT_EQ(s.code, Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(s.message, "speaks PJRT 0.56")) << s.message;
  table.pjrt_api_version.minor_version = 57;
  table.struct_size = 16;
  s = AdoptError("tiny");
  EXPECT_EQ(s.code, Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(s.message, "too small")) << s.message;
  table.struct_size = offsetof(PJRT_Api, PJRT_LoadedExecutable_Execute);
  s = AdoptError("short");
  EXPECT_EQ(s.code, Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(s.message, "lacks the function PJRT_")) << s.message;
  table.struct_size = sizeof(table);
  table.PJRT_Buffer_ToHostBuffer = nullptr;
  s = AdoptError("hole");
  EXPECT_EQ(s.code, Code::kFailedPrecondition);
  EXPECT_TRUE(Contains(s.message, "PJRT_Buffer_ToHostBuffer")) << s.message;
}

// Everything but the optional functions: what an older plugin has.
TEST_F(PluginTest, AnOlderTableServes) {
  static PJRT_Api old;
  old = table;
  old.pjrt_api_version.minor_version = 57;
  old.struct_size = offsetof(PJRT_Api, PJRT_Executable_OutputDimensions) + sizeof(void*);
  old.extension_start = nullptr;
  old.PJRT_Plugin_Attributes = nullptr;
  old.PJRT_Device_MemoryStats = nullptr;
  old.PJRT_Device_LocalHardwareId = nullptr;
  old.PJRT_Buffer_OnDeviceSizeInBytes = nullptr;
  old.PJRT_DeviceDescription_Attributes = nullptr;
  old.PJRT_DeviceDescription_DebugString = nullptr;
  old.PJRT_Executable_Serialize = nullptr;
  old.PJRT_Executable_DeserializeAndLoad = nullptr;
  PluginLibrary::Adopt("old", &old);
  ClientPtr client = MakePluginClient("old", {});
  EXPECT_EQ(client->api_version(), std::make_pair(0, 57));
  EXPECT_EQ(client->stablehlo_version(), "");
  EXPECT_EQ(client->memory_stats(0), std::nullopt);
  auto program = client->Compile(AddModule("tensor<4xf32>"), {});
  BufferPtr a = ToDevice<float>(*client, {1, 2, 3, 4}, kF4);
  EXPECT_EQ(a->device_bytes(), 16u);
  EXPECT_EQ(ToHost<float>(*Launch(*program, {a.get(), a.get()}).at(0)),
            (std::vector<float>{2, 4, 6, 8}));
  EXPECT_FALSE(program->memory().has_value());
  EXPECT_EQ(StatusOf([&] { program->Serialize(); }).code, Code::kUnimplemented);
  int handler = 0;
  EXPECT_FALSE(client->RegisterFfiHandler("old_target", &handler));
}

// Plugins that refuse options they do not know are asked again without them.
struct Refusal {
  static const PJRT_Api* real;
  static std::vector<std::vector<std::string>> calls;

  static PJRT_Error* Create(PJRT_Client_Create_Args* args) {
    auto& names = calls.emplace_back();
    for (size_t i = 0; i < args->num_options; ++i) {
      names.emplace_back(args->create_options[i].name, args->create_options[i].name_size);
    }
    for (const std::string& name : names) {
      if (name == "cpu_device_count") continue;
      return MakeError((name == "bad_value" ? "cannot use the value of " : "Unexpected option ") +
                       name);
    }
    return real->PJRT_Client_Create(args);
  }
  // Errors of our own, recognised by their address.
  static PJRT_Error* MakeError(std::string text) {
    message = std::move(text);
    return reinterpret_cast<PJRT_Error*>(&message);
  }
  static bool Ours(const PJRT_Error* e) { return e == reinterpret_cast<PJRT_Error*>(&message); }
  static void Destroy(PJRT_Error_Destroy_Args* args) {
    if (!Ours(args->error)) real->PJRT_Error_Destroy(args);
  }
  static void Message(PJRT_Error_Message_Args* args) {
    if (!Ours(args->error)) return real->PJRT_Error_Message(args);
    args->message = message.data();
    args->message_size = message.size();
  }
  static PJRT_Error* GetCode(PJRT_Error_GetCode_Args* args) {
    if (!Ours(args->error)) return real->PJRT_Error_GetCode(args);
    args->code = PJRT_Error_Code_INVALID_ARGUMENT;
    return nullptr;
  }
  static std::string message;
};
const PJRT_Api* Refusal::real;
std::vector<std::vector<std::string>> Refusal::calls;
std::string Refusal::message;

TEST_F(PluginTest, UnknownOptionsAreDroppedBadValuesAreNot) {
  static PJRT_Api refusing;
  refusing = table;
  refusing.PJRT_Client_Create = Refusal::Create;
  refusing.PJRT_Error_Destroy = Refusal::Destroy;
  refusing.PJRT_Error_Message = Refusal::Message;
  refusing.PJRT_Error_GetCode = Refusal::GetCode;
  Refusal::real = real;
  PluginLibrary::Adopt("refusing", &refusing);

  auto client = MakePluginClient(
      "refusing",
      {{"cpu_device_count", int64_t{2}}, {"a_novelty", 0.5}, {"novelty", std::string("x")}});
  EXPECT_EQ(client->devices().size(), 2u);
  EXPECT_EQ(Refusal::calls,
            (std::vector<std::vector<std::string>>{{"a_novelty", "cpu_device_count", "novelty"},
                                                   {"cpu_device_count", "novelty"},
                                                   {"cpu_device_count"}}));
  Refusal::calls.clear();
  Status s = StatusOf([] { MakePluginClient("refusing", {{"bad_value", true}}); });
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_EQ(s.message,
            "PJRT plugin 'refusing' could not make a client: PJRT_Client_Create: cannot use the "
            "value of bad_value");
  EXPECT_EQ(Refusal::calls.size(), 1u);
}

class Notes final : public KeyValueStore {
 public:
  std::string Get(const std::string& key, std::chrono::milliseconds limit) override {
    if (auto value = TryGet(key)) return *value;
    Throw(Code::kDeadlineExceeded, "waited ", limit.count(), " ms for ", key);
  }
  std::optional<std::string> TryGet(const std::string& key) override {
    auto it = notes.find(key);
    return it == notes.end() ? std::nullopt : std::optional(it->second);
  }
  void Set(const std::string& key, const std::string& value) override { notes[key] = value; }
  std::map<std::string, std::string> notes;
};

TEST_F(PluginTest, ClientsGetTheStore) {
  static PJRT_Client_Create_Args seen;
  static PJRT_Api asking;
  asking = table;
  asking.PJRT_Client_Create = [](PJRT_Client_Create_Args* args) {
    seen = *args;
    return real->PJRT_Client_Create(args);
  };
  PluginLibrary::Adopt("asking", &asking);
  MakePluginClient("asking", {});
  EXPECT_EQ(seen.kv_get_callback, nullptr);
  auto store = std::make_shared<Notes>();
  SetKeyValueStore(store);
  MakePluginClient("asking", {});
  ASSERT_NE(seen.kv_get_callback, nullptr);

  static Status refused;
  static PJRT_CallbackError fail = [](PJRT_Error_Code code, const char* text, size_t n) {
    refused = {static_cast<Code>(code), std::string(text, n)};
    return reinterpret_cast<PJRT_Error*>(&refused);
  };
  const std::string key = "id", value("a\0b", 3);
  PJRT_KeyValuePutCallback_Args put{};
  put.key = key.data();
  put.key_size = key.size();
  put.value = value.data();
  put.value_size = value.size();
  put.callback_error = &fail;
  put.user_arg = seen.kv_put_user_arg;
  EXPECT_EQ(seen.kv_put_callback(&put), nullptr);
  EXPECT_EQ(store->notes.at("id"), value);

  PJRT_KeyValueGetCallback_Args get{};
  get.key = key.data();
  get.key_size = key.size();
  get.timeout_in_ms = 7;
  get.callback_error = &fail;
  get.user_arg = seen.kv_get_user_arg;
  ASSERT_EQ(seen.kv_get_callback(&get), nullptr);
  EXPECT_EQ(std::string(get.value, get.value_size), value);
  get.value_deleter_callback(get.value);
  PJRT_KeyValueTryGetCallback_Args look{};
  look.key = "other";
  look.key_size = 5;
  look.callback_error = &fail;
  look.user_arg = seen.kv_try_get_user_arg;
  EXPECT_NE(seen.kv_try_get_callback(&look), nullptr);
  EXPECT_EQ(refused.code, Code::kNotFound);
  get.key = "other";
  get.key_size = 5;
  EXPECT_NE(seen.kv_get_callback(&get), nullptr);
  EXPECT_EQ(refused.code, Code::kDeadlineExceeded);
  EXPECT_TRUE(Contains(refused.message, "7 ms for other")) << refused.message;
}

TEST_F(PluginTest, UnknownOptionOnTheRealPlugin) {
  auto client = MakePluginClient(ConformanceLibrary(), {{"cpu_device_count", int64_t{3}},
                                                        {"torch_xla_no_such_option", int64_t{1}}});
  EXPECT_EQ(client->devices().size(), 3u);
}

TEST_F(PluginTest, OptionsOfEveryKindBecomeNamedValuesAndBack) {
  Options options{{"int", int64_t{-3}},
                  {"double", 0.5},
                  {"bool", true},
                  {"text", std::string("a\0b", 3)},
                  {"list", std::vector<int64_t>{1, 2}}};
  std::vector<PJRT_NamedValue> values = ToNamedValues(options);
  EXPECT_EQ(FromNamedValues(values.data(), values.size()), options);
}

TEST_F(PluginTest, TypesMapBothWays) {
  for (int i = 0; i < kNumDTypes; ++i) {
    auto t = static_cast<DType>(i);
    EXPECT_EQ(FromPjrt(ToPjrt(t)), Stored(t));
  }
  EXPECT_EQ(FromPjrt(PJRT_Buffer_Type_TOKEN), std::nullopt);
}

std::string Bytes(std::initializer_list<int> values) {
  std::string out;
  for (int v : values) out += static_cast<char>(v);
  return out;
}

TEST(CompileOptionsTest, Encoding) {
  // executable_build_options { device_ordinal: -1 num_replicas: 1 num_partitions: 1 }
  // compile_portable_executable: true
  EXPECT_EQ(EncodeCompileOptions({}), Bytes({0x1A, 15, 0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                             0xFF, 0xFF, 0xFF, 0x01, 0x20, 1, 0x28, 1, 0x20, 1}));
  // ... device_assignment { replica_count: 2 computation_count: 1
  //                         computation_devices { replica_device_ids: [3, 300] } }
  std::vector<int64_t> ids{3, 300};
  EXPECT_EQ(EncodeCompileOptions(ids),
            Bytes({0x1A, 28,   0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                   0xFF, 0xFF, 0x01, 0x20, 2,    0x28, 1,    0x4A, 11,   0x08,
                   2,    0x10, 1,    0x1A, 5,    0x0A, 3,    3,    0xAC, 0x02}));
}

}  // namespace
}  // namespace torch_xla::pjrt
