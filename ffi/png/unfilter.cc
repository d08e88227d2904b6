// The loops are written once, for any pixel size and for one row or two, and compiled twice: for any CPU and with
// JAXDALI_SIMD. Each pixel depends on the one to its left, so the vectors hold the bytes of one pixel, not several
// pixels.
#include "ffi/png/unfilter.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ffi/common/simd.h"

#define JAXDALI_INLINED __attribute__((always_inline))

namespace jaxdali::png {
namespace {

// The values of a pixel: a number if it has one byte, otherwise a vector of eight, whose elements after the pixel are
// arbitrary.
using Bytes = uint8_t __attribute__((vector_size(8)));
using Pixel = int16_t __attribute__((vector_size(16)));
template <int kPixel>
using Values = std::conditional_t<kPixel == 1, int, Pixel>;

// Loads the bytes of a pixel as numbers; Store writes them back. With more than one byte, eight are loaded and stored.
template <int kPixel>
JAXDALI_INLINE Values<kPixel> Load(const uint8_t* from) {
  if constexpr (kPixel == 1) {
    return *from;
  } else {
    Bytes v;
    std::memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, Pixel);
  }
}
JAXDALI_INLINE void Store(uint8_t* to, int v) { *to = static_cast<uint8_t>(v); }
JAXDALI_INLINE void Store(uint8_t* to, Pixel v) {
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}
// Without a branch, because the pixels of photos are unpredictable.
JAXDALI_INLINE int Choose(bool condition, int a, int b) {
  return __builtin_expect_with_probability(condition, 1, 0.5) ? a : b;
}
JAXDALI_INLINE Pixel Choose(Pixel condition, Pixel a, Pixel b) { return condition ? a : b; }

// The predictions (9.2) from the pixels to the left, above, and above left (`corner`).
struct Sub {
  template <class V>
  JAXDALI_INLINE V operator()(V left, V, V) const {
    return left;
  }
};
struct Average {
  template <class V>
  JAXDALI_INLINE V operator()(V left, V up, V) const {
    return (left + up) >> 1;
  }
};
// Paeth's prediction (ISO/IEC 15948, 9.4): the one of left, up and corner that is nearest to left + up - corner; if
// several are, the first. That is the smaller of left and up if the corner is large enough, the larger one if it is
// small enough, and otherwise the corner. Computed this way, few steps depend on `left`, which is known last.
struct Paeth {
  template <class V>
  JAXDALI_INLINE V operator()(V left, V up, V corner) const {
    const V low = left < up ? left : up, high = left < up ? up : left, limit = (corner * 3 - up) - left;
    return Choose(limit <= low, high, Choose(high <= limit, low, corner));
  }
};

// Unfilters a row. Each pixel has to wait for the one before.
template <int kPixel, class Prediction>
JAXDALI_INLINE void UnfilterRow(const Prediction predict, int64_t n, const uint8_t* stored, const uint8_t* above,
                                uint8_t* row) {
  Values<kPixel> left{}, corner{};
  for (int64_t i = 0; i < n; i += kPixel) {
    const Values<kPixel> up = Load<kPixel>(above + i);
    left = (Load<kPixel>(stored + i) + predict(left, up, corner)) & 255;
    corner = up;
    Store(row + i, left);
  }
}

// Unfilters two rows with the same filter in little more time than one. The second row is one pixel behind.
template <int kPixel, class Prediction>
JAXDALI_INLINE void UnfilterTwoRows(const Prediction predict, int64_t n, const uint8_t* stored,
                                    const uint8_t* stored_below, const uint8_t* above, uint8_t* row, uint8_t* below) {
  Values<kPixel> left{}, corner{}, left_below{}, corner_below{};
  for (int64_t i = 0; i < n; i += kPixel) {
    const Values<kPixel> up = Load<kPixel>(above + i), up_below = left;
    left = (Load<kPixel>(stored + i) + predict(left, up, corner)) & 255;
    corner = up;
    Store(row + i, left);
    if (i > 0) {
      left_below = (Load<kPixel>(stored_below + i - kPixel) + predict(left_below, up_below, corner_below)) & 255;
      corner_below = up_below;
      Store(below + i - kPixel, left_below);
    }
  }
  left_below = (Load<kPixel>(stored_below + n - kPixel) + predict(left_below, left, corner_below)) & 255;
  Store(below + n - kPixel, left_below);
}

// Calls f for the size of a pixel as a constant: 1, 2, 3, 4, 6 or 8 bytes.
template <class F>
JAXDALI_INLINE void ForPixelSize(int pixel, F f) {
  switch (pixel) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 6:
      return f.template operator()<6>();
    default:
      return f.template operator()<8>();
  }
}

// Unfilter and UnfilterTwo of unfilter.h, as parts of the versions with and without vectors.
JAXDALI_INLINE void UnfilterAny(int filter, int pixel, int64_t n, const uint8_t* stored, const uint8_t* above,
                                uint8_t* row) {
  switch (filter) {
    case kNone:
      std::copy_n(stored, n, row);
      break;
    case kSub:
      ForPixelSize(pixel, [&]<int kPixel>() JAXDALI_INLINED { UnfilterRow<kPixel>(Sub(), n, stored, above, row); });
      break;
    case kUp:
      for (int64_t i = 0; i < n; i++) row[i] = static_cast<uint8_t>(stored[i] + above[i]);
      break;
    case kAverage:
      ForPixelSize(pixel, [&]<int kPixel>() JAXDALI_INLINED { UnfilterRow<kPixel>(Average(), n, stored, above, row); });
      break;
    default:
      ForPixelSize(pixel, [&]<int kPixel>() JAXDALI_INLINED { UnfilterRow<kPixel>(Paeth(), n, stored, above, row); });
      break;
  }
}

JAXDALI_INLINE void UnfilterTwoAny(int filter, int pixel, int64_t n, const uint8_t* const* stored, const uint8_t* above,
                                   uint8_t* const* rows) {
  if (filter == kAverage)
    ForPixelSize(pixel, [&]<int kPixel>() JAXDALI_INLINED {
      UnfilterTwoRows<kPixel>(Average(), n, stored[0], stored[1], above, rows[0], rows[1]);
    });
  else
    ForPixelSize(pixel, [&]<int kPixel>() JAXDALI_INLINED {
      UnfilterTwoRows<kPixel>(Paeth(), n, stored[0], stored[1], above, rows[0], rows[1]);
    });
}

#if defined(JAXDALI_SIMD)
JAXDALI_SIMD void UnfilterSimd(int filter, int pixel, int64_t n, const uint8_t* stored, const uint8_t* above,
                               uint8_t* row) {
  UnfilterAny(filter, pixel, n, stored, above, row);
}
JAXDALI_SIMD void UnfilterTwoSimd(int filter, int pixel, int64_t n, const uint8_t* const* stored, const uint8_t* above,
                                  uint8_t* const* rows) {
  UnfilterTwoAny(filter, pixel, n, stored, above, rows);
}
#endif

}  // namespace

void Unfilter(int filter, int pixel, int64_t n, const uint8_t* stored, const uint8_t* above, uint8_t* row) {
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return UnfilterSimd(filter, pixel, n, stored, above, row);
#endif
  UnfilterAny(filter, pixel, n, stored, above, row);
}

void UnfilterTwo(int filter, int pixel, int64_t n, const uint8_t* const* stored, const uint8_t* above,
                 uint8_t* const* rows) {
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return UnfilterTwoSimd(filter, pixel, n, stored, above, rows);
#endif
  UnfilterTwoAny(filter, pixel, n, stored, above, rows);
}

}  // namespace jaxdali::png
