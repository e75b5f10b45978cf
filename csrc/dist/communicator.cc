#include "dist/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/metrics.h"
#include "base/wait.h"

namespace torch_xla::dist {
namespace {

struct Header {
  int64_t number;  // among the collectives of the scope: other ranks may have others besides
  int64_t fingerprint;
};

}  // namespace

Communicator::Communicator(World world) : world_(std::move(world)) {
  everyone_.resize(static_cast<size_t>(world_.size));
  std::iota(everyone_.begin(), everyone_.end(), 0);
}

Communicator::~Communicator() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Communicator::Name(int64_t sequence, std::string name) {
  std::lock_guard<std::mutex> lock(mutex_);
  names_[sequence] = std::move(name);
}

std::string Communicator::NameOf(int64_t sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = names_.find(sequence);
  return StrCat("collective ", sequence, ", ", it == names_.end() ? "unknown" : it->second);
}

Status Communicator::status() {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::string Communicator::Latest() {
  std::lock_guard<std::mutex> lock(mutex_);
  return latest_;
}

void Communicator::Start(int64_t sequence, Collective collective, std::vector<const void*> inputs,
                         std::vector<size_t> bytes) {
  auto entry = std::make_shared<Entry>();
  entry->sequence = sequence;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    CheckNext(sequence);
  }
  for (const Part& p : collective.parts) entry->unfinished += p.count != 0;
  entry->collective = std::move(collective);
  try {
    Copy(*entry, inputs, bytes);
  } catch (...) {
    // The others wait for this number: it fails in its turn, which tells them.
    for (Block& b : entry->data) Free(std::move(b));
    entry->data.clear();
    entry->refused = std::current_exception();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  entries_[sequence] = entry;
  Enqueue(std::move(entry));
}

void Communicator::Copy(Entry& entry, std::span<const void* const> inputs,
                        std::span<const size_t> bytes) {
  size_t next = 0;
  for (const Part& p : entry.collective.parts) {
    size_t total = 0, at = 0;
    for (int64_t i = 0; i < p.num_tensors; ++i) total += bytes[next + static_cast<size_t>(i)];
    XLA_INTERNAL_CHECK(total == static_cast<size_t>(p.count) * ByteSize(p.dtype));
    Block& block = entry.data.emplace_back(Allocate(total));
    for (int64_t i = 0; i < p.num_tensors; ++i, ++next) {
      if (bytes[next] != 0) std::memcpy(block.data.get() + at, inputs[next], bytes[next]);
      at += bytes[next];
    }
  }
}

void Communicator::Run(int64_t sequence, Collective collective, Buffers buffers) {
  auto entry = std::make_shared<Entry>();
  entry->sequence = sequence;
  entry->collective = std::move(collective);
  entry->buffers = std::move(buffers);
  std::lock_guard<std::mutex> lock(mutex_);
  CheckNext(sequence);
  Enqueue(std::move(entry));
}

void Communicator::CheckNext(int64_t sequence) {
  failure_.ThrowIfError();
  XLA_INTERNAL_CHECK(sequence == next_, "collective ", sequence, " started as number ", next_);
  ++next_;
}

void Communicator::Enqueue(std::shared_ptr<Entry> entry) {
  static metrics::Counter* count = metrics::GetCounter("Collectives");
  count->Add();
  if (!thread_.joinable()) thread_ = std::thread([this] { RunQueue(); });
  queue_.push_back(std::move(entry));
  changed_.notify_all();
}

void Communicator::Finish(int64_t sequence, size_t part, void* out, size_t bytes) {
  static metrics::Metric* wait_time = metrics::GetMetric("CollectiveWaitTime");
  metrics::Timed timed(wait_time);
  std::shared_ptr<Entry> entry;
  {
    // No limit here: the communication thread has one, and fails everything when it is over.
    std::unique_lock<std::mutex> lock(mutex_);
    auto it = entries_.find(sequence);
    if (it == entries_.end()) failure_.ThrowIfError();
    XLA_INTERNAL_CHECK(it != entries_.end(), "collective ", sequence, " is finished twice");
    entry = it->second;
    changed_.wait(lock, [&] { return entry->done || !failure_.ok(); });
    if (!entry->done) failure_.ThrowIfError();
  }
  Block& data = entry->data[part];
  XLA_INTERNAL_CHECK(data.data != nullptr && data.size >= bytes);
  WantLargePages(out, bytes);
  std::memcpy(out, data.data.get(), bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  Free(std::move(data));
  if (--entry->unfinished == 0) entries_.erase(sequence);
}

void Communicator::RunQueue() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) break;
    std::shared_ptr<Entry> entry = std::move(queue_.front());
    queue_.pop_front();
    bool failed = !failure_.ok();
    auto name = names_.find(entry->sequence);
    latest_ = StrCat("collective ", entry->sequence, ", ",
                     name == names_.end() ? "unknown" : name->second);
    lock.unlock();
    Status error;
    if (!failed) {
      try {
        RunOne(*entry);
      } catch (const Error& e) {
        error = {e.code(), e.what()};
      } catch (const std::exception& e) {
        error = {Code::kUnavailable, e.what()};
      }
      if (!error.ok()) {
        error.message =
            StrCat("rank ", world_.rank, ": ", error.message, " (", NameOf(entry->sequence), ")");
        error.message += GiveUp(error.message);
        groups_.clear();  // closes the connections: the others notice
      }
    }
    lock.lock();
    if (!error.ok()) failure_ = std::move(error);
    entry->done = failure_.ok();
    names_.erase(entry->sequence);
    if (entry->unfinished == 0) entries_.erase(entry->sequence);
    changed_.notify_all();
    if (!entry->buffers.done) continue;
    const Status status = failure_;
    lock.unlock();
    entry->buffers.done(status);
    lock.lock();
  }
  lock.unlock();
  groups_.clear();
}

// What the others tell, as lines to append.
std::string Communicator::GiveUp(const std::string& why) {
  try {
    const std::string others = world_.give_up(why);
    return others.empty() ? "" : "\n" + others;
  } catch (const std::exception& e) {  // Python exits, say; on this thread it would end the process
    return StrCat("\nthe other ranks could not be told: ", e.what());
  }
}

Transport& Communicator::Connect(const Ranks& ranks) {
  std::unique_ptr<Transport>& transport = groups_[ranks];
  if (!transport) transport = world_.connect(ranks);
  return *transport;
}

void Communicator::RunOne(Entry& entry) {
  static metrics::Metric* time = metrics::GetMetric("CollectiveTime");
  metrics::Timed timed(time);
  if (entry.refused) std::rethrow_exception(entry.refused);
  const Collective& c = entry.collective;
  const Ranks& scope = c.scope.empty() ? everyone_ : c.scope;
  if (world_.local) {
    world_.local->Run(
        scope, {world_.rank, numbers_[c.scope]++, NameOf(entry.sequence), &c, &entry.buffers});
    return;
  }
  CheckSame(entry, Connect(scope));
  for (size_t i = 0; i < c.parts.size(); ++i) {
    const Part& p = c.parts[i];
    if (p.count == 0) continue;
    const Ranks& ranks = p.GroupOf(world_.rank, scope);
    RunPart(p, Connect(ranks), ranks, entry.data[i]);
  }
}

// Ranks whose programs went apart would read each other's numbers wrongly, or wait for ever.
void Communicator::CheckSame(const Entry& entry, Transport& scope) {
  Header mine{numbers_[entry.collective.scope]++, entry.collective.fingerprint};
  std::vector<Header> all(static_cast<size_t>(scope.size()));
  scope.AllGather(&mine, all.data(), sizeof(mine));
  bool same = true;
  for (const Header& h : all) {
    same = same && h.number == mine.number && h.fingerprint == mine.fingerprint;
  }
  if (same) return;
  const Ranks& ranks = entry.collective.scope.empty() ? everyone_ : entry.collective.scope;
  std::vector<std::string> names = world_.compare(entry.sequence, ranks, NameOf(entry.sequence));
  ThrowDifferent(ranks, names);
}

void Communicator::RunPart(const Part& part, Transport& group, const Ranks& ranks, Block& data) {
  const auto n = static_cast<size_t>(group.size());
  const size_t bytes = static_cast<size_t>(part.count) * ByteSize(part.dtype);
  switch (part.kind) {
    case Kind::kAllReduce:
      if (n > 1) AllReduce(part, group, data);
      return;
    case Kind::kAllGather: {
      Block out = Allocate(bytes * n);
      group.AllGather(data.data.get(), out.data.get(), bytes);
      std::swap(data, out);
      Free(std::move(out));
      return;
    }
    case Kind::kReduceScatter: {
      const size_t slice = static_cast<size_t>(part.count) / n;
      Block out = Allocate(bytes / n);
      if (group.ReduceScatter(part.reduce, part.dtype, data.data.get(), out.data.get(), slice)) {
        std::swap(data, out);
        Free(std::move(out));
        return;
      }
      Block rows = Allocate(bytes);
      group.AllToAll(data.data.get(), rows.data.get(), bytes / n);
      std::vector<const void*> inputs;
      for (size_t i = 0; i < n; ++i) inputs.push_back(rows.data.get() + i * (bytes / n));
      ReduceInto(part.reduce, part.dtype, inputs, out.data.get(), slice);
      std::swap(data, out);
      Free(std::move(out));
      Free(std::move(rows));
      return;
    }
    case Kind::kAllToAll: {
      Block out = Allocate(bytes);
      group.AllToAll(data.data.get(), out.data.get(), bytes / n);
      std::swap(data, out);
      Free(std::move(out));
      return;
    }
    case Kind::kPermute: {
      auto index = [&](int64_t rank) {
        return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      };
      int to = -1, from = -1;
      for (auto [source, target] : part.pairs) {
        if (source == world_.rank) to = index(target);
        if (target == world_.rank) from = index(source);
      }
      Block out = Allocate(bytes);
      std::memset(out.data.get(), 0, bytes);
      group.Exchange(data.data.get(), to, out.data.get(), from, bytes);
      std::swap(data, out);
      Free(std::move(out));
      return;
    }
    case Kind::kBroadcast: {
      auto root = std::find(ranks.begin(), ranks.end(), part.root) - ranks.begin();
      group.Broadcast(data.data.get(), bytes, static_cast<int>(root));
      return;
    }
  }
}

void Communicator::AllReduce(const Part& part, Transport& group, Block& data) {
  const auto count = static_cast<size_t>(part.count);
  if (group.AllReduce(part.reduce, part.dtype, data.data.get(), count)) return;
  // Each member reduces a slice, and all gather the slices.
  const auto n = static_cast<size_t>(group.size());
  const size_t slice = (count + n - 1) / n;
  const size_t bytes = slice * ByteSize(part.dtype);
  Block padded = Allocate(bytes * n), rows = Allocate(bytes * n);
  std::memcpy(padded.data.get(), data.data.get(), count * ByteSize(part.dtype));
  std::memset(padded.data.get() + count * ByteSize(part.dtype), 0,
              (slice * n - count) * ByteSize(part.dtype));
  group.AllToAll(padded.data.get(), rows.data.get(), bytes);
  std::vector<const void*> inputs;
  for (size_t i = 0; i < n; ++i) inputs.push_back(rows.data.get() + i * bytes);
  ReduceInto(part.reduce, part.dtype, inputs, rows.data.get(), slice);
  group.AllGather(rows.data.get(), padded.data.get(), bytes);
  std::swap(data, padded);
  Free(std::move(padded));
  Free(std::move(rows));
}

Communicator::Block Communicator::Allocate(size_t size) {
  {
    std::lock_guard<std::mutex> lock(pool_mutex_);
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    auto it =
        std::find_if(free_.begin(), free_.end(), [&](const Block& b) { return b.size == size; });
    if (it != free_.end()) {
      Block found = std::move(*it);
      free_.erase(it);
      in_pool_ -= size;
      return found;
    }
  }
  try {
    return {AllocateBytes(*world_.memory, size), size};
  } catch (...) {
    std::lock_guard<std::mutex> lock(pool_mutex_);
    in_use_ -= size;
    throw;
  }
}

void Communicator::Free(Block block) {
  std::lock_guard<std::mutex> lock(pool_mutex_);
  in_use_ -= block.size;
  in_pool_ += block.size;
  free_.push_back(std::move(block));
  while (in_pool_ > most_in_use_) {  // the oldest first
    in_pool_ -= free_.front().size;
    free_.pop_front();
  }
}

}  // namespace torch_xla::dist
