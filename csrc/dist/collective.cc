#include "dist/collective.h"

#include <algorithm>

#include "base/error.h"

namespace torch_xla::dist {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const int64_t> words) : words_(words) {}
  int64_t Next() {
    XLA_INTERNAL_CHECK(!words_.empty());
    int64_t w = words_[0];
    words_ = words_.subspan(1);
    return w;
  }
  Ranks Vector() {
    Ranks v(static_cast<size_t>(Next()));
    for (int64_t& x : v) x = Next();
    return v;
  }

 private:
  std::span<const int64_t> words_;
};

void Append(std::vector<int64_t>& words, const Ranks& v) {
  words.push_back(static_cast<int64_t>(v.size()));
  words.insert(words.end(), v.begin(), v.end());
}

std::string List(const Ranks& v) {
  std::string out = "[";
  for (int64_t x : v) out += (out.size() > 1 ? ", " : "") + std::to_string(x);
  return out + "]";
}

}  // namespace

const char* KindName(Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce",         "all_gather",
                                           "reduce_scatter",     "all_to_all",
                                           "collective_permute", "collective_broadcast"};
  return kNames[static_cast<size_t>(kind)];
}

const Ranks& Part::GroupOf(int64_t rank, const Ranks& scope) const {
  if (groups.empty()) return scope;
  for (const Ranks& g : groups) {
    if (std::find(g.begin(), g.end(), rank) != g.end()) return g;
  }
  Throw(Code::kInvalidArgument, "no group has rank ", rank);
}

std::vector<int64_t> Collective::Encode() const {
  std::vector<int64_t> words{fingerprint};
  Append(words, scope);
  words.push_back(static_cast<int64_t>(parts.size()));
  for (const Part& p : parts) {
    for (int64_t w : {static_cast<int64_t>(p.kind), static_cast<int64_t>(p.reduce),
                      static_cast<int64_t>(p.dtype), p.root, p.num_tensors, p.count,
                      static_cast<int64_t>(p.groups.size())}) {
      words.push_back(w);
    }
    for (const Ranks& g : p.groups) Append(words, g);
    words.push_back(static_cast<int64_t>(p.pairs.size()));
    for (auto [from, to] : p.pairs) {
      words.push_back(from);
      words.push_back(to);
    }
  }
  return words;
}

Collective Collective::Decode(std::span<const int64_t> words) {
  Reader r(words);
  Collective c;
  c.fingerprint = r.Next();
  c.scope = r.Vector();
  c.parts.resize(static_cast<size_t>(r.Next()));
  for (Part& p : c.parts) {
    p.kind = static_cast<Kind>(r.Next());
    p.reduce = static_cast<Reduce>(r.Next());
    p.dtype = static_cast<DType>(r.Next());
    p.root = r.Next();
    p.num_tensors = r.Next();
    p.count = r.Next();
    p.groups.resize(static_cast<size_t>(r.Next()));
    for (Ranks& g : p.groups) g = r.Vector();
    p.pairs.resize(static_cast<size_t>(r.Next()));
    for (auto& [from, to] : p.pairs) {
      from = r.Next();
      to = r.Next();
    }
  }
  return c;
}

std::string Describe(const Collective& c, std::span<const Shape> shapes) {
  std::string out;
  for (const Part& p : c.parts) {
    out += out.empty() ? "" : " + ";
    out += KindName(p.kind);
    out += '(';
    if (p.kind == Kind::kAllReduce || p.kind == Kind::kReduceScatter) {
      out += std::string(ReduceName(p.reduce)) + ", ";
    }
    for (int64_t i = 0; i < p.num_tensors; ++i) {
      const Shape& s = shapes[static_cast<size_t>(i)];
      out += (i == 0 ? "" : " ") + std::string(TorchName(s.dtype)) + ToString(s.dims);
    }
    shapes = shapes.subspan(static_cast<size_t>(p.num_tensors));
    if (p.kind == Kind::kBroadcast) out += ", root=" + std::to_string(p.root);
    if (p.kind == Kind::kPermute) {
      out += ", pairs=[";
      for (auto [from, to] : p.pairs) out += List({from, to});
      out += "]";
    }
    if (!p.groups.empty()) {
      out += ", groups=[";
      for (const Ranks& g : p.groups) out += (out.back() == '[' ? "" : ", ") + List(g);
      out += "]";
    }
    out += ')';
  }
  return out;
}

}  // namespace torch_xla::dist
