// The fast path for uint8: fixed-point arithmetic, row by row. resize_u8_cpu.cc implements it; on CPUs with AVX-512
// VBMI, the kernels of resize_u8_avx512.h replace those of AVX2.
#ifndef JAXDALI_FFI_RESIZE_RESIZE_U8_H_
#define JAXDALI_FFI_RESIZE_RESIZE_U8_H_

#include <cstdint>
#include <vector>

#include "ffi/resize/resize.h"
#include "ffi/resize/resize_u8_avx512.h"

namespace jaxdali {

// Makes the rows of a resized uint8 image with 1, 3 or 4 interleaved channels. Each output row is made from the source
// rows that it depends on, so a decoder can feed it row by row. The results are the same on every machine, and within 1
// of exact arithmetic.
//
// Qn is a fixed-point number with n bits after the point. The vertical pass comes first: Q7 pixels x Q15 weights
// (rounded multiplication) -> Q7 in int16. Horizontal pass: Q7 x Q15 -> Q22 in int32. Filters with negative lobes
// overshoot, and weights merged at the edges exceed 1. They use Q14 weights, so the intermediate is Q6, with a range of
// -512 ... 511.
class U8Resizer {
 public:
  // False if the filters need the float path: too many taps for 16-bit weights.
  bool Init(const Taps& y, const Taps& x, int channels);

  // Makes output row `y` at `dst`; exactly n_x * channels bytes are written. `rows` are pointers to column 0 of the
  // source rows first[y] ... first[y] + k - 1 of the vertical taps. Only columns [x.lo, x.hi) are read.
  void Row(int64_t y, const uint8_t* const* rows, uint8_t* dst);

 private:
  int channels_ = 0;
  int shift_ = 0;                  // bits after the point of a horizontal sum
  int ky_ = 0, kx_ = 0;            // taps of a row and of a column; kx_ is padded, see Init
  int64_t nx_ = 0;                 // output columns
  int64_t begin_ = 0, width_ = 0;  // the first element of a source row that is read, and how many are
  std::vector<int16_t> wy_;        // [n_y, ky]
  std::vector<int16_t> wx_;        // in the order the horizontal kernel reads them
  std::vector<int32_t> offset_;    // [n_x, padded]: element of the line where each output's taps begin
  std::vector<int16_t> line_;      // the result of the vertical pass: width_ elements and a margin

  // Null: AVX2's kernels make this pass; see resize_u8_avx512.h.
  resize_u8::WideVertical vertical_ = nullptr;
  resize_u8::WideHorizontal horizontal_ = nullptr;
  // For horizontal_: where the taps of each group of outputs begin in the line, and the groups' byte orders and
  // weights.
  std::vector<int32_t> group_offset_;
  std::vector<resize_u8::Block> blocks_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_U8_H_
