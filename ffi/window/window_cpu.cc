// CPU kernel of the strided window. FillAround first writes the fill, if some indices are outside the input. Then one
// of these makes the part inside:
//
//   Split     an image of three-byte pixels becomes three planes: with AVX2 or NEON, each pixel is read once
//   Move      elements are only copied: in the largest contiguous blocks
//   Compute   elements are scaled or converted: row by row in float or, for types that float can't hold, double
#include <algorithm>
#include <cstring>
#include <utility>

#include "ffi/common/pixels.h"
#include "ffi/common/rows.h"
#include "ffi/window/window.h"

namespace jaxdali {
namespace {

// Copies n elements of sizeof(T) bytes. Steps are in bytes. A known size becomes a move, and a dense output vectors.
template <class T>
void CopyStrided(const uint8_t* in, int64_t step, int64_t n, uint8_t* out, int64_t out_step) {
  if (out_step == static_cast<int64_t>(sizeof(T))) {
    for (int64_t i = 0; i < n; i++) std::memcpy(out + i * sizeof(T), in + i * step, sizeof(T));
  } else {
    for (int64_t i = 0; i < n; i++) std::memcpy(out + i * out_step, in + i * step, sizeof(T));
  }
}

// Copies n blocks of `block` bytes, `step` bytes apart, to blocks `out_step` bytes apart.
void CopyBlocks(const uint8_t* in, int64_t step, int64_t n, int64_t block, uint8_t* out, int64_t out_step) {
  switch (block) {
    case 1:
      return CopyStrided<uint8_t>(in, step, n, out, out_step);
    case 2:
      return CopyStrided<uint16_t>(in, step, n, out, out_step);
    case 3:
#if defined(JAXDALI_SIMD)
      if (kHasSimd && step == -3 && out_step == 3) return ReversePixels(in, n, out);
#endif
      return CopyStrided<uint8_t[3]>(in, step, n, out, out_step);
    case 4:
      return CopyStrided<uint32_t>(in, step, n, out, out_step);
    case 8:
      return CopyStrided<uint64_t>(in, step, n, out, out_step);
    case 12:
      return CopyStrided<uint8_t[12]>(in, step, n, out, out_step);
    default:
      for (int64_t i = 0; i < n; i++) std::memcpy(out + i * out_step, in + i * step, block);
  }
}

// Counts through the indices of some axes, the last one fastest.
class Odometer {
 public:
  Odometer(int ndim, const int64_t* extent) : ndim_(ndim), extent_(extent) {}
  int64_t operator[](int d) const { return index_[d]; }
  // Goes to the next index. Returns false after the last one. Calls `changed(d, by)` for each axis that moves.
  template <class F>
  bool Next(F changed) {
    for (int d = ndim_ - 1; d >= 0; d--) {
      if (index_[d] + 1 < extent_[d]) {
        index_[d]++;
        changed(d, 1);
        return true;
      }
      changed(d, -index_[d]);
      index_[d] = 0;
    }
    return false;
  }

 private:
  int ndim_;
  const int64_t* extent_;
  int64_t index_[8] = {};
};

// Copies the part inside the input. Axes are merged until the loops are few and the blocks large.
void Move(const WindowArgs& a) {
  const int64_t element = SizeOf(a.in_type);
  int64_t in_step[8], out_step[8], extent[8], packed = element;
  const uint8_t* in = a.in + a.start * element;
  uint8_t* out = a.out;
  for (int d = a.ndim - 1; d >= 0; d--) {
    in_step[d] = a.stride[d] * element;
    out_step[d] = packed;
    packed *= a.extent[d];
    extent[d] = a.end[d] - a.begin[d];
    if (extent[d] == 0) return;
    in += a.begin[d] * in_step[d];
    out += a.begin[d] * out_step[d];
  }
  // Inner axes that are contiguous in both memories become one block. Outer axes that can be merged are merged.
  int axes = a.ndim;
  int64_t block = element;
  while (axes > 0 && (extent[axes - 1] == 1 || (in_step[axes - 1] == block && out_step[axes - 1] == block)))
    block *= extent[--axes];
  int kept = 0;
  for (int d = 0; d < axes; d++) {
    if (extent[d] == 1) continue;
    if (kept > 0 && in_step[kept - 1] == extent[d] * in_step[d] && out_step[kept - 1] == extent[d] * out_step[d]) {
      extent[kept - 1] *= extent[d];
      in_step[kept - 1] = in_step[d];
      out_step[kept - 1] = out_step[d];
    } else {
      extent[kept] = extent[d];
      in_step[kept] = in_step[d];
      out_step[kept++] = out_step[d];
    }
  }
  if (kept == 0) {
    std::memcpy(out, in, block);
    return;
  }
  const int last = kept - 1;
  if (last > 0 && extent[last] < 16 && extent[last - 1] > extent[last]) {  // makes the longer loop the inner one
    std::swap(extent[last], extent[last - 1]);
    std::swap(in_step[last], in_step[last - 1]);
    std::swap(out_step[last], out_step[last - 1]);
  }
  Odometer index(last, extent);
  do {
    CopyBlocks(in, in_step[last], extent[last], block, out, out_step[last]);
  } while (index.Next([&](int d, int64_t by) {
    in += by * in_step[d];
    out += by * out_step[d];
  }));
}

// Writes fill to the whole output, of which the part inside the input is overwritten later. Each copy doubles what
// exists.
void FillAround(const WindowArgs& a) {
  int64_t total = 1, pattern = 1;  // the fill repeats after `pattern` values
  for (int d = 0; d < a.ndim; d++) total *= a.extent[d];
  const bool varies = a.fills > 1 && a.channel >= 0;
  if (varies)
    for (int d = a.channel; d < a.ndim; d++) pattern *= a.extent[d];
  const int64_t element = SizeOf(a.out_type), inner = varies ? pattern / a.extent[a.channel] : 1;
  for (int64_t k = 0; k < (varies ? a.extent[a.channel] : 1); k++) {
    const float v = a.Fill(varies ? a.Channel(k) : 0);
    for (int64_t i = 0; i < inner; i++) StoreFill(a.out_type, a.out, k * inner + i, v);
  }
  for (int64_t done = pattern; done < total; done *= 2)
    std::memcpy(a.out + done * element, a.out, std::min(done, total - done) * element);
}

#if defined(JAXDALI_SIMD)
// Returns the axis of the channels if the window converts an image of three-byte pixels to planes, or -1. Then each
// pixel is read once for all three planes.
int PlaneAxis(const WindowArgs& a) {
  const int last = a.ndim - 1;
  if (!kHasSimd || SizeOf(a.in_type) != 1 || (a.stride[last] != 3 && a.stride[last] != -3)) return -1;
  for (int d = 0; d < last; d++)
    if (a.stride[d] == 1 && a.begin[d] == 0 && a.end[d] == 3 &&
        (a.moves() || (a.in_type == DType::kU8 && (a.scales <= 1 || a.channel == d))))
      return d;
  return -1;
}

// Splits n pixels, `step` (3 or -3) bytes apart, into planes. With -3 the row is mirrored: of sixteen pixels, the last
// one comes first in memory.
JAXDALI_SIMD void SplitBytes(const uint8_t* in, int64_t step, int64_t n, uint8_t* const* to) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Planes planes = SplitPixels(step > 0 ? in + 3 * i : in - 3 * (i + 15));
    for (int c = 0; c < 3; c++)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to[c] + i), step > 0 ? planes.plane[c] : Reversed(planes.plane[c]));
  }
  for (; i < n; i++)
    for (int c = 0; c < 3; c++) to[c][i] = in[i * step + c];
}
// Stores eight floats. With `past_caches` they bypass the caches, and `to` is aligned to 32 bytes.
JAXDALI_SIMD JAXDALI_INLINE void StoreFloats(float* to, __m256 v, bool past_caches) {
#if defined(__x86_64__)
  if (past_caches) return _mm256_stream_ps(to, v);
#endif
  _mm256_storeu_ps(to, v);
}
// SplitBytes with scale[c] * byte + offset[c] for each plane c. `past_caches`: writes bypass the caches where `to` is
// aligned, because such writes do not read the memory first.
JAXDALI_SIMD void SplitFloats(const uint8_t* in, int64_t step, int64_t n, const float* scale, const float* offset,
                              bool past_caches, float* const* to) {
  // Only aligned vectors can bypass the caches.
  for (int c = 0; c < 3; c++) past_caches &= reinterpret_cast<uintptr_t>(to[c]) % sizeof(__m256) == 0;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Planes planes = SplitPixels(step > 0 ? in + 3 * i : in - 3 * (i + 15));
    for (int c = 0; c < 3; c++) {
      const __m256 factor = _mm256_set1_ps(scale[c]), shift = _mm256_set1_ps(offset[c]);
      const __m128i bytes = step > 0 ? planes.plane[c] : Reversed(planes.plane[c]);
      const __m256 low = EightFloats(bytes), high = EightFloats(_mm_unpackhi_epi64(bytes, bytes));
      StoreFloats(to[c] + i, _mm256_add_ps(_mm256_mul_ps(low, factor), shift), past_caches);
      StoreFloats(to[c] + i + 8, _mm256_add_ps(_mm256_mul_ps(high, factor), shift), past_caches);
    }
  }
  for (; i < n; i++)
    for (int c = 0; c < 3; c++) to[c][i] = static_cast<float>(in[i * step + c]) * scale[c] + offset[c];
}

// Copies or computes the part inside the input, for all three planes at once.
void Split(const WindowArgs& a, int axis) {
  const int last = a.ndim - 1;
  const int64_t element = SizeOf(a.out_type), step = a.stride[last], n = a.end[last] - a.begin[last];
  int64_t extent[8], in_step[8], out_step[8], packed = 1, to_plane = 0, in_offset = a.start, out_offset = 0;
  int outer = 0;
  for (int d = last; d >= 0; d--) {  // the outer axes, innermost first
    in_offset += a.begin[d] * a.stride[d];
    out_offset += a.begin[d] * packed;
    if (a.begin[d] == a.end[d]) return;
    if (d == axis) {
      to_plane = packed;
    } else if (d != last) {
      extent[outer] = a.end[d] - a.begin[d];
      in_step[outer] = a.stride[d];
      out_step[outer++] = packed;
    }
    packed *= a.extent[d];
  }
  float scale[3], offset[3];
  Odometer index(outer, extent);
  do {
    const uint8_t* in = a.in + in_offset;
    uint8_t* planes[3];
    for (int c = 0; c < 3; c++) {
      planes[c] = a.out + (out_offset + c * to_plane) * element;
      const int64_t channel = a.channel == axis ? a.Channel(c) : 0;
      scale[c] = a.scales > 0 ? WindowArgs::Pick(a.scale, a.scales, channel) : 1;
      offset[c] = a.scales > 0 ? WindowArgs::Pick(a.offset, a.scales, channel) : 0;
    }
    if (a.moves()) {
      SplitBytes(in, step, n, planes);
    } else {
      float values[3][kRow];
      for (int64_t i = 0; i < n; i += kRow) {
        const int64_t m = std::min(kRow, n - i);
        float* rows[3];
        for (int c = 0; c < 3; c++)  // floats are computed in place
          rows[c] = a.out_type == DType::kF32 ? reinterpret_cast<float*>(planes[c]) + i : values[c];
        SplitFloats(in + i * step, step, m, scale, offset, a.past_caches && a.out_type == DType::kF32, rows);
        if (a.out_type != DType::kF32)
          for (int c = 0; c < 3; c++) StoreRow(a.out_type, rows[c], m, planes[c], i);
      }
    }
  } while (index.Next([&](int d, int64_t steps) {
    in_offset += steps * in_step[d];
    out_offset += steps * out_step[d];
  }));
#if defined(__x86_64__)
  if (a.past_caches) _mm_sfence();  // makes the data visible before anyone is told
#endif
}
#endif

// Computes the part inside the input, row by row, in V (float or double). A row is the last axis, or the last two if
// the last one is short, such as the channels of an image, so that rows are long enough for vectors. Then `row` is the
// axis before the last, and the last one has n2 indices, of which low to high - 1 are inside the input. Otherwise n2
// is 1.
template <class V>
void Compute(const WindowArgs& a) {
  const int ndim = a.ndim;
  constexpr int64_t kShort = 16;
  const bool pair = ndim >= 2 && a.extent[ndim - 1] <= kShort;
  const int outer = ndim - (pair ? 2 : 1), row = outer, last = ndim - 1;
  const int64_t n2 = pair ? a.extent[last] : 1, low = pair ? a.begin[last] : 0, high = pair ? a.end[last] : 1;
  const int64_t row_stride = a.stride[row], last_stride = pair ? a.stride[last] : 1, row_size = a.extent[row] * n2;
  const int64_t piece = kRow / n2;  // indices of axis `row` at a time
  // Scale and offset vary along the row (then tables have one for each element), or are the same for all of it.
  const bool whole = low == 0 && high == n2;
  const bool varies_in_row = a.scales > 0 && a.channel >= outer,
             varies_by_last = varies_in_row && pair && a.channel == last;
  float scale[kRow], offset[kRow];
  auto fill_tables = [&](int64_t first) {  // for indices from `first` on
    for (int64_t i = 0; i < piece * n2; i++) {
      const int64_t channel = a.Channel(varies_by_last ? i % n2 : first + i / n2);
      scale[i] = WindowArgs::Pick(a.scale, a.scales, channel);
      offset[i] = WindowArgs::Pick(a.offset, a.scales, channel);
    }
  };
  if (varies_by_last) fill_tables(0);

  V buffer[kRow], plane[kRow];
  auto load = [&](int64_t from, int64_t n, V* to) {  // n indices of `row`, with the existing indices of the last axis
    if (n2 == 1) {
      LoadRow(a.in_type, a.in, from, row_stride, n, to);
    } else if (whole && last_stride == 1 && row_stride == n2) {
      LoadRow(a.in_type, a.in, from, /*step=*/1, n * n2, to);
    } else if (whole && last_stride == 1 && row_stride == -n2) {  // mirrored pixels: reverses them first
      const int64_t block = n2 * SizeOf(a.in_type);
      uint8_t* const reversed = reinterpret_cast<uint8_t*>(plane);
      CopyBlocks(a.in + from * SizeOf(a.in_type), -block, n, block, reversed, block);
      LoadRow(a.in_type, reversed, /*first=*/0, /*step=*/1, n * n2, to);
    } else {
      for (int64_t k = low; k < high; k++) {
        LoadRow(a.in_type, a.in, from + k * last_stride, row_stride, n, plane);
        for (int64_t i = 0; i < n; i++) to[i * n2 + k] = plane[i];
      }
      for (int64_t k = 0; k < n2; k++)
        if (k < low || k >= high)
          for (int64_t i = 0; i < n; i++) to[i * n2 + k] = 0;
    }
  };

  // With fill, only indices of the outer axes that are inside are visited, because FillAround has written the others.
  int64_t extent[8], in_offset = a.start, out_offset = 0, out_stride[8], packed = row_size;
  for (int d = outer - 1; d >= 0; d--) {
    extent[d] = a.end[d] - a.begin[d];
    if (extent[d] == 0) return;
    out_stride[d] = packed;
    packed *= a.extent[d];
    in_offset += a.begin[d] * a.stride[d];
    out_offset += a.begin[d] * out_stride[d];
  }
  if (a.begin[row] >= a.end[row] || low >= high) return;
  const V fill = a.fills == 1 ? FillAs<V>(a.out_type, a.fill[0]) : V{0};
  Odometer index(outer, extent);
  do {
    float scale_of_row = 1, offset_of_row = 0;
    if (a.scales > 0 && !varies_in_row) {
      const int64_t channel = a.channel >= 0 ? a.Channel(a.begin[a.channel] + index[a.channel]) : 0;
      scale_of_row = WindowArgs::Pick(a.scale, a.scales, channel);
      offset_of_row = WindowArgs::Pick(a.offset, a.scales, channel);
    }
    for (int64_t x = a.begin[row]; x < a.end[row]; x += piece) {
      const int64_t n = std::min(piece, a.end[row] - x);
      V* values = buffer;
      if constexpr (std::is_same_v<V, float>)  // computed in place
        if (a.out_type == DType::kF32) values = reinterpret_cast<float*>(a.out) + out_offset + x * n2;
      load(in_offset + x * row_stride, n, values);
      if (varies_in_row) {
        if (!varies_by_last) fill_tables(x);
        ScaleRow(scale, offset, n * n2, values);
      } else if (a.scales > 0) {
        ScaleRow(scale_of_row, offset_of_row, n * n2, values);
      }
      // Fill along the last axis. (That along the others was written by FillAround.)
      if (!whole)
        for (int64_t k = 0; k < n2; k++)
          if (k < low || k >= high)
            for (int64_t i = 0; i < n; i++)
              values[i * n2 + k] =
                  a.fills == 1
                      ? fill
                      : FillAs<V>(a.out_type, a.Fill(a.channel == last  ? a.Channel(k)
                                                     : a.channel == row ? a.Channel(x + i)
                                                     : a.channel >= 0 ? a.Channel(a.begin[a.channel] + index[a.channel])
                                                                      : 0));
      if (values == buffer) StoreRow(a.out_type, values, n * n2, a.out, out_offset + x * n2);
    }
  } while (index.Next([&](int d, int64_t steps) {
    in_offset += steps * a.stride[d];
    out_offset += steps * out_stride[d];
  }));
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Window(const WindowBatch& batch, int i) {
  WindowArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (batch.out.size(i) == 0) return kOk;
  if (a.ndim == 0) {  // a scalar is treated as an axis of extent 1
    a.ndim = 1;
    a.extent[0] = a.end[0] = 1;
    a.stride[0] = a.begin[0] = 0;
  }
  if (!a.inside) FillAround(a);
#if defined(JAXDALI_SIMD)
  if (const int axis = PlaneAxis(a); axis >= 0) {
    Split(a, axis);
    return kOk;
  }
#endif
  if (a.moves())
    Move(a);
  else if (FitsFloat(a.in_type))
    Compute<float>(a);
  else
    Compute<double>(a);
  return kOk;
}

}  // namespace jaxdali
