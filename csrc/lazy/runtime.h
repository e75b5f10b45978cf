// The process's client, its devices and the threads that launch on them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pjrt/client.h"

namespace torch_xla::lazy {

// Runs a device's tasks in order on one thread, so that `Execute` is never called by the user's
// thread and never with the GIL held.
class Launcher {
 public:
  Launcher();
  ~Launcher();
  void Enqueue(std::function<void()> task);
  // Waits until all that was enqueued has run.
  void Drain();

 private:
  void Run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

class Runtime {
 public:
  // Makes the client at the first call (CheckNotForked). Throws what finding and opening the plugin
  // throws, and tries again at the next call; after Shutdown kFailedPrecondition.
  static Runtime& Get();
  // Null before the first Get and after Shutdown.
  static Runtime* GetIfCreated();
  // For tests: replaces how the client is made; before the first Get.
  static void SetClientFactory(std::function<pjrt::ClientPtr()> factory);

  pjrt::Client& client() { return *client_; }
  Launcher& launcher(int device) { return *launchers_[static_cast<size_t>(device)]; }
  int num_devices() const { return static_cast<int>(client_->devices().size()); }
  const std::string& platform() const { return platform_; }  // "CPU", "CUDA", ...
  // Bytes that the device could hold now if everything else fitted: its own limit, or the machine's
  // memory and the process's address space where it is the host.
  double MemoryLimit(int device) const;

  // Launches in flight, for bounded run-ahead and draining.
  void LaunchStarted(int device);
  void LaunchDone(int device);
  // Waits until at most `limit` launches of the device are unfinished.
  void WaitForLaunches(int device, int limit);
  // Waits until none is unfinished or the time is over; does not raise.
  void LetFinish(int device, std::chrono::duration<double> limit);

  // On the device's launcher: the part of a launch that the plugin works on.
  void ExecutionStarted(int device);
  void ExecutionDone(int device);
  // Waits, without limit, until the device has nothing to work on.
  void WaitForExecutions(int device);

  // A compilation runs on a thread of its own, so that Ctrl-C does not have to wait for it.
  static void CompileStarted();
  static void CompileDone();

  // Drains everything and closes the client: tensors can then only be destroyed. Called at exit,
  // before static destructors.
  static void Shutdown();

 private:
  explicit Runtime(pjrt::ClientPtr client);

  pjrt::ClientPtr client_;
  std::string platform_;
  std::vector<std::unique_ptr<Launcher>> launchers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> in_flight_;
  std::vector<int> executing_;
  std::vector<double> memory_limits_;  // of the devices
};

}  // namespace torch_xla::lazy
