// Passes of resize_u8_cpu.cc that are faster on CPUs with AVX-512 and its byte permutations (VBMI).
#ifndef JAXDALI_FFI_RESIZE_RESIZE_U8_AVX512_H_
#define JAXDALI_FFI_RESIZE_RESIZE_U8_AVX512_H_

#include <cstdint>
#include <vector>

namespace jaxdali::resize_u8 {

// The vertical pass over n >= kWideBytes elements of rows.
inline constexpr int kWideBytes = 64;
using WideVertical = void (*)(const uint8_t* const* rows, const int16_t* w, int k, int64_t begin, int64_t n,
                              int16_t* out);

// The horizontal pass for n outputs with 1, 3 or 4 channels, in groups of as many as fit into a register of int32.
// `first`: offset in the line where each group's taps begin. `blocks`: for each group, which bytes after that are the
// first two taps, then weights for each two taps. Up to kWideMargin elements after the taps are read.
inline constexpr int kWideMargin = 64;
struct alignas(64) Block {
  uint8_t byte[64];
};
using WideHorizontal = void (*)(const int16_t* line, const int32_t* first, const Block* blocks, int taps, int shift,
                                int64_t n, uint8_t* dst);

// Extra outputs in MakeWideHorizontal's arrays.
inline constexpr int kWidePadding = 16;

#if defined(__x86_64__)

// Null on other CPUs.
WideVertical MakeWideVertical();

// `offset`: where the taps of each output begin in the line. w: [n, taps], with an even number of taps. Null on other
// CPUs, and if the taps of a group are too far apart.
WideHorizontal MakeWideHorizontal(int channels, int64_t n, const int32_t* offset, const int16_t* w, int taps,
                                  std::vector<int32_t>* first, std::vector<Block>* blocks);

#endif

}  // namespace jaxdali::resize_u8

#endif  // JAXDALI_FFI_RESIZE_RESIZE_U8_AVX512_H_
