// Compiled programs by graph hash: compiled once, whoever asks.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "ir/donation.h"
#include "pjrt/client.h"

namespace torch_xla::lazy {

class Runtime;

// What the compiler gets, and what is kept of the graph beside the program.
struct Source {
  std::string module;  // StableHLO text
  ir::Flow flow;
  std::string operators;        // summary for messages
  std::vector<size_t> effects;  // results that are effects (effects.h)
  bool across_processes = false;
};

// One program, compiled or about to be.
class Program {
 public:
  // Waits (interruptible, no limit, announced in the log after XLA_COMPILE_NOTICE_S) and throws the
  // compiler's error.
  pjrt::Executable& Get();
  bool failed();
  // Of a program that Get returned.
  const ir::Flow& flow() const { return flow_; }
  const std::string& operators() const { return operators_; }
  const std::vector<size_t>& effects() const { return effects_; }
  const std::vector<bool>& donatable() const { return donatable_; }
  const std::optional<pjrt::Executable::Memory>& memory() const { return memory_; }

 private:
  friend class CompileCache;
  void Compile(Runtime& runtime, const std::string& module, const pjrt::CompileOptions& options,
               int device);
  void Done(pjrt::ExecutablePtr executable, Status error);

  ir::Flow flow_;
  std::string operators_;
  std::vector<size_t> effects_;
  std::vector<bool> donatable_;
  std::optional<pjrt::Executable::Memory> memory_;
  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool done_ = false;
  pjrt::ExecutablePtr executable_;
  Status error_;
};

class CompileCache {
 public:
  static CompileCache& Global();

  // The program of that hash. On a miss `source` is called once, on the caller's thread, and the
  // compilation starts on a thread of its own; others who ask meanwhile get the same program and
  // wait in its Get. One that failed is forgotten, so that the next request tries again. `device`:
  // whose work a large compilation lets finish first.
  std::shared_ptr<Program> GetOrCompile(const Hash& hash, const std::function<Source()>& source,
                                        int device);
  size_t size();

 private:
  // The program, and whether it is new.
  std::pair<std::shared_ptr<Program>, bool> FindOrAdd(const Hash& hash);

  std::mutex mutex_;
  struct Entry {
    Hash hash;
    std::shared_ptr<Program> program;
  };
  std::list<Entry> used_;  // latest first
  std::unordered_map<Hash, std::list<Entry>::iterator, HashOfHash> by_hash_;
};

}  // namespace torch_xla::lazy
