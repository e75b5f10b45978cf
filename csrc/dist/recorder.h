// Collectives in the recorded graph.
//
// A collective is two nodes. `start` takes the device's chain and the tensors and gives the next
// link of the chain; `wait` takes that link, and the latest one, and gives a part's result. The
// chain is an array on the device, {number of the next collective, device}: data that each start
// needs of the one before, so that no compiler can put them into another order, within a graph or
// across graphs. It is alive as long as the process, and so is a piece of each result until it is
// computed: a collective runs even when nobody wants its result.
//
// Between the replicas of one process, and where the plugin has collectives, it is a single call of
// the program, on the operands' and results' own buffers: a node with the next link and all
// results, and one node for each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "dist/collective.h"
#include "dist/communicator.h"
#include "ir/node.h"

namespace torch_xla::dist {

// Gives a device its communicator; once, before the first collective on it.
void SetCommunicator(int device, std::shared_ptr<Communicator> communicator);
// Null before that.
std::shared_ptr<Communicator> CommunicatorOf(int device);
// Ends a device's communicator, or all; nothing of theirs may run any more.
void DropCommunicator(int device);
void DropCommunicators();

// One part of a collective with its tensors. kReduceScatter and kAllToAll: [n, x...].
struct Operands {
  Part part;  // dtype, num_tensors and count are filled in
  std::vector<at::Tensor> tensors;
};

// A collective that was started. Its destructor finishes it.
class Pending {
 public:
  ~Pending();
  // A result per part: of a single tensor in its shape (kAllGather: [n, x...], kReduceScatter:
  // [x...]), of several ones flat, one behind the other (kAllGather: [n, all of them]).
  std::vector<at::Tensor> Finish();

 private:
  friend std::shared_ptr<Pending> Start(std::vector<Operands> parts, Ranks scope,
                                        const ir::SourceLine* line, const std::string& label);
  int device_ = 0;
  ir::Value link_;
  std::vector<Shape> results_;
  std::vector<ir::Value> whole_;  // the results, between replicas of one process
  bool finished_ = false;
};

// Records the start. `label`: what the tensors are, where the same shapes may be of other things;
// the replicas compare it. Throws for tensors that are not on one XLA device with a communicator.
std::shared_ptr<Pending> Start(std::vector<Operands> parts, Ranks scope, const ir::SourceLine* line,
                               const std::string& label = "");

// Launches what is pending on the device when a collective is among it, whichever thread recorded
// it (a sync would leave out what other threads record) and on whichever thread this is called.
void LaunchCollectives(int device);

}  // namespace torch_xla::dist
