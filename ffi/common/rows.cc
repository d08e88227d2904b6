// Conversion of rows, for each element type in two versions of the same source: with vectors (struct Simd) and for any
// CPU (struct Portable). LoadAny and StoreAny choose at run time.
#include "ffi/common/rows.h"

#include "ffi/common/simd.h"

namespace jaxdali {
namespace {

// An element as a number: 16-bit floats convert by way of float.
template <class T, class V>
JAXDALI_INLINE V Number(T v) {
  if constexpr (kIsSmallFloat<T>)
    return static_cast<V>(static_cast<float>(v));
  else
    return static_cast<V>(v);
}

// Loads n elements, `step` elements apart, as numbers.
template <class T, class V>
JAXDALI_INLINE void Load(const T* from, int64_t step, int64_t n, V* to) {
  switch (step) {  // constant steps become shuffles
    case 1:
      for (int64_t i = 0; i < n; i++) to[i] = Number<T, V>(from[i]);
      return;
    case -1:
      for (int64_t i = 0; i < n; i++) to[i] = Number<T, V>(from[-i]);
      return;
    default:
      for (int64_t i = 0; i < n; i++) to[i] = Number<T, V>(from[i * step]);
  }
}

template <class T, class V>
JAXDALI_INLINE void Store(const V* from, int64_t n, T* to) {
  for (int64_t i = 0; i < n; i++) to[i] = ConvertTo<T>(from[i]);
}

// For any CPU.
template <class T, class V>
struct Portable {
  static void Load(const T* from, int64_t step, int64_t n, V* to) { jaxdali::Load(from, step, n, to); }
  static void Store(const V* from, int64_t n, T* to) { jaxdali::Store(from, n, to); }
};

#if defined(JAXDALI_SIMD)

// One channel of packed RGB pixels as floats: every third byte, forwards or, with step -3, backwards. Eight elements
// come from 24 bytes, which two registers that overlap contain. Returns the number of elements that it loaded.
JAXDALI_SIMD JAXDALI_INLINE int64_t LoadThirds(const uint8_t* from, int64_t step, int64_t n, float* to) {
  if (n < 16) return 0;
  const bool back = step < 0;
  // For each element its byte in the register: six elements are in one register, the last two in the other.
  const __m128i low = back ? _mm_setr_epi8(15, 12, 9, 6, 3, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)
                           : _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i high = back ? _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 5, 2, -1, -1, -1, -1, -1, -1, -1, -1)
                            : _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1);
  int64_t i = 0;
  for (; i + 9 <= n; i += 8) {  // reads no byte beyond the last element
    const uint8_t* p = from + i * step;
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(back ? p - 15 : p));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(back ? p - 23 : p + 8));
    const __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(a, low), _mm_shuffle_epi8(b, high));
    _mm256_storeu_ps(to + i, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
  }
  return i;
}

// ConvertTo<T> of eight floats, where T is an integer of at most 16 bits. Compilers do not vectorize it, because its
// comparisons may trap.
template <class T>
JAXDALI_SIMD JAXDALI_INLINE void StoreEight(const float* from, T* to) {
  // NaN becomes 0. Then saturation, and rounding by the fraction: -1 of a true comparison is subtracted or added.
  __m256 v = _mm256_loadu_ps(from);
  v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
  v = _mm256_max_ps(v, _mm256_set1_ps(std::numeric_limits<T>::min()));
  v = _mm256_min_ps(v, _mm256_set1_ps(std::numeric_limits<T>::max()));
  __m256i whole = _mm256_cvttps_epi32(v);
  const __m256 rest = _mm256_sub_ps(v, _mm256_cvtepi32_ps(whole));
  whole = _mm256_sub_epi32(whole, _mm256_castps_si256(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ)));
  whole = _mm256_add_epi32(whole, _mm256_castps_si256(_mm256_cmp_ps(rest, _mm256_set1_ps(-0.5f), _CMP_LE_OQ)));
  const __m128i low = _mm256_castsi256_si128(whole), high = _mm256_extracti128_si256(whole, 1);
  const __m128i words = std::is_same_v<T, uint16_t> ? _mm_packus_epi32(low, high) : _mm_packs_epi32(low, high);
  if constexpr (sizeof(T) == 2)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
  else
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     std::is_same_v<T, uint8_t> ? _mm_packus_epi16(words, words) : _mm_packs_epi16(words, words));
}

// For AVX2 or NEON. Special cases come first, and the loops that compilers vectorize do the rest.
template <class T, class V>
struct Simd {
  // Loads n elements, `step` elements apart, as numbers.
  JAXDALI_SIMD static void Load(const T* from, int64_t step, int64_t n, V* to) {
    int64_t i = 0;
    if constexpr (std::is_same_v<T, uint8_t> && std::is_same_v<V, float>) {
      if (step == 3 || step == -3) i = LoadThirds(from, step, n, to);
    } else if constexpr (kIsSmallFloat<T> && std::is_same_v<V, float>) {
      if (step == 1)
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, LoadFloats(from + i));
    }
    jaxdali::Load(from + i * step, step, n - i, to + i);
  }
  // Converts n numbers to elements, and stores them.
  JAXDALI_SIMD static void Store(const V* from, int64_t n, T* to) {
    int64_t i = 0;
    if constexpr (kIsSmallFloat<T> && std::is_same_v<V, float>) {
      for (; i + 8 <= n; i += 8) StoreFloats(_mm256_loadu_ps(from + i), to + i);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 2 &&
                         std::is_same_v<V, float>) {
      for (; i + 8 <= n; i += 8) StoreEight(from + i, to + i);
    }
    jaxdali::Store(from + i, n - i, to + i);
  }
};

#endif

// LoadRow for floats and doubles: chooses the element's C++ type and the version for this CPU.
template <class V>
void LoadAny(DType type, const void* array, int64_t first, int64_t step, int64_t n, V* to) {
  WithType(type, [&](auto t) {
    using T = decltype(t);
    const T* from = static_cast<const T*>(array) + first;
#if defined(JAXDALI_SIMD)
    if (kHasSimd) return Simd<T, V>::Load(from, step, n, to);
#endif
    Portable<T, V>::Load(from, step, n, to);
  });
}

// StoreRow for floats and doubles.
template <class V>
void StoreAny(DType type, const V* from, int64_t n, void* array, int64_t first) {
  WithType(type, [&](auto t) {
    using T = decltype(t);
    T* to = static_cast<T*>(array) + first;
#if defined(JAXDALI_SIMD)
    if (kHasSimd) return Simd<T, V>::Store(from, n, to);
#endif
    Portable<T, V>::Store(from, n, to);
  });
}

template <class V>
JAXDALI_INLINE void Scale(const float* scale, const float* offset, int64_t n, V* values) {
  for (int64_t i = 0; i < n; i++) values[i] = values[i] * static_cast<V>(scale[i]) + static_cast<V>(offset[i]);
}
template <class V>
JAXDALI_INLINE void Scale(float scale, float offset, int64_t n, V* values) {
  const V s = scale, o = offset;
  for (int64_t i = 0; i < n; i++) values[i] = values[i] * s + o;
}
#if defined(JAXDALI_SIMD)
template <class P, class V>
JAXDALI_SIMD void ScaleSimd(P scale, P offset, int64_t n, V* values) {
  Scale(scale, offset, n, values);
}
#endif
// ScaleRow for floats and doubles, in the version for this CPU. P is a number, or a pointer to one for each value.
template <class P, class V>
void ScaleAny(P scale, P offset, int64_t n, V* values) {
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return ScaleSimd(scale, offset, n, values);
#endif
  Scale(scale, offset, n, values);
}

}  // namespace

void LoadRow(DType type, const void* array, int64_t first, int64_t step, int64_t n, float* to) {
  LoadAny(type, array, first, step, n, to);
}
void LoadRow(DType type, const void* array, int64_t first, int64_t step, int64_t n, double* to) {
  LoadAny(type, array, first, step, n, to);
}
void StoreRow(DType type, const float* from, int64_t n, void* array, int64_t first) {
  StoreAny(type, from, n, array, first);
}
void StoreRow(DType type, const double* from, int64_t n, void* array, int64_t first) {
  StoreAny(type, from, n, array, first);
}
void ScaleRow(const float* scale, const float* offset, int64_t n, float* values) { ScaleAny(scale, offset, n, values); }
void ScaleRow(const float* scale, const float* offset, int64_t n, double* values) {
  ScaleAny(scale, offset, n, values);
}
void ScaleRow(float scale, float offset, int64_t n, float* values) { ScaleAny(scale, offset, n, values); }
void ScaleRow(float scale, float offset, int64_t n, double* values) { ScaleAny(scale, offset, n, values); }

}  // namespace jaxdali
