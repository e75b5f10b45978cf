#include "aten/host_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cfenv>
#include <charconv>
#include <mutex>
#include <unordered_map>

#include "aten/device.h"
#include "aten/fallback.h"
#include "aten/ffi.h"
#include "aten/record.h"
#include "hlo/control.h"
#include "lazy/runtime.h"

namespace torch_xla {
namespace {

using c10::IValue;

// Carries a version: what the handler understands is part of compiled programs.
constexpr const char* kTarget = "torch_xla.aten.1";

// ---- A call without its tensors, as text: the operator's name and its arguments.

void AppendNumber(std::string& s, char tag, int64_t v) {
  s += tag;
  s += std::to_string(v) + ';';
}

void AppendArgument(std::string& s, const IValue& v) {
  if (v.isNone()) {
    s += 'N';
  } else if (v.isTensor()) {
    s += v.toTensor().defined() ? 'T' : 'N';
  } else if (v.isBool()) {
    AppendNumber(s, 'b', v.toBool());
  } else if (v.isInt()) {
    AppendNumber(s, 'i', v.toInt());
  } else if (v.isDouble()) {
    AppendNumber(s, 'd', std::bit_cast<int64_t>(v.toDouble()));
  } else if (v.isString()) {
    const std::string& text = v.toStringRef();
    AppendNumber(s, 's', static_cast<int64_t>(text.size()));
    s += text;
  } else if (v.isList()) {
    c10::ArrayRef<IValue> list = v.toListRef();
    AppendNumber(s,
                 v.isTensorList()   ? 'L'
                 : v.isIntList()    ? 'I'
                 : v.isDoubleList() ? 'D'
                                    : 'B',
                 static_cast<int64_t>(list.size()));
    for (const IValue& e : list) AppendArgument(s, e);
  } else if (v.isComplexDouble()) {
    c10::complex<double> c = v.toComplexDouble();
    AppendNumber(s, 'c', std::bit_cast<int64_t>(c.real()));
    AppendNumber(s, 'c', std::bit_cast<int64_t>(c.imag()));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "a host call with an argument of type ", v.tagKind());
  }
}

class Parser {
 public:
  Parser(std::string_view text, std::span<const at::Tensor> tensors)
      : text_(text), tensors_(tensors) {}

  std::string_view Name() {
    size_t n = text_.find(' ');
    std::string_view name = text_.substr(0, n);
    text_.remove_prefix(n + 1);
    return name;
  }
  bool AtEnd() const { return text_.empty(); }

  IValue Argument() {
    char tag = text_[0];
    text_.remove_prefix(1);
    switch (tag) {
      case 'N': return {};
      case 'T': return Tensor();
      case 'b': return Number() != 0;
      case 'i': return Number();
      case 'd': return std::bit_cast<double>(Number());
      case 's': {
        auto n = static_cast<size_t>(Number());
        std::string text(text_.substr(0, n));
        text_.remove_prefix(n);
        return text;
      }
      case 'c': {
        auto re = std::bit_cast<double>(Number());
        text_.remove_prefix(1);
        return c10::complex<double>(re, std::bit_cast<double>(Number()));
      }
      case 'L': return List<at::Tensor>([](const IValue& v) { return v.toTensor(); });
      case 'I': return List<int64_t>([](const IValue& v) { return v.toInt(); });
      case 'D': return List<double>([](const IValue& v) { return v.toDouble(); });
      case 'B': return List<bool>([](const IValue& v) { return v.toBool(); });
      default: TORCH_CHECK(false, "a host call with an unknown argument '", tag, "'");
    }
  }

 private:
  int64_t Number() {
    size_t n = text_.find(';');
    int64_t v = 0;
    std::string_view digits = text_.substr(0, n);
    std::from_chars(digits.begin(), digits.end(), v);
    text_.remove_prefix(n + 1);
    return v;
  }
  at::Tensor Tensor() {
    TORCH_CHECK(!tensors_.empty(), "a host call with too few operands");
    at::Tensor t = tensors_[0];
    tensors_ = tensors_.subspan(1);
    return t;
  }
  template <typename T, typename Fn>
  IValue List(Fn element) {
    c10::List<T> list;
    for (int64_t n = Number(); n > 0; --n) list.push_back(element(Argument()));
    return list;
  }

  std::string_view text_;
  std::span<const at::Tensor> tensors_;
};

// ---- Inside of the program.

at::ScalarType TypeOf(int xla) {
  switch (xla) {
    case 1: return at::kBool;
    case 2: return at::kChar;
    case 3: return at::kShort;
    case 4: return at::kInt;
    case 5: return at::kLong;
    case 6: return at::kByte;
    case 7: return at::kUInt16;
    case 8: return at::kUInt32;
    case 9: return at::kUInt64;
    case 10: return at::kHalf;
    case 11: return at::kFloat;
    case 12: return at::kDouble;
    case 15: return at::kComplexFloat;
    case 16: return at::kBFloat16;
    case 18: return at::kComplexDouble;
    default: TORCH_CHECK(false, "a host call with a buffer of XLA's type ", xla);
  }
}

std::vector<at::Tensor> TensorsOver(const ffi::Values& values) {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < values.size; ++i) {
    auto* b = static_cast<ffi::Buffer*>(values.values[i]);
    out.push_back(at::from_blob(b->data, at::IntArrayRef(b->dims, static_cast<size_t>(b->rank)),
                                TypeOf(b->dtype)));
  }
  return out;
}

// The results of an operator that there are, those in a list one by one.
std::vector<at::Tensor> TensorsOf(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> out;
  for (const IValue& v : stack) {
    if (v.isTensor()) {
      if (v.toTensor().defined()) out.push_back(v.toTensor());
    } else {
      for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
    }
  }
  return out;
}

// The plugins' threads flush denormal numbers to zero, which not all of PyTorch's kernels expect:
// log1p of complex numbers gave 0 for large ones.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_{};
};

void Run(const ffi::CallFrame& frame) {
  DefaultArithmetic arithmetic;
  std::string_view text;
  for (int64_t i = 0; i < frame.attrs.size; ++i) {
    if (frame.attrs.types[i] != ffi::kStringAttr) continue;
    auto* t = static_cast<ffi::Text*>(frame.attrs.values[i]);
    text = {t->data, t->size};
  }
  std::vector<at::Tensor> operands = TensorsOver(frame.args);
  std::vector<at::Tensor> results = TensorsOver(frame.rets);
  Parser parser(text, operands);
  std::string name(parser.Name());
  size_t dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  TORCH_CHECK(op, "a host call of an unknown operator ", name);
  torch::jit::Stack stack;
  while (!parser.AtEnd()) stack.push_back(parser.Argument());
  at::AutoDispatchBelowAutograd guard;
  op->callBoxed(stack);
  std::vector<at::Tensor> made = TensorsOf(stack);
  TORCH_CHECK(made.size() == results.size(), name, " gave ", made.size(), " results instead of ",
              results.size());
  for (size_t i = 0; i < made.size(); ++i) {
    const at::Tensor& t = made[i];
    TORCH_CHECK(t.sizes() == results[i].sizes(), name, " gave a result of shape ", t.sizes(),
                " instead of ", results[i].sizes());
    results[i].copy_(t);
  }
}

// ---- Recording.

using TensorFn = at::Tensor (*)(const at::Tensor&);

IValue Replace(const IValue& v, TensorFn fn) {
  auto replace = [fn](const at::Tensor& t) { return t.defined() ? fn(t) : t; };
  if (v.isTensor()) return replace(v.toTensor());
  if (!v.isTensorList()) return v;
  c10::List<at::Tensor> list;
  for (const at::Tensor& t : v.toTensorVector()) list.push_back(replace(t));
  return list;
}

void CallWith(const c10::OperatorHandle& op, const std::vector<IValue>& args, TensorFn fn,
              torch::jit::Stack& stack) {
  for (const IValue& v : args) stack.push_back(Replace(v, fn));
  at::AutoDispatchBelowAutograd guard;
  op.callBoxed(stack);
}

at::Tensor OnMeta(const at::Tensor& t) {
  return at::empty(t.sizes(), t.options().device(at::kMeta));
}

// Of the same shape and dtype on the CPU, with values that no algorithm refuses.
at::Tensor Identity(const at::Tensor& t) {
  at::Tensor cpu = at::zeros(t.sizes(), t.options().device(at::kCPU));
  if (cpu.dim() >= 2) cpu.diagonal(0, -2, -1).fill_(1);
  return cpu;
}

// Meta kernels have words and exceptions of their own for wrong arguments: the CPU kernel's.
void RaiseAsTheCpu(const c10::OperatorHandle& op, const std::vector<IValue>& args) {
  constexpr int64_t kSmall = 1 << 20;
  for (const IValue& v : args) {
    if (v.isTensor() && v.toTensor().defined() && v.toTensor().numel() > kSmall) return;
  }
  torch::jit::Stack stack;
  CallWith(op, args, Identity, stack);
}

void Lower(const ir::Node& node, hlo::Builder& b, std::span<const hlo::Value> operands,
           std::vector<hlo::Value>& outputs) {
  record::Decoder d{node.words(), operands};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.num_outputs(); ++i) shapes.push_back(node.shape(i));
  outputs = hlo::CustomCall(b, kTarget, operands, shapes, {{"call", std::string(d.String())}});
}

class HostCall final : public c10::OperatorKernel {
 public:
  HostCall(std::string name, ShapesFn given)
      : name_(std::move(name)), given_(given), op_(name_.c_str(), &Lower) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    if (!HostCallsAvailable()) return RunOnHost(op, keys, stack);
    size_t n = op.schema().arguments().size();
    std::vector<IValue> args(stack->end() - static_cast<ptrdiff_t>(n), stack->end());
    stack->resize(stack->size() - n);
    // The host looks at it, after the program: one that raises would fail without a kind.
    std::optional<int> check = op.schema().argumentIndexWithName("check_errors");
    const bool checks = check && args[static_cast<size_t>(*check)].toBool();
    if (checks) args[static_cast<size_t>(*check)] = false;
    record::Recording r(op_);
    std::string text = name_ + ' ';
    for (const IValue& v : args) {
      AppendArgument(text, v);
      if (v.isTensor() && v.toTensor().defined()) r.Tensor(v.toTensor());
      if (!v.isTensorList()) continue;
      for (const at::Tensor& t : v.toTensorVector()) r.Tensor(t);
    }
    r.String(text);
    std::vector<Shape> shapes = ResultShapes(op, args, r, text);
    if (shapes.empty()) {
      stack->insert(stack->end(), args.begin(), args.end());
      return RunOnHost(op, keys, stack);
    }
    Ref<ir::Node> node = r.Finish(shapes);
    std::vector<at::Tensor> results;
    for (uint32_t i = 0; i < shapes.size(); ++i) {
      results.push_back(Wrap(ir::Value{node, i}, r.device()));
    }
    if (checks) {
      at::_linalg_check_errors(results.back(), name_.substr(sizeof("aten::") - 1),
                               args[0].toTensor().dim() == 2);
    }
    if (op.schema().returns()[0].type()->kind() == c10::TypeKind::ListType) {
      stack->push_back(results);
    } else {
      for (at::Tensor& t : results) stack->push_back(std::move(t));
    }
  }

 private:
  // Of the meta kernel, which takes longer than all the rest: remembered.
  std::vector<Shape> ResultShapes(const c10::OperatorHandle& op, const std::vector<IValue>& args,
                                  const record::Recording& r, const std::string& text) {
    std::string key = text;
    for (size_t i = 0; i < r.num_operands(); ++i) {
      const Shape& shape = r.arg(i).shape();
      key += TorchName(shape.dtype) + ToString(shape.dims);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (auto it = shapes_.find(key); it != shapes_.end()) return it->second;
    }
    std::vector<Shape> shapes;
    if (given_ != nullptr) {
      shapes = given_(args);
    } else {
      torch::jit::Stack inner;
      try {
        CallWith(op, args, OnMeta, inner);
      } catch (...) {
        RaiseAsTheCpu(op, args);
        throw;
      }
      for (const at::Tensor& t : TensorsOf(inner)) shapes.push_back(ShapeOf(t));
    }
    constexpr size_t kMost = 4096;
    std::lock_guard<std::mutex> lock(mutex_);
    if (shapes_.size() >= kMost) shapes_.clear();
    shapes_[key] = shapes;
    return shapes;
  }

  std::string name_;
  ShapesFn given_;
  ir::OpDef op_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<Shape>> shapes_;
};

}  // namespace

bool HostCallsAvailable() {
  static const bool available = [] {
    pjrt::Client& client = lazy::Runtime::Get().client();
    return client.platform_name() == "cpu" &&
           client.RegisterFfiHandler(kTarget, reinterpret_cast<void*>(&ffi::Handle<&Run>));
  }();
  return available;
}

HostCallArguments& HostCallArguments::Tensor(bool defined) {
  text_ += defined ? 'T' : 'N';
  return *this;
}
HostCallArguments& HostCallArguments::Int(int64_t v) {
  AppendNumber(text_, 'i', v);
  return *this;
}
HostCallArguments& HostCallArguments::Bool(bool v) {
  AppendNumber(text_, 'b', v);
  return *this;
}
HostCallArguments& HostCallArguments::Ints(Span v) {
  AppendNumber(text_, 'I', static_cast<int64_t>(v.size()));
  for (int64_t i : v) Int(i);
  return *this;
}
HostCallArguments& HostCallArguments::Bools(std::span<const bool> v) {
  AppendNumber(text_, 'B', static_cast<int64_t>(v.size()));
  for (bool b : v) Bool(b);
  return *this;
}

std::vector<hlo::Value> CallHost(hlo::Builder& b, const std::string& name,
                                 const HostCallArguments& arguments,
                                 std::span<const hlo::Value> operands,
                                 std::span<const Shape> results) {
  return hlo::CustomCall(b, kTarget, operands, results,
                         {{"call", "aten::" + name + ' ' + arguments.text()}});
}

std::vector<std::string>& HostCallNames() {
  static auto* names = new std::vector<std::string>;
  return *names;
}

void RegisterHostCall(torch::Library& m, const char* name, ShapesFn shapes) {
  HostCallNames().push_back(std::string("aten::") + name);
  m.impl(name, torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                   std::make_unique<HostCall>(std::string("aten::") + name, shapes))));
}

}  // namespace torch_xla
