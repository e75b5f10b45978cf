// Threads in the place of processes: each has a memory of its own, which the others map.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/shared_memory.h"

namespace torch_xla::dist {
namespace {

using Floats = std::vector<float>;

struct Member {
  std::shared_ptr<SharedMemory> memory = std::make_shared<SharedMemory>();
  std::unique_ptr<Transport> transport;
};

// A group of the members.
std::vector<std::unique_ptr<Transport>> Group(const std::vector<Member>& members) {
  std::vector<SharedAddress> addresses;
  for (const Member& m : members) addresses.push_back(m.memory->NewGroup(members.size()));
  std::vector<std::unique_ptr<Transport>> group;
  for (const Member& m : members) {
    group.push_back(MakeSharedMemoryTransport(m.memory, static_cast<int>(group.size()), addresses));
  }
  return group;
}

std::vector<Member> Connect(int n) {
  std::vector<Member> members(static_cast<size_t>(n));
  std::vector<std::unique_ptr<Transport>> group = Group(members);
  for (size_t i = 0; i < members.size(); ++i) members[i].transport = std::move(group[i]);
  return members;
}

void AllDo(std::vector<Member>& members, const std::function<void(Member&, int)>& fn) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] { fn(members[i], static_cast<int>(i)); });
  }
  for (std::thread& t : threads) t.join();
}

// In the member's memory (where no copy is needed) or on the heap.
struct Array {
  Array(Member& m, size_t count, bool shared) : heap(count) {
    if (shared) bytes = AllocateBytes(*m.memory, count * sizeof(float));
    data = shared ? reinterpret_cast<float*>(bytes.get()) : heap.data();
  }
  Floats heap;
  Bytes bytes;
  float* data;
};

class Sizes : public testing::TestWithParam<size_t> {};

TEST_P(Sizes, EveryOperation) {
  constexpr int kMembers = 3;
  const size_t count = GetParam();
  std::vector<Member> members = Connect(kMembers);
  std::atomic<int> wrong{0};
  auto value = [](int member, size_t i) {
    return static_cast<float>(member + 1) * static_cast<float>(i % 1000);
  };
  for (bool shared : {true, false}) {
    AllDo(members, [&](Member& me, int r) {
      Transport& t = *me.transport;
      const size_t bytes = count * sizeof(float);
      Array x(me, count, shared), rows(me, count * kMembers, shared),
          out(me, count * kMembers, shared);
      for (int turn = 0; turn < 3; ++turn) {
        for (size_t i = 0; i < count; ++i) x.data[i] = value(r, i);
        for (size_t i = 0; i < count * kMembers; ++i) rows.data[i] = value(r, i);
        t.AllGather(x.data, out.data, bytes);
        for (size_t i = 0; i < count * kMembers; ++i) {
          wrong += out.data[i] != value(static_cast<int>(i / count), i % count);
        }
        t.AllToAll(rows.data, out.data, bytes);
        for (size_t i = 0; i < count * kMembers; ++i) {
          wrong += out.data[i] !=
                   value(static_cast<int>(i / count), static_cast<size_t>(r) * count + i % count);
        }
        EXPECT_TRUE(t.ReduceScatter(Reduce::kSum, DType::kF32, rows.data, out.data, count));
        for (size_t i = 0; i < count; ++i) {
          wrong += out.data[i] != 6 * value(0, static_cast<size_t>(r) * count + i);
        }
        t.Exchange(x.data, r == 2 ? -1 : r + 1, out.data, r - 1, bytes);
        for (size_t i = 0; r > 0 && i < count; ++i) wrong += out.data[i] != value(r - 1, i);
        EXPECT_TRUE(t.AllReduce(Reduce::kSum, DType::kF32, x.data, count));
        for (size_t i = 0; i < count; ++i) wrong += x.data[i] != 6 * value(0, i);
        for (size_t i = 0; i < count; ++i) x.data[i] = value(r, i);
        t.Broadcast(x.data, bytes, 1);
        for (size_t i = 0; i < count; ++i) wrong += x.data[i] != value(1, i);
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}
INSTANTIATE_TEST_SUITE_P(Counts, Sizes, testing::Values(1, 256, 257, 16384, 100'003));

TEST(DirectTransport, MemberThatDoesNotComeOrLeaves) {
  setenv("XLA_WAIT_TIMEOUT_S", "0.25", 1);
  std::vector<Member> members = Connect(2);
  unsetenv("XLA_WAIT_TIMEOUT_S");
  float x[1] = {1};
  auto code = [&] {
    try {
      members[0].transport->AllReduce(Reduce::kSum, DType::kF32, x, 1);
    } catch (const Error& e) {
      return e.code();
    }
    return Code::kOk;
  };
  EXPECT_EQ(code(), Code::kDeadlineExceeded);
  members = Connect(2);
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    members[1].transport.reset();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code(), Code::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  leaves.join();
}

TEST(DirectTransport, NoTimeLimit) {
  setenv("XLA_WAIT_TIMEOUT_S", "0", 1);
  std::vector<Member> members = Connect(2);
  unsetenv("XLA_WAIT_TIMEOUT_S");
  AllDo(members, [](Member& me, int r) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    float x[1] = {1};
    EXPECT_TRUE(me.transport->AllReduce(Reduce::kSum, DType::kF32, x, 1));
    EXPECT_EQ(x[0], 2);
  });
}

TEST(SharedMemory, GroupsMapAMemberOnce) {
  auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int n = 0;
    for (std::string line; std::getline(maps, line);) {
      n += line.find("/memfd:torch_xla") != std::string::npos;
    }
    return n;
  };
  std::vector<Member> members = Connect(2);
  const int before = mappings();
  {
    auto second = Group(members), third = Group(members);
    EXPECT_EQ(mappings(), before);
    members[0].transport.reset();
    members[1].transport.reset();
    EXPECT_EQ(mappings(), before);
  }
  EXPECT_EQ(mappings(), before - 2);  // its own is left of each
}

TEST(SharedMemory, WhatIsFreeIsUsedAgain) {
  SharedMemory memory;
  char* first = memory.Allocate(10'000);
  char* second = memory.Allocate(1);
  EXPECT_NE(first, second);
  first[9'999] = second[0] = 7;
  EXPECT_EQ(memory.OffsetOf(&memory), -1);
  memory.Free(first, 10'000);
  EXPECT_EQ(memory.Allocate(5'000), first);
  EXPECT_EQ(first[4'999], 0);
  memory.Free(second, 1);
  memory.Free(first, 5'000);
  char* whole = memory.Allocate(1 << 20);
  EXPECT_EQ(whole, first);
  EXPECT_THROW(memory.Allocate(size_t{1} << 60), Error);
}

TEST(SharedMemory, AnotherFileInItsPlace) {
  auto memory = std::make_shared<SharedMemory>();
  SharedAddress a = memory->NewGroup(2), b = a;
  b.token += 1;
  EXPECT_THROW(MakeSharedMemoryTransport(memory, 0, {a, b}), Error);
  b = a;
  b.fd = 100'000;
  EXPECT_THROW(MakeSharedMemoryTransport(memory, 0, {a, b}), Error);
}

}  // namespace
}  // namespace torch_xla::dist
