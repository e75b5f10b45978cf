// Dimensions with inline storage, and the shape (dtype and dimensions) of a tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "base/dtype.h"

namespace torch_xla {

using Span = std::span<const int64_t>;

// A vector of int64 that does not allocate up to six entries: recording makes one per node.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> v) { assign(v.begin(), v.size()); }
  Dims(Span v) { assign(v.data(), v.size()); }  // NOLINT: implicit on purpose
  Dims(size_t n, int64_t value) {
    reserve(n);
    size_ = static_cast<uint32_t>(n);
    std::fill(begin(), end(), value);
  }
  Dims(const Dims& o) { assign(o.data(), o.size()); }
  Dims(Dims&& o) noexcept { take(o); }
  Dims& operator=(const Dims& o) {
    if (this != &o) {
      size_ = 0;
      assign(o.data(), o.size());
    }
    return *this;
  }
  Dims& operator=(Dims&& o) noexcept {
    if (this != &o) {
      release();
      take(o);
    }
    return *this;
  }
  ~Dims() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return capacity_ > kInline ? heap_ : inline_; }
  const int64_t* data() const { return capacity_ > kInline ? heap_ : inline_; }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t& back() { return data()[size_ - 1]; }
  int64_t back() const { return data()[size_ - 1]; }
  operator Span() const { return {data(), size_}; }  // NOLINT: implicit on purpose

  void reserve(size_t n) {
    if (n <= capacity_) return;
    size_t cap = std::max<size_t>(n, 2 * capacity_);
    auto* p = new int64_t[cap];
    std::memcpy(p, data(), size_ * sizeof(int64_t));
    uint32_t size = size_;
    release();
    heap_ = p;
    capacity_ = static_cast<uint32_t>(cap);
    size_ = size;
  }
  void push_back(int64_t v) {
    reserve(size_ + 1);
    data()[size_++] = v;
  }
  void insert(size_t pos, int64_t v) {
    push_back(v);
    std::rotate(begin() + pos, end() - 1, end());
  }
  void erase(size_t pos) {
    std::move(begin() + pos + 1, end(), begin() + pos);
    --size_;
  }
  void resize(size_t n, int64_t value = 0) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data()[i] = value;
    size_ = static_cast<uint32_t>(n);
  }
  void clear() { size_ = 0; }

 private:
  static constexpr uint32_t kInline = 6;

  void assign(const int64_t* p, size_t n) {
    reserve(n);
    if (n != 0) std::memcpy(data(), p, n * sizeof(int64_t));
    size_ = static_cast<uint32_t>(n);
  }
  void take(Dims& o) {
    size_ = o.size_;
    capacity_ = o.capacity_;
    if (capacity_ > kInline) {
      heap_ = o.heap_;
    } else {
      std::memcpy(inline_, o.inline_, sizeof(inline_));
    }
    o.size_ = 0;
    o.capacity_ = kInline;
  }
  void release() {
    if (capacity_ > kInline) delete[] heap_;
    capacity_ = kInline;
    size_ = 0;
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
  union {
    int64_t inline_[kInline];
    int64_t* heap_;
  };
};

inline bool operator==(const Dims& a, const Dims& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

int64_t Product(Span dims);

struct Shape {
  DType dtype = DType::kF32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const { return Product(dims); }
  size_t bytes() const { return static_cast<size_t>(numel()) * ByteSize(dtype); }
  Shape with(DType t) const { return {t, dims}; }
  Shape with(Dims d) const { return {dtype, std::move(d)}; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

std::string ToString(Span dims);           // "[2, 3]", as PyTorch prints sizes
std::string ToString(const Shape& shape);  // "tensor<2x3xf32>", StableHLO's spelling

}  // namespace torch_xla
