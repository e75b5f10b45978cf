#include "aten/promote.h"

#include <ATen/ExpandUtils.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/WrapDimMinimal.h>

namespace torch_xla {
namespace {

int Category(DType t) { return t == DType::kBool ? 0 : IsInt(t) ? 1 : IsFloat(t) ? 2 : 3; }

struct Group {
  bool any = false;
  DType dtype = DType::kBool;
  void Add(DType t) {
    dtype = any ? ToDType(c10::promoteTypes(ToScalarType(dtype), ToScalarType(t))) : t;
    any = true;
  }
};

DType DefaultFloat() { return ToDType(c10::typeMetaToScalarType(c10::get_default_dtype())); }

class Promotion {
 public:
  void Add(const Arg& a) {
    if (a.wrapped()) {
      AddNumber(a.dtype());
    } else {
      (a.rank() == 0 ? zero_ : dim_).Add(a.dtype());
    }
  }
  // A Python float counts as the default float type, a Python complex as its complex type.
  void AddNumber(DType t) {
    if (IsFloat(t)) t = DefaultFloat();
    if (IsComplex(t)) t = ComplexOf(DefaultFloat());
    wrapped_.Add(t);
  }
  DType Result() const { return Combine(dim_, Combine(zero_, wrapped_)).dtype; }

 private:
  static Group Combine(const Group& higher, const Group& lower) {
    if (!higher.any) return lower;
    if (!lower.any || Category(higher.dtype) >= Category(lower.dtype)) return higher;
    Group g = higher;
    if (IsFloat(higher.dtype) && IsComplex(lower.dtype)) {
      g.dtype = ComplexOf(higher.dtype);  // keeps the precision of the higher group
      return g;
    }
    g.Add(lower.dtype);
    return g;
  }
  Group dim_, zero_, wrapped_;
};

DType OfScalar(const at::Scalar& s) {
  return s.isBoolean()         ? DType::kBool
         : s.isFloatingPoint() ? DType::kF64
         : s.isComplex()       ? DType::kC128
                               : DType::kS64;
}

}  // namespace

DType Promote(std::span<const Arg> args) {
  Promotion p;
  for (const Arg& a : args) p.Add(a);
  return p.Result();
}

DType Promote(std::initializer_list<Arg> args) {
  return Promote(std::span<const Arg>(args.begin(), args.size()));
}

DType Promote(const Arg& a, const at::Scalar& s) {
  Promotion p;
  p.Add(a);
  p.AddNumber(OfScalar(s));
  return p.Result();
}

DType ToFloat(DType t) { return IsIntOrBool(t) ? DefaultFloat() : t; }

DType PromoteToFloat(std::initializer_list<Arg> args) { return ToFloat(Promote(args)); }

Dims Broadcast(Span a, Span b) {
  if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return a;
  auto sizes = at::infer_size_dimvector(at::IntArrayRef(a.data(), a.size()),
                                        at::IntArrayRef(b.data(), b.size()));
  return Span(sizes.data(), sizes.size());
}

Dims Broadcast(std::initializer_list<Arg> args) {
  Dims dims;
  for (const Arg& a : args) dims = Broadcast(dims, a.dims());
  return dims;
}

int64_t WrapDim(int64_t dim, int64_t rank) { return c10::maybe_wrap_dim(dim, rank); }

Dims WrapDims(std::optional<Span> dims, int64_t rank) {
  TORCH_CHECK(rank <= 64, "only tensors with up to 64 dims are supported");
  Dims all;
  for (int64_t i = 0; i < rank; ++i) all.push_back(i);
  if (!dims.has_value() || dims->empty()) return all;
  Dims out;
  for (int64_t d : *dims) {
    d = WrapDim(d, rank);
    TORCH_CHECK(std::find(out.begin(), out.end(), d) == out.end(), "dim ", d,
                " appears multiple times in the list of dims");
    out.push_back(d);
  }
  if (rank == 0) return all;
  std::sort(out.begin(), out.end());
  return out;
}

Dims ReducedDims(const Dims& dims, const Dims& reduced, bool keepdim) {
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    bool gone = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end();
    if (!gone) out.push_back(dims[i]);
    if (gone && keepdim) out.push_back(1);
  }
  return out;
}

}  // namespace torch_xla
