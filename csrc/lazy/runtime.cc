#include "lazy/runtime.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "lazy/tensor.h"
#include "pjrt/platform.h"

namespace torch_xla::lazy {
namespace {

std::timed_mutex create_mutex;
std::atomic<Runtime*> instance{nullptr};
// After Shutdown. The object stays: callbacks of late events, and threads that are in a call, may
// still touch it.
std::atomic<Runtime*> closed{nullptr};
std::atomic<bool> shut_down{false};
std::atomic<int> compiles_running{0};

std::function<pjrt::ClientPtr()>& Factory() {
  static auto* factory = new std::function<pjrt::ClientPtr()>([] {
    pjrt::Plugin plugin = pjrt::ResolvePlugin();
    return pjrt::MakePluginClient(plugin.library_path, plugin.options);
  });
  return *factory;
}

std::string UpperCase(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::toupper(c); });
  return s;
}

double MachineMemory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return std::numeric_limits<double>::infinity();
  return (static_cast<double>(info.totalram) + static_cast<double>(info.totalswap)) * info.mem_unit;
}

// Static destructors of a plugin while one of its threads compiles end in a crash, and a compile
// cannot be cancelled: leave without them, with the program's own exit status.
void LeaveIfCompiling(int status, void*) {
  if (InForkedChild() || compiles_running.load() == 0) return;
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

Launcher::Launcher() : thread_([this] { Run(); }) {}

Launcher::~Launcher() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Launcher::Enqueue(std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(task));
  changed_.notify_all();
}

void Launcher::Drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(
      lock, changed_, [this] { return queue_.empty() && !busy_; },
      [this] { return std::to_string(queue_.size()) + " launches"; });
}

void Launcher::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    task = nullptr;  // what it holds is freed here, outside the lock
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

Runtime::Runtime(pjrt::ClientPtr client)
    : client_(std::move(client)),
      platform_(UpperCase(client_->platform_name())),
      in_flight_(client_->devices().size(), 0),
      executing_(client_->devices().size(), 0) {
  XLA_CHECK(num_devices() <= kMaxDevices, kInvalidArgument, platform_, " has ", num_devices(),
            " devices; one process can use ", kMaxDevices);
  const double otherwise =
      platform_ == "CPU" ? MachineMemory() : std::numeric_limits<double>::infinity();
  for (int d = 0; d < num_devices(); ++d) {
    launchers_.push_back(std::make_unique<Launcher>());
    auto stats = client_->memory_stats(d);
    memory_limits_.push_back(stats && stats->bytes_limit ? static_cast<double>(*stats->bytes_limit)
                                                         : otherwise);
  }
}

Runtime& Runtime::Get() {
  CheckNotForked();
  if (Runtime* r = instance.load(std::memory_order_acquire)) [[likely]]
    return *r;
  // Making a client calls Python: who waits for it with the GIL has to let it go now and then.
  std::unique_lock<std::timed_mutex> lock(create_mutex, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(50))) InterruptRequested();
  XLA_CHECK(!shut_down.load(), kFailedPrecondition,
            "the XLA runtime was shut down; it cannot be used while Python exits");
  if (instance.load() == nullptr) {
    instance.store(new Runtime(Factory()()), std::memory_order_release);
    on_exit(LeaveIfCompiling, nullptr);
  }
  return *instance.load();
}

Runtime* Runtime::GetIfCreated() { return instance.load(std::memory_order_acquire); }

void Runtime::SetClientFactory(std::function<pjrt::ClientPtr()> factory) {
  Factory() = std::move(factory);
}

void Runtime::LaunchStarted(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++in_flight_[static_cast<size_t>(device)];
}

void Runtime::LaunchDone(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  --in_flight_[static_cast<size_t>(device)];
  changed_.notify_all();
}

void Runtime::WaitForLaunches(int device, int limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  int& n = in_flight_[static_cast<size_t>(device)];
  WaitFor(
      lock, changed_, [&] { return n <= limit; },
      [&] {
        return std::to_string(n) + " unfinished executions on xla:" + std::to_string(device);
      });
}

void Runtime::LetFinish(int device, std::chrono::duration<double> limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return in_flight_[static_cast<size_t>(device)] == 0; });
}

void Runtime::ExecutionStarted(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++executing_[static_cast<size_t>(device)];
}

void Runtime::ExecutionDone(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  --executing_[static_cast<size_t>(device)];
  changed_.notify_all();
}

void Runtime::WaitForExecutions(int device) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return executing_[static_cast<size_t>(device)] == 0; });
}

void Runtime::CompileStarted() { ++compiles_running; }
void Runtime::CompileDone() { --compiles_running; }

void Runtime::Shutdown() {
  if (InForkedChild()) return;
  shut_down.store(true);
  Runtime* r = instance.exchange(nullptr);
  if (r == nullptr) return;
  closed.store(r);
  try {
    for (auto& launcher : r->launchers_) launcher->Drain();
    for (int d = 0; d < r->num_devices(); ++d) r->WaitForLaunches(d, 0);
    // Under a running compilation it cannot be: LeaveIfCompiling ends the process then.
    if (compiles_running.load() == 0) r->client_->Close();
  } catch (const std::exception& e) {
    Log(Severity::kWarning, std::string("at exit: ") + e.what());
  }
}

double Runtime::MemoryLimit(int device) const {
  const double fixed = memory_limits_[static_cast<size_t>(device)];
  rlimit limit{};
  if (platform_ != "CPU" || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return fixed;
  }
  double used = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "re")) {
    char line[64] = {};
    if (std::fgets(line, sizeof(line), f) != nullptr) {
      used = std::strtod(line, nullptr) * static_cast<double>(getpagesize());
    }
    std::fclose(f);
  }
  return std::min(fixed, static_cast<double>(limit.rlim_cur) - used);
}

}  // namespace torch_xla::lazy
