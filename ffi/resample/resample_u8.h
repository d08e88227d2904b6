// Pillow's and torchvision's passes over bytes, row by row. A sum of bytes times integer weights is rounded to a byte
// after each pass, so all versions of the passes give the same results: for any CPU, with AVX2 or NEON
// (resample_u8_cpu.cc), and with AVX-512 (resample_u8_avx512_cpu.cc).
#ifndef JAXDALI_FFI_RESAMPLE_RESAMPLE_U8_H_
#define JAXDALI_FFI_RESAMPLE_RESAMPLE_U8_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "ffi/common/kept_memory.h"

namespace jaxdali {

namespace resample_u8 {

inline constexpr int kBits = 22;       // of weights, after the point
inline constexpr int kMargin = 128;    // bytes behind a row that vectors read
inline constexpr int kTogether = 4;    // numbers of taps are multiples of this: others have the weight 0
inline constexpr int kWideBytes = 64;  // the least length of rows for the vertical pass with AVX-512

// The taps of one axis: output o is the sum of weight[o * k + j] * source[first[o] + j], j < count[o]. Sums of bytes
// fit 32 bits. Weights behind count[o] are 0.
struct Taps {
  int64_t n;
  int k;
  const int32_t *first, *count, *weight;
};

struct alignas(64) Block {
  uint8_t byte[64];
};

// The vertical pass over n bytes of `taps` rows, of which each four have the digits of their weights in three words.
using WideVertical = void (*)(const uint8_t* const* rows, const int32_t* digits, int taps, int64_t n, uint8_t* out);

// The horizontal pass for n outputs, in groups of as many as fit into a register of int32. `first`: the byte of the row
// where each group's taps begin. `blocks`: for each group, which bytes after that are the first four taps, then digits
// of weights for each four taps.
using WideHorizontal = void (*)(const uint8_t* row, const int32_t* first, const Block* blocks, int taps, int64_t n,
                                uint8_t* out);

#if defined(__x86_64__)

// Null on other CPUs, and if a weight has too many digits.
WideVertical MakeWideVertical(const Taps& y, int taps, std::vector<int32_t>* digits);

// Null on other CPUs, if a weight has too many digits, and if the taps of a group are too far apart.
WideHorizontal MakeWideHorizontal(const Taps& x, int channels, int taps, std::vector<int32_t>* first,
                                  std::vector<Block>* blocks);

#endif

}  // namespace resample_u8

// Resizes an image of bytes with 1, 3 or 4 interleaved channels.
class U8Resampler {
 public:
  // Prepares a resize by these taps, which must stay. False: there is no such number of channels.
  bool Init(const resample_u8::Taps& y, const resample_u8::Taps& x, int channels, bool vertical_first);

  // Makes the output from an image in memory. `row_size`: bytes of a row; `rows`: their number.
  void RunOnImage(const uint8_t* in, int64_t row_size, int64_t rows, uint8_t* out);

  // Makes the output from rows that `next` writes one after another. It takes all rows. False: a row was missing, or
  // the taps don't follow one another; then the contents of `out` are undefined. `triple`: each byte of the result is
  // written three times.
  bool RunOnRows(const std::function<bool(uint8_t*)>& next, int64_t row_size, int64_t rows, bool triple, uint8_t* out);

 private:
  // Makes a row of the output's width. Behind the row, a margin is read, see ReadBehind.
  void Horizontal(const uint8_t* row, uint8_t* out) const;
  // Makes n bytes of output row o from the rows of its taps.
  void Vertical(const uint8_t* const* rows, int64_t o, int64_t n, uint8_t* out);
  int64_t ReadBehind() const { return int64_t{taps_x_} * channels_ + resample_u8::kMargin; }

  resample_u8::Taps y_, x_;
  int channels_ = 0, taps_y_ = 0, taps_x_ = 0;  // numbers of taps as multiples of kTogether
  bool vertical_first_ = false, same_columns_ = false;
  KeptMemory memory_;
  std::vector<const uint8_t*> rows_;  // of the taps of an output row
  // Weights as pairs of 16 bits, in the order that AVX2's kernels read them.
  std::vector<int16_t> halves_x_, halves_y_;
  // For the kernels with AVX-512; null: AVX2's kernels make this pass.
  resample_u8::WideVertical vertical_ = nullptr;
  resample_u8::WideHorizontal horizontal_ = nullptr;
  std::vector<int32_t> digits_, group_first_;
  std::vector<resample_u8::Block> blocks_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESAMPLE_RESAMPLE_U8_H_
