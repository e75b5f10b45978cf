// Compiled programs by graph hash: compiled once, whoever asks.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "pjrt/client.h"

namespace torch_xla::lazy {

// One program, compiled or about to be.
class Program {
 public:
  // Waits (interruptible, no limit, announced in the log after XLA_COMPILE_NOTICE_S) and throws the
  // compiler's error.
  pjrt::Executable& Get();
  bool failed();

 private:
  friend class CompileCache;
  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool done_ = false;
  pjrt::ExecutablePtr executable_;
  Status error_;
};

class CompileCache {
 public:
  static CompileCache& Global();

  // The program of that hash. On a miss `module` is called once for its StableHLO text, on the
  // caller's thread, and the compilation starts on a thread of its own; others who ask meanwhile
  // get the same program. One that failed is forgotten, so that the next request tries again.
  std::shared_ptr<Program> GetOrCompile(const Hash& hash,
                                        const std::function<std::string()>& module,
                                        const pjrt::CompileOptions& options);
  size_t size();

 private:
  std::mutex mutex_;
  struct Entry {
    Hash hash;
    std::shared_ptr<Program> program;
  };
  std::list<Entry> used_;  // latest first
  std::unordered_map<Hash, std::list<Entry>::iterator, HashOfHash> by_hash_;
};

}  // namespace torch_xla::lazy
