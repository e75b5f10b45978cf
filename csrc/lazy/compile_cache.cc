#include "lazy/compile_cache.h"

#include <malloc.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/flags.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/wait.h"
#include "lazy/runtime.h"

namespace torch_xla::lazy {
namespace {

// A step may wait for a replica that waits for this compilation.
constexpr std::chrono::seconds kPatience{5};
constexpr size_t kLargeModule = size_t{1} << 17;  // bytes of text; some 1,000 operations

}  // namespace

pjrt::Executable& Program::Get() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (done_) {
    error_.ThrowIfError();
    return *executable_;
  }
  auto done = [this] { return done_; };
  auto what = [] { return std::string("a compilation"); };
  std::chrono::duration<double> notice(flags::GetDouble(flags::Flag::kCompileNoticeS));
  if (notice.count() > 0) {
    try {
      WaitFor(lock, done_cv_, done, what, notice);
    } catch (const Error& e) {
      if (e.code() != Code::kDeadlineExceeded) throw;
      Log(Severity::kWarning, StrCat("still compiling after ", notice.count(), " s"));
    }
  }
  WaitFor(lock, done_cv_, done, what, std::chrono::seconds(0));
  error_.ThrowIfError();
  return *executable_;
}

bool Program::failed() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ && !error_.ok();
}

CompileCache& CompileCache::Global() {
  static auto* cache = new CompileCache;
  return *cache;
}

// On the compilation's own thread.
void Program::Compile(Runtime& runtime, const std::string& module,
                      const pjrt::CompileOptions& options, int device) {
  static metrics::Metric* compile_time = metrics::GetMetric("CompileTime");
  pjrt::ExecutablePtr executable;
  Status error;
  // The compiler takes more memory than many models, from other arenas of the allocator than those
  // where it is free; and leaves it there. Where the memory is the host's, not on top of what a
  // running step takes.
  const bool large = module.size() >= kLargeModule;
  if (large) {
    if (runtime.platform() == "CPU") runtime.LetFinish(device, kPatience);
    malloc_trim(0);
  }
  try {
    metrics::Timed timed(compile_time);
    executable = runtime.client().Compile(module, options);
    donatable_ = executable->donatable();
    memory_ = executable->memory();
  } catch (const Error& e) {
    error = {e.code(), e.what()};
  } catch (const std::exception& e) {
    error = {Code::kInternal, e.what()};
  }
  if (large) malloc_trim(0);
  Done(std::move(executable), std::move(error));
}

void Program::Done(pjrt::ExecutablePtr executable, Status error) {
  std::lock_guard<std::mutex> lock(mutex_);
  executable_ = std::move(executable);
  error_ = std::move(error);
  done_ = true;
  done_cv_.notify_all();
}

std::pair<std::shared_ptr<Program>, bool> CompileCache::FindOrAdd(const Hash& hash) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = by_hash_.find(hash);
  if (it != by_hash_.end()) {
    if (!it->second->program->failed()) {
      used_.splice(used_.begin(), used_, it->second);
      return {it->second->program, false};
    }
    used_.erase(it->second);
    by_hash_.erase(it);
  }
  auto program = std::make_shared<Program>();
  used_.push_front({hash, program});
  by_hash_[hash] = used_.begin();
  auto limit = static_cast<size_t>(flags::GetInt(flags::Flag::kCompilationCacheSize));
  while (used_.size() > std::max<size_t>(limit, 1)) {
    by_hash_.erase(used_.back().hash);
    used_.pop_back();
  }
  return {program, true};
}

std::shared_ptr<Program> CompileCache::GetOrCompile(const Hash& hash,
                                                    const std::function<Source()>& source,
                                                    int device) {
  static metrics::Counter* cached = metrics::GetCounter("CachedCompile");
  static metrics::Counter* uncached = metrics::GetCounter("UncachedCompile");
  Runtime& runtime = Runtime::Get();
  auto [program, is_new] = FindOrAdd(hash);
  if (!is_new) {
    cached->Add();
    return program;
  }
  uncached->Add();
  try {
    Source s = source();
    program->flow_ = std::move(s.flow);
    program->operators_ = std::move(s.operators);
    program->effects_ = std::move(s.effects);
    // Counted while the thread lives, also when it cannot be started.
    std::shared_ptr<void> running((Runtime::CompileStarted(), nullptr),
                                  [](void*) { Runtime::CompileDone(); });
    pjrt::CompileOptions options;
    if (s.across_processes) {
      options.num_replicas = static_cast<int>(runtime.client().process_devices().size());
      options.devices = {0};
    }
    std::thread([&runtime, program = program, module = std::move(s.module), options, device,
                 running = std::move(running)]() mutable {
      program->Compile(runtime, module, options, device);
      running = nullptr;
    }).detach();
  } catch (const Error& e) {
    program->Done(nullptr, {e.code(), e.what()});
    throw;
  } catch (const std::exception& e) {
    program->Done(nullptr, {Code::kInternal, e.what()});
    throw;
  }
  return program;
}

size_t CompileCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_.size();
}

}  // namespace torch_xla::lazy
