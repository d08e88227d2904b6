// Element types: the one rule that converts a computed value to an element, and dispatch by type.
#ifndef JAXDALI_FFI_COMMON_CONVERT_H_
#define JAXDALI_FFI_COMMON_CONVERT_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/half.h"
#include "ffi/common/hd.h"

namespace jaxdali {

// `v` limited to [low, high]; `low` for NaN.
JAXDALI_HD inline float Clamped(float v, float low, float high) {
#if defined(__CUDA_ARCH__)
  return fminf(fmaxf(v, low), high);
#else
  v = v > low ? v : low;
  return v < high ? v : high;
#endif
}

// Converts a float to a byte like ConvertTo. It adds the float just below 0.5, because with 0.5 the value 0.49999997
// would become 1.
JAXDALI_HD inline int32_t RoundToByte(float v) {
  return static_cast<int32_t>(Clamped(v, 0.0f, 255.0f) + 0x1.fffffep-2f);
}

// Converts a float or double to an element as `cast` and DALI do. Integers are rounded half away from zero and
// saturated. NaN becomes 0, or the minimum of int32 and int64.
template <class Out, class V>
JAXDALI_HD inline Out ConvertTo(V v) {
  static_assert(std::is_floating_point_v<V>);
  if constexpr (std::is_floating_point_v<Out>) {
    return static_cast<Out>(v);
  } else if constexpr (kIsSmallFloat<Out>) {
    return Out(static_cast<float>(v));
  } else if constexpr (std::is_same_v<Out, bool>) {
    return !(v > V(-0.5) && v < V(0.5));
  } else if constexpr (std::is_same_v<Out, uint8_t> && std::is_same_v<V, float>) {  // the same in fewer instructions
    return static_cast<uint8_t>(RoundToByte(v));
  } else if constexpr (sizeof(Out) <= 2) {  // without branches, so that loops vectorize
    constexpr V kLow = std::numeric_limits<Out>::min(), kHigh = std::numeric_limits<Out>::max();
    v = v == v ? v : 0;
    v = v > kLow ? v : kLow;
    v = v < kHigh ? v : kHigh;
    const int32_t whole = static_cast<int32_t>(v);
    const V rest = v - static_cast<V>(whole);  // not v + 0.5, which rounds 0.49999997 up
    return static_cast<Out>(whole + (rest >= V(0.5)) - (rest <= V(-0.5)));
  } else {
    constexpr V kLow = static_cast<V>(std::numeric_limits<Out>::min());
    constexpr V kHigh = static_cast<V>(std::numeric_limits<Out>::max());
    if (!(v > kLow)) return std::numeric_limits<Out>::min();  // also NaN
    if (v >= kHigh) return std::numeric_limits<Out>::max();
    const Out whole = static_cast<Out>(v);
    const V rest = v - static_cast<V>(whole);
    return static_cast<Out>(whole + (rest >= V(0.5)) - (rest <= V(-0.5)));
  }
}

// Like ConvertTo, but rounds half to even, as DALI's resampling does.
template <class Out, class V>
JAXDALI_HD inline Out ConvertEvenTo(V v) {
  if constexpr (sizeof(Out) <= 2 && std::is_integral_v<Out> && !std::is_same_v<Out, bool>) {
    constexpr V kLow = std::numeric_limits<Out>::min(), kHigh = std::numeric_limits<Out>::max();
    // Added to a number, it leaves no bits for the fraction, so the addition rounds to even; then it is subtracted
    // again.
    constexpr V kWhole =
        sizeof(V) == 4 ? V(12582912) : V(6755399441055744);  // 1.5 * 2^23, 2^52: the spacing of floats is 1 here
    v = v == v ? v : 0;
    v = v > kLow ? v : kLow;
    v = v < kHigh ? v : kHigh;
    return static_cast<Out>(static_cast<int32_t>((v + kWhole) - kWhole));
  } else {
    return ConvertTo<Out>(v);
  }
}

// Converts a fill value to an element like DALI, which uses C's cast on x86. For integers the fraction is cut off, and
// what the type can't hold wraps around. The cast goes through the wider signed type; what that can't hold becomes its
// minimum first.
template <class Out>
JAXDALI_HD inline Out CutTo(float v) {
  if constexpr (!std::is_integral_v<Out> || std::is_same_v<Out, bool>) {
    return ConvertTo<Out>(v);
  } else if constexpr (std::is_same_v<Out, uint64_t>) {
    constexpr float kHalf = 9223372036854775808.0f;  // 2^63
    if (v >= kHalf) return v < 2 * kHalf ? static_cast<uint64_t>(v) : 0;
    return static_cast<uint64_t>(CutTo<int64_t>(v));
  } else {
    using Wide = std::conditional_t<sizeof(Out) == 8 || std::is_same_v<Out, uint32_t>, int64_t, int32_t>;
    constexpr float kLow = static_cast<float>(std::numeric_limits<Wide>::min());
    return static_cast<Out>(v >= kLow && v < -kLow ? static_cast<Wide>(v) : std::numeric_limits<Wide>::min());
  }
}

// Calls f(T{}) with the C++ type of a DType.
template <class F>
JAXDALI_HD inline auto WithType(DType type, F f) {
  switch (type) {
    case DType::kU8:
      return f(uint8_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kI16:
      return f(int16_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kF16:
      return f(Half{});
    case DType::kBF16:
      return f(BFloat16{});
    case DType::kF32:
      return f(float{});
    case DType::kBool:
      return f(bool{});
    default:
      return f(double{});
  }
}

// Whether float represents every value of the type, so that a kernel need not compute in double.
inline bool FitsFloat(DType type) { return SizeOf(type) <= 2 || type == DType::kF32; }

// Element i of an array whose type is only known at run time. For CUDA kernels that are bound by memory.
template <class V>
JAXDALI_HD inline V LoadElement(DType type, const void* from, int64_t i) {
  return WithType(type, [&](auto t) -> V {
    using T = decltype(t);
    if constexpr (kIsSmallFloat<T>)
      return static_cast<V>(static_cast<float>(static_cast<const T*>(from)[i]));
    else
      return static_cast<V>(static_cast<const T*>(from)[i]);
  });
}
// Stores `v` as element i of such an array.
template <class V>
JAXDALI_HD inline void StoreElement(DType type, void* to, int64_t i, V v) {
  WithType(type, [&](auto t) { static_cast<decltype(t)*>(to)[i] = ConvertTo<decltype(t)>(v); });
}
// Stores a fill value as element i of such an array, see CutTo.
JAXDALI_HD inline void StoreFill(DType type, void* to, int64_t i, float v) {
  WithType(type, [&](auto t) { static_cast<decltype(t)*>(to)[i] = CutTo<decltype(t)>(v); });
}
// A fill value of a type, represented in the type V that is converted to it later.
template <class V>
JAXDALI_HD inline V FillAs(DType type, float v) {
  return WithType(type, [&](auto t) -> V {
    if constexpr (std::is_integral_v<decltype(t)>)
      return static_cast<V>(CutTo<decltype(t)>(v));
    else
      return static_cast<V>(v);
  });
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_CONVERT_H_
