// One launch of a compiled program, on its way to the launcher's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/node.h"
#include "lazy/compile_cache.h"
#include "lazy/data.h"
#include "lazy/runtime.h"

namespace torch_xla::lazy {

struct Launch {
  Launch(Runtime& r, int d) : runtime(r), device(d) {}

  Runtime& runtime;  // not asked for anew: launches are drained at exit, when it is hidden already
  const int device;
  std::shared_ptr<Program> program;
  const ir::SourceLine* line = nullptr;
  std::vector<int64_t> lanes;
  std::vector<Ref<Data>> arguments;
  std::vector<Ref<Data>> results;
};

// On the launcher's thread: fills the results, with errors where it fails, and reports the launch
// as done, now or when its execution is.
void RunOrFail(Launch& launch);

}  // namespace torch_xla::lazy
