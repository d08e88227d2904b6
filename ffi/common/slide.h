// Windows that overlap, reduced by one thread of a CUDA kernel: each value is loaded once and stays in a register.
#ifndef JAXDALI_FFI_COMMON_SLIDE_H_
#define JAXDALI_FFI_COMMON_SLIDE_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/common/units.h"

namespace jaxdali {

// Calls f(i) for i = begin ... end - 1 up to `last`. nvcc does not unroll all loops that it is told to, and then arrays
// are in memory.
template <int begin, int end, class F>
JAXDALI_HD inline void Unrolled(int last, F f) {
  if constexpr (begin < end) {
    if (begin > last) return;
    f(begin);
    Unrolled<begin + 1, end>(last, f);
  }
}

// Slide for reductions in any order, for windows of at least n values. Those that all windows have are reduced once.
template <int n, class V, class Result, class Next, class Reduce>
JAXDALI_HD inline void SlideInAnyOrder(int taps, Next next, Reduce reduce, Result (&result)[n]) {
  // Window r has values r to r + taps - 1. All windows have values n - 1 to taps - 1 (`common`). Going backwards, each
  // window adds one value before these; going forwards, one behind them (`last`).
  V v[n];
  Unrolled<0, n - 1>(n, [&](int i) { v[i] = next(); });
  Result common = result[0], last = result[0];
  for (int k = n - 1; k < taps; k++) reduce(common, next());
  result[n - 1] = common;
  JAXDALI_UNROLL
  for (int r = n - 2; r >= 0; r--) {
    reduce(common, v[r]);
    result[r] = common;
  }
  Unrolled<1, n>(n, [&](int r) {
    reduce(last, next());
    reduce(result[r], last);
  });
}

// Reduces n windows of neighbouring positions: window r has the values r to r + taps - 1 of a sequence, and next()
// returns its n + taps - 1 values one after another. of_tap(k) returns a function that takes the result of a window and
// its value number k. It is called for k = 0, 1, ... in this order.
template <int n, class V, class Result, class Next, class OfTap>
JAXDALI_HD inline void Slide(int taps, Next next, OfTap of_tap, Result (&result)[n]) {
  if constexpr (OfTap::kInAnyOrder)
    if (taps >= n) return SlideInAnyOrder<n, V>(taps, next, of_tap(0), result);
  V v[n];  // the next values, from v[k % n] on, while tap k is done
  Unrolled<0, n - 1>(n, [&](int i) { v[i] = next(); });
  auto step = [&](int k, int first) {  // tap k; `first` is k % n, as a constant
    v[(first + n - 1) % n] = next();
    const auto add = of_tap(k);
    JAXDALI_UNROLL
    for (int r = 0; r < n; r++) add(result[r], v[(first + r) % n]);
  };
  step(0, 0);  // by itself, so that the initial results need no registers
  int k = 1;
  for (; k + n <= taps; k += n) {
    JAXDALI_UNROLL
    for (int first = 1; first <= n; first++) step(k + first - 1, first % n);
  }
  Unrolled<1, n>(taps - k, [&](int first) { step(k + first - 1, first); });
}

// Four neighbouring elements.
struct alignas(16) Four {
  float v[4];
};

// Loads four elements T, or of the type `type` if T is AnyType; `from` is a multiple of 16, or of the four elements if
// they are smaller.
template <class T>
JAXDALI_HD inline Four LoadFour([[maybe_unused]] DType type, const void* from) {
  Four four;
  if constexpr (std::is_same_v<T, float>) {
    ReadFloats(static_cast<const float*>(from), four.v);
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    const uint32_t word = ReadWord(static_cast<const uint8_t*>(from));
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++) four.v[k] = ElementOf<uint8_t>(word, k);
  } else {
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++) four.v[k] = LoadAs<float, T>(type, from, k);
  }
  return four;
}

// Converts the first n of four elements and stores them.
template <class T>
JAXDALI_HD inline void StorePart(DType type, void* to, int n, const Four& four) {
  WithKnown<T>(type, [&](auto t) {
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++)
      if (k < n) static_cast<decltype(t)*>(to)[k] = ConvertTo<decltype(t)>(four.v[k]);
  });
}
// Converts and stores all four elements. `to` is a multiple as LoadFour's `from` is.
template <class T>
JAXDALI_HD inline void StoreFour(DType type, void* to, const Four& four) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    uint32_t v[4];
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++) v[k] = static_cast<uint32_t>(RoundToByte(four.v[k]));
    WriteWord(static_cast<uint8_t*>(to), PackBytes(v[0], v[1], v[2], v[3]));
  } else if constexpr (std::is_same_v<T, float>) {
    WriteFloats(static_cast<float*>(to), four.v);
  } else {
    StorePart<T>(type, to, /*n=*/4, four);
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_SLIDE_H_
