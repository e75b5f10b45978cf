#include "aten/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "aten/generator.h"
#include "aten/host_copy.h"
#include "aten/ops_util.h"
#include "aten/sparse.h"
#include "aten/tensor_impl.h"
#include "base/metrics.h"

namespace torch_xla {
namespace {

using c10::IValue;

metrics::Counter* CounterOf(const c10::OperatorHandle& op) {
  return metrics::GetCounter(op.operator_name().name);
}

// Every tensor in the arguments, in order.
std::vector<at::Tensor> Tensors(at::ArrayRef<IValue> args) {
  std::vector<at::Tensor> out;
  for (const IValue& v : args) {
    if (v.isTensor()) {
      out.push_back(v.toTensor());
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
    } else if (v.isOptionalTensorList()) {
      for (const auto& t : v.toOptionalTensorVector()) out.push_back(t.value_or(at::Tensor()));
    }
  }
  return out;
}

// The same arguments over other tensors.
IValue Replace(const IValue& v, const at::Tensor*& next, int device) {
  if (v.isTensor()) return *next++;
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (size_t i = v.toTensorVector().size(); i > 0; --i) list.push_back(*next++);
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& t : v.toOptionalTensorVector()) {
      list.push_back(t.has_value() ? std::optional(*next) : std::nullopt);
      ++next;
    }
    return list;
  }
  if (v.isDevice() && v.toDevice().is_xla()) return c10::Device(c10::kCPU);
  if (v.isGenerator() && v.toGenerator().device().is_xla()) {
    RandomInputs r = NextRandom(v.toGenerator(), device, 1);
    auto seed = static_cast<uint64_t>(r.seed.node->words()[0] ^ (r.offset.node->words()[0] << 20));
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  }
  return v;
}

// A draw without a generator must not move the CPU's stream: it gets one seeded by the device's.
void GiveGenerators(const c10::FunctionSchema& schema, std::vector<IValue>& args, int device) {
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::TypePtr& type = schema.arguments()[i].type();
    bool generator = type->kind() == c10::TypeKind::GeneratorType ||
                     type->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
    if (generator && args[i].isNone()) args[i] = DefaultGenerator(device);
  }
}

bool Writes(const c10::Argument& a) {
  return a.alias_info() != nullptr && a.alias_info()->isWrite();
}

at::Tensor ToDevice(const at::Tensor& t, int device, const c10::OperatorHandle& op) {
  if (!t.defined() || !t.is_cpu()) return t;
  TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided || IsSparse(t), op.operator_name(),
                              " makes a ", t.layout(),
                              " tensor, and XLA devices have dense and sparse ones only: call it "
                              "on .cpu()");
  return FromCpu(t, device);
}

IValue ToDevice(const IValue& v, int device, const c10::OperatorHandle& op) {
  if (v.isTensor()) return ToDevice(v.toTensor(), device, op);
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(ToDevice(t, device, op));
    return list;
  }
  return v;
}

}  // namespace

void RunOnHost(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  size_t n = schema.arguments().size();
  std::vector<IValue> args(stack->end() - static_cast<ptrdiff_t>(n), stack->end());
  stack->resize(stack->size() - n);

  std::vector<at::Tensor> tensors = Tensors(args);
  std::optional<c10::Device> where;
  for (const at::Tensor& t : tensors) {
    if (!OnXla(t)) continue;
    if (where && *where != t.device()) RaiseDeviceMismatch(t.device(), *where);
    where = t.device();
  }
  int device = DeviceOf(where);
  // Torch chooses some kernels, such as a convolution's, by the first tensor: then it is that one's
  // device that is wrong. Later ones may be on the CPU where an operator says so (lengths,
  // indices).
  auto first =
      std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return t.defined(); });
  TORCH_CHECK(first == tensors.end() || OnXla(*first) || first->dim() == 0 ||
                  std::none_of(tensors.begin(), tensors.end(), OnXla),
              "Expected all tensors to be on the same device, but found at least two devices, xla:",
              device, " and ", first->device(), "! (", op.operator_name(), ")");
  for (const IValue& v : args) {
    if (v.isDevice() && v.toDevice().is_xla()) device = DeviceOf(v.toDevice());
  }
  CounterOf(op)->Add();
  std::vector<at::Tensor> host = ToCpu(tensors);
  // A tensor that is given twice (as itself and as out=) is one on the host, too.
  std::unordered_map<const c10::TensorImpl*, size_t> seen;
  for (size_t i = 0; i < host.size(); ++i) {
    auto [at, fresh] = seen.try_emplace(tensors[i].unsafeGetTensorImpl(), i);
    if (!fresh) host[i] = host[at->second];
  }
  std::vector<IValue> given = args;
  GiveGenerators(schema, given, device);
  torch::jit::Stack inner;
  const at::Tensor* next = host.data();
  for (const IValue& v : given) inner.push_back(Replace(v, next, device));
  std::vector<IValue> host_args(inner.begin(), inner.end());
  op.callBoxed(inner);

  // What was written on the host goes back; results that are arguments stay the caller's objects.
  for (size_t i = 0; i < n; ++i) {
    if (!Writes(schema.arguments()[i])) continue;
    std::vector<at::Tensor> to = Tensors(at::ArrayRef<IValue>(args[i]));
    std::vector<at::Tensor> from = Tensors(at::ArrayRef<IValue>(host_args[i]));
    for (size_t j = 0; j < to.size(); ++j) {
      if (!OnXla(to[j])) continue;
      if (IsSparse(to[j])) {
        TakeSparse(to[j], FromCpu(from[j], device));
        continue;
      }
      if (to[j].sizes() != from[j].sizes()) to[j].resize_(from[j].sizes());
      to[j].copy_(from[j]);
    }
  }
  size_t written = 0;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (!Writes(schema.returns()[i])) {
      stack->push_back(ToDevice(inner[i], device, op));
      continue;
    }
    while (!Writes(schema.arguments()[written])) ++written;
    stack->push_back(args[written++]);
  }
}

std::vector<std::string> RefusedViews() {
  static const std::vector<std::string> refused = [] {
    std::vector<std::string> uncovered;
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      auto op = dispatcher.findSchema(name);
      if (!op || name.name.rfind("aten::", 0) != 0) continue;
      bool view = false;
      for (const c10::Argument& r : op->schema().returns()) {
        view = view || (r.alias_info() != nullptr && !r.alias_info()->isWrite());
      }
      // CompositeImplicit views (reshape, narrow) are made of the others.
      if (!view || op->hasKernelForDispatchKey(c10::DispatchKey::XLA) ||
          op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
        continue;
      }
      uncovered.push_back(name.name + (name.overload_name.empty() ? "" : "." + name.overload_name));
    }
    return uncovered;
  }();
  return refused;
}

namespace {
void Refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", op.operator_name(),
                              "': the XLA backend has no kernel for this view operator");
}
}  // namespace

void InstallFallback() {
  static auto* refusals =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XLA, __FILE__, __LINE__);
  for (const std::string& name : RefusedViews()) {
    refusals->impl(name.substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&Refuse>());
  }
  static auto* library =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::XLA, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}

}  // namespace torch_xla
