#include "dist/gloo_transport.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/error.h"

namespace torch_xla::dist {
namespace {

at::Tensor Wrap(const void* data, size_t count, at::ScalarType type = at::kByte) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)},
                       at::TensorOptions().dtype(type));
}

bool Has(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* w) { return text.find(w) != std::string::npos; });
}

void Wait(const c10::intrusive_ptr<c10d::Work>& work) {
  try {
    work->wait();
  } catch (const std::exception& e) {
    // gloo's own words are about its source files and addresses.
    const std::string text = e.what();
    if (Has(text, {"imed out", "imeout"})) {
      Throw(Code::kDeadlineExceeded, "the other ranks did not come in time (XLA_WAIT_TIMEOUT_S)");
    }
    if (Has(text, {"closed by peer", "reset by peer", "roken pipe", "onnection refused"})) {
      Throw(Code::kUnavailable, "another rank closed the connection");
    }
    Throw(Code::kUnavailable, "gloo: ", text);
  }
}

// What gloo adds up in the type's own arithmetic; 16-bit floats would be rounded at every hop.
std::optional<at::ScalarType> GlooType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kF64: return at::kDouble;
    case DType::kS32: return at::kInt;
    case DType::kS64: return at::kLong;
    default: return std::nullopt;
  }
}

std::optional<c10d::ReduceOp::RedOpType> GlooOp(Reduce op) {
  switch (op) {
    case Reduce::kSum: return c10d::ReduceOp::SUM;
    case Reduce::kMul: return c10d::ReduceOp::PRODUCT;
    default: return std::nullopt;  // min and max do not pass NaN on
  }
}

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(c10::intrusive_ptr<c10d::Backend> group) : group_(std::move(group)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  void AllGather(const void* in, void* out, size_t bytes) override {
    if (size() == 1) {
      std::memcpy(out, in, bytes);
      return;
    }
    at::Tensor input = Wrap(in, bytes);
    at::Tensor output = Wrap(out, bytes * static_cast<size_t>(size()));
    Wait(group_->_allgather_base(output, input));
  }

  void AllToAll(const void* in, void* out, size_t bytes) override {
    if (size() == 1) {
      std::memcpy(out, in, bytes);
      return;
    }
    at::Tensor input = Wrap(in, bytes * static_cast<size_t>(size()));
    at::Tensor output = Wrap(out, bytes * static_cast<size_t>(size()));
    std::vector<int64_t> equal;
    Wait(group_->alltoall_base(output, input, equal, equal));
  }

  void Broadcast(void* data, size_t bytes, int root) override {
    if (size() == 1) return;
    std::vector<at::Tensor> tensors{Wrap(data, bytes)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    Wait(group_->broadcast(tensors, options));
  }

  void Exchange(const void* send, int to, void* receive, int from, size_t bytes) override {
    constexpr int kTag = 1;
    if (from == rank()) {
      std::memcpy(receive, send, bytes);
      return;
    }
    std::vector<at::Tensor> out{Wrap(send, bytes)}, in{Wrap(receive, bytes)};
    c10::intrusive_ptr<c10d::Work> sent, received;
    if (from >= 0) received = group_->recv(in, from, kTag);
    if (to >= 0) sent = group_->send(out, to, kTag);
    if (received) Wait(received);
    if (sent) Wait(sent);
  }

  bool AllReduce(Reduce op, DType dtype, void* data, size_t count) override {
    auto type = GlooType(dtype);
    auto gloo_op = GlooOp(op);
    if (!type || !gloo_op) return false;
    std::vector<at::Tensor> tensors{Wrap(data, count, *type)};
    c10d::AllreduceOptions options;
    options.reduceOp = *gloo_op;
    Wait(group_->allreduce(tensors, options));
    return true;
  }

  bool ReduceScatter(Reduce, DType, const void*, void*, size_t) override { return false; }

 private:
  const c10::intrusive_ptr<c10d::Backend> group_;
};

}  // namespace

std::unique_ptr<Transport> MakeGlooTransport(c10::intrusive_ptr<c10d::Backend> group) {
  return std::make_unique<GlooTransport>(std::move(group));
}

}  // namespace torch_xla::dist
