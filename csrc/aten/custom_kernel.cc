#include "aten/custom_kernel.h"

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aten/record.h"
#include "base/error.h"
#include "hlo/embed.h"
#include "lazy/runtime.h"
#include "pjrt/signature.h"

namespace torch_xla {
namespace {

struct Tables {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const ir::OpDef>> ops;
  std::unordered_map<Hash, std::unique_ptr<const CustomKernel>, HashOfHash> kernels;

  static Tables& Get() {
    static auto* tables = new Tables;
    return *tables;
  }
};

std::string ToString(std::span<const Shape> shapes) {
  std::string out = "(";
  for (const Shape& s : shapes) out += (out.size() > 1 ? ", " : "") + torch_xla::ToString(s);
  return out + ')';
}

const ir::OpDef& OpOf(const std::string& name, ir::LowerFn lower) {
  Tables& tables = Tables::Get();
  std::lock_guard<std::mutex> lock(tables.mutex);
  auto it = tables.ops.try_emplace(name).first;  // the key lives as long as the operator
  if (!it->second) it->second = std::make_unique<const ir::OpDef>(it->first.c_str(), lower);
  return *it->second;
}

}  // namespace

const CustomKernel& CustomKernel::Find(CustomKernel made) {
  Hasher hasher;
  hasher.AddBytes(made.op_->name());
  hasher.Add(made.ffi_);
  hasher.AddBytes(made.text_);
  hasher.AddBytes(hlo::Dictionary(made.attributes_));
  hasher.AddBytes(ToString(made.results_));
  made.hash_ = hasher.Finish();
  Tables& tables = Tables::Get();
  {
    std::lock_guard<std::mutex> lock(tables.mutex);
    auto it = tables.kernels.find(made.hash_);
    if (it != tables.kernels.end()) return *it->second;
  }
  made.CheckSignature();
  std::lock_guard<std::mutex> lock(tables.mutex);
  auto& kernel = tables.kernels[made.hash_];
  if (!kernel) kernel.reset(new CustomKernel(std::move(made)));
  return *kernel;
}

// By itself: what is wrong in it is found here, and not in the program that it will be a part of.
void CustomKernel::CheckSignature() {
  if (ffi_) return;
  std::vector<Shape> given;
  try {
    pjrt::Signature signature = pjrt::ParseSignature(text_);
    parameters_ = std::move(signature.parameters);
    given = std::move(signature.results);
    lazy::Runtime::Get().client().Compile(text_, {});
  } catch (const Error& e) {
    Throw(Code::kInvalidArgument, op_->name(), ": its StableHLO is refused: ", e.what());
  }
  XLA_CHECK(given == results_, kInvalidArgument, op_->name(), ": its StableHLO gives ",
            ToString(given), ", its declared results are ", ToString(results_));
}

const CustomKernel& CustomKernel::StableHlo(const std::string& op, const std::string& module,
                                            std::vector<Shape> results) {
  CustomKernel made;
  made.op_ = &OpOf(op, &Lower);
  made.text_ = module;
  made.results_ = std::move(results);
  return Find(std::move(made));
}

const CustomKernel& CustomKernel::Ffi(const std::string& op, const std::string& target,
                                      hlo::Attrs attributes, std::vector<Shape> results) {
  CustomKernel made;
  made.op_ = &OpOf(op, &Lower);
  made.text_ = target;
  made.ffi_ = true;
  made.attributes_ = std::move(attributes);
  made.results_ = std::move(results);
  return Find(std::move(made));
}

// words: the hash, two of them
void CustomKernel::Lower(const ir::Node& node, hlo::Builder& b,
                         std::span<const hlo::Value> operands, std::vector<hlo::Value>& outputs) {
  const Hash hash{static_cast<uint64_t>(node.words()[0]), static_cast<uint64_t>(node.words()[1])};
  const CustomKernel* kernel = nullptr;
  {
    Tables& tables = Tables::Get();
    std::lock_guard<std::mutex> lock(tables.mutex);
    kernel = tables.kernels.at(hash).get();
  }
  outputs = kernel->ffi_
                ? hlo::CustomCall(b, kernel->text_, operands, kernel->results_, kernel->attributes_)
                : hlo::CallModule(b, kernel->text_, operands, kernel->results_);
}

std::vector<at::Tensor> CustomKernel::Record(at::TensorList tensors) const {
  record::Recording r(*op_);
  for (const at::Tensor& t : tensors) r.Tensor(t);
  const int device = r.device();
  if (!ffi_) {
    std::vector<Shape> given;
    for (size_t i = 0; i < r.num_operands(); ++i) given.push_back(r.arg(i).shape());
    XLA_CHECK(given == parameters_, kInvalidArgument, op_->name(), ": its StableHLO takes ",
              ToString(parameters_), ", not ", ToString(given));
  }
  r.Word(static_cast<int64_t>(hash_.lo));
  r.Word(static_cast<int64_t>(hash_.hi));
  return record::Results<std::vector<at::Tensor>>::From(r.Finish(results_), device);
}

void RegisterFfiHandler(const std::string& target, void* handler) {
  lazy::Runtime& runtime = lazy::Runtime::Get();
  XLA_CHECK(runtime.client().RegisterFfiHandler(target, handler), kUnimplemented,
            "the PJRT plugin of ", runtime.platform(), " takes no FFI handlers");
}

}  // namespace torch_xla
