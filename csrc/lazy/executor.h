// From recorded graphs to values: sync, reads, copies from and to the host.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"
#include "lazy/data.h"
#include "lazy/tensor.h"

namespace torch_xla::lazy {

// Throws kInvalidArgument where the process has no such device.
void CheckDevice(int device);

// Launches what is pending on the device: one program whose results are the values of all live
// tensors, but for what other threads are still recording (docs/design/threads.md). Returns when it
// is launched; compiling (the first time) is waited for. If the compiler
// fails or the user presses Ctrl-C, nothing has changed and the same call may be tried again.
// `line`: of the user's program, for errors of the execution.
void Sync(int device, bool wait, const ir::SourceLine* line = nullptr);

// Waits until all that was launched on the device is finished.
void WaitDeviceOps(int device);

// Computes the given tensors, and with them what else is alive in the graph behind them, so that
// nothing is computed twice. The tensors may be on different devices.
void Materialize(std::span<const Tensor> tensors);

// Copies `data` (row-major, free again when the call returns) to a new tensor. Here and in ToHost
// the host's bytes are as XLA holds the type (DType::kC32).
Tensor FromHost(const void* data, const Shape& shape, int device);
// Materialises, waits and copies all the tensors' values: dst[i] takes tensors[i].
// `keep` owns dst: after Ctrl-C or a failure the plugin may still write there.
void ToHost(std::span<const Tensor> tensors, std::span<void* const> dst,
            std::shared_ptr<void> keep = nullptr);

// The pending graph of the device (all live tensors), or of the given tensors.
std::string DumpGraph(int device, std::span<const Tensor> tensors, bool stablehlo);

// Called for each step closure etc. is Python's business; the core only counts steps.
struct GraphCosts {  // of the device's latest sync, nanoseconds
  int64_t nodes = 0;
  double collect_and_look_up = 0;
};
GraphCosts LatestCosts(int device);

}  // namespace torch_xla::lazy
