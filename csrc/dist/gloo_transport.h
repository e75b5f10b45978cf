// Between processes: a process group of c10d (gloo).
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dist/transport.h"

namespace torch_xla::dist {

// The group is used by this transport alone. Its own time limit ends each call.
std::unique_ptr<Transport> MakeGlooTransport(c10::intrusive_ptr<c10d::Backend> group);

}  // namespace torch_xla::dist
