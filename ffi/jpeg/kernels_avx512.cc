// The kernels that are faster with AVX-512 and its byte permutations (VBMI) than those of kernels_simd.cc, whose steps
// they follow with registers of twice the size: upsampling in both directions, and colours.
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // for operands that GCC's own intrinsics leave undefined
#endif

#include "ffi/common/cpu.h"
#include "ffi/common/vectors.h"
#include "ffi/jpeg/kernels.h"

#define JAXDALI_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vnni,bmi,bmi2")))

namespace jaxdali::jpeg {
namespace {

JAXDALI_VBMI JAXDALI_INLINE __m512i Widen(const uint8_t* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
JAXDALI_VBMI JAXDALI_INLINE __m512i Set16(int v) { return _mm512_set1_epi16(static_cast<int16_t>(v)); }
JAXDALI_VBMI JAXDALI_INLINE __m512i Triple(__m512i v) { return _mm512_add_epi16(v, _mm512_add_epi16(v, v)); }

// Upsamples samples [begin, end) to twice as many pixels of a row, in both directions. The sums of rows are computed
// first for a whole piece, because widening bytes and shifting them by one column would cost more.
JAXDALI_VBMI void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int begin, int end, uint8_t* pixels) {
  // A piece's sums stay in the L1 cache.
  constexpr int kPiece = 512;
  alignas(64) uint16_t sums[kPiece + 96];  // for the piece and one column on each side
  for (int x = begin; x < end; x += kPiece) {
    const int n = end - x < kPiece ? end - x : kPiece;
    for (int i = 0; i < n + 2; i += 32)
      _mm512_store_si512(sums + i, _mm512_add_epi16(Triple(Widen(near + x + i - 1)), Widen(far + x + i - 1)));
    for (int i = 0; i < n; i += 32) {
      const __m512i left = _mm512_load_si512(sums + i), right = _mm512_loadu_si512(sums + i + 2);
      const __m512i three = Triple(_mm512_loadu_si512(sums + i + 1));
      const __m512i even = _mm512_srli_epi16(_mm512_add_epi16(_mm512_add_epi16(three, left), Set16(8)), 4);
      const __m512i odd = _mm512_srli_epi16(_mm512_add_epi16(_mm512_add_epi16(three, right), Set16(7)), 4);
      _mm512_storeu_si512(pixels + 2 * (x + i), _mm512_or_si512(even, _mm512_slli_epi16(odd, 8)));
    }
  }
}

struct Channels {
  __m512i r, g, b;
};

// Thirty-two pixels. Luminance is 0 to 255, chroma -128 to 127. As in kernels_simd.cc, 1.402 is 2 - 19596 / 32768 and
// 1.772 is 2 - 7471 / 32768, which a rounding multiplication takes.
JAXDALI_VBMI JAXDALI_INLINE Channels YccToRgb(__m512i y, __m512i cb, __m512i cr) {
  const __m512i red = _mm512_add_epi16(_mm512_add_epi16(cr, cr), _mm512_mulhrs_epi16(cr, Set16(-19596)));
  const __m512i blue = _mm512_add_epi16(_mm512_add_epi16(cb, cb), _mm512_mulhrs_epi16(cb, Set16(-7471)));
  const __m512i half = _mm512_set1_epi32(32768);
  // The weights of Cb and Cr in green as two 16-bit numbers; -46802 is replaced by 18734 (see kernels_simd.cc).
  const __m512i weights = _mm512_set1_epi32(static_cast<int32_t>((65536u - 46802u) << 16 | (65536u - 22554u)));
  const __m512i low = _mm512_dpwssd_epi32(half, _mm512_unpacklo_epi16(cb, cr), weights);
  const __m512i high = _mm512_dpwssd_epi32(half, _mm512_unpackhi_epi16(cb, cr), weights);
  const __m512i green = _mm512_packs_epi32(_mm512_srai_epi32(low, 16), _mm512_srai_epi32(high, 16));
  return {_mm512_add_epi16(y, red), _mm512_add_epi16(y, _mm512_sub_epi16(green, cr)), _mm512_add_epi16(y, blue)};
}

// Maps byte j of 192 to its pixel, as an index into 64 values of a channel that alternate between eight even and eight
// odd pixels.
struct PixelOf {
  alignas(64) uint8_t pixel_of_byte[192];
  constexpr PixelOf() : pixel_of_byte{} {
    for (int j = 0; j < 192; j++)
      pixel_of_byte[j] = static_cast<uint8_t>(j / 48 * 16 + (j / 3 & 1) * 8 + j / 3 % 16 / 2);
  }
};
constexpr PixelOf kPixelOf;
// The bytes of 64 whose number is 0, 1 or 2 modulo 3: a bit for each.
constexpr uint64_t kThird[3] = {0x9249249249249249, 0x2492492492492492, 0x4924924924924924};

// Part kPart, 64 bytes, of the 192 bytes of 64 pixels.
template <int kPart>
JAXDALI_VBMI JAXDALI_INLINE __m512i Interleave(__m512i first, __m512i second, __m512i third) {
  // Byte j belongs to channel j % 3. Part kPart begins at byte 64 * kPart, which is kPart modulo 3.
  const __m512i order = _mm512_load_si512(kPixelOf.pixel_of_byte + 64 * kPart);
  const __m512i with_first = _mm512_permutexvar_epi8(order, first);  // 64 is one more than a multiple of 3
  const __m512i with_second = _mm512_mask_permutexvar_epi8(with_first, kThird[(4 - kPart) % 3], order, second);
  return _mm512_mask_permutexvar_epi8(with_second, kThird[(5 - kPart) % 3], order, third);
}

// Stores the first n of 64 bytes.
JAXDALI_VBMI JAXDALI_INLINE void Store(uint8_t* to, int n, __m512i v) {
  if (n >= 64)
    _mm512_storeu_si512(to, v);
  else if (n > 0)
    _mm512_mask_storeu_epi8(to, ~uint64_t{0} >> (64 - n), v);
}

// Converts n pixels of three planes to RGB or BGR: 64 pixels, 192 bytes, at a time.
JAXDALI_VBMI void ConvertYcc(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, bool bgr, uint8_t* out) {
  const __m512i byte = Set16(255), middle = Set16(128);
  for (int x = 0; x < n; x += 64) {
    // Even and odd bytes become two registers of 16-bit values.
    const __m512i y64 = _mm512_loadu_si512(y + x), cb64 = _mm512_loadu_si512(cb + x), cr64 = _mm512_loadu_si512(cr + x);
    const Channels even_pixels =
        YccToRgb(_mm512_and_si512(y64, byte), _mm512_sub_epi16(_mm512_and_si512(cb64, byte), middle),
                 _mm512_sub_epi16(_mm512_and_si512(cr64, byte), middle));
    const Channels odd_pixels =
        YccToRgb(_mm512_srli_epi16(y64, 8), _mm512_sub_epi16(_mm512_srli_epi16(cb64, 8), middle),
                 _mm512_sub_epi16(_mm512_srli_epi16(cr64, 8), middle));
    const __m512i red = _mm512_packus_epi16(even_pixels.r, odd_pixels.r),
                  green = _mm512_packus_epi16(even_pixels.g, odd_pixels.g),
                  blue = _mm512_packus_epi16(even_pixels.b, odd_pixels.b);
    const __m512i first = bgr ? blue : red, third = bgr ? red : blue;
    uint8_t* const to = out + 3 * x;
    const int bytes = 3 * (n - x);
    Store(to, bytes, Interleave<0>(first, green, third));
    Store(to + 64, bytes - 64, Interleave<1>(first, green, third));
    Store(to + 128, bytes - 128, Interleave<2>(first, green, third));
  }
}

}  // namespace

// Replaces the kernels that are faster here, if this CPU has all extensions that they need.
Kernels WithAvx512(Kernels kernels) {
  if (!ThisCpu().avx512_for_bytes()) return kernels;
  kernels.upsample_h2v2 = UpsampleH2V2;
  kernels.convert_ycc = ConvertYcc;
  return kernels;
}

}  // namespace jaxdali::jpeg

#endif  // defined(__x86_64__)
