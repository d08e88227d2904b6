// The kernels for all kinds of CPUs, and the choice at run time. They define the results: the SIMD versions give the
// same bits.
#include "ffi/common/cpu.h"
#include "ffi/jpeg/color.h"
#include "ffi/jpeg/forward_dct.h"
#include "ffi/jpeg/idct.h"
#include "ffi/jpeg/kernels.h"

namespace jaxdali::jpeg {
namespace {

// The plain versions of everything that `Isa` names in block.h, band.h and progressive.h.
struct Portable {
  static JAXDALI_INLINE uint32_t Cut(uint64_t window, uint32_t which) { return CutBits(window, which); }
  static JAXDALI_INLINE uint64_t Deposit(uint64_t bits, uint64_t which) { return DepositBits(bits, which); }

  // Transforms the coefficients of two blocks to 8 x 8 samples each, and clears them. `last`: the largest index of a
  // nonzero coefficient.
  //
  // Note [Large values]. Returns false if a value of the first row is so large that libjpeg-turbo's result depends on a
  // special case of its code, which shifts the values of a block of one row without saturation. Only damaged files have
  // such values.
  static bool Transform(int16_t* coefficients, const int16_t* quantizer, int last, uint8_t* samples, int64_t pitch) {
    bool is_exact = true;
    for (int half = 0; half < 2; half++)
      is_exact &= TransformOne(coefficients + 8 * half, quantizer + 8 * half, last, samples + 8 * half, pitch);
    return is_exact;
  }

  // For scaled-down images (scaled_idct.h): each block of a pair becomes 4 x 4 samples, 2 x 2, or one.
  static bool ToSixteen(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
    bool is_exact = ToSixteenOfOne(c, quantizer, samples, pitch);
    is_exact &= ToSixteenOfOne(c + 8, quantizer + 8, samples + 4, pitch);
    return is_exact;
  }
  static bool ToFour(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
    bool is_exact = ToFourOfOne(c, quantizer, samples, pitch);
    is_exact &= ToFourOfOne(c + 8, quantizer + 8, samples + 2, pitch);
    return is_exact;
  }
  static bool ToOne(int16_t* c, const int16_t* quantizer, uint8_t* samples) {
    bool is_exact = ToOneOfOne(c, quantizer, samples);
    is_exact &= ToOneOfOne(c + 8, quantizer + 8, samples + 1);
    std::memset(c, 0, kPairDump * sizeof *c);
    return is_exact;
  }

 private:
  // Transforms one block of a pair, whose rows are 16 coefficients apart, and clears it.
  static bool TransformOne(int16_t* c, const int16_t* quantizer, int last, uint8_t* samples, int64_t pitch) {
    int32_t v[8][8], out[8];
    if (last == 0) {
      // A block with only a DC value is flat: two fractional bits of the first pass, then 3 more for the factor 8.
      const int32_t sample = ((IdctFlatColumn(Dequantize(c[0], static_cast<uint16_t>(quantizer[0]))) + 16) >> 5) + 128;
      const uint8_t level = static_cast<uint8_t>(sample < 0 ? 0 : sample > 255 ? 255 : sample);
      for (int y = 0; y < 8; y++) std::memset(samples + y * pitch, level, 8);
      c[0] = 0;
      return true;
    }
    bool is_exact = true;
    for (int x = 0; x < 8; x++) {
      // Columns first, as in libjpeg: rounding depends on it.
      int32_t column[8];
      for (int y = 0; y < 8; y++) {
        column[y] = Dequantize(c[16 * y + x], static_cast<uint16_t>(quantizer[16 * y + x]));
        c[16 * y + x] = 0;
      }
      // The first row's values must not overflow when they are shifted by two bits, see the note.
      is_exact &= column[0] > -8192 && column[0] < 8192;
      IdctColumn(column, out);
      for (int y = 0; y < 8; y++) v[y][x] = out[y];
    }
    for (int y = 0; y < 8; y++) {
      IdctRow(v[y], out);
      for (int x = 0; x < 8; x++) samples[y * pitch + x] = static_cast<uint8_t>(out[x]);
    }
    return is_exact;
  }
};

// Upsamples samples [begin, end) of a row to twice as many pixels: 3/4 of each sample and 1/4 of its neighbour on the
// pixel's side. The term for rounding is 1 for even pixels and 2 for odd ones, as in
// libjpeg.
void UpsampleH2V1(const uint8_t* row, int begin, int end, uint8_t* pixels) {
  for (int x = begin; x < end; x++) {
    pixels[2 * x] = static_cast<uint8_t>((3 * row[x] + row[x - 1] + 1) >> 2);
    pixels[2 * x + 1] = static_cast<uint8_t>((3 * row[x] + row[x + 1] + 2) >> 2);
  }
}

// Upsamples samples [begin, end) to as many pixels of a row: 3/4 of the near row and 1/4 of the far one, which is the
// row below if `is_lower`.
void UpsampleH1V2(const uint8_t* near, const uint8_t* far, bool is_lower, int begin, int end, uint8_t* pixels) {
  for (int x = begin; x < end; x++) pixels[x] = static_cast<uint8_t>((3 * near[x] + far[x] + 1 + is_lower) >> 2);
}

// Upsamples samples [begin, end) to twice as many pixels of a row, in both directions: the weights are 9/16, 3/16, 3/16
// and 1/16. The term for rounding is 8 for even pixels and 7 for
// odd ones.
void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels) {
  auto sum = [&](int x) { return 3 * near[x] + far[x]; };
  for (int x = begin; x < end; x++) {
    pixels[2 * x] = static_cast<uint8_t>((3 * sum(x) + sum(x - 1) + 8) >> 4);
    pixels[2 * x + 1] = static_cast<uint8_t>((3 * sum(x) + sum(x + 1) + 7) >> 4);
  }
}

// Converts n pixels of three planes to RGB or BGR. Channels are in 16.16 fixed point at first.
void ConvertYcc(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out) {
  const ColorWeights weights = ColorWeights::Make(bgr);
  const uint8_t *first_plane = bgr ? cb : cr, *third_plane = bgr ? cr : cb;
  for (int x = 0; x < n; x++) {
    uint32_t channels[3];
    YccToChannels(weights, y[x], first_plane[x], third_plane[x], channels);
    for (int c = 0; c < 3; c++) out[3 * x + c] = static_cast<uint8_t>(channels[c] >> 16);
  }
}

// Compresses and decompresses blocks of 8 x 8 samples.
void RequantizeBlocks(const Quantizers& quantizers, int64_t pairs, uint8_t* samples, int64_t pitch) {
  for (uint8_t* block = samples; block < samples + 16 * pairs; block += 8) {
    int32_t v[8][8], column[8], out[8];
    for (int y = 0; y < 8; y++) {
      for (int x = 0; x < 8; x++) v[y][x] = block[y * pitch + x] - 128;
      ForwardPass<-2>(v[y]);  // keeps two more bits, which that of columns drops
    }
    for (int x = 0; x < 8; x++) {
      for (int y = 0; y < 8; y++) column[y] = v[y][x];
      ForwardPass<2>(column);
      for (int y = 0; y < 8; y++) {
        const int32_t quantizer = quantizers.quantizer[8 * y + x];
        column[y] = Requantize(column[y], quantizer, Reciprocal(quantizer));
      }
      IdctColumn(column, out);
      for (int y = 0; y < 8; y++) v[y][x] = out[y];
    }
    for (int y = 0; y < 8; y++) {
      IdctRow(v[y], out);
      for (int x = 0; x < 8; x++) block[y * pitch + x] = static_cast<uint8_t>(out[x]);
    }
  }
}

}  // namespace

const Kernels kPortableKernels{DecodeBand<Portable>, DecodeScan<Portable>, TransformBand<Portable>,
                               UpsampleH2V1,         UpsampleH1V2,         UpsampleH2V2,
                               ConvertYcc,           RequantizeBlocks};

// The fastest kernels for this CPU.
const Kernels& BestKernels() {
#if defined(__x86_64__)
  static const bool has_simd = ThisCpu().avx2 && ThisCpu().bmi && ThisCpu().bmi2;
  static const Kernels simd = WithAvx512(kSimdKernels);
  return has_simd ? simd : kPortableKernels;
#elif defined(JAXDALI_VECTORS)
  return kSimdKernels;
#else
  return kPortableKernels;
#endif
}

}  // namespace jaxdali::jpeg
