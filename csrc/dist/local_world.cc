#include "dist/local_world.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/wait.h"
#include "dist/memory.h"
#include "dist/reduce.h"

namespace torch_xla::dist {
namespace {

// A part as one member of its group sees it.
struct Share {
  const Part& part;
  const Ranks& ranks;  // of the group
  size_t me;           // place in it
  std::span<const PartBuffers* const> members;

  size_t n() const { return members.size(); }
  const PartBuffers& mine() const { return *members[me]; }
  size_t bytes() const { return static_cast<size_t>(part.count) * ByteSize(part.dtype); }
};

// Calls fn(tensor, offset in it, offset in all of them, bytes) for the pieces of [begin, end), of
// tensors that lie one behind the other.
template <typename Fn>
void ForPieces(const PartBuffers& b, size_t begin, size_t end, Fn fn) {
  size_t at = 0;
  for (size_t t = 0; t < b.tensors.size() && at < end; at += b.tensors[t++].size()) {
    const size_t last = std::min(end, at + b.tensors[t].size());
    const size_t first = std::max(begin, at);
    if (first < last) fn(t, first - at, first, last - first);
  }
}

// What lies at [begin, begin + bytes) of the tensors.
void CopyFrom(const PartBuffers& b, size_t begin, size_t bytes, char* out) {
  ForPieces(b, begin, begin + bytes, [&](size_t t, size_t at, size_t i, size_t n) {
    std::memcpy(out + (i - begin), b.tensors[t].data() + at, n);
  });
}

// Reduces the elements [begin, end) of all members' tensors to outs[i] + offset - skip. In place
// where that is an operand: an element is written when it has been read of all.
void ReducePieces(const Share& s, size_t begin, size_t end, std::span<char* const> outs,
                  size_t skip) {
  const size_t size = ByteSize(s.part.dtype);
  std::vector<const void*> inputs(s.n());
  std::vector<void*> to(outs.size());
  ForPieces(s.mine(), begin * size, end * size, [&](size_t t, size_t at, size_t i, size_t n) {
    for (size_t m = 0; m < s.n(); ++m) inputs[m] = s.members[m]->tensors[t].data() + at;
    for (size_t o = 0; o < outs.size(); ++o) to[o] = outs[o] + (i - skip * size);
    ReduceInto(s.part.reduce, s.part.dtype, inputs, to, n / size);
  });
}

// Each member reduces a slice for all of them.
void AllReduce(const Share& s) {
  const auto count = static_cast<size_t>(s.part.count);
  std::vector<char*> outs;
  for (const PartBuffers* m : s.members) outs.push_back(m->out.data());
  ReducePieces(s, count * s.me / s.n(), count * (s.me + 1) / s.n(), outs, 0);
}

void ReduceScatter(const Share& s) {
  const size_t row = static_cast<size_t>(s.part.count) / s.n();
  char* const out = s.mine().out.data();
  ReducePieces(s, row * s.me, row * (s.me + 1), std::span(&out, 1), row * s.me);
}

void AllGather(const Share& s) {
  for (size_t m = 0; m < s.n(); ++m) {
    CopyFrom(*s.members[m], 0, s.bytes(), s.mine().out.data() + m * s.bytes());
  }
}

void AllToAll(const Share& s) {
  const size_t row = s.bytes() / s.n();
  for (size_t m = 0; m < s.n(); ++m) {
    CopyFrom(*s.members[m], s.me * row, row, s.mine().out.data() + m * row);
  }
}

size_t PlaceOf(const Ranks& ranks, int64_t rank) {
  return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void Permute(const Share& s) {
  for (auto [source, target] : s.part.pairs) {
    if (target != s.ranks[s.me]) continue;
    CopyFrom(*s.members[PlaceOf(s.ranks, source)], 0, s.bytes(), s.mine().out.data());
    return;
  }
  std::memset(s.mine().out.data(), 0, s.bytes());
}

void RunShare(const Share& s) {
  if (s.part.count == 0) return;
  switch (s.part.kind) {
    case Kind::kAllReduce: return AllReduce(s);
    case Kind::kAllGather: return AllGather(s);
    case Kind::kReduceScatter: return ReduceScatter(s);
    case Kind::kAllToAll: return AllToAll(s);
    case Kind::kPermute: return Permute(s);
    case Kind::kBroadcast:
      // Of a group of one the root may be somewhere else.
      return CopyFrom(*s.members[s.n() == 1 ? 0 : PlaceOf(s.ranks, s.part.root)], 0, s.bytes(),
                      s.mine().out.data());
  }
}

}  // namespace

// One collective of one scope. The fields are guarded by the world's mutex until all are there.
struct LocalWorld::Meeting {
  explicit Meeting(size_t size)
      : guests(size), here(size), came(size), missing(size), inside(size) {}

  std::vector<Guest> guests;
  std::vector<bool> here, came;  // came: may have given up waiting
  size_t missing;
  size_t inside;   // who has not finished
  Status failure;  // of somebody's share
};

void LocalWorld::Gone(int64_t rank, const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& g : gone_) {
    if (g.first == rank) return;
  }
  gone_.emplace_back(rank, why);
  changed_.notify_all();
}

std::string LocalWorld::WhoIsGone(const Ranks& scope, const Meeting& meeting) const {
  for (const auto& [rank, why] : gone_) {  // the first is the cause
    const size_t place = PlaceOf(scope, rank);
    if (place != scope.size() && !meeting.here[place]) return StrCat("rank ", rank, " ", why);
  }
  return "";
}

std::shared_ptr<LocalWorld::Meeting> LocalWorld::Meet(const Ranks& scope, size_t place,
                                                      const Guest& me) {
  const std::chrono::duration<double> limit = 0.8 * WaitTimeout();
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  std::unique_lock<std::mutex> lock(mutex_);
  std::shared_ptr<Meeting>& open = open_[scope];
  if (!open) open = std::make_shared<Meeting>(scope.size());
  std::shared_ptr<Meeting> meeting = open;
  meeting->guests[place] = me;
  meeting->here[place] = meeting->came[place] = true;
  if (--meeting->missing == 0) {
    open_.erase(scope);  // the next ones meet in another
    changed_.notify_all();
    return meeting;
  }
  auto give_up = [&](Code code, const std::string& why) {
    meeting->here[place] = false;
    ++meeting->missing;
    Throw(code, why);
  };
  while (meeting->missing != 0) {
    if (std::string who = WhoIsGone(scope, *meeting); !who.empty()) {
      give_up(Code::kUnavailable, who);
    }
    if (limit.count() <= 0) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, end) == std::cv_status::timeout && meeting->missing != 0) {
      std::string silent;
      for (size_t i = 0; i < scope.size(); ++i) {
        if (!meeting->came[i]) silent += StrCat(silent.empty() ? " " : ", ", scope[i]);
      }
      give_up(Code::kDeadlineExceeded,
              StrCat("the other ranks did not come in time (XLA_WAIT_TIMEOUT_S): no sign of rank",
                     silent));
    }
  }
  return meeting;
}

// Nobody's buffers go before all are done with them. The others are in the middle of copying or
// adding numbers, which needs no limit.
void LocalWorld::Leave(Meeting& meeting) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (--meeting.inside == 0) changed_.notify_all();
  changed_.wait(lock, [&] { return meeting.inside == 0; });
  meeting.failure.ThrowIfError();
}

void LocalWorld::Run(const Ranks& scope, const Guest& me) {
  for (const PartBuffers& b : me.buffers->parts) {
    if (b.tensors[0].data() != b.out.data()) WantLargePages(b.out.data(), b.out.size());
  }
  const std::shared_ptr<Meeting> meeting = Meet(scope, PlaceOf(scope, me.rank), me);
  const std::vector<Guest>& guests = meeting->guests;
  const bool same = std::all_of(guests.begin(), guests.end(), [&](const Guest& g) {
    return g.sequence == me.sequence && g.collective->fingerprint == me.collective->fingerprint;
  });
  if (!same) {
    std::vector<std::string> names;
    for (const Guest& g : guests) names.push_back(g.name);
    Leave(*meeting);
    ThrowDifferent(scope, names);
  }
  try {
    const auto& parts = me.collective->parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Ranks& ranks = parts[i].GroupOf(me.rank, scope);
      std::vector<const PartBuffers*> members;
      for (int64_t r : ranks) {
        members.push_back(&guests[PlaceOf(scope, r)].buffers->parts[i]);
      }
      RunShare({parts[i], ranks, PlaceOf(ranks, me.rank), members});
    }
  } catch (const std::exception& e) {
    std::lock_guard<std::mutex> lock(mutex_);
    meeting->failure = {Code::kInternal, StrCat("rank ", me.rank, ": ", e.what())};
  }
  Leave(*meeting);
}

void ThrowDifferent(const Ranks& ranks, std::span<const std::string> names) {
  std::string message = "the ranks run different collectives:";
  for (size_t i = 0; i < names.size(); ++i) {
    message += StrCat("\n  rank ", ranks[i], ": ", names[i]);
  }
  Throw(Code::kFailedPrecondition, message, "\n");
}

}  // namespace torch_xla::dist
