// CPU kernel of JPEG compression and decompression. Class Distortion goes down an image by rows of minimum coded units:
// it makes planes of luminance and chroma, compresses and decompresses their blocks, and makes pixels again. The
// decoder's kernels do that (jpeg/kernels.h), except for the colours of the input.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ffi/common/simd.h"
#include "ffi/jpeg/kernels.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {
namespace jpeg {
namespace {

// Luminance and chroma of n pixels.
JAXDALI_INLINE void SplitRow(const uint8_t* __restrict rgb, int64_t n, uint8_t* __restrict luminance,
                             uint8_t* __restrict cb, uint8_t* __restrict cr) {
  for (int64_t x = 0; x < n; x++) {
    luminance[x] = static_cast<uint8_t>(Component(/*component=*/0, rgb + 3 * x));
    cb[x] = static_cast<uint8_t>(Component(/*component=*/1, rgb + 3 * x));
    cr[x] = static_cast<uint8_t>(Component(/*component=*/2, rgb + 3 * x));
  }
}
// The means of 2 x 2 samples, n of them. libjpeg's h2v2_downsample adds 1 and 2 in turn.
JAXDALI_INLINE void HalveRows(const uint8_t* __restrict upper, const uint8_t* __restrict lower, int64_t n,
                              uint8_t* __restrict out) {
  for (int64_t x = 0; x < n; x++)
    out[x] = static_cast<uint8_t>(
        (upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1] + 1 + static_cast<int>(x & 1)) >> 2);
}

#if defined(JAXDALI_SIMD)
// For pairs of 16-bit values: a times the first plus b times the second.
JAXDALI_SIMD JAXDALI_INLINE __m256i Madd(__m256i pairs, int a, int b) {
  const uint32_t weights = static_cast<uint16_t>(a) | static_cast<uint32_t>(static_cast<uint16_t>(b)) << 16;
  return _mm256_madd_epi16(pairs, _mm256_set1_epi32(static_cast<int32_t>(weights)));
}
// Component of four pixels and of the four that are 16 pixels farther, in 32 bits. Reads 16 bytes of each four.
JAXDALI_SIMD JAXDALI_INLINE void Components(const uint8_t* rgb, __m256i* luminance, __m256i* cb, __m256i* cr) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rgb)),
                second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rgb + 48));
  const __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  const __m256i rg = _mm256_shuffle_epi8(
      pixels, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1)));
  const __m256i bg = _mm256_shuffle_epi8(
      pixels, _mm256_broadcastsi128_si256(_mm_setr_epi8(2, -1, 1, -1, 5, -1, 4, -1, 8, -1, 7, -1, 11, -1, 10, -1)));
  // 38470 and 32768 do not fit into 16 bits: green has half of its weight in each pair, and chroma is subtracted.
  const __m256i half = _mm256_set1_epi32(32768), middle = _mm256_set1_epi32((128 << 16) + 32767);
  *luminance = _mm256_add_epi32(_mm256_add_epi32(Madd(rg, 19595, 19235), Madd(bg, 7471, 19235)), half);
  *cb = _mm256_sub_epi32(middle, _mm256_add_epi32(Madd(rg, 11059, 21709), Madd(bg, -32768, 0)));
  *cr = _mm256_sub_epi32(middle, _mm256_add_epi32(Madd(rg, -32768, 27439), Madd(bg, 5329, 0)));
}
// Stores the upper halves of 32 values, which are at most 255. The first four registers' lower halves come first.
JAXDALI_SIMD JAXDALI_INLINE void StoreUpper(const __m256i (&v)[4], uint8_t* out) {
  const __m256i a = _mm256_packs_epi32(_mm256_srli_epi32(v[0], 16), _mm256_srli_epi32(v[1], 16)),
                b = _mm256_packs_epi32(_mm256_srli_epi32(v[2], 16), _mm256_srli_epi32(v[3], 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_packus_epi16(a, b));
}
JAXDALI_SIMD void SplitRowSimd(const uint8_t* rgb, int64_t n, uint8_t* luminance, uint8_t* cb, uint8_t* cr) {
  int64_t x = 0;
  for (; x + 34 <= n; x += 32) {  // reads four bytes more than 32 pixels
    __m256i components[3][4];
    for (int i = 0; i < 4; i++)
      Components(rgb + 3 * (x + 4 * i), &components[0][i], &components[1][i], &components[2][i]);
    StoreUpper(components[0], luminance + x);
    StoreUpper(components[1], cb + x);
    StoreUpper(components[2], cr + x);
  }
  SplitRow(rgb + 3 * x, n - x, luminance + x, cb + x, cr + x);
}
JAXDALI_SIMD void HalveRowsSimd(const uint8_t* upper, const uint8_t* lower, int64_t n, uint8_t* out) {
  HalveRows(upper, lower, n, out);
}
#else
constexpr bool kHasSimd = false;
constexpr auto SplitRowSimd = SplitRow;
constexpr auto HalveRowsSimd = HalveRows;
#endif

// Rows of samples, of which the last few are kept. Each has a margin on both sides.
class Plane {
 public:
  Plane(int64_t width, int64_t rows)
      : pitch_(width + 2 * kRowMargin), rows_(rows), samples_(static_cast<size_t>(pitch_ * rows)) {}

  int64_t pitch() const { return pitch_; }
  uint8_t* Row(int64_t y) { return samples_.data() + y % rows_ * pitch_ + kRowMargin; }

 private:
  int64_t pitch_, rows_;
  std::vector<uint8_t> samples_;
};

// One sample. Planes have two rows of units, because a pixel depends on the chroma of the units above and below.
class Distortion {
 public:
  explicit Distortion(const JpegDistortionArgs& a)
      : a_(a),
        kernels_(BestKernels()),
        quantizers_{Quantizers(a.tables), Quantizers(a.tables + 64)},
        luminance_(Width(), 32),
        chroma_{Plane(Width() / 2, 16), Plane(Width() / 2, 16)},
        wide_{Plane(Width(), 2), Plane(Width(), 2)} {}

  void Run() {
    for (int64_t frame = 0; frame < a_.frames; frame++) {
      const int64_t first = frame * a_.height * a_.width * 3;
      int64_t y = 0;
      for (int64_t unit = 0; unit < a_.down; unit++) {
        Split(a_.in + first, unit);
        Requantize(unit);
        // The last row of the units needs those below.
        for (const int64_t end = unit + 1 < a_.down ? 16 * unit + 15 : a_.height; y < end; y++)
          PutRow(y, a_.out + first + y * a_.width * 3);
      }
    }
  }

 private:
  // Samples of a row: of units, and an even number of them, because blocks come in pairs.
  int64_t Width() const { return (a_.across + 1) / 2 * 32; }

  // Makes the samples of a row of units. Beyond the image its outermost pixels repeat; at the bottom the last row of
  // chroma does, as in libjpeg.
  void Split(const uint8_t* image, int64_t unit) {
    const int64_t bottom = a_.height - 1, width = Width();
    for (int64_t y = 16 * unit; y < 16 * unit + 16; y++) {
      if (y > bottom + 1 - bottom % 2) {
        std::memcpy(luminance_.Row(y), luminance_.Row(bottom), static_cast<size_t>(width));
        for (Plane& chroma : chroma_)
          if (y % 2) std::memcpy(chroma.Row(y / 2), chroma.Row(bottom / 2), static_cast<size_t>(width / 2));
        continue;
      }
      uint8_t* const rows[3] = {luminance_.Row(y), wide_[0].Row(y), wide_[1].Row(y)};
      (kHasSimd ? SplitRowSimd : SplitRow)(image + std::min(y, bottom) * a_.width * 3, a_.width, rows[0], rows[1],
                                           rows[2]);
      for (uint8_t* row : rows) std::fill(row + a_.width, row + width, row[a_.width - 1]);
      for (int i = 0; i < 2 && y % 2; i++)
        (kHasSimd ? HalveRowsSimd : HalveRows)(wide_[i].Row(0), wide_[i].Row(1), width / 2, chroma_[i].Row(y / 2));
    }
  }

  // Compresses and decompresses a row of units.
  void Requantize(int64_t unit) {
    for (int64_t y = 16 * unit; y < 16 * unit + 16; y += 8)
      kernels_.requantize(quantizers_[0], a_.across, luminance_.Row(y), luminance_.pitch());
    const int64_t columns = (a_.width + 1) / 2;
    for (Plane& chroma : chroma_) {
      kernels_.requantize(quantizers_[1], (a_.across + 1) / 2, chroma.Row(8 * unit), chroma.pitch());
      for (int64_t y = 8 * unit; y < 8 * unit + 8; y++) {  // upsampling needs the neighbours of the outermost samples
        uint8_t* row = chroma.Row(y);
        row[-1] = row[0];
        row[columns] = row[columns - 1];
      }
    }
  }

  // Makes a row of pixels. Chroma is interpolated as by libjpeg's "fancy upsampling" (h2v2), except that of narrow
  // images, which libjpeg repeats.
  void PutRow(int64_t y, uint8_t* to) {
    const int64_t columns = (a_.width + 1) / 2, near = y / 2;
    const int64_t far = std::clamp<int64_t>(y % 2 ? near + 1 : near - 1, 0, (a_.height - 1) / 2);
    for (int i = 0; i < 2; i++) {
      uint8_t *row = chroma_[i].Row(near), *pixels = wide_[i].Row(0);
      if (columns > 2)
        kernels_.upsample_h2v2(row, chroma_[i].Row(far), 0, static_cast<int>(columns), pixels);
      else
        for (int64_t x = 0; x < a_.width; x++) pixels[x] = row[x / 2];
    }
    kernels_.convert_ycc(luminance_.Row(y), wide_[0].Row(0), wide_[1].Row(0), static_cast<int>(a_.width),
                         /*bgr=*/false, to);
  }

  const JpegDistortionArgs& a_;
  const Kernels& kernels_;
  Quantizers quantizers_[2];  // of luminance and chroma
  Plane luminance_, chroma_[2];
  Plane wide_[2];  // two rows of chroma, as wide as the luminance
};

}  // namespace
}  // namespace jpeg

// The CPU kernel: makes sample i of the output.
Status JpegDistortion(const JpegDistortionBatch& batch, int i) {
  JpegDistortionArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (a.Units() == 0) return kOk;
  jpeg::Distortion(a).Run();
  return kOk;
}

}  // namespace jaxdali
