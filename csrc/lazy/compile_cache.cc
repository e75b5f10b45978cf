#include "lazy/compile_cache.h"

#include <thread>
#include <utility>

#include "base/flags.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/wait.h"
#include "lazy/runtime.h"

namespace torch_xla::lazy {

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

std::shared_ptr<Program> CompileCache::GetOrCompile(const Hash& hash,
                                                    const std::function<std::string()>& module,
                                                    const pjrt::CompileOptions& options) {
  static metrics::Counter* cached = metrics::GetCounter("CachedCompile");
  static metrics::Counter* uncached = metrics::GetCounter("UncachedCompile");
  static metrics::Metric* compile_time = metrics::GetMetric("CompileTime");
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = by_hash_.find(hash);
  if (it != by_hash_.end()) {
    if (!it->second->program->failed()) {
      cached->Add();
      used_.splice(used_.begin(), used_, it->second);
      return it->second->program;
    }
    used_.erase(it->second);
    by_hash_.erase(it);
  }
  Runtime& runtime = Runtime::Get();
  auto program = std::make_shared<Program>();
  std::string text = module();
  uncached->Add();
  Runtime::CompileStarted();
  std::thread([&client = runtime.client(), program, text = std::move(text), options] {
    pjrt::ExecutablePtr executable;
    Status error;
    try {
      metrics::Timed timed(compile_time);
      executable = client.Compile(text, options);
    } catch (const Error& e) {
      error = {e.code(), e.what()};
    } catch (const std::exception& e) {
      error = {Code::kInternal, e.what()};
    }
    Runtime::CompileDone();
    std::lock_guard<std::mutex> done(program->mutex_);
    program->executable_ = std::move(executable);
    program->error_ = std::move(error);
    program->done_ = true;
    program->done_cv_.notify_all();
  }).detach();
  used_.push_front({hash, program});
  by_hash_[hash] = used_.begin();
  auto limit = static_cast<size_t>(flags::GetInt(flags::Flag::kCompilationCacheSize));
  while (used_.size() > std::max<size_t>(limit, 1)) {
    by_hash_.erase(used_.back().hash);
    used_.pop_back();
  }
  return program;
}

size_t CompileCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_.size();
}

}  // namespace torch_xla::lazy
