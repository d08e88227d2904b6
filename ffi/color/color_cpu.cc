// CPU kernel of the linear map of channels. Color chooses one of three paths:
//
//   ByTable    one channel of bytes: a table of all 256 results
//   MapBytes   RGB bytes to RGB bytes: 16 pixels at a time with AVX2 or NEON
//   Map        all else: kRow pixels at a time, converted to planes of float or double
//
// All add products in the same order as the CUDA kernel, so results are equal to the bit.
#include <algorithm>
#include <cstring>

#include "ffi/color/color.h"
#include "ffi/common/pixels.h"
#include "ffi/common/rows.h"
#include "ffi/common/simd.h"

namespace jaxdali {
namespace {

// Maps n pixels: in[k][i] is channel k of pixel i, `out` has interleaved channels. `plane` is memory for n numbers.
template <class V>
JAXDALI_INLINE void Map(const float* matrix, int in_channels, int out_channels, const V (*in)[kRow], int64_t n,
                        V* plane, V* out) {
  for (int c = 0; c < out_channels; c++) {
    const float* m = matrix + c * (in_channels + 1);
    V* to = out_channels == 1 ? out : plane;
    const V first = m[0], offset = m[in_channels];
    if (in_channels == 3) {  // one pass, with the same order of operations
      const V second = m[1], third = m[2];
      for (int64_t i = 0; i < n; i++) to[i] = in[0][i] * first + in[1][i] * second + in[2][i] * third + offset;
    } else {
      for (int64_t i = 0; i < n; i++) to[i] = in[0][i] * first;
      for (int k = 1; k < in_channels; k++) {
        const V factor = m[k];
        for (int64_t i = 0; i < n; i++) to[i] += in[k][i] * factor;
      }
      for (int64_t i = 0; i < n; i++) to[i] += offset;
    }
    if (out_channels == 3)
      for (int64_t i = 0; i < n; i++) out[i * 3 + c] = plane[i];
    else if (out_channels > 1)
      for (int64_t i = 0; i < n; i++) out[i * out_channels + c] = plane[i];
  }
}

#if defined(JAXDALI_SIMD)
template <class V>
JAXDALI_SIMD void MapSimd(const float* matrix, int in_channels, int out_channels, const V (*in)[kRow], int64_t n,
                          V* plane, V* out) {
  Map(matrix, in_channels, out_channels, in, n, plane, out);
}

// Maps pixels of three bytes, sixteen at a time, with the operations of Map in the same order. Returns the number of
// pixels that it has mapped; fewer than sixteen are left.
JAXDALI_SIMD int64_t MapBytes(const float* matrix, const uint8_t* in, int64_t pixels, uint8_t* out) {
  int64_t p = 0;
  for (; p + 16 <= pixels; p += 16) {
    const Planes planes = SplitPixels(in + 3 * p);
    __m256 v[3][2];
    for (int c = 0; c < 3; c++) {
      v[c][0] = EightFloats(planes.plane[c]);
      v[c][1] = EightFloats(_mm_unpackhi_epi64(planes.plane[c], planes.plane[c]));
    }
    Planes mapped;
    for (int c = 0; c < 3; c++) {
      const float* m = matrix + 4 * c;
      const __m256 first = _mm256_set1_ps(m[0]), second = _mm256_set1_ps(m[1]), third = _mm256_set1_ps(m[2]);
      __m256i whole[2];
      for (int h = 0; h < 2; h++) {
        __m256 sum = _mm256_add_ps(_mm256_mul_ps(v[0][h], first), _mm256_mul_ps(v[1][h], second));
        sum = _mm256_add_ps(sum, _mm256_mul_ps(v[2][h], third));
        whole[h] = RoundToBytes(_mm256_add_ps(sum, _mm256_set1_ps(m[3])));
      }
      // packs works in each lane of 128 bits; 0xD8 brings its 64-bit parts into the order 0 2 1 3.
      const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole[0], whole[1]), 0xD8);
      mapped.plane[c] = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    }
    JoinPixels(mapped, out + 3 * p);
  }
  return p;
}
#endif

// Maps all pixels of sample i. V: float or double.
template <class V>
void Colors(const ColorBatch& b, int i, int64_t pixels) {
  V in[kMaxColors][kRow], out[kMaxColors * kRow], plane[kRow];
  int64_t p = 0;
#if defined(JAXDALI_SIMD)
  if (kHasSimd && b.in.dtype == DType::kU8 && b.out.dtype == DType::kU8 && b.in_channels == 3 && b.out_channels == 3)
    p = MapBytes(b.Matrix(i), b.in.bytes(i), pixels, b.out.bytes(i));
#endif
  for (; p < pixels; p += kRow) {
    const int64_t n = std::min(kRow, pixels - p);
    for (int c = 0; c < b.in_channels; c++)
      LoadRow(b.in.dtype, b.in.bytes(i), p * b.in_channels + c, b.in_channels, n, in[c]);
#if defined(JAXDALI_SIMD)
    if (kHasSimd)
      MapSimd<V>(b.Matrix(i), b.in_channels, b.out_channels, in, n, plane, out);
    else
#endif
      Map<V>(b.Matrix(i), b.in_channels, b.out_channels, in, n, plane, out);
    StoreRow(b.out.dtype, out, n * b.out_channels, b.out.bytes(i), p * b.out_channels);
  }
}

// Maps the n bytes of sample i, which has one channel, through a table of all 256 values.
void ByTable(const ColorBatch& b, int i, int64_t n) {
  const float factor = b.Matrix(i)[0], offset = b.Matrix(i)[1];
  const uint8_t* from = b.in.bytes(i);
  // Makes the table and looks up all bytes, with the output's C++ type.
  WithType(b.out.dtype, [&](auto t) {
    using T = decltype(t);
    T table[256], *to = reinterpret_cast<T*>(b.out.bytes(i));
    for (int v = 0; v < 256; v++) {
      const float product = static_cast<float>(v) * factor;
      table[v] = ConvertTo<T>(product + offset);
    }
    int64_t k = 0;
    for (; k + 8 <= n; k += 8) {  // reads all before writing one: uint8_t may alias the table
      T eight[8];
      for (int e = 0; e < 8; e++) eight[e] = table[from[k + e]];
      std::memcpy(to + k, eight, sizeof eight);
    }
    for (; k < n; k++) to[k] = table[from[k]];
  });
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Color(const ColorBatch& batch, int i) {
  const int64_t pixels = batch.Pixels(i);
  if (pixels < 0) return kInternal;
  if (batch.in.dtype == DType::kU8 && batch.in_channels == 1 && batch.out_channels == 1)
    ByTable(batch, i, pixels);
  else if (FitsFloat(batch.in.dtype))
    Colors<float>(batch, i, pixels);
  else
    Colors<double>(batch, i, pixels);
  return kOk;
}

}  // namespace jaxdali
