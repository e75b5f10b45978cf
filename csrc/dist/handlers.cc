#include "dist/handlers.h"

#include <mutex>

#include "aten/ffi.h"
#include "base/error.h"
#include "dist/recorder.h"
#include "lazy/runtime.h"

namespace torch_xla::dist {
namespace {

int64_t CountOf(const ffi::Buffer& b) {
  int64_t n = 1;
  for (int64_t i = 0; i < b.rank; ++i) n *= b.dims[i];
  return n;
}

ffi::Buffer& Argument(const ffi::CallFrame& frame, int64_t i) {
  return *static_cast<ffi::Buffer*>(frame.args.values[i]);
}

const int64_t* Words(const ffi::Buffer& b) { return static_cast<const int64_t*>(b.data); }

std::shared_ptr<Communicator> Find(const int64_t* link) {
  auto c = CommunicatorOf(static_cast<int>(link[1]));
  XLA_CHECK(c, kFailedPrecondition, "xla:", link[1], " has no communicator any more");
  return c;
}

Collective DecodeWords(const ffi::Buffer& words) {
  return Collective::Decode({Words(words), static_cast<size_t>(CountOf(words))});
}

ffi::Buffer& Result(const ffi::CallFrame& frame, size_t i) {
  return *static_cast<ffi::Buffer*>(frame.rets.values[i]);
}

void WriteLink(const ffi::CallFrame& frame, int64_t next, int64_t device) {
  auto* out = static_cast<int64_t*>(Result(frame, 0).data);
  out[0] = next;
  out[1] = device;
}

// (link[2], words[n], inputs...) -> link[2]
void DoStart(const ffi::CallFrame& frame) {
  const int64_t* link = Words(Argument(frame, 0));
  Collective c = DecodeWords(Argument(frame, 1));
  std::vector<const void*> inputs;
  std::vector<size_t> bytes;
  int64_t next = 2;
  for (const Part& p : c.parts) {
    for (int64_t i = 0; i < p.num_tensors; ++i, ++next) {
      XLA_INTERNAL_CHECK(next < frame.args.size);
      const ffi::Buffer& b = Argument(frame, next);
      inputs.push_back(b.data);
      bytes.push_back(static_cast<size_t>(CountOf(b)) * ByteSize(p.dtype));
    }
  }
  const int64_t sequence = link[0], device = link[1];
  Find(link)->Start(sequence, std::move(c), std::move(inputs), std::move(bytes));
  WriteLink(frame, sequence + 1, device);
}

// (link[2], latest link[2], {part, its type}) -> result
void DoWait(const ffi::CallFrame& frame) {
  const int64_t* link = Words(Argument(frame, 0));
  const int64_t* words = Words(Argument(frame, 2));
  const ffi::Buffer& out = Result(frame, 0);
  const size_t bytes = static_cast<size_t>(CountOf(out)) * ByteSize(static_cast<DType>(words[1]));
  if (bytes != 0) Find(link)->Finish(link[0] - 1, static_cast<size_t>(words[0]), out.data, bytes);
}

// (link[2], words[n], inputs...) -> link[2], result of each part. On the buffers themselves.
void StartWhole(const ffi::CallFrame& frame, const std::shared_ptr<ffi::Promise>& promise) {
  const int64_t* link = Words(Argument(frame, 0));
  const int64_t sequence = link[0], device = link[1];
  Collective c = DecodeWords(Argument(frame, 1));
  Buffers buffers;
  int64_t next = 2;
  for (const Part& p : c.parts) {
    PartBuffers& part = buffers.parts.emplace_back();
    for (int64_t i = 0; i < p.num_tensors; ++i, ++next) {
      XLA_INTERNAL_CHECK(next < frame.args.size);
      const ffi::Buffer& b = Argument(frame, next);
      part.tensors.emplace_back(static_cast<const char*>(b.data),
                                static_cast<size_t>(CountOf(b)) * ByteSize(p.dtype));
    }
    const ffi::Buffer& out = Result(frame, buffers.parts.size());
    part.out = {static_cast<char*>(out.data),
                static_cast<size_t>(CountOf(out)) * ByteSize(p.dtype)};
  }
  WriteLink(frame, sequence + 1, device);
  buffers.done = [promise](const Status& status) { promise->Keep(status); };
  Find(link)->Run(sequence, std::move(c), std::move(buffers));
}

}  // namespace

void RegisterHandlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    lazy::Runtime& runtime = lazy::Runtime::Get();
    bool there =
        runtime.client().RegisterFfiHandler(kStartTarget,
                                            reinterpret_cast<void*>(&ffi::Handle<&DoStart>)) &&
        runtime.client().RegisterFfiHandler(kWaitTarget,
                                            reinterpret_cast<void*>(&ffi::Handle<&DoWait>)) &&
        runtime.client().RegisterFfiHandler(
            kWholeTarget, reinterpret_cast<void*>(&ffi::Handle<&ffi::Asynchronously<&StartWhole>>));
    XLA_CHECK(there, kUnimplemented, "the PJRT plugin of ", runtime.platform(),
              " cannot call the host from inside of a program, which collectives need");
  });
}

}  // namespace torch_xla::dist
