// Runs collectives beside the device: one thread per replica, in the order in which they start.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/collective.h"
#include "dist/local_world.h"
#include "dist/memory.h"
#include "dist/transport.h"

namespace torch_xla::dist {

// How replicas reach each other.
enum class Way {
  kProcesses,  // by transports, with copies
  kThreads,    // of one process: on each other's buffers
  kNative,     // by the plugin, as part of the program: the communicator only names replicas
};

// What a replica needs of the world around it; called on the communication thread.
struct World {
  int64_t rank = 0;
  int64_t size = 1;
  Way way = Way::kProcesses;
  // Of kThreads; these need the functions `connect` and `compare` not.
  std::shared_ptr<LocalWorld> local = nullptr;
  std::shared_ptr<Memory> memory = HeapMemory();  // for what travels
  // Meets the given ranks, who all do the same now.
  std::function<std::unique_ptr<Transport>(const Ranks&)> connect;
  // Some rank of the scope runs another collective: lays `mine` open and returns everybody's.
  std::function<std::vector<std::string>(int64_t sequence, const Ranks& scope,
                                         const std::string& mine)>
      compare;
  // Tells the others that this replica gives up, and returns what they tell, or "".
  std::function<std::string(const std::string& why)> give_up;
};

class Communicator {
 public:
  explicit Communicator(World world);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const { return world_.rank; }
  int64_t size() const { return world_.size; }
  Way way() const { return world_.way; }

  // Recorded as number `sequence` (from 0, no gaps): what errors call it.
  void Name(int64_t sequence, std::string name);

  // Takes copies of the inputs, of the tensors of all parts one behind the other, and returns. Must
  // be called with sequence numbers from 0 on; any other order is an error of ours. Without room
  // for the copies the collective fails, here and on the other ranks.
  void Start(int64_t sequence, Collective collective, std::vector<const void*> inputs,
             std::vector<size_t> bytes);
  // Waits for a part's result and copies it to `out`; once for each part that has elements.
  void Finish(int64_t sequence, size_t part, void* out, size_t bytes);

  // A whole collective, on the device's own buffers; returns before it is done. The same rule for
  // the numbers.
  void Run(int64_t sequence, Collective collective, Buffers buffers);

  // What failed first, or ok. After a failure everything fails with it.
  Status status();
  // The last collective that this replica has started, for messages: "" before the first.
  std::string Latest();

 private:
  struct Block {
    Bytes data;
    size_t size = 0;
  };
  struct Entry {
    int64_t sequence = 0;
    Collective collective;
    std::vector<Block> data;  // of the parts: inputs, then results
    size_t unfinished = 0;    // parts that nobody has taken yet
    bool done = false;
    std::exception_ptr refused;  // why it cannot run
    Buffers buffers;             // of Run
  };

  void RunQueue();
  void CheckNext(int64_t sequence);            // under the lock
  void Enqueue(std::shared_ptr<Entry> entry);  // likewise
  void Copy(Entry& entry, std::span<const void* const> inputs, std::span<const size_t> bytes);
  std::string GiveUp(const std::string& why);
  void RunOne(Entry& entry);
  void CheckSame(const Entry& entry, Transport& scope);
  Transport& Connect(const Ranks& ranks);
  void RunPart(const Part& part, Transport& group, const Ranks& ranks, Block& data);
  void AllReduce(const Part& part, Transport& group, Block& data);
  std::string NameOf(int64_t sequence);
  Block Allocate(size_t size);
  void Free(Block block);

  const World world_;
  Ranks everyone_;
  std::map<Ranks, std::unique_ptr<Transport>> groups_;  // of the communication thread
  std::map<Ranks, int64_t> numbers_;                    // of the next collective of a scope

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Entry>> queue_;
  std::map<int64_t, std::shared_ptr<Entry>> entries_;
  std::map<int64_t, std::string> names_;
  int64_t next_ = 0;
  Status failure_;
  std::string latest_;
  bool stop_ = false;

  // Training steps ask for the same sizes again and again, and fresh memory costs page faults: as
  // much is kept as was ever in use at once.
  std::mutex pool_mutex_;
  std::deque<Block> free_;
  size_t in_use_ = 0, most_in_use_ = 0, in_pool_ = 0;

  std::thread thread_;  // from the first collective on
};

}  // namespace torch_xla::dist
