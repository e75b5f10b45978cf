// A communicator whose world fails in every way that it can.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "dist/communicator.h"

namespace torch_xla::dist {
namespace {

// Has room for nothing.
class NoMemory final : public Memory {
 public:
  char* Allocate(size_t size) override {
    Throw(Code::kResourceExhausted, "no room for ", size, " bytes");
  }
  void Free(char*, size_t) override {}
};

Collective AllReduceOf(int64_t count) {
  Collective c;
  c.parts.resize(1);
  c.parts[0].count = count;
  return c;
}

// How number 0 ends.
Error Failure(Communicator& c) {
  c.Name(0, "the first");
  float x[2] = {1, 2};
  c.Start(0, AllReduceOf(2), {x}, {sizeof(x)});
  try {
    c.Finish(0, 0, x, sizeof(x));
  } catch (const Error& e) {
    return e;
  }
  throw std::logic_error("it worked");
}

TEST(Communicator, OthersThatCannotBeTold) {
  World w;
  w.size = 2;
  w.connect = [](const Ranks&) -> std::unique_ptr<Transport> { throw std::runtime_error("alone"); };
  w.give_up = [](const std::string&) -> std::string { Throw(Code::kInternal, "nobody hears"); };
  Communicator c(w);
  const std::string message = Failure(c).what();
  EXPECT_EQ(message,
            "rank 0: alone (collective 0, the first)\nthe other ranks could not be told: "
            "nobody hears");
  EXPECT_EQ(c.status().message, message);
  EXPECT_THROW(c.Start(1, AllReduceOf(0), {nullptr}, {0}), Error);
}

TEST(Communicator, NoRoomForTheCopies) {
  World w;
  w.rank = 1;
  w.size = 2;
  w.memory = std::make_shared<NoMemory>();
  w.connect = [](const Ranks&) -> std::unique_ptr<Transport> { throw std::logic_error("not yet"); };
  std::string told;
  w.give_up = [&](const std::string& why) {
    told = why;
    return std::string("rank 0 listens");
  };
  Communicator c(w);
  const Error error = Failure(c);
  EXPECT_EQ(error.code(), Code::kResourceExhausted);
  EXPECT_EQ(told, "rank 1: no room for 8 bytes (collective 0, the first)");
  EXPECT_EQ(error.what(), told + "\nrank 0 listens");
}

// There is no thread to wait for.
TEST(Communicator, OfNoCollective) {
  World w;
  w.way = Way::kNative;
  Communicator c(w);
  EXPECT_EQ(c.Latest(), "");
  EXPECT_TRUE(c.status().ok());
}

}  // namespace
}  // namespace torch_xla::dist
