// The values beyond the border of an image.
#ifndef JAXDALI_FFI_COMMON_BORDER_H_
#define JAXDALI_FFI_COMMON_BORDER_H_

#include <cstdint>

#include "ffi/common/hd.h"

namespace jaxdali {

enum class Border : int32_t {
  kConstant,     // a constant value
  kReflect101,   // dcb|abcd|cba: mirrored at the centre of the outermost element ("reflect 101")
  kReflect1001,  // cba|abcd|dcb: mirrored at its edge ("reflect 1001")
  kWrap,         // bcd|abcd|abc
  kReplicate,    // aaa|abcd|ddd
  kCount
};

// The element in [0, n) that stands for element i if the array is mirrored at the centres (`at_centre` 1) or at the
// outer edges (0) of its outermost elements. n > 0. It divides only if it has to, for points that are several images
// away.
JAXDALI_HD inline int64_t Reflect(int64_t i, int64_t n, int at_centre = 1) {
  if (i >= 0 && i < n) return i;
  // One reflection: at the beginning for i < 0, at the end otherwise.
  const int64_t mirrored = (i < 0 ? 0 : 2 * (n - at_centre)) - i - (1 - at_centre);
  if (mirrored >= 0 && mirrored < n) return mirrored;
  if (n == 1) return 0;
  // Beyond that, mirrored copies alternate with this period.
  const int64_t period = 2 * (n - at_centre);
  i = (i % period + period) % period;
  return i < n ? i : period - i - (1 - at_centre);
}

// The element in [0, n) that stands for element i under a border rule. -1: none does, so the constant value is used.
JAXDALI_HD inline int64_t Inside(Border border, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  switch (border) {
    case Border::kReflect101:
      return Reflect(i, n);
    case Border::kReflect1001:
      return Reflect(i, n, /*at_centre=*/0);
    case Border::kWrap:
      i %= n;
      return i < 0 ? i + n : i;
    case Border::kReplicate:
      return i < 0 ? 0 : n - 1;
    default:
      return -1;
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_BORDER_H_
