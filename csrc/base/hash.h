// 128-bit hashing: a collision would run the wrong program, so 64 bits are not enough.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace torch_xla {

struct Hash {
  uint64_t lo = 0;
  uint64_t hi = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
};

struct HashOfHash {
  size_t operator()(const Hash& h) const { return h.lo; }
};

std::string ToString(const Hash& hash);  // 32 hexadecimal digits

// Folds words into two lanes by 64x64->128 bit multiplications.
class Hasher {
 public:
  void Add(uint64_t word) {
    lo_ = Mum(lo_ ^ word, 0x9E3779B97F4A7C15ull);
    hi_ = Mum(hi_ + word, 0xD6E8FEB86659FD93ull) ^ (lo_ << 1);
  }
  void Add(const Hash& h) {
    Add(h.lo);
    Add(h.hi);
  }
  void AddBytes(std::string_view bytes) {
    Add(bytes.size());
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, bytes.size() - i < 8 ? bytes.size() - i : 8);
      Add(word);
    }
  }
  Hash Finish() const { return {Mum(lo_ ^ hi_, 0xA0761D6478BD642Full), Mum(hi_, lo_ | 1)}; }

 private:
  static uint64_t Mum(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    Wide m = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64) ^ a;
  }
  uint64_t lo_ = 0x243F6A8885A308D3ull;
  uint64_t hi_ = 0x13198A2E03707344ull;
};

}  // namespace torch_xla
