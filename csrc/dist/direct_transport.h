// The transport of members that reach each other's memory: they reduce straight from it, and write
// results straight into it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/memory.h"
#include "dist/transport.h"

namespace torch_xla::dist {

// How a member names a place in its memory to the others, and finds theirs.
class Reach {
 public:
  virtual ~Reach() = default;
  // -1: the others cannot reach it.
  virtual int64_t NameOf(const void* mine) const = 0;
  virtual char* Find(int member, int64_t name) const = 0;
  // Whether some other member has ended, for any reason.
  virtual bool SomebodyEnded() const = 0;
};

// Where the members meet: zeroed memory of this size that all see, and that outlives them.
size_t ControlSize(size_t members);

// `memory` is reachable; it is taken for what is not. `limit` of a wait: none where it is zero.
std::unique_ptr<Transport> MakeDirectTransport(int index, int size, void* control,
                                               std::unique_ptr<Reach> reach,
                                               std::shared_ptr<Memory> memory,
                                               std::chrono::duration<double> limit);

}  // namespace torch_xla::dist
