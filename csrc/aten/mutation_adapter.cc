#include "aten/mutation_adapter.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <map>
#include <optional>

#include "aten/dtype_map.h"
#include "aten/ops_util.h"
#include "aten/record.h"
#include "aten/tensor_impl.h"

namespace torch_xla {
namespace {

using c10::OperatorHandle;

bool Mutates(const c10::Argument& a) {
  return a.alias_info() != nullptr && a.alias_info()->isWrite();
}

std::string FullName(const c10::OperatorName& name) {
  return name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

struct Route {
  OperatorHandle functional;
  std::vector<size_t> mutated;  // argument positions, in the order of the functional's results
  bool in_place = false;        // the mutated argument is also the functional's own first argument
  std::optional<size_t> dtype;  // the argument that is out's dtype where it is not given
};

void WriteOut(const at::Tensor& out, const at::Tensor& result) {
  at::native::resize_output(out, result.sizes());
  Unwrap(out).Write(Convert(Unwrap(result).value(), ToDType(out.scalar_type())));
}

class Adapter final : public c10::OperatorKernel {
 public:
  explicit Adapter(Route route) : route_(std::move(route)) {}

  void operator()(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    size_t n = schema.arguments().size();
    std::vector<c10::IValue> args(stack->end() - static_cast<ptrdiff_t>(n), stack->end());
    stack->resize(stack->size() - n);
    torch::jit::Stack inner;
    for (size_t i = 0; i < n; ++i) {
      bool out = !route_.in_place && Mutates(schema.arguments()[i]);
      if (!out) inner.push_back(args[i]);
    }
    if (route_.dtype && inner[*route_.dtype].isNone()) {
      inner[*route_.dtype] = args[route_.mutated[0]].toTensor().scalar_type();
    }
    route_.functional.callBoxed(inner);
    for (size_t i = 0; !route_.in_place && i < route_.mutated.size(); ++i) {
      CheckOut(args[route_.mutated[i]].toTensor(),
               inner[i].toTensor());  // all, before one is written
    }
    for (size_t i = 0; i < route_.mutated.size(); ++i) {
      at::Tensor target = args[route_.mutated[i]].toTensor();
      at::Tensor result = inner[i].toTensor();
      if (route_.in_place) {
        record::WriteInPlace(target, Unwrap(result).value());
      } else {
        WriteOut(target, result);
      }
    }
    for (size_t i = 0; i < schema.returns().size(); ++i) stack->push_back(args[route_.mutated[i]]);
  }

 private:
  Route route_;
};

bool SameArgument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.type() == *b.type();
}

// Whether the functional takes what the mutating form takes, less its out arguments.
bool Matches(const c10::FunctionSchema& mutating, const c10::FunctionSchema& functional,
             bool in_place) {
  std::vector<const c10::Argument*> wanted;
  for (const c10::Argument& a : mutating.arguments()) {
    if (in_place || !Mutates(a)) wanted.push_back(&a);
  }
  // A factory's functional form also takes dtype, layout, device: not an exact partner.
  if (functional.arguments().size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!SameArgument(*wanted[i], functional.arguments()[i])) return false;
  }
  return !functional.is_mutable();
}

bool ReturnsTensorsOnly(const c10::FunctionSchema& schema) {
  for (const c10::Argument& r : schema.returns()) {
    if (r.type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

// Partners that are composite, but not written with the form that they serve; whose names say
// otherwise; and of a form whose own composite kernel asks for a CPU. The rule above finds the
// others.
const std::map<std::string, std::string>& KnownPartners() {
  static const std::map<std::string, std::string> known = {
      {"aten::__ilshift__.Scalar", "aten::__lshift__.Scalar"},
      {"aten::__ilshift__.Tensor", "aten::__lshift__.Tensor"},
      {"aten::__irshift__.Scalar", "aten::__rshift__.Scalar"},
      {"aten::__irshift__.Tensor", "aten::__rshift__.Tensor"},
      {"aten::adaptive_avg_pool2d.out", "aten::adaptive_avg_pool2d"},
      {"aten::adaptive_avg_pool3d.out", "aten::adaptive_avg_pool3d"},
      {"aten::conj_physical.out", "aten::conj_physical"},
      {"aten::linalg_eigvals.out", "aten::linalg_eigvals"},
      {"aten::mode.values", "aten::mode"},
      {"aten::mvlgamma.out", "aten::mvlgamma"},
  };
  return known;
}

// Sums and products without a dtype are computed in that of `out`.
std::optional<size_t> DtypeOfOut(const c10::FunctionSchema& schema) {
  for (const char* name : {"sum", "nansum", "prod", "cumsum", "cumprod"}) {
    if (schema.name() != std::string("aten::") + name) continue;
    if (auto at = schema.argumentIndexWithName("dtype")) return static_cast<size_t>(*at);
  }
  return std::nullopt;
}

struct Plan {
  OperatorHandle op;
  MutationRoute info;
  std::optional<Route> route;
};

std::vector<Plan> MakePlans() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  std::map<std::string, std::vector<OperatorHandle>> by_base;
  std::vector<OperatorHandle> mutating;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto op = dispatcher.findSchema(name);
    if (!op) continue;
    by_base[name.name].push_back(*op);
    if (op->schema().is_mutable()) mutating.push_back(*op);
  }
  std::vector<Plan> plans;
  for (const OperatorHandle& op : mutating) {
    Plan plan{op, {FullName(op.operator_name()), "fallback", ""}, std::nullopt};
    const c10::FunctionSchema& schema = op.schema();
    auto known = KnownPartners().find(plan.info.name);
    if (op.hasKernelForDispatchKey(c10::DispatchKey::XLA)) {
      plan.info.how = "native";
    } else if (known != KnownPartners().end()) {
      plan.info.how = "fallback";
    } else if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
               op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      plan.info.how = "composite";  // made of functional forms, or of others of this list
    }
    if (plan.info.how == "fallback") {
      const std::string& name = op.operator_name().name;
      bool in_place = (name.back() == '_' && name.rfind("__") != name.size() - 2) ||
                      name.rfind("aten::__i", 0) == 0;  // __ilshift__
      Route route{op, {}, in_place, {}};
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        if (Mutates(schema.arguments()[i])) route.mutated.push_back(i);
      }
      bool plain =
          ReturnsTensorsOnly(schema) && (!in_place || route.mutated == std::vector<size_t>{0});
      for (size_t i : route.mutated) {
        plain = plain && schema.arguments()[i].type()->kind() == c10::TypeKind::TensorType;
      }
      std::string base = in_place ? name.substr(0, name.size() - 1) : name;
      if (known != KnownPartners().end()) base = known->second.substr(0, known->second.find('.'));
      for (const OperatorHandle& f : by_base[base]) {
        if (!plain) continue;
        if (known != KnownPartners().end() ? FullName(f.operator_name()) != known->second
                                           : !f.hasKernelForDispatchKey(c10::DispatchKey::XLA)) {
          continue;
        }
        if (!Matches(schema, f.schema(), in_place) || !ReturnsTensorsOnly(f.schema())) continue;
        if (f.schema().returns().size() != route.mutated.size()) continue;
        route.functional = f;
        if (!in_place) route.dtype = DtypeOfOut(schema);
        plan.info.how = "adapter";
        plan.info.partner = FullName(f.operator_name());
        plan.route = route;
        break;
      }
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<MutationRoute>& Routes() {
  static auto* routes = new std::vector<MutationRoute>;
  return *routes;
}

}  // namespace

void CheckOut(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(IsXla(out), "Expected out tensor to have device ", result.device(), ", but got ",
              out.device(), " instead");
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ",
              result.scalar_type(), " can't be cast to the desired output type ",
              out.scalar_type());
}

void InstallMutationAdapter() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XLA, __FILE__, __LINE__);
  for (Plan& plan : MakePlans()) {
    Routes().push_back(plan.info);
    if (!plan.route) continue;
    library->impl(plan.info.name.substr(6).c_str(),
                  torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                      std::make_unique<Adapter>(std::move(*plan.route)))));
  }
}

std::vector<MutationRoute> MutationRoutes() { return Routes(); }

}  // namespace torch_xla
