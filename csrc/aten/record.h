// Turns an operator of ours into a kernel: reads the ATen schema as a C++ type, so that an operator
// is written as two typed functions and one registration line (docs: CONTRIBUTING.md).
//
//   struct Relu {
//     static Shape Infer(const Arg& self) { return self.shape(); }
//     static hlo::Value Lower(const Shape& out, hlo::Value self) { ... }
//   };
//   XLA_OPS(m) { Register<at::_ops::relu, Relu>(m); }
//
// Infer gets every argument of the schema as the table below says; it may throw TORCH_CHECK errors,
// or XLA_CHECK ones, which are turned into PyTorch's own words by asking its CPU or meta kernel. It
// returns a Shape, a std::array<Shape, N> or a std::vector<Shape>. Lower gets the result shape(s)
// first and returns a Value, a std::array<Value, N> or a std::vector<Value>.
//
//   schema argument        Infer                    Lower
//   Tensor                 const Arg&               Value
//   Tensor?                const Arg* (null: None)  std::optional<Value>
//   Tensor[]               std::span<const Arg>     std::span<const Value>
//   Tensor?[]              std::span<const Arg* const>  std::span<const std::optional<Value>>
//   Scalar                 const at::Scalar&        Value: a 0-d program input, or
//                                                   Number: static, part of the program, or
//                                                   Factor: nothing for the default 1, else an
//                                                   input
//   Scalar?                const std::optional<at::Scalar>&  std::optional<Value | Number>
//   int, float             int64_t, double          int64_t, double: static; Value: a program input
//   int?, float?, bool?    std::optional<...>       std::optional<...>: static
//   bool, bool[N]          bool, std::array         the same; where bool[N] is the output_mask of
//                                                   N results, the node has only those asked for
//   int[] and its kin      Span                     Span
//   int[]?                 std::optional<Span>      std::optional<Span>
//   ScalarType, ScalarType?  DType, std::optional<DType>  the same
//   str                    std::string_view         the same
//   Layout?, Device?, bool? pin_memory, MemoryFormat?, Generator?: left out of both
//
// Whether a number is static or an input is thus chosen by the type that Lower takes. Inputs may
// change from step to step without compiling again.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/dtype_map.h"
#include "aten/tensor_impl.h"
#include "base/error.h"
#include "base/wait.h"
#include "hlo/builder.h"
#include "ir/node.h"

namespace torch_xla {

// What a shape rule sees of a tensor.
class Arg {
 public:
  Arg(const Shape& shape, bool wrapped) : shape_(&shape), wrapped_(wrapped) {}
  const Shape& shape() const { return *shape_; }
  const Dims& dims() const { return shape_->dims; }
  DType dtype() const { return shape_->dtype; }
  int64_t rank() const { return shape_->rank(); }
  int64_t dim(int64_t i) const { return shape_->dims[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
  int64_t numel() const { return shape_->numel(); }
  // A Python number: takes part in type promotion last.
  bool wrapped() const { return wrapped_; }

 private:
  const Shape* shape_;
  bool wrapped_;
};

// A static scalar, as Lower sees it.
struct Number {
  DType dtype;  // kS64, kF64, kBool or kC128
  double re = 0, im = 0;
  int64_t i = 0;

  double real() const {
    return dtype == DType::kS64 || dtype == DType::kBool ? static_cast<double>(i) : re;
  }
  // As a 0-d value of the given type.
  hlo::Value As(hlo::Builder& b, DType t) const;
};

// A factor whose schema default is the integer 1 (alpha, beta, value): absent when it is that, else
// a program input. `x = f.Times(x)` multiplies.
struct Factor {
  std::optional<hlo::Value> value;
  hlo::Value Times(hlo::Value x) const;
};

namespace record {

using Words = c10::SmallVector<int64_t, 24>;

// Operands and attributes of the node that is being recorded.
class Recording {
 public:
  explicit Recording(const ir::OpDef& op) : op_(op) { CheckNotForked(); }

  void Tensor(const at::Tensor& t);
  void ScalarInput(const at::Scalar& s);
  void ScalarInput(double v) { Scalar(DType::kF64, std::bit_cast<int64_t>(v)); }
  void ScalarInput(int64_t v) { Scalar(DType::kS64, v); }
  void Word(int64_t w) { words_.push_back(w); }
  void Span(torch_xla::Span span) {
    Word(static_cast<int64_t>(span.size()));
    words_.append(span.begin(), span.end());
  }
  void StaticScalar(const at::Scalar& s);
  void String(std::string_view s);

  size_t num_operands() const { return values_.size(); }
  Arg arg(size_t i) const { return {values_[i].shape(), wrapped_[i]}; }
  // Of the tensor operands; throws when none of them is on an XLA device.
  int device() const;

  Ref<ir::Node> Finish(std::span<const Shape> shapes);

 private:
  void Scalar(DType dtype, int64_t lane0, int64_t lane1 = 0);

  const ir::OpDef& op_;
  c10::SmallVector<ir::Value, 8> values_;
  c10::SmallVector<bool, 8> wrapped_;
  Words words_;
  int device_ = -1;
};

// ---- Which arguments an operator sees.

template <typename T>
inline constexpr bool kDropped =
    std::is_same_v<T, std::optional<at::Layout>> || std::is_same_v<T, std::optional<at::Device>> ||
    std::is_same_v<T, std::optional<at::MemoryFormat>> || std::is_same_v<T, at::MemoryFormat> ||
    std::is_same_v<T, std::optional<at::Generator>> || std::is_same_v<T, at::Layout> ||
    std::is_same_v<T, at::Device>;

template <typename... Ts>
struct List {};

template <typename In, typename... Out>
struct Keep;
template <typename... Out>
struct Keep<List<>, Out...> {
  using type = List<Out...>;
};
template <typename T, typename... Ts, typename... Out>
struct Keep<List<T, Ts...>, Out...> {
  using type = std::conditional_t<kDropped<std::decay_t<T>>, Keep<List<Ts...>, Out...>,
                                  Keep<List<Ts...>, Out..., std::decay_t<T>>>::type;
};

// ---- One specialisation per (schema type, type that Lower takes): Encode while recording, Infer's
// view of it, Decode while lowering.

struct InferCursor {
  const Recording& r;
  size_t next = 0;
  std::deque<std::vector<Arg>>* lists = nullptr;
};

struct Decoder {
  std::span<const int64_t> words;
  std::span<const hlo::Value> operands;
  int64_t Word() {
    int64_t w = words[0];
    words = words.subspan(1);
    return w;
  }
  hlo::Value Operand() {
    hlo::Value v = operands[0];
    operands = operands.subspan(1);
    return v;
  }
  torch_xla::Span Span() {
    auto n = static_cast<size_t>(Word());
    torch_xla::Span s = words.first(n);
    words = words.subspan(n);
    return s;
  }
  Number StaticScalar();
  std::string_view String();
};

template <typename S, typename L>
struct Codec;

template <>
struct Codec<at::Tensor, hlo::Value> {
  static void Encode(Recording& r, const at::Tensor& t) { r.Tensor(t); }
  static Arg Infer(InferCursor& c, const at::Tensor&) { return c.r.arg(c.next++); }
  static hlo::Value Decode(Decoder& d) { return d.Operand(); }
};

// Infer takes a `const Arg*`; the Arg itself lives in this holder during the call.
struct MaybeArg {
  std::optional<Arg> arg;
  operator const Arg*() const { return arg ? &*arg : nullptr; }  // NOLINT: implicit on purpose
};

template <>
struct Codec<std::optional<at::Tensor>, std::optional<hlo::Value>> {
  static bool Given(const std::optional<at::Tensor>& t) { return t.has_value() && t->defined(); }
  static void Encode(Recording& r, const std::optional<at::Tensor>& t) {
    r.Word(Given(t));
    if (Given(t)) r.Tensor(*t);
  }
  static MaybeArg Infer(InferCursor& c, const std::optional<at::Tensor>& t) {
    return Given(t) ? MaybeArg{c.r.arg(c.next++)} : MaybeArg{};
  }
  static std::optional<hlo::Value> Decode(Decoder& d) {
    return d.Word() != 0 ? std::optional(d.Operand()) : std::nullopt;
  }
};

template <typename TensorList>
struct TensorListCodec {
  static void Encode(Recording& r, const TensorList& list) {
    r.Word(static_cast<int64_t>(list.size()));
    for (const at::Tensor& t : list) r.Tensor(t);
  }
  static std::vector<Arg> Infer(InferCursor& c, const TensorList& list) {
    std::vector<Arg> args;
    for (size_t i = 0; i < list.size(); ++i) args.push_back(c.r.arg(c.next++));
    return args;
  }
  static std::span<const hlo::Value> Decode(Decoder& d) {
    auto n = static_cast<size_t>(d.Word());
    auto list = d.operands.first(n);
    d.operands = d.operands.subspan(n);
    return list;
  }
};
template <>
struct Codec<at::TensorList, std::span<const hlo::Value>> : TensorListCodec<at::TensorList> {};
template <>
struct Codec<at::ITensorListRef, std::span<const hlo::Value>>
    : TensorListCodec<at::ITensorListRef> {};

// An Arg per element, null where the list has None.
struct MaybeArgs {
  std::vector<std::optional<Arg>> args;
  std::vector<const Arg*> pointers;
  operator std::span<const Arg* const>() const { return pointers; }  // NOLINT: implicit on purpose
};

template <>
struct Codec<c10::List<std::optional<at::Tensor>>, std::vector<std::optional<hlo::Value>>> {
  using OptionalTensors = c10::List<std::optional<at::Tensor>>;
  static void Encode(Recording& r, const OptionalTensors& list) {
    r.Word(static_cast<int64_t>(list.size()));
    for (size_t i = 0; i < list.size(); ++i) {
      Codec<std::optional<at::Tensor>, std::optional<hlo::Value>>::Encode(r, list.get(i));
    }
  }
  static MaybeArgs Infer(InferCursor& c, const OptionalTensors& list) {
    MaybeArgs out;
    for (size_t i = 0; i < list.size(); ++i) {
      std::optional<at::Tensor> t = list.get(i);
      bool given = t.has_value() && t->defined();
      out.args.push_back(given ? std::optional(c.r.arg(c.next++)) : std::nullopt);
    }
    for (auto& a : out.args) out.pointers.push_back(a ? &*a : nullptr);
    return out;
  }
  static std::vector<std::optional<hlo::Value>> Decode(Decoder& d) {
    std::vector<std::optional<hlo::Value>> out;
    for (int64_t n = d.Word(); n > 0; --n) {
      out.push_back(d.Word() != 0 ? std::optional(d.Operand()) : std::nullopt);
    }
    return out;
  }
};

template <>
struct Codec<at::Scalar, hlo::Value> {
  static void Encode(Recording& r, const at::Scalar& s) { r.ScalarInput(s); }
  static const at::Scalar& Infer(InferCursor& c, const at::Scalar& s) {
    ++c.next;
    return s;
  }
  static hlo::Value Decode(Decoder& d) { return d.Operand(); }
};
template <>
struct Codec<at::Scalar, Number> {
  static void Encode(Recording& r, const at::Scalar& s) { r.StaticScalar(s); }
  static const at::Scalar& Infer(InferCursor&, const at::Scalar& s) { return s; }
  static Number Decode(Decoder& d) { return d.StaticScalar(); }
};

template <>
struct Codec<at::Scalar, Factor> {
  static bool Given(const at::Scalar& s) { return !s.isIntegral(false) || s.toLong() != 1; }
  static void Encode(Recording& r, const at::Scalar& s) {
    r.Word(Given(s));
    if (Given(s)) r.ScalarInput(s);
  }
  static const at::Scalar& Infer(InferCursor& c, const at::Scalar& s) {
    c.next += Given(s);
    return s;
  }
  static Factor Decode(Decoder& d) { return d.Word() != 0 ? Factor{d.Operand()} : Factor{}; }
};

// std::optional of anything that encodes into words or scalar inputs.
template <typename S, typename L>
struct Codec<std::optional<S>, std::optional<L>> {
  static void Encode(Recording& r, const std::optional<S>& s) {
    r.Word(s.has_value());
    if (s.has_value()) Codec<S, L>::Encode(r, *s);
  }
  static auto Infer(InferCursor& c, const std::optional<S>& s) {
    using T = std::decay_t<decltype(Codec<S, L>::Infer(c, *s))>;
    return s.has_value() ? std::optional<T>(Codec<S, L>::Infer(c, *s)) : std::nullopt;
  }
  static std::optional<L> Decode(Decoder& d) {
    return d.Word() != 0 ? std::optional<L>(Codec<S, L>::Decode(d)) : std::nullopt;
  }
};

inline int64_t Int(int64_t v) { return v; }
inline int64_t Int(const c10::SymInt& v) { return v.guard_int(__FILE__, __LINE__); }

template <typename S>
struct IntCodec {
  static void Encode(Recording& r, const S& v) { r.Word(Int(v)); }
  static int64_t Infer(InferCursor&, const S& v) { return Int(v); }
  static int64_t Decode(Decoder& d) { return d.Word(); }
};
template <>
struct Codec<int64_t, int64_t> : IntCodec<int64_t> {};
template <>
struct Codec<c10::SymInt, int64_t> : IntCodec<c10::SymInt> {};

template <typename S>
struct IntInputCodec {
  static void Encode(Recording& r, const S& v) { r.ScalarInput(Int(v)); }
  static int64_t Infer(InferCursor& c, const S& v) {
    ++c.next;
    return Int(v);
  }
  static hlo::Value Decode(Decoder& d) { return d.Operand(); }
};
template <>
struct Codec<int64_t, hlo::Value> : IntInputCodec<int64_t> {};
template <>
struct Codec<c10::SymInt, hlo::Value> : IntInputCodec<c10::SymInt> {};

template <>
struct Codec<double, double> {
  static void Encode(Recording& r, double v) { r.Word(std::bit_cast<int64_t>(v)); }
  static double Infer(InferCursor&, double v) { return v; }
  static double Decode(Decoder& d) { return std::bit_cast<double>(d.Word()); }
};
template <>
struct Codec<double, hlo::Value> {
  static void Encode(Recording& r, double v) { r.ScalarInput(v); }
  static double Infer(InferCursor& c, double v) {
    ++c.next;
    return v;
  }
  static hlo::Value Decode(Decoder& d) { return d.Operand(); }
};
template <>
struct Codec<bool, bool> {
  static void Encode(Recording& r, bool v) { r.Word(v); }
  static bool Infer(InferCursor&, bool v) { return v; }
  static bool Decode(Decoder& d) { return d.Word() != 0; }
};
template <size_t N>
struct Codec<std::array<bool, N>, std::array<bool, N>> {
  static void Encode(Recording& r, const std::array<bool, N>& v) {
    for (bool b : v) r.Word(b);
  }
  static const std::array<bool, N>& Infer(InferCursor&, const std::array<bool, N>& v) { return v; }
  static std::array<bool, N> Decode(Decoder& d) {
    std::array<bool, N> v;
    for (bool& b : v) b = d.Word() != 0;
    return v;
  }
};
template <>
struct Codec<at::ScalarType, DType> {
  static void Encode(Recording& r, at::ScalarType v) { r.Word(static_cast<int64_t>(ToDType(v))); }
  static DType Infer(InferCursor&, at::ScalarType v) { return ToDType(v); }
  static DType Decode(Decoder& d) { return static_cast<DType>(d.Word()); }
};
template <>
struct Codec<std::string_view, std::string_view> {
  static void Encode(Recording& r, std::string_view v) { r.String(v); }
  static std::string_view Infer(InferCursor&, std::string_view v) { return v; }
  static std::string_view Decode(Decoder& d) { return d.String(); }
};

inline Span ToSpan(at::IntArrayRef v) { return {v.data(), v.size()}; }
inline Span ToSpan(at::SymIntArrayRef v) { return ToSpan(C10_AS_INTARRAYREF_SLOW(v)); }

template <typename S>
struct SpanCodec {
  static void Encode(Recording& r, const S& v) { r.Span(ToSpan(v)); }
  static Span Infer(InferCursor&, const S& v) { return ToSpan(v); }
  static Span Decode(Decoder& d) { return d.Span(); }
};
template <>
struct Codec<at::IntArrayRef, Span> : SpanCodec<at::IntArrayRef> {};
template <>
struct Codec<at::SymIntArrayRef, Span> : SpanCodec<at::SymIntArrayRef> {};

template <typename S>
struct OptionalSpanCodec {
  static void Encode(Recording& r, const S& v) {
    r.Word(v.has_value());
    if (v.has_value()) r.Span(ToSpan(*v));
  }
  static std::optional<Span> Infer(InferCursor&, const S& v) {
    return v.has_value() ? std::optional(ToSpan(*v)) : std::nullopt;
  }
  static std::optional<Span> Decode(Decoder& d) {
    return d.Word() != 0 ? std::optional(d.Span()) : std::nullopt;
  }
};
template <>
struct Codec<at::OptionalIntArrayRef, std::optional<Span>>
    : OptionalSpanCodec<at::OptionalIntArrayRef> {};
template <>
struct Codec<at::OptionalSymIntArrayRef, std::optional<Span>>
    : OptionalSpanCodec<at::OptionalSymIntArrayRef> {};

// ---- The operator's two functions.

template <typename F>
struct LowerArgs;
template <typename R, typename Out, typename... Args>
struct LowerArgs<R (*)(Out, Args...)> {
  using type = List<std::decay_t<Args>...>;
};

template <typename Schema, typename Lower>
struct Coder;
template <typename... S, typename... L>
struct Coder<List<S...>, List<L...>> {
  static_assert(sizeof...(S) == sizeof...(L),
                "Lower takes (out, every argument of the schema that record.h does not leave out)");

  static void Encode(Recording& r, const S&... args) { (Codec<S, L>::Encode(r, args), ...); }

  template <typename Impl>
  static auto Infer(const Recording& r, const S&... args) {
    InferCursor c{r};
    // Braces: evaluated from left to right.
    return std::apply(
        [](auto&&... a) { return Impl::Infer(std::forward<decltype(a)>(a)...); },
        std::tuple<decltype(Codec<S, L>::Infer(c, args))...>{Codec<S, L>::Infer(c, args)...});
  }

  template <typename Impl>
  static void Lower(const ir::Node& node, hlo::Builder&, std::span<const hlo::Value> operands,
                    std::vector<hlo::Value>& results) {
    Decoder d{node.words(), operands};
    std::tuple<L...> args{Codec<S, L>::Decode(d)...};
    auto call = [&](const auto& out) {
      return std::apply([&](const auto&... a) { return Impl::Lower(out, a...); }, args);
    };
    using Out = typename FirstArg<decltype(&Impl::Lower)>::type;
    if constexpr (std::is_same_v<Out, Shape>) {
      results.push_back(call(node.shape()));
    } else {
      std::vector<Shape> shapes;
      for (size_t i = 0; i < node.num_outputs(); ++i) shapes.push_back(node.shape(i));
      auto values = call(Out(shapes));
      results.assign(values.begin(), values.end());
    }
  }

 private:
  template <typename F>
  struct FirstArg;
  template <typename R, typename Out, typename... Args>
  struct FirstArg<R (*)(Out, Args...)> {
    using type = std::decay_t<Out>;
  };
};

inline std::span<const Shape> AsSpan(const Shape& s) { return {&s, 1}; }
template <size_t N>
std::span<const Shape> AsSpan(const std::array<Shape, N>& s) {
  return s;
}
inline std::span<const Shape> AsSpan(const std::vector<Shape>& s) { return s; }

template <typename R>
struct Results;
template <>
struct Results<at::Tensor> {
  static at::Tensor From(Ref<ir::Node> node, int device) {
    return Wrap(ir::Value{std::move(node), 0}, device);
  }
};
template <typename... T>
struct Results<std::tuple<T...>> {
  static std::tuple<T...> From(const Ref<ir::Node>& node, int device) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple<T...>{Wrap(ir::Value{node, I}, device)...};
    }
    (std::index_sequence_for<T...>{});
  }
  // Of a node that has only the outputs which an output_mask asks for.
  static std::tuple<T...> From(const Ref<ir::Node>& node, int device,
                               const std::array<bool, sizeof...(T)>& mask) {
    std::array<at::Tensor, sizeof...(T)> out;
    for (uint32_t i = 0, next = 0; i < out.size(); ++i) {
      if (mask[i]) out[i] = Wrap(ir::Value{node, next++}, device);
    }
    return std::tuple_cat(std::move(out));
  }
};
template <>
struct Results<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> From(const Ref<ir::Node>& node, int device) {
    std::vector<at::Tensor> out;
    for (uint32_t i = 0; i < node->num_outputs(); ++i)
      out.push_back(Wrap(ir::Value{node, i}, device));
    return out;
  }
};

// Runs PyTorch's CPU (or meta) kernel on such arguments, for its error; throws `ours` if it accepts
// them.
[[noreturn]] void RaiseInTorchWords(const char* name, const char* overload, torch::jit::Stack stack,
                                    const std::exception& ours);
// XLA_VERIFY=1: compares with the meta kernel's results (only shape and dtype).
bool VerifyOn();
void Verify(const char* name, const char* overload, torch::jit::Stack stack,
            std::span<const Shape> shapes);

// In-place: the value in the tensor's own dtype, after PyTorch's checks of shape and cast.
void WriteInPlace(const at::Tensor& self, ir::Value value);

template <typename AtOp>
const char* FullName() {
  static const std::string name =
      StrCat(AtOp::name, *AtOp::overload_name != '\0' ? "." : "", AtOp::overload_name);
  return name.c_str();
}

// bool[N] output_mask of an operator with N results, if its schema has one.
template <typename R, typename... Args>
struct OutputMask {
  static constexpr bool kGiven = false;
};
template <typename... T, typename... Args>
struct OutputMask<std::tuple<T...>, Args...> {
  using Mask = std::array<bool, sizeof...(T)>;
  static constexpr bool kGiven = (std::is_same_v<Mask, Args> || ...);
  static Mask Of(const Args&... args) {
    Mask mask{};
    auto take = [&](const auto& a) {
      if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Mask>) mask = a;
    };
    (take(args), ...);
    return mask;
  }
};

template <typename AtOp, typename Impl, typename Schema = typename AtOp::schema>
struct Kernel;

template <typename AtOp, typename Impl, typename R, typename... Args>
struct Kernel<AtOp, Impl, R(Args...)> {
  static constexpr bool kInPlace = std::is_reference_v<R>;
  using Code =
      Coder<typename Keep<List<Args...>>::type, typename LowerArgs<decltype(&Impl::Lower)>::type>;

  static const ir::OpDef& Op() {
    static const ir::OpDef op(FullName<AtOp>(), &Code::template Lower<Impl>);
    return op;
  }

  static R Call(Args... args) {
    const ir::OpDef& op = Op();
    Recording r(op);
    std::apply([&](const auto&... kept) { Code::Encode(r, kept...); }, Kept(args...));
    int device = r.device();
    if constexpr (OutputMask<R, std::decay_t<Args>...>::kGiven) {
      auto mask = OutputMask<R, std::decay_t<Args>...>::Of(args...);
      if (std::find(mask.begin(), mask.end(), true) == mask.end()) return {};
    }
    Ref<ir::Node> node = Infer(r, args...);
    if constexpr (kInPlace) {
      auto& self = std::get<0>(std::forward_as_tuple(args...));
      WriteInPlace(self, ir::Value{std::move(node), 0});
      return const_cast<R>(self);
    } else if constexpr (OutputMask<R, std::decay_t<Args>...>::kGiven) {
      return Results<R>::From(std::move(node), device,
                              OutputMask<R, std::decay_t<Args>...>::Of(args...));
    } else {
      return Results<R>::From(std::move(node), device);
    }
  }

 private:
  // References to the arguments that are not left out.
  static auto Kept(const std::decay_t<Args>&... args) {
    return std::tuple_cat([](const auto& a) {
      if constexpr (kDropped<std::decay_t<decltype(a)>>) {
        return std::tuple<>{};
      } else {
        return std::tie(a);
      }
    }(args)...);
  }

  static Ref<ir::Node> Infer(Recording& r, const std::decay_t<Args>&... args) {
    try {
      auto shapes =
          std::apply([&](const auto&... kept) { return Code::template Infer<Impl>(r, kept...); },
                     Kept(args...));
      if (VerifyOn()) [[unlikely]] {
        Verify(AtOp::name, AtOp::overload_name, Stack(args...), AsSpan(shapes));
      }
      return r.Finish(AsSpan(shapes));
    } catch (const Error& e) {
      RaiseInTorchWords(AtOp::name, AtOp::overload_name, Stack(args...), e);
    }
  }

  [[gnu::noinline, gnu::cold]] static torch::jit::Stack Stack(const std::decay_t<Args>&... args) {
    torch::jit::Stack stack;
    torch::jit::push(stack, args...);
    return stack;
  }
};

}  // namespace record

// Registers Impl as the XLA kernel of AtOp, which is functional (new tensors) or in-place (`self`
// is written; the node computes what it takes).
template <typename AtOp, typename Impl>
void Register(torch::Library& m) {
  m.impl(record::FullName<AtOp>(), TORCH_FN((record::Kernel<AtOp, Impl>::Call)));
}

}  // namespace torch_xla

// The registrations of one file of csrc/ops.
#define XLA_OPS(m) TORCH_LIBRARY_IMPL(aten, XLA, m)
