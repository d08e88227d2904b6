// Upsamples a component to the image's size, to the bit as libjpeg does it: "fancy" upsampling, with 3/4 of the nearer
// sample and 1/4 of the farther one along an axis, or repetition. Neighbours are clamped to the component's true size,
// not to the size of its blocks.
#ifndef JAXDALI_FFI_CUDA_JPEG_UPSAMPLE_H_
#define JAXDALI_FFI_CUDA_JPEG_UPSAMPLE_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/cuda_jpeg/words.h"

namespace jaxdali::jpeg {

// The samples of a component that the region needs, from (begin_y, begin_x) on, which are multiples of 8. They end
// where the needed samples or the component end, so neighbours are clamped as in libjpeg, and no others are read.
struct Plane {
  const uint8_t* data;
  int32_t pitch;  // bytes from row to row, a multiple of 8, as is the number of rows
  int32_t begin_y, end_y, begin_x, end_x;
  int32_t expand_x, expand_y;
  Upsampling mode;

  JAXDALI_HD const uint8_t* Row(int32_t y) const { return data + static_cast<int64_t>(y - begin_y) * pitch - begin_x; }
  JAXDALI_HD int32_t At(int32_t y, int32_t x) const { return Row(y)[x]; }
  JAXDALI_HD int32_t ClampX(int32_t x) const { return x < begin_x ? begin_x : x >= end_x ? end_x - 1 : x; }
  JAXDALI_HD int32_t ClampY(int32_t y) const { return y < begin_y ? begin_y : y >= end_y ? end_y - 1 : y; }
};

// The component's value at pixel (y, x) of the image. Of the sample's neighbours, the nearer one counts: the next one
// for odd pixels, the previous one for even pixels. Terms for rounding alternate as in libjpeg.
JAXDALI_HD inline int32_t Upsample(const Plane& p, int32_t y, int32_t x) {
  const int32_t column = x >> 1, row = y >> 1;
  const int32_t side_column = p.ClampX(column + (x & 1 ? 1 : -1)), side_row = p.ClampY(row + (y & 1 ? 1 : -1));
  switch (p.mode) {
    case Upsampling::kFull:
      return p.At(y, x);
    case Upsampling::kH2V1:
      return (3 * p.At(y, column) + p.At(y, side_column) + 1 + (x & 1)) >> 2;
    case Upsampling::kH1V2:
      return (3 * p.At(row, x) + p.At(side_row, x) + 1 + (y & 1)) >> 2;
    case Upsampling::kH2V2: {
      const int32_t near = 3 * p.At(row, column) + p.At(side_row, column);
      const int32_t far = 3 * p.At(row, side_column) + p.At(side_row, side_column);
      return (3 * near + far + 8 - (x & 1)) >> 4;
    }
    default:
      return p.At(y / p.expand_y, x / p.expand_x);
  }
}

// --- eight pixels at a time ---------------------------------------------------------------------------------------
// Values of 16 bits, two in a word. Sums of four bytes never carry from one half into the other.

// Four neighbouring samples or column sums s0 to s3, and their neighbours.
struct Columns {
  uint32_t even, odd, sides;  // low and high half: s0 and s2, s1 and s3, s-1 and s4
};

// Samples x to x + 3 of row y, x a multiple of 4, and their neighbours.
JAXDALI_HD inline Columns LoadColumns(const Plane& p, int32_t y, int32_t x) {
  const uint8_t* row = p.Row(y);
  if (x + 4 <= p.end_x) {
    const uint32_t four = *reinterpret_cast<const uint32_t*>(row + x);
    const uint32_t left = row[p.ClampX(x - 1)], right = row[p.ClampX(x + 4)];
    // Bytes 0 and 2, bytes 1 and 3.
    return {four & 0x00FF00FF, four >> 8 & 0x00FF00FF, left | right << 16};
  }
  uint32_t s[6];  // the component ends between them, so its last sample is repeated
  for (int i = 0; i < 6; i++) s[i] = row[p.ClampX(x - 1 + i)];
  return {s[1] | s[3] << 16, s[2] | s[4] << 16, s[0] | s[5] << 16};
}

// The vertical step: three parts of the near row and one of the far one.
JAXDALI_HD inline Columns SumColumns(const Columns& near, const Columns& far) {
  return {3 * near.even + far.even, 3 * near.odd + far.odd, 3 * near.sides + far.sides};
}

// Makes eight pixels from four samples. Word i holds pixels i and i + 4. `round` is added before the shift, for even
// and for odd pixels.
JAXDALI_HD inline void ExpandColumns(const Columns& s, uint32_t round_even, uint32_t round_odd, int shift,
                                     uint32_t (&out)[4]) {
  // The neighbours of the even samples on the left, and of the odd ones on the right.
  const uint32_t left = s.odd << 16 | (s.sides & 0xFFFF), right = s.even >> 16 | (s.sides & 0xFFFF0000);
  const uint32_t even = round_even * 0x10001, odd = round_odd * 0x10001;
  out[0] = (3 * s.even + left + even) >> shift & 0x00FF00FF;
  out[1] = (3 * s.even + s.odd + odd) >> shift & 0x00FF00FF;
  out[2] = (3 * s.odd + s.even + even) >> shift & 0x00FF00FF;
  out[3] = (3 * s.odd + right + odd) >> shift & 0x00FF00FF;
}

// Whether UpsampleGroup supports this kind of upsampling.
JAXDALI_HD inline bool HasGroups(Upsampling mode) {
  return mode == Upsampling::kFull || mode == Upsampling::kH2V1 || mode == Upsampling::kH2V2;
}

// Pixels (y, x) to (y + 1, x + 7) of a component, where x is a multiple of 8 and y is even, for the modes of HasGroups.
// Word i of a row holds pixels i and i + 4.
JAXDALI_HD inline void UpsampleGroup(const Plane& p, int32_t y, int32_t x, uint32_t (&out)[2][4]) {
  if (p.mode == Upsampling::kH2V2) {
    const int32_t row = y >> 1, column = x >> 1;
    const Columns near = LoadColumns(p, row, column);
    ExpandColumns(SumColumns(near, LoadColumns(p, p.ClampY(row - 1), column)), /*round_even=*/8, /*round_odd=*/7,
                  /*shift=*/4, out[0]);
    ExpandColumns(SumColumns(near, LoadColumns(p, p.ClampY(row + 1), column)), /*round_even=*/8, /*round_odd=*/7,
                  /*shift=*/4, out[1]);
    return;
  }
  for (int r = 0; r < 2; r++) {
    if (p.mode == Upsampling::kH2V1) {
      ExpandColumns(LoadColumns(p, y + r, x >> 1), /*round_even=*/1, /*round_odd=*/2, /*shift=*/2, out[r]);
    } else {
      const Words2 eight = Load2(p.Row(y + r) + x);
      for (int i = 0; i < 4; i++) out[r][i] = (eight.word[0] >> 8 * i & 0xFF) | (eight.word[1] >> 8 * i & 0xFF) << 16;
    }
  }
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_UPSAMPLE_H_
