// Buffers and executables of a plugin. Each holds the core, so the PJRT client outlives them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/wait.h"
#include "pjrt/c_api.h"
#include "pjrt/client.h"
#include "pjrt/plugin_library.h"
#include "pjrt/signature.h"

namespace torch_xla::pjrt {

class PluginObject;

class PluginCore {
 public:
  PluginCore(PluginLibrary& library, PJRT_Client* client)
      : library(library), api(library.api()), client(client) {}
  ~PluginCore() { Close(); }

  // Destroys what is still live of the plugin's objects, then the client; idempotent.
  void Close();
  // False when the plugin's objects must be left alone: not even destroyed.
  bool Usable() const { return !closed_.load(std::memory_order_relaxed) && !InForkedChild(); }
  void CheckUsable() const {
    if (!Usable()) [[unlikely]]
      ThrowUnusable();
  }

  PluginLibrary& library;
  const PJRT_Api* const api;
  PJRT_Client* const client;
  std::vector<PJRT_Device*> devices;  // addressable, in the order of Client::devices()

 private:
  friend class PluginObject;
  [[noreturn]] static void ThrowUnusable();

  std::atomic<bool> closed_{false};
  std::mutex mutex_;  // guards the list
  PluginObject* live_ = nullptr;
};
using PluginCorePtr = std::shared_ptr<PluginCore>;

// Owner of something that must be destroyed before the client is.
class PluginObject {
 public:
  PluginObject(const PluginObject&) = delete;
  PluginObject& operator=(const PluginObject&) = delete;
  const PluginCore* core() const { return core_.get(); }

 protected:
  explicit PluginObject(PluginCorePtr core);
  ~PluginObject() = default;
  // For the end of the derived class's destructor: calls Destroy unless the client is gone.
  void Release();
  virtual void Destroy() = 0;
  const PJRT_Api* api() const { return core_->api; }

  const PluginCorePtr core_;

 private:
  friend class PluginCore;
  void Unlink();

  PluginObject* previous_ = nullptr;
  PluginObject* next_ = nullptr;
};

class PluginBuffer final : public Buffer, public PluginObject {
 public:
  // Takes `buffer` over.
  PluginBuffer(PluginCorePtr core, PJRT_Buffer* buffer, Shape shape, int device)
      : PluginObject(std::move(core)), buffer_(buffer), shape_(std::move(shape)), device_(device) {}
  ~PluginBuffer() override { Release(); }

  const Shape& shape() const override { return shape_; }
  int device() const override { return device_; }
  Event CopyToHost(void* dst) override;
  Event ReadyEvent() override;
  const void* HostPointer() override;
  size_t device_bytes() override;
  bool deleted() override;

  PJRT_Buffer* get() const { return buffer_; }

 private:
  void Destroy() override;

  PJRT_Buffer* const buffer_;
  const Shape shape_;
  const int device_;
};

class PluginExecutable final : public Executable, public PluginObject {
 public:
  // Takes `loaded` over, also when it throws. Without a signature, arguments are not checked
  // against the parameters' types.
  PluginExecutable(PluginCorePtr core, PJRT_LoadedExecutable* loaded,
                   std::optional<Signature> signature, const CompileOptions& options);
  ~PluginExecutable() override { Release(); }

  int num_outputs() const override { return static_cast<int>(outputs_.size()); }
  std::vector<bool> donatable() const override {
    return signature_ ? signature_->donatable : std::vector<bool>();
  }
  ExecuteResult Execute(std::span<const std::vector<Buffer*>> arguments,
                        const ExecuteOptions& options) override;
  std::string Serialize() override;
  std::optional<Memory> memory() override;

 private:
  void ReadOutputs();
  void ReadDevices(const CompileOptions& options);
  void Destroy() override;

  PJRT_LoadedExecutable* const loaded_;
  PJRT_Executable* executable_ = nullptr;
  const std::optional<Signature> signature_;
  std::vector<Shape> outputs_;
  bool portable_ = false;
  std::vector<int> devices_;   // of the replicas, as compiled; empty when portable
  std::vector<size_t> order_;  // replica that the plugin expects at each position
};

}  // namespace torch_xla::pjrt
