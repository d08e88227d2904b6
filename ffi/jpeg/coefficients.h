// The zigzag order of coefficients (T.81, figure A.6), and the values that their bits encode (F.2.2.1, EXTEND).
#ifndef JAXDALI_FFI_JPEG_COEFFICIENTS_H_
#define JAXDALI_FFI_JPEG_COEFFICIENTS_H_

#include <cstdint>

#include "ffi/common/hd.h"

namespace jaxdali::jpeg {

// The place in natural order, row by row, of the k-th coefficient in zigzag order.
JAXDALI_HD constexpr uint8_t NaturalOrder(int k) {
  // The diagonals of a block are numbered 0 to 14; even ones go upwards.
  int diagonal = 0, first = 0;
  for (; k - first >= (diagonal < 8 ? diagonal + 1 : 15 - diagonal); diagonal++)
    first += diagonal < 8 ? diagonal + 1 : 15 - diagonal;
  // Diagonal d has the places with x + y = d. From diagonal 8 on, it begins at 1, 2, ... instead of 0.
  const int step = k - first, low = diagonal < 8 ? 0 : diagonal - 7;
  const int a = low + step, b = diagonal - a;  // a ascends along the diagonal
  const int x = diagonal & 1 ? b : a, y = diagonal & 1 ? a : b;
  return static_cast<uint8_t>(y * 8 + x);
}

// The value that a magnitude's bits encode: T.81, F.2.2.1.
JAXDALI_HD constexpr int32_t Extend(uint32_t magnitude, int size) {
  const int32_t v = static_cast<int32_t>(magnitude);
  return size && magnitude < 1u << (size - 1) ? v - (1 << size) + 1 : v;
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_COEFFICIENTS_H_
