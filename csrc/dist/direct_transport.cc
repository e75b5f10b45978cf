#include "dist/direct_transport.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "base/error.h"

namespace torch_xla::dist {
namespace {

constexpr size_t kInline = 1024;      // bytes that go with the meeting itself
constexpr size_t kChunk = 64 * 1024;  // bytes that one member reduces at a time
constexpr int kSpins = 200;

// Used by members in different processes: nothing in it is a pointer.
struct alignas(64) Slot {
  char data[2][kInline];  // for even and for odd meetings
};
struct alignas(64) Control {
  alignas(64) std::atomic<uint32_t> meetings;  // so many are over; what members sleep on
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> ended;  // somebody has left for good
  alignas(64) std::atomic<uint32_t> here;
  alignas(64) std::atomic<uint64_t> next[2];  // chunk that nobody has taken; even, odd meetings
  Slot slots[];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

uint32_t* Word(std::atomic<uint32_t>& a) { return reinterpret_cast<uint32_t*>(&a); }

void Sleep(std::atomic<uint32_t>& word, uint32_t while_value, std::chrono::milliseconds limit) {
  timespec t{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
  syscall(SYS_futex, Word(word), FUTEX_WAIT, while_value, &t, nullptr, 0);
}

void WakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, Word(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

class DirectTransport final : public Transport {
 public:
  DirectTransport(int index, int size, void* control, std::unique_ptr<Reach> reach,
                  std::shared_ptr<Memory> memory, std::chrono::duration<double> limit)
      : index_(index),
        size_(size),
        control_(*static_cast<Control*>(control)),
        reach_(std::move(reach)),
        memory_(std::move(memory)),
        limit_(limit),
        spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(size) ? kSpins : 0) {}

  ~DirectTransport() override {
    control_.ended.store(1);
    WakeAll(control_.meetings);
  }

  int rank() const override { return index_; }
  int size() const override { return size_; }

  void AllGather(const void* in, void* out, size_t bytes) override {
    auto* rows = static_cast<char*>(out);
    if (bytes <= kInline) {
      const unsigned turn = Offer(in, bytes);
      Meet();
      for (int m = 0; m < size_; ++m) {
        std::memcpy(rows + static_cast<size_t>(m) * bytes, Offered(m, turn), bytes);
      }
      return;
    }
    Shared mine = Show(in, bytes);
    for (int m = 0; m < size_; ++m) {
      std::memcpy(rows + static_cast<size_t>(m) * bytes, mine.of[m], bytes);
    }
    Meet();
  }

  void AllToAll(const void* in, void* out, size_t bytes) override {
    Shared mine = Show(in, bytes * static_cast<size_t>(size_));
    for (int i = 0; i < size_; ++i) {
      int m = (index_ + i) % size_;  // not all from one member at once
      std::memcpy(static_cast<char*>(out) + static_cast<size_t>(m) * bytes,
                  mine.of[m] + static_cast<size_t>(index_) * bytes, bytes);
    }
    Meet();
  }

  void Broadcast(void* data, size_t bytes, int root) override {
    Shared mine = Show(data, index_ == root ? bytes : 0);
    if (index_ != root) std::memcpy(data, mine.of[root], bytes);
    Meet();
  }

  void Exchange(const void* send, int to, void* receive, int from, size_t bytes) override {
    Shared mine = Show(send, to < 0 ? 0 : bytes);
    if (from >= 0) std::memcpy(receive, mine.of[from], bytes);
    Meet();
  }

  bool AllReduce(Reduce op, DType dtype, void* data, size_t count) override {
    const size_t element = ByteSize(dtype);
    const size_t bytes = count * element;
    std::vector<const void*> inputs(static_cast<size_t>(size_));
    if (bytes <= kInline) {
      const unsigned turn = Offer(data, bytes);
      Meet();
      for (int m = 0; m < size_; ++m) inputs[static_cast<size_t>(m)] = Offered(m, turn);
      ReduceInto(op, dtype, inputs, data, count);
      return true;
    }
    Shared mine = Show(data, bytes);
    // Everybody takes the next chunk and writes the result to all, so that nobody waits for a
    // member that does not get a processor just now.
    const size_t chunk = kChunk / element;
    std::atomic<uint64_t>& next = control_.next[mine.turn];
    std::vector<void*> outs(static_cast<size_t>(size_));
    while (true) {
      const size_t begin = next.fetch_add(1, std::memory_order_relaxed) * chunk;
      if (begin >= count) break;
      for (size_t m = 0; m < outs.size(); ++m) {
        outs[m] = mine.of[m] + begin * element;
        inputs[m] = outs[m];
      }
      ReduceInto(op, dtype, inputs, outs, std::min(chunk, count - begin));
    }
    Meet();
    mine.TakeBack(data, bytes);
    return true;
  }

  bool ReduceScatter(Reduce op, DType dtype, const void* in, void* out, size_t count) override {
    const size_t bytes = count * ByteSize(dtype);
    Shared mine = Show(in, bytes * static_cast<size_t>(size_));
    std::vector<const void*> inputs;
    for (char* row : mine.of) inputs.push_back(row + static_cast<size_t>(index_) * bytes);
    ReduceInto(op, dtype, inputs, out, count);
    Meet();
    return true;
  }

 private:
  // Everybody's data during one operation.
  struct Shared {
    std::vector<char*> of;
    Bytes copy;  // of what the others could not have reached
    unsigned turn = 0;
    void TakeBack(void* data, size_t bytes) const {
      if (copy) std::memcpy(data, copy.get(), bytes);
    }
  };

  char* Offered(int member, unsigned turn) { return control_.slots[member].data[turn]; }

  // Lays a few bytes open at the next meeting, until the one after it. Which half is used
  // alternates: who writes for the meeting after the next one knows that all have read this.
  unsigned Offer(const void* data, size_t bytes) {
    const unsigned turn = control_.meetings.load(std::memory_order_acquire) & 1;
    std::memcpy(Offered(index_, turn), data, bytes);
    return turn;
  }

  // Meets the others and finds the data of all. It is to stay as it is until the next meeting.
  Shared Show(const void* data, size_t bytes) {
    Shared shared;
    int64_t name = bytes == 0 ? 0 : reach_->NameOf(data);
    if (name < 0) {
      shared.copy = AllocateBytes(*memory_, bytes);
      std::memcpy(shared.copy.get(), data, bytes);
      name = reach_->NameOf(shared.copy.get());
    }
    shared.turn = Offer(&name, sizeof(name));
    Meet();
    for (int m = 0; m < size_; ++m) {
      std::memcpy(&name, Offered(m, shared.turn), sizeof(name));
      shared.of.push_back(reach_->Find(m, name));
    }
    return shared;
  }

  void Meet() {
    const uint32_t meeting = control_.meetings.load(std::memory_order_acquire);
    if (control_.here.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
      control_.here.store(0, std::memory_order_relaxed);
      control_.next[meeting & 1].store(0, std::memory_order_relaxed);
      control_.meetings.store(meeting + 1);
      if (control_.sleepers.load() != 0) WakeAll(control_.meetings);
      return;
    }
    for (int i = 0; i < spins_; ++i) {
      if (control_.meetings.load(std::memory_order_acquire) != meeting) return;
      std::this_thread::yield();
    }
    control_.sleepers.fetch_add(1);
    SleepUntilOver(meeting);
    control_.sleepers.fetch_sub(1);
  }

  // Where it throws the group is of no use any more.
  void SleepUntilOver(uint32_t meeting) {
    constexpr auto kTick = std::chrono::milliseconds(20);
    const auto start = std::chrono::steady_clock::now();
    auto over = [&] { return control_.meetings.load() != meeting; };
    while (!over()) {
      // Who leaves after the meeting leaves behind it: look at that again.
      const bool ended = control_.ended.load() != 0 || reach_->SomebodyEnded();
      if (ended && !over()) Throw(Code::kUnavailable, "another rank closed the connection");
      const bool late = limit_.count() > 0 && std::chrono::steady_clock::now() - start >= limit_;
      XLA_CHECK(!late, kDeadlineExceeded,
                "the other ranks did not come in time (XLA_WAIT_TIMEOUT_S)");
      Sleep(control_.meetings, meeting, kTick);
    }
  }

  const int index_, size_;
  Control& control_;
  const std::unique_ptr<Reach> reach_;
  const std::shared_ptr<Memory> memory_;
  const std::chrono::duration<double> limit_;
  const int spins_;
};

}  // namespace

size_t ControlSize(size_t members) { return sizeof(Control) + members * sizeof(Slot); }

std::unique_ptr<Transport> MakeDirectTransport(int index, int size, void* control,
                                               std::unique_ptr<Reach> reach,
                                               std::shared_ptr<Memory> memory,
                                               std::chrono::duration<double> limit) {
  return std::make_unique<DirectTransport>(index, size, control, std::move(reach),
                                           std::move(memory), limit);
}

}  // namespace torch_xla::dist
