#include "hlo/embed.h"

#include <cctype>
#include <unordered_set>

#include "base/error.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

// A piece of MLIR with the white space before it; comments are dropped.
struct Token {
  std::string_view space;
  std::string_view text;
};

bool IsName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> Run() {
    std::vector<Token> out;
    while (true) {
      const size_t space = pos_;
      while (pos_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[pos_])) != 0) {
        ++pos_;
      }
      if (pos_ == text_.size()) return out;
      if (text_.substr(pos_, 2) == "//") {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
        continue;
      }
      const size_t begin = pos_;
      Skip();
      out.push_back({text_.substr(space, begin - space), text_.substr(begin, pos_ - begin)});
    }
  }

 private:
  void Skip() {
    const char c = text_[pos_++];
    if (c == '"') return SkipString();
    if (c == '-' && Next() == '>') {
      ++pos_;
    } else if (c == '@' && Next() == '"') {
      ++pos_;
      SkipString();
    } else if (c == '@' || c == '#' || c == '!' || c == '%' || c == '^' || IsName(c)) {
      while (IsName(Next()) || (Next() == '-' && text_.substr(pos_, 2) != "->" && !IsName(c))) {
        ++pos_;
      }
    }
  }
  char Next() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void SkipString() {
    while (pos_ < text_.size() && text_[pos_] != '"') pos_ += text_[pos_] == '\\' ? 2 : 1;
    XLA_CHECK(pos_ < text_.size(), kInvalidArgument, "a string does not end");
    ++pos_;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// Not < and >, which affine expressions have, too.
bool Opens(std::string_view t) { return t == "(" || t == "[" || t == "{"; }
bool Closes(std::string_view t) { return t == ")" || t == "]" || t == "}"; }
bool IsAlias(std::string_view t) { return t.size() > 1 && (t[0] == '#' || t[0] == '!'); }

// @name and @"name" are the same.
std::string_view SymbolName(std::string_view t) {
  t.remove_prefix(1);
  return t.starts_with('"') ? t.substr(1, t.size() - 2) : t;
}

class Embedder {
 public:
  Embedder(std::string_view module, std::string_view prefix)
      : prefix_(prefix), tokens_(Lexer(module).Run()) {
    for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (IsAlias(Text(i)) && Text(i + 1) == "=") aliases_.insert(Text(i));
    }
    for (size_t i = 0; i < tokens_.size();) {
      if (!IsModule(i)) {
        AddSymbol(i);
        continue;
      }
      const Range body = BodyOf(i);
      for (i = body.begin; i < body.end;) AddSymbol(i);
      i = body.next;
    }
  }

  Embedded Run() {
    Embedded out;
    for (size_t i = 0; i < tokens_.size();) {
      if (IsAlias(Text(i)) && Text(i + 1) == "=") {
        const size_t end = EndOfAlias(i + 2);
        for (; i < end; ++i) Append(out.aliases, i);
        out.aliases += '\n';
      } else if (IsModule(i)) {
        const Range body = BodyOf(i);
        for (i = body.begin; i < body.end;) AppendBody(out.functions, i);
        i = body.next;
      } else {
        AppendBody(out.functions, i);
      }
    }
    out.functions += '\n';
    return out;
  }

 private:
  struct Range {
    size_t begin, end;  // the operations of a module
    size_t next;        // what follows it
  };

  std::string_view Text(size_t i) const {
    return i < tokens_.size() ? tokens_[i].text : std::string_view();
  }
  void Advance(size_t& i) const {
    XLA_CHECK(++i < tokens_.size(), kInvalidArgument, "the module's text ends too early");
  }
  bool IsModule(size_t i) const { return Text(i) == "module" || Text(i) == "builtin.module"; }
  Range BodyOf(size_t i) const {
    while (Text(i) != "{") {  // a name and attributes
      if (Text(i) == "attributes") i = Match(i + 1) - 1;
      Advance(i);
    }
    const size_t next = Match(i);
    return {i + 1, next - 1, Text(next) == "loc" ? Match(next + 1) : next};
  }
  // Symbols of the module stand outside of all brackets, whatever the operation that defines them.
  void AddSymbol(size_t& i) {
    const std::string_view text = Text(i);
    if (text.starts_with('@')) symbols_.insert(SymbolName(text));
    XLA_CHECK(!text.starts_with('"') || Text(i + 1) != "(", kInvalidArgument, "the module has ",
              text, " in MLIR's generic form; write it in its own");
    i = Opens(text) ? Match(i) : i + 1;
  }
  size_t SkipVisibility(size_t i) const {
    return Text(i) == "public" || Text(i) == "private" || Text(i) == "nested" ? i + 1 : i;
  }
  // After the bracket that closes the one at i.
  size_t Match(size_t i) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      depth += Opens(Text(i)) ? 1 : Closes(Text(i)) ? -1 : 0;
      if (depth == 0) return i + 1;
    }
    Throw(Code::kInvalidArgument, "the brackets of the module's text do not match");
  }
  // An alias ends where the next thing of the file begins.
  size_t EndOfAlias(size_t i) const {
    while (i < tokens_.size()) {
      if (IsModule(i) || Text(i) == "func.func") break;
      if (IsAlias(Text(i)) && Text(i + 1) == "=") break;
      i = Opens(Text(i)) ? Match(i) : i + 1;
    }
    return i;
  }

  void Append(std::string& out, size_t i) const {
    const auto& [space, text] = tokens_[i];
    out += space;
    // What follows custom_call is the name of a function of XLA.
    const bool foreign = i > 0 && Text(i - 1).ends_with("custom_call");
    if (text.starts_with('@') && !foreign && symbols_.contains(SymbolName(text))) {
      out += StrCat("@\"", prefix_, SymbolName(text), '"');
    } else if (IsAlias(text) && aliases_.contains(text)) {
      out += StrCat(text[0], prefix_, text.substr(1));
    } else {
      out += text;
    }
  }
  void AppendBody(std::string& out, size_t& i) const {
    Append(out, i);
    if (Text(i++) != "func.func") return;
    out += " private";
    i = SkipVisibility(i);
  }

  std::string prefix_;
  std::vector<Token> tokens_;
  std::unordered_set<std::string_view> symbols_, aliases_;
};

}  // namespace

Embedded Embed(std::string_view module, std::string_view prefix) {
  return Embedder(module, prefix).Run();
}

std::vector<Value> CallModule(Builder& b, std::string_view module, std::span<const Value> operands,
                              std::span<const Shape> results) {
  Props props;
  std::string callee = "@";
  AppendQuoted(callee, b.AddModule(module) + "main");
  const std::vector<Type> types(results.begin(), results.end());
  return b.Emit("func.call", operands, props.Raw("callee", callee), std::span<const Region>{},
                types);
}

}  // namespace torch_xla::hlo
