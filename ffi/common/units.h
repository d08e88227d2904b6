// Access to arrays 16 bytes at a time, for CUDA kernels whose threads write units of 16 aligned bytes of the output.
#ifndef JAXDALI_FFI_COMMON_UNITS_H_
#define JAXDALI_FFI_COMMON_UNITS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/words.h"

namespace jaxdali {

// Stands for an element type that is only known at run time. Kernels are compiled for the usual types of images, and
// once for all others.
struct AnyType {};

// Calls f(T{}), or f with the C++ type of `type` if T is AnyType.
template <class T, class F>
JAXDALI_HD inline auto WithKnown([[maybe_unused]] DType type, F f) {
  if constexpr (std::is_same_v<T, AnyType>)
    return WithType(type, f);
  else
    return f(T{});
}

// The size of an element T, or of the type `type` if T is AnyType.
template <class T>
JAXDALI_HD inline int64_t SizeAs([[maybe_unused]] DType type) {
  if constexpr (std::is_same_v<T, AnyType>)
    return SizeOf(type);
  else
    return sizeof(T);
}

// Whether the elements of each sample can be counted in 31 bits.
inline bool Counts32(const Batch& b) { return b.capacity >> 31 == 0; }

// Calls f(V{}, In{}, Out{}, Index{}) with the types for which a kernel that computes in V is compiled. Index is the
// unsigned type in which the elements of a sample are counted: 64-bit arithmetic takes several instructions on a GPU.
template <class F>
auto WithKernelTypes(const Batch& in, const Batch& out, F f) {
  auto with_out = [&](auto from) {  // for a known type of the input: the types of outputs with a kernel
    switch (out.dtype) {
      case DType::kU8:
        return f(float{}, from, uint8_t{}, uint32_t{});
      case DType::kF16:
        return f(float{}, from, Half{}, uint32_t{});
      case DType::kBF16:
        return f(float{}, from, BFloat16{}, uint32_t{});
      case DType::kF32:
        return f(float{}, from, float{}, uint32_t{});
      default:
        return f(float{}, AnyType{}, AnyType{}, uint32_t{});
    }
  };
  const bool is_small = Counts32(in) && Counts32(out), is_float = FitsFloat(in.dtype);
  if (!is_small && is_float) return f(float{}, AnyType{}, AnyType{}, uint64_t{});
  if (!is_small) return f(double{}, AnyType{}, AnyType{}, uint64_t{});
  if (in.dtype == DType::kU8) return with_out(uint8_t{});
  if (in.dtype == DType::kF32) return with_out(float{});
  if (is_float) return f(float{}, AnyType{}, AnyType{}, uint32_t{});
  return f(double{}, AnyType{}, AnyType{}, uint32_t{});
}

// Element i of an array of elements T, or of the type `type` if T is AnyType.
template <class V, class T>
JAXDALI_HD inline V LoadAs(DType type, const void* from, int64_t i) {
  return WithKnown<T>(type, [&](auto t) -> V {
    using E = decltype(t);
    if constexpr (kIsSmallFloat<E>)
      return static_cast<V>(static_cast<float>(static_cast<const E*>(from)[i]));
    else
      return static_cast<V>(static_cast<const E*>(from)[i]);
  });
}

// Loads n elements as float, by words if they are aligned.
template <class T, int n>
JAXDALI_HD inline void LoadElements(const T* from, float* to) {
  constexpr int kOfWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  if (n % kOfWord == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
    JAXDALI_UNROLL
    for (int i = 0; i < n; i++)
      to[i] = ElementOf<T>(ReadWord(reinterpret_cast<const uint8_t*>(from + i / kOfWord * kOfWord)), i % kOfWord);
  } else {
    JAXDALI_UNROLL
    for (int i = 0; i < n; i++) to[i] = static_cast<float>(from[i]);
  }
}
// Stores n elements, by words if they are aligned.
template <class T, int n>
JAXDALI_HD inline void StoreElements(T* to, const T* from) {
  constexpr int kOfWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  if (n % kOfWord == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0) {
    JAXDALI_UNROLL
    for (int i = 0; i < n; i += kOfWord) {
      uint32_t word = 0;
      JAXDALI_UNROLL
      for (int e = 0; e < kOfWord; e++) word |= BitsOf<T>(from[i + e]) << (8 * static_cast<int>(sizeof(T)) * e);
      WriteWord(reinterpret_cast<uint8_t*>(to + i), word);
    }
  } else {
    JAXDALI_UNROLL
    for (int i = 0; i < n; i++) to[i] = from[i];
  }
}

inline constexpr int kUnit = 16;  // bytes
inline constexpr int kUnitWords = kUnit / 4;

// Reads the 16 bytes at `p`, which is any address, by the words that contain them. Returns false if these words reach
// outside the buffer from `begin` to `end`.
JAXDALI_HD inline bool ReadUnit(const uint8_t* p, const uint8_t* begin, const uint8_t* end, uint32_t* words) {
  const int offset_in_word = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
  p -= offset_in_word;
  if (end - p < kUnit + 4 || p < begin) return false;
  uint32_t low = ReadWord(p);
  JAXDALI_UNROLL
  for (int w = 0; w < kUnitWords; w++) {
    const uint32_t high = ReadWord(p + 4 * (w + 1));
    words[w] = Funnel(low, high, 8 * offset_in_word);
    low = high;
  }
  return true;
}

// The elements of an output, in units of 16 bytes at addresses that are multiples of 16. The first and the last unit
// may reach outside.
struct Units {
  uint8_t* out;
  int64_t size;      // elements
  int32_t per_unit;  // elements of a unit
  int32_t lead;      // elements of the first unit that are before the output

  // Returns the number of units.
  JAXDALI_HD int64_t Set(void* to, int64_t elements, DType type) {
    out = static_cast<uint8_t*>(to);
    size = elements;
    per_unit = kUnit / static_cast<int32_t>(SizeOf(type));
    lead = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) & (kUnit - 1)) * per_unit / kUnit;
    return size > 0 ? (size + lead + per_unit - 1) / per_unit : 0;
  }
  // The first element of a unit; for the first unit, of the output.
  JAXDALI_HD int64_t First(int64_t unit) const {
    const int64_t i = unit * per_unit - lead;
    return i > 0 ? i : 0;
  }
  // Whether all 16 bytes of a unit belong to the output.
  template <class T>
  JAXDALI_HD bool IsWhole(int64_t unit) const {
    constexpr int kEach = kUnit / sizeof(T);
    const int64_t i = unit * kEach - lead;
    return i >= 0 && i + kEach <= size;
  }
  // Writes the elements of a unit. next() returns them one after another. T has the size of an element.
  template <class T, class Next>
  JAXDALI_HD void Write(int64_t unit, Next next) const {
    if (!IsWhole<T>(unit)) return WritePart<T>(unit, next);
    uint32_t words[kUnitWords];
    JAXDALI_UNROLL
    for (int w = 0; w < kUnitWords; w += kStep<T>) Fill<T>(words + w, next);
    WriteWords(out + unit * kUnit - lead * static_cast<int64_t>(sizeof(T)), words);
  }
  // Write with less code, in a loop, for a next() that is long.
  template <class T, class Next>
  JAXDALI_HD void WriteInLoop(int64_t unit, Next next) const {
    if (!IsWhole<T>(unit)) return WritePart<T>(unit, next);
    uint32_t words[kUnitWords] = {};
    JAXDALI_UNROLL_BY(1)
    for (int w = 0; w < kUnitWords; w += kStep<T>) {
      JAXDALI_UNROLL  // moves them, because an array with a variable index is not in registers
          for (int k = 0; k + kStep<T> < kUnitWords; k++) words[k] = words[k + kStep<T>];
      Fill<T>(words + kUnitWords - kStep<T>, next);
    }
    WriteWords(out + unit * kUnit - lead * static_cast<int64_t>(sizeof(T)), words);
  }

 private:
  template <class T>
  static constexpr int kStep = sizeof(T) == 8 ? 2 : 1;  // words that contain whole elements

  // Fills kStep words with the next elements.
  template <class T, class Next>
  JAXDALI_HD static void Fill(uint32_t* words, Next& next) {
    if constexpr (sizeof(T) == 8) {
      const T v = next();
      uint64_t bits;
      std::memcpy(&bits, &v, sizeof bits);
      words[0] = static_cast<uint32_t>(bits);
      words[1] = static_cast<uint32_t>(bits >> 32);
    } else {
      constexpr int kBits = 8 * static_cast<int>(sizeof(T));
      words[0] = 0;
      JAXDALI_UNROLL
      for (int shift = 0; shift < 32; shift += kBits) words[0] |= BitsOf<T>(next()) << shift;
    }
  }
  // Writes those elements of a unit that belong to the output, one by one.
  template <class T, class Next>
  JAXDALI_HD void WritePart(int64_t unit, Next& next) const {
    constexpr int kEach = kUnit / sizeof(T);
    const int64_t i = unit * kEach - lead;
    JAXDALI_UNROLL_BY(1)
    for (int64_t k = i > 0 ? i : 0; k < i + kEach && k < size; k++) reinterpret_cast<T*>(out)[k] = next();
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_UNITS_H_
