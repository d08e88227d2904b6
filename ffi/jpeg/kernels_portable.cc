// For all kinds of CPUs.
#include "ffi/common/cpu.h"
#include "ffi/jpeg/color.h"
#include "ffi/jpeg/idct.h"
#include "ffi/jpeg/kernels.h"

namespace jaxdali::jpeg {
namespace {

struct Portable {
  static JAXDALI_INLINE uint32_t Cut(uint64_t window, uint32_t which) { return CutBits(window, which); }
  static JAXDALI_INLINE uint64_t Deposit(uint64_t bits, uint64_t which) { return DepositBits(bits, which); }

  // Note [Large values]. Returns false if a value of the first row is so large that libjpeg-turbo's result depends on a
  // special case of its code, which shifts the values of a block of one row without saturation. Only damaged files have
  // such values.
  static bool Transform(int16_t* coefficients, const int16_t* quantizer, int last, uint8_t* samples, int64_t pitch) {
    bool sane = true;
    for (int half = 0; half < 2; half++)
      sane &= TransformOne(coefficients + 8 * half, quantizer + 8 * half, last, samples + 8 * half, pitch);
    return sane;
  }

  static bool ToSixteen(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
    bool sane = ToSixteenOfOne(c, quantizer, samples, pitch);
    sane &= ToSixteenOfOne(c + 8, quantizer + 8, samples + 4, pitch);
    return sane;
  }
  static bool ToFour(int16_t* c, const int16_t* quantizer, uint8_t* samples, int64_t pitch) {
    bool sane = ToFourOfOne(c, quantizer, samples, pitch);
    sane &= ToFourOfOne(c + 8, quantizer + 8, samples + 2, pitch);
    return sane;
  }
  static bool ToOne(int16_t* c, const int16_t* quantizer, uint8_t* samples) {
    bool sane = ToOneOfOne(c, quantizer, samples);
    sane &= ToOneOfOne(c + 8, quantizer + 8, samples + 1);
    std::memset(c, 0, kPairDump * sizeof *c);
    return sane;
  }

 private:
  static bool TransformOne(int16_t* c, const int16_t* quantizer, int last, uint8_t* samples, int64_t pitch) {
    int32_t v[8][8], out[8];
    if (last == 0) {
      const int32_t s = ((IdctFlatColumn(Dequantize(c[0], static_cast<uint16_t>(quantizer[0]))) + 16) >> 5) + 128;
      const uint8_t level = static_cast<uint8_t>(s < 0 ? 0 : s > 255 ? 255 : s);
      for (int y = 0; y < 8; y++) std::memset(samples + y * pitch, level, 8);
      c[0] = 0;
      return true;
    }
    bool sane = true;
    for (int x = 0; x < 8; x++) {
      int32_t column[8];
      for (int y = 0; y < 8; y++) {
        column[y] = Dequantize(c[16 * y + x], static_cast<uint16_t>(quantizer[16 * y + x]));
        c[16 * y + x] = 0;
      }
      sane &= column[0] > -8192 && column[0] < 8192;
      IdctColumn(column, out);
      for (int y = 0; y < 8; y++) v[y][x] = out[y];
    }
    for (int y = 0; y < 8; y++) {
      IdctRow(v[y], out);
      for (int x = 0; x < 8; x++) samples[y * pitch + x] = static_cast<uint8_t>(out[x]);
    }
    return sane;
  }
};

void UpsampleH2V1(const uint8_t* row, int begin, int end, uint8_t* pixels) {
  for (int x = begin; x < end; x++) {
    pixels[2 * x] = static_cast<uint8_t>((3 * row[x] + row[x - 1] + 1) >> 2);
    pixels[2 * x + 1] = static_cast<uint8_t>((3 * row[x] + row[x + 1] + 2) >> 2);
  }
}

void UpsampleH1V2(const uint8_t* near, const uint8_t* far, bool is_lower, int begin, int end, uint8_t* pixels) {
  for (int x = begin; x < end; x++) pixels[x] = static_cast<uint8_t>((3 * near[x] + far[x] + 1 + is_lower) >> 2);
}

void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels) {
  auto sum = [&](int x) { return 3 * near[x] + far[x]; };
  for (int x = begin; x < end; x++) {
    pixels[2 * x] = static_cast<uint8_t>((3 * sum(x) + sum(x - 1) + 8) >> 4);
    pixels[2 * x + 1] = static_cast<uint8_t>((3 * sum(x) + sum(x + 1) + 7) >> 4);
  }
}

void ConvertYcc(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out) {
  const ColorWeights weights = ColorWeights::Make(bgr);
  const uint8_t *first = bgr ? cb : cr, *third = bgr ? cr : cb;
  for (int x = 0; x < n; x++) {
    uint32_t channels[3];
    YccToChannels(weights, y[x], first[x], third[x], channels);
    for (int c = 0; c < 3; c++) out[3 * x + c] = static_cast<uint8_t>(channels[c] >> 16);
  }
}

}  // namespace

const Kernels kPortableKernels{DecodeBand<Portable>,
                               DecodeScan<Portable>,
                               TransformBand<Portable>,
                               UpsampleH2V1,
                               UpsampleH1V2,
                               UpsampleH2V2,
                               ConvertYcc};

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
