#include "pjrt/signature.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/hash.h"

namespace torch_xla::pjrt {
namespace {

std::optional<DType> DTypeOf(std::string_view hlo_name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (hlo_name == HloName(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Signature Parse() {
    constexpr std::string_view kMain = " @main";
    for (pos_ = text_.find(kMain); pos_ != text_.npos; pos_ = text_.find(kMain, pos_)) {
      std::string_view before = text_.substr(0, pos_);
      pos_ += kMain.size();
      bool function = before.ends_with("func.func") || before.ends_with("func.func public");
      if (function && Peek('(')) return Function();
    }
    Throw(Code::kInvalidArgument, "the module has no function @main");
  }

 private:
  Signature Function() {
    Signature out;
    Expect('(');
    while (!Peek(')')) {
      SkipPast(':');
      out.parameters.push_back(Type());
      std::string_view rest = Rest();
      out.donatable.push_back(rest.find("jax.buffer_donor") != rest.npos ||
                              rest.find("tf.aliasing_output") != rest.npos);
      if (!Peek(')')) Expect(',');
    }
    Expect(')');
    SkipSpace();
    if (text_.substr(pos_, 2) != "->") return out;
    pos_ += 2;
    if (!Peek('(')) {
      out.results.push_back(Type());
      return out;
    }
    Expect('(');
    while (!Peek(')')) {
      out.results.push_back(Type());
      Rest();
      if (!Peek(')')) Expect(',');
    }
    return out;
  }

  // tensor<2x3xf32>
  Shape Type() {
    SkipSpace();
    constexpr std::string_view kTensor = "tensor<";
    if (text_.substr(pos_, kTensor.size()) != kTensor) Fail("a tensor type");
    size_t begin = pos_ + kTensor.size();
    int depth = 1;
    size_t end = begin;
    for (; end < text_.size(); ++end) {
      if (text_[end] == '<') ++depth;
      if (text_[end] == '>' && --depth == 0) break;
    }
    if (depth != 0) Fail("the end of a tensor type");
    pos_ = end + 1;
    std::string_view body = text_.substr(begin, end - begin);
    if (size_t comma = body.find(','); comma != body.npos) body = body.substr(0, comma);
    Shape shape;
    while (!body.empty() && body[0] >= '0' && body[0] <= '9') {
      int64_t dim = 0;
      auto [next, error] = std::from_chars(body.data(), body.data() + body.size(), dim);
      if (error != std::errc() || next == body.data() + body.size() || *next != 'x') {
        Fail("a static dimension");
      }
      shape.dims.push_back(dim);
      body.remove_prefix(static_cast<size_t>(next + 1 - body.data()));
    }
    auto dtype = DTypeOf(body);
    if (!dtype) Fail("a static shape of a known element type");
    shape.dtype = *dtype;
    return shape;
  }

  // What follows a type up to the next ',' or ')' of the list: attributes and location.
  std::string_view Rest() {
    size_t begin = pos_;
    int depth = 0;
    for (; pos_ < text_.size(); ++pos_) {
      char c = text_[pos_];
      if (c == '"') {
        SkipString();
      } else if (c == '{' || c == '(' || c == '[' || c == '<') {
        ++depth;
      } else if (depth == 0 && (c == ',' || c == ')')) {
        break;
      } else if (c == '}' || c == ')' || c == ']' || c == '>') {
        --depth;
      }
    }
    return text_.substr(begin, pos_ - begin);
  }

  // From the opening quote to the closing one.
  void SkipString() {
    for (++pos_; pos_ < text_.size() && text_[pos_] != '"'; ++pos_) {
      if (text_[pos_] == '\\') ++pos_;
    }
  }

  void SkipSpace() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n')) ++pos_;
  }
  bool Peek(char c) {
    SkipSpace();
    return pos_ < text_.size() && text_[pos_] == c;
  }
  void Expect(char c) {
    if (!Peek(c)) Fail(std::string(1, c));
    ++pos_;
  }
  void SkipPast(char c) {
    size_t at = text_.find(c, pos_);
    if (at == text_.npos) Fail(std::string(1, c));
    pos_ = at + 1;
  }
  [[noreturn]] void Fail(std::string_view expected) {
    Throw(Code::kInvalidArgument, "in the signature of @main, expected ", expected, " before '",
          pos_ < text_.size() ? text_.substr(pos_, 40) : std::string_view(), "'");
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// "argument 2", and on which replica where there are several.
std::string Where(size_t replica, size_t num_replicas, size_t parameter) {
  std::string out = StrCat("argument ", parameter);
  return num_replicas == 1 ? out : StrCat(out, " of replica ", replica);
}

// One buffer for two parameters is fine until one of them is donated.
void CheckDonatedOnce(const Signature& signature, std::span<const std::vector<Buffer*>> arguments,
                      const ExecuteOptions& options) {
  std::vector<bool> donated = signature.donatable;
  for (int64_t i : options.non_donatable) donated[static_cast<size_t>(i)] = false;
  if (std::find(donated.begin(), donated.end(), true) == donated.end()) return;
  std::vector<std::pair<Buffer*, size_t>> sorted;
  for (size_t r = 0; r < arguments.size(); ++r) {
    sorted.clear();
    for (size_t p = 0; p < arguments[r].size(); ++p) sorted.emplace_back(arguments[r][p], p);
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 1; i < sorted.size(); ++i) {
      auto [buffer, p] = sorted[i];
      auto [previous, q] = sorted[i - 1];
      XLA_CHECK(buffer != previous || (!donated[p] && !donated[q]), kInvalidArgument,
                Where(r, arguments.size(), p), " is the same buffer as argument ", q,
                ", and one of them is donated");
    }
  }
}

constexpr std::string_view kMagic = "torch_xla executable 1\n";

void PutWord(std::string& out, uint64_t v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof(v));
}

void PutShape(std::string& out, const Shape& shape) {
  PutWord(out, static_cast<uint64_t>(shape.dtype));
  PutWord(out, shape.dims.size());
  for (int64_t d : shape.dims) PutWord(out, static_cast<uint64_t>(d));
}

// Reads what the checksum has already vouched for; the bounds check is for bugs of ours.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t Word() {
    uint64_t v = 0;
    XLA_CHECK(bytes_.size() >= sizeof(v), kDataLoss, "serialized executable is truncated");
    std::memcpy(&v, bytes_.data(), sizeof(v));
    bytes_.remove_prefix(sizeof(v));
    return v;
  }
  Shape ReadShape() {
    uint64_t dtype = Word();
    XLA_CHECK(dtype < kNumDTypes, kDataLoss, "serialized executable has an unknown type");
    Shape shape{static_cast<DType>(dtype), {}};
    for (uint64_t n = Word(); n > 0; --n) shape.dims.push_back(static_cast<int64_t>(Word()));
    return shape;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace

Signature ParseSignature(std::string_view module) { return Parser(module).Parse(); }

void CheckLaunch(const Signature* signature, std::span<const int> devices,
                 std::span<const std::vector<Buffer*>> arguments, const ExecuteOptions& options) {
  const size_t num_replicas = devices.size();
  XLA_CHECK(arguments.size() == num_replicas, kInvalidArgument, "the program runs on ",
            num_replicas, " device(s), but got arguments for ", arguments.size());
  const size_t num_parameters = signature ? signature->parameters.size() : arguments[0].size();
  for (size_t r = 0; r < num_replicas; ++r) {
    XLA_CHECK(arguments[r].size() == num_parameters, kInvalidArgument, "the program has ",
              num_parameters, " parameter(s), but replica ", r, " got ", arguments[r].size(),
              " argument(s)");
    for (size_t p = 0; p < num_parameters; ++p) {
      Buffer* b = arguments[r][p];
      XLA_CHECK(b != nullptr, kInvalidArgument, Where(r, num_replicas, p), " is missing");
      if (signature) {
        XLA_CHECK(b->shape() == signature->parameters[p], kInvalidArgument,
                  Where(r, num_replicas, p), " must be ", ToString(signature->parameters[p]),
                  ", but is ", ToString(b->shape()));
      }
      XLA_CHECK(b->device() == devices[r], kInvalidArgument, Where(r, num_replicas, p),
                " must be on device ", devices[r], ", but is on device ", b->device());
      XLA_CHECK(!b->deleted(), kInvalidArgument, Where(r, num_replicas, p),
                " was deleted or donated before");
    }
  }
  for (int64_t i : options.non_donatable) {
    XLA_CHECK(i >= 0 && static_cast<size_t>(i) < num_parameters, kInvalidArgument,
              "non_donatable index ", i, " is out of range for ", num_parameters, " parameter(s)");
  }
  if (signature) CheckDonatedOnce(*signature, arguments, options);
}

void CheckCompileOptions(const CompileOptions& options, size_t num_devices, size_t num_processes) {
  const size_t expected = options.devices.empty() ? 1 : options.devices.size();
  const auto replicas = static_cast<size_t>(options.num_replicas);
  const bool across = options.devices == std::vector<int>{0} && replicas == num_processes;
  XLA_CHECK(options.num_replicas >= 1 && (replicas == expected || across), kInvalidArgument,
            "num_replicas is ", options.num_replicas, ", but ", options.devices.size(),
            " device(s) are named, and there are ", num_processes, " process(es)");
  for (size_t i = 0; i < options.devices.size(); ++i) {
    int d = options.devices[i];
    XLA_CHECK(d >= 0 && static_cast<size_t>(d) < num_devices, kInvalidArgument, "device ", d,
              " is out of range: there are ", num_devices, " device(s)");
    XLA_CHECK(std::count(options.devices.begin(), options.devices.end(), d) == 1, kInvalidArgument,
              "device ", d, " is named for two replicas");
  }
}

std::string PackExecutable(const Signature* signature, std::string_view payload) {
  std::string body;
  PutWord(body, signature != nullptr);
  if (signature != nullptr) {
    PutWord(body, signature->parameters.size());
    for (size_t i = 0; i < signature->parameters.size(); ++i) {
      PutShape(body, signature->parameters[i]);
      PutWord(body, signature->donatable[i]);
    }
    PutWord(body, signature->results.size());
    for (const Shape& shape : signature->results) PutShape(body, shape);
  }
  body += payload;
  Hasher hasher;
  hasher.AddBytes(body);
  return StrCat(kMagic, ToString(hasher.Finish()), body);
}

std::pair<std::optional<Signature>, std::string_view> UnpackExecutable(std::string_view packed) {
  constexpr size_t kHashDigits = 32;
  XLA_CHECK(packed.substr(0, kMagic.size()) == kMagic, kDataLoss,
            "not a serialized executable of this version of torch_xla");
  packed.remove_prefix(kMagic.size());
  std::string_view body = packed.substr(std::min(kHashDigits, packed.size()));
  Hasher hasher;
  hasher.AddBytes(body);
  XLA_CHECK(packed.substr(0, kHashDigits) == ToString(hasher.Finish()), kDataLoss,
            "serialized executable is damaged: its checksum does not match");
  Reader reader(body);
  if (reader.Word() == 0) return {std::nullopt, reader.rest()};
  Signature signature;
  for (uint64_t n = reader.Word(); n > 0; --n) {
    signature.parameters.push_back(reader.ReadShape());
    signature.donatable.push_back(reader.Word() != 0);
  }
  for (uint64_t n = reader.Word(); n > 0; --n) signature.results.push_back(reader.ReadShape());
  return {std::move(signature), reader.rest()};
}

}  // namespace torch_xla::pjrt
