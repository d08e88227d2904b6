// CPU kernel of the patches. A patch is made row by row in its own order. Where the output is large, it is made in the
// cache, and then written past the caches at once.
//
//   SplitRows   RGB pixels of bytes become the rows of planes: with AVX2 or NEON, each pixel is read once
//   ScaleRows   bytes in the order of the input, with AVX2 or NEON
//   Row         all others
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ffi/common/pixels.h"
#include "ffi/common/rows.h"
#include "ffi/patchify/patchify.h"

namespace jaxdali {
namespace {

#if defined(JAXDALI_SIMD)

// StoreFloats of numbers that are not NaN.
JAXDALI_SIMD JAXDALI_INLINE void StoreNumbers(__m256 v, BFloat16* to) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i upper = _mm256_srli_epi32(sum, 16);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}

// Eight bytes as elements of type V, scaled unless `kCopies`. No result is NaN.
template <bool kCopies, class V>
JAXDALI_SIMD JAXDALI_INLINE void StoreEight(__m128i bytes, __m256 scale, __m256 offset, V* to) {
  if constexpr (kCopies) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
  } else {
    const __m256 v = _mm256_add_ps(_mm256_mul_ps(EightFloats(bytes), scale), offset);
    if constexpr (std::is_same_v<V, float>) {
      _mm256_storeu_ps(to, v);
    } else if constexpr (std::is_same_v<V, BFloat16>) {
      StoreNumbers(v, to);
    } else if constexpr (std::is_same_v<V, Half>) {
      StoreFloats(v, to);
    } else {
      const __m256i whole = RoundToBytes(v);
      const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
    }
  }
}

// Bytes k to k + 7 of sixteen, where k is at most 8.
JAXDALI_SIMD JAXDALI_INLINE __m128i EightFrom(__m128i bytes, int64_t k) {
  static constexpr int8_t kOrder[24] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                        12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1};
  return _mm_shuffle_epi8(bytes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kOrder + k)));
}

// Makes rows of n >= 8 pixels RGB, `in_row` bytes apart, to rows of planes. `end`: of the input, beyond which nothing
// is read. Steps are in elements.
template <bool kCopies, class V>
JAXDALI_SIMD void SplitRows(const uint8_t* in, int64_t in_row, const uint8_t* end, int64_t rows, int64_t n,
                            const float* scale, const float* offset, V* to, int64_t row, int64_t plane) {
  const int64_t second = std::min<int64_t>(n, 16) - 8;  // pixel of a piece at which its second eight begin
  for (; rows > 0; rows--, in += in_row, to += row) {
    // Pieces of sixteen pixels, or one of eight to fifteen. The last piece overlaps with the one before it.
    for (int64_t x = 0;; x = std::min(x + 16, n - 16)) {
      const uint8_t* from = in + 3 * x;
      uint8_t few[48];
      if (end - from < 48) {
        std::memcpy(few, from, static_cast<size_t>(3 * (second + 8)));
        from = few;
      }
      const Planes planes = SplitPixels(from);
      for (int c = 0; c < 3; c++) {
        const __m256 factor = _mm256_set1_ps(scale[c]), shift = _mm256_set1_ps(offset[c]);
        V* const out = to + c * plane + x;
        StoreEight<kCopies>(planes.plane[c], factor, shift, out);
        StoreEight<kCopies>(EightFrom(planes.plane[c], second), factor, shift, out + second);
      }
      if (x + 16 >= n) break;
    }
  }
}

// Scales rows of n >= 8 bytes, `in_row` bytes apart. There is a scale and an offset for each byte of a row.
template <class V>
JAXDALI_SIMD void ScaleRows(const uint8_t* in, int64_t in_row, int64_t rows, int64_t n, const float* scale,
                            const float* offset, V* to, int64_t row) {
  for (; rows > 0; rows--, in += in_row, to += row)
    for (int64_t i = 0;; i = std::min(i + 8, n - 8)) {  // the last eight overlap with those before them
      StoreEight<false>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i)), _mm256_loadu_ps(scale + i),
                        _mm256_loadu_ps(offset + i), to + i);
      if (i + 8 >= n) break;
    }
}

#endif

#if defined(__x86_64__)
// Copies n bytes past the caches, if they are whole words: such writes do not read the memory first.
__attribute__((target("avx2"))) void CopyPastCaches(const uint8_t* from, int64_t n, uint8_t* to) {
  if ((reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(n)) % 4 != 0) {
    std::memcpy(to, from, static_cast<size_t>(n));
    return;
  }
  int64_t i = 0;
  auto copy_words = [&](int64_t end) {
    for (; i < end; i += 4) {
      int word;
      std::memcpy(&word, from + i, 4);
      _mm_stream_si32(reinterpret_cast<int*>(to + i), word);
    }
  };
  copy_words(std::min<int64_t>(n, -reinterpret_cast<uintptr_t>(to) & 31));  // up to the first aligned vector
  for (; i + 32 <= n; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  copy_words(n);
}
#endif

// Makes the patches of one sample, of elements V. `kCopies`: bytes are copied.
template <bool kCopies, class V>
class PatchMaker {
 public:
  PatchMaker(const PatchifyBatch& batch, const PatchifyArgs& args, const void* in)
      : batch_(batch),
        a_(args),
        in_(static_cast<const uint8_t*>(in)),
        end_(in_ + a_.frames * a_.height * a_.width * a_.channels * SizeOf(batch.in.dtype)),
        interleaved_(a_.channels <= kRow && a_.stride[kPatchColumn] == a_.channels &&
                     (a_.channels == 1 || a_.stride[kPatchChannel] == 1)),
        most_(interleaved_ ? kRow / a_.channels * a_.channels : std::min(a_.channels, kRow)) {
#if defined(JAXDALI_SIMD)
    has_vectors_ = kHasSimd && batch.in.dtype == DType::kU8;
#endif
    for (int64_t k = 0; k < most_; k++) {
      scale_[k] = a_.scales > 0 ? a_.Scale(k % a_.channels) : 1;
      offset_[k] = a_.scales > 0 ? a_.Offset(k % a_.channels) : 0;
      has_vectors_ = has_vectors_ && std::isfinite(255 * std::fabs(scale_[k]) + std::fabs(offset_[k]));
    }
  }

  // Makes the patches in the order of their tokens, and fills the rest with zeros.
  void MakeAll() const {
    V* to = reinterpret_cast<V*>(a_.out);
    const int64_t h = a_.extent[kPatchRow], w = a_.extent[kPatchColumn], m = a_.merge;
    for (int64_t time = 0; time < a_.times; time++)
      for (int64_t row = 0; row < a_.rows; row += m)
        for (int64_t column = 0; column < a_.columns; column += m)
          for (int64_t k = 0; k < m * m; k++, to += a_.size)
            Write(time * a_.extent[kPatchFrame], (row + k / m) * h, (column + k % m) * w, to);
#if defined(__x86_64__)
    if (batch_.past_caches) _mm_sfence();  // makes the data visible before anyone is told
#endif
    std::memset(to, 0, static_cast<size_t>((a_.written - a_.tokens) * a_.size) * sizeof(V));
  }

 private:
  // Writes the patch that begins with frame `time` and pixel (x, y) of it.
  void Write(int64_t time, int64_t y, int64_t x, V* to) const {
#if defined(__x86_64__)
    constexpr int64_t kMost = 32 << 10;  // bytes of a patch, which is in the L1 cache before it is written
    const int64_t bytes = a_.size * int64_t{sizeof(V)};
    if (kHasSimd && batch_.past_caches && bytes <= kMost) {
      alignas(64) V patch[kMost / sizeof(V)];
      Make(time, y, x, patch);
      return CopyPastCaches(reinterpret_cast<const uint8_t*>(patch), bytes, reinterpret_cast<uint8_t*>(to));
    }
#endif
    Make(time, y, x, to);
  }

  void Make(int64_t time, int64_t y, int64_t x, V* to) const {
    const int64_t frame = a_.stride[kPatchFrame], frames = a_.extent[kPatchFrame];
    for (int64_t f = 0; f < frames; f++) {
      if (time + f < a_.frames) {
        MakeFrame(((time + f) * a_.height + y) * a_.width + x, to + f * frame);
        continue;
      }
      // The last frame again. In the order of the patch, its elements are in blocks.
      const int64_t blocks = a_.size / (frames * frame);
      for (int64_t k = 0; k < blocks; k++) {
        V* const last = to + (k * frames + f - 1) * frame;
        std::memcpy(last + frame, last, static_cast<size_t>(frame) * sizeof(V));
      }
    }
  }

  // Makes one frame of a patch, from pixel number `pixel` of the input on.
  void MakeFrame(int64_t pixel, V* to) const {
    const int64_t rows = a_.extent[kPatchRow], n = a_.extent[kPatchColumn], row = a_.stride[kPatchRow],
                  channels = a_.channels;
#if defined(JAXDALI_SIMD)
    if (has_vectors_ && channels == 3 && a_.stride[kPatchColumn] == 1 && n >= 8)
      return SplitRows<kCopies>(in_ + 3 * pixel, 3 * a_.width, end_, rows, n, scale_, offset_, to, row,
                                a_.stride[kPatchChannel]);
    if (!kCopies && has_vectors_ && interleaved_ && n * channels >= 8 && n * channels <= most_)
      return ScaleRows(in_ + channels * pixel, channels * a_.width, rows, n * channels, scale_, offset_, to, row);
#endif
    for (int64_t r = 0; r < rows; r++, pixel += a_.width, to += row) {
      if constexpr (kCopies)
        CopyRow(in_ + pixel * channels, n, to);
      else if (interleaved_)
        InterleavedRow(pixel * channels, n * channels, to);
      else
        Row(pixel * channels, n, to);
    }
  }

  // n pixels of bytes.
  void CopyRow(const uint8_t* in, int64_t n, uint8_t* to) const {
    if (interleaved_) {
      std::memcpy(to, in, static_cast<size_t>(n * a_.channels));
      return;
    }
    for (int64_t c = 0; c < a_.channels; c++)
      for (int64_t x = 0; x < n; x++)
        to[x * a_.stride[kPatchColumn] + c * a_.stride[kPatchChannel]] = in[x * a_.channels + c];
  }
  // n elements in the order of the input, from its element `first` on.
  void InterleavedRow(int64_t first, int64_t n, V* to) const {
    float values[kRow];
    for (; n > 0; first += most_, n -= most_, to += most_) {
      const int64_t some = std::min(n, most_);
      LoadRow(batch_.in.dtype, in_, first, /*step=*/1, some, values);
      if (a_.scales > 0) ScaleRow(scale_, offset_, some, values);
      StoreRow(batch_.out.dtype, values, some, to, /*first=*/0);
    }
  }
  // n pixels in the order of the patch, from element `first` of the input on.
  void Row(int64_t first, int64_t n, V* to) const {
    float values[kRow];
    V elements[kRow];
    const int64_t column = a_.stride[kPatchColumn];
    for (int64_t c = 0; c < a_.channels; c++)
      for (int64_t x = 0; x < n; x += kRow) {
        const int64_t some = std::min(kRow, n - x);
        LoadRow(batch_.in.dtype, in_, first + x * a_.channels + c, a_.channels, some, values);
        if (a_.scales > 0) ScaleRow(a_.Scale(c), a_.Offset(c), some, values);
        V* const out = to + x * column + c * a_.stride[kPatchChannel];
        StoreRow(batch_.out.dtype, values, some, column == 1 ? out : elements, /*first=*/0);
        for (int64_t k = 0; column != 1 && k < some; k++) out[k * column] = elements[k];
      }
  }

  const PatchifyBatch& batch_;
  const PatchifyArgs& a_;
  const uint8_t *in_, *end_;
  const bool interleaved_;            // rows are in the order of the input
  const int64_t most_;                // elements of such a row for which there are scales
  bool has_vectors_ = false;          // SplitRows and ScaleRows can run: bytes that become numbers
  float scale_[kRow], offset_[kRow];  // of the channels in turn
};

}  // namespace

Status PatchifyImage(const PatchifyBatch& batch, int i, const void* in) {
  PatchifyArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (a.size == 0) return kOk;
  switch (batch.out.dtype) {
    case DType::kU8:
      batch.moves() ? PatchMaker<true, uint8_t>(batch, a, in).MakeAll()
                    : PatchMaker<false, uint8_t>(batch, a, in).MakeAll();
      break;
    case DType::kF16:
      PatchMaker<false, Half>(batch, a, in).MakeAll();
      break;
    case DType::kBF16:
      PatchMaker<false, BFloat16>(batch, a, in).MakeAll();
      break;
    default:
      PatchMaker<false, float>(batch, a, in).MakeAll();
  }
  return kOk;
}

Status Patchify(const PatchifyBatch& batch, int i) { return PatchifyImage(batch, i, batch.in.bytes(i)); }

}  // namespace jaxdali
