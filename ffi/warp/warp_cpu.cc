// CPU kernel of the affine warp. Dispatch chooses one of two paths:
//
//   WarpSimd     uint8 images of 3 or 4 channels with linear interpolation: eight pixels at a time with AVX2 or NEON
//   WarpPixels   all else, pixel by pixel (WarpPixel in warp.h)
//
// Both cut each row into spans by integer arithmetic: fill, pixels at the border, pixels inside.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ffi/common/simd.h"
#include "ffi/warp/warp.h"

namespace jaxdali {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0); }  // b > 0

struct Span {
  int64_t begin, end;
};

// Narrows `span` to the x with lo <= row + x * step < hi. The result lies inside the old span even if it is empty.
void Clip(int64_t row, int64_t step, int64_t lo, int64_t hi, Span* span) {
  if (step == 0) {
    if (row < lo || row >= hi) span->end = span->begin;
  } else {
    if (step < 0) {  // the same condition on the negated coordinate
      int64_t negated = 1 - hi;
      hi = 1 - lo;
      lo = negated;
      row = -row;
      step = -step;
    }
    span->begin = std::min(std::max(span->begin, CeilDiv(lo - row, step)), span->end);
    span->end = std::max(std::min(span->end, CeilDiv(hi - row, step)), span->begin);
  }
}

// The pixels of a row, out of `span`, that touch the image. All others are fill.
Span Touching(const WarpArgs& a, const int64_t* pos, Span span) {
  if (!a.has_fill) return span;
  for (int s = 0; s < a.dims; s++)
    Clip(pos[s], a.map[s][0], a.linear ? -kOnePixel : 0, a.in_size[s] * kOnePixel, &span);
  return span;
}

// Warps images of any types with 2 or 3 dimensions (D), row by row: fill, the pixels that touch the input, fill.
template <class In, class Out, int D, bool kLinear>
void WarpPixels(const WarpArgs& a) {
  const In* in = static_cast<const In*>(a.in);
  Out* out = static_cast<Out*>(a.out);
  const Out fill = ConvertTo<Out>(a.fill);
  int64_t volume = a.channels;
  for (int s = 0; s < D; s++) volume *= a.in_size[s];
  for (int64_t f = 0; f < a.frames; f++, in += volume) {
    for (int64_t z = 0; z < (D == 3 ? a.out_size[2] : 1); z++) {
      for (int64_t y = 0; y < a.out_size[1]; y++) {
        int64_t pos[D];
        RowStart(a, y, z, pos);
        Span span = Touching(a, pos, {0, a.out_size[0]});
        std::fill_n(out, span.begin * a.channels, fill);
        for (int s = 0; s < D; s++) pos[s] += span.begin * a.map[s][0];
        for (int64_t x = span.begin; x < span.end; x++) {
          WarpPixel<In, Out, D, kLinear>(a, in, pos, out + x * a.channels);
          for (int s = 0; s < D; s++) pos[s] += a.map[s][0];
        }
        std::fill_n(out + span.end * a.channels, (a.out_size[0] - span.end) * a.channels, fill);
        out += a.out_size[0] * a.channels;
      }
    }
  }
}

#if defined(JAXDALI_SIMD)

// How pixels with neighbours outside the image are made: there are none; the nearest pixel counts; they are fill.
enum class Edge { kInside, kClamp, kFill };

// The functions from here to WarpRun compute eight pixels of a packed uint8 image of C = 3 or 4 channels exactly as
// WarpPixel does. One load of 8 bytes reads a row's pair of neighbours. With 3 channels these are 2 bytes too many:
// after the pair in the upper row (which the lower row follows), before it in the lower row (which the upper row
// precedes). So no load leaves the image.
//
// Vectors have one 32-bit number for each pixel: ix, iy are indices of the upper left neighbour, w00 w01 (upper row),
// w10 w11 (lower row) the weights of the four, in units of 2^-kWeightBits.
struct Source {
  const uint8_t* data;
  int32_t width, height, stride;
};

// Loads two pairs, one in each lane, with their bytes in the given order. (0xF0 takes the high lane from the second
// register.) Broadcast loads use only the load unit, while joining two registers or extending bytes competes with the
// shuffles.
JAXDALI_SIMD JAXDALI_INLINE __m256i LoadPairs(const uint8_t* p, const uint8_t* q, __m256i order) {
  int64_t a, b;
  std::memcpy(&a, p, sizeof a);
  std::memcpy(&b, q, sizeof b);
  return _mm256_shuffle_epi8(_mm256_blend_epi32(_mm256_set1_epi64x(a), _mm256_set1_epi64x(b), 0xF0), order);
}

// Splits two vectors of 64-bit coordinates into index and weight (0 ... 2^14, of the right neighbour) along one axis.
JAXDALI_SIMD JAXDALI_INLINE void Split(__m256i a, __m256i b, __m256i* index, __m256i* q) {
  __m256 fa = _mm256_castsi256_ps(a), fb = _mm256_castsi256_ps(b);
  // 0xDD takes the high words of the coordinates, 0x88 the low ones: within each lane, two of `a`, then two of `b`.
  *index = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0xDD));
  __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(fa, fb, 0x88));
  // The fraction of 32 bits, rounded to kWeightBits.
  *q = _mm256_srli_epi32(_mm256_add_epi32(_mm256_srli_epi32(low, 17), _mm256_set1_epi32(1)), 1);
}

// If both neighbours are the same edge pixel, the pair moves inside and one of its weights becomes 1.
JAXDALI_SIMD JAXDALI_INLINE void ClampPair(__m256i last, __m256i* index, __m256i* q) {
  __m256i below = _mm256_cmpgt_epi32(_mm256_setzero_si256(), *index), above = _mm256_cmpgt_epi32(*index, last);
  *index = _mm256_min_epi32(_mm256_max_epi32(*index, _mm256_setzero_si256()), last);
  *q = _mm256_blendv_epi8(_mm256_andnot_si256(below, *q), _mm256_set1_epi32(1 << kWeightBits), above);
}

// The pair moves inside. Weights follow their pixels; those of pixels outside are dropped.
JAXDALI_SIMD JAXDALI_INLINE void MovePair(__m256i last, __m256i* index, __m256i* w0, __m256i* w1) {
  const __m256i minus_one = _mm256_set1_epi32(-1);
  __m256i first_only = _mm256_cmpeq_epi32(*index, _mm256_sub_epi32(last, minus_one));  // index == last + 1
  __m256i second_only = _mm256_cmpeq_epi32(*index, minus_one);
  __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(*index, last), _mm256_cmpgt_epi32(*index, minus_one));
  __m256i a = *w0, b = *w1;
  *w0 = _mm256_or_si256(_mm256_and_si256(inside, a), _mm256_and_si256(second_only, b));
  *w1 = _mm256_or_si256(_mm256_and_si256(inside, b), _mm256_and_si256(first_only, a));
  *index = _mm256_min_epi32(_mm256_max_epi32(*index, _mm256_setzero_si256()), last);
}

// Blends the channels of pixels K and K + 4, one in each lane: 32 bits for each channel. `round` is added before the
// shift.
template <int K>
JAXDALI_SIMD JAXDALI_INLINE __m256i Blend(const uint8_t* top, const uint8_t* bottom, const int32_t* offset,
                                          __m256i top_order, __m256i bottom_order, __m256i top_weights,
                                          __m256i bottom_weights, __m256i round) {
  constexpr int kLane = K * 0x55;  // broadcasts number K of a lane
  __m256i upper = LoadPairs(top + offset[K], top + offset[K + 4], top_order);
  __m256i lower = LoadPairs(bottom + offset[K], bottom + offset[K + 4], bottom_order);
  __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(upper, _mm256_shuffle_epi32(top_weights, kLane)),
                                 _mm256_madd_epi16(lower, _mm256_shuffle_epi32(bottom_weights, kLane)));
  return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_shuffle_epi32(round, kLane)), kWeightBits);
}

// Makes eight pixels. Coordinates of pixels 0 1 4 5 are in xa, ya, and of 2 3 6 7 in xb, yb, so that Split leaves them
// in order. The result is packed: 8 * C bytes.
template <int C, Edge kEdge>
JAXDALI_SIMD JAXDALI_INLINE __m256i Warp8(const Source& src, __m256i fill, __m256i xa, __m256i xb, __m256i ya,
                                          __m256i yb) {
  __m256i ix, iy, qx, qy;
  Split(xa, xb, &ix, &qx);
  Split(ya, yb, &iy, &qy);
  const __m256i last_x = _mm256_set1_epi32(src.width - 2), last_y = _mm256_set1_epi32(src.height - 2);
  if constexpr (kEdge == Edge::kClamp) {
    ClampPair(last_x, &ix, &qx);
    ClampPair(last_y, &iy, &qy);
  }
  const __m256i half = _mm256_set1_epi32(1 << (kWeightBits - 1));
  __m256i w11 = _mm256_srli_epi32(_mm256_add_epi32(_mm256_madd_epi16(qx, qy), half), kWeightBits);
  __m256i w01 = _mm256_sub_epi32(qx, w11), w10 = _mm256_sub_epi32(qy, w11);
  __m256i w00 = _mm256_sub_epi32(_mm256_sub_epi32(_mm256_set1_epi32(1 << kWeightBits), qx), w10);
  __m256i round = half;
  if constexpr (kEdge == Edge::kFill) {
    // The weights of pixels outside go to the fill, which is added with the rounding.
    __m256i column_top = ix, column_bottom = ix;
    MovePair(last_x, &column_top, &w00, &w01);
    MovePair(last_x, &column_bottom, &w10, &w11);
    ix = column_top;
    __m256i row_left = iy, row_right = iy;
    MovePair(last_y, &row_left, &w00, &w10);
    MovePair(last_y, &row_right, &w01, &w11);
    iy = row_left;
    __m256i kept = _mm256_add_epi32(_mm256_add_epi32(w00, w01), _mm256_add_epi32(w10, w11));
    round =
        _mm256_add_epi32(half, _mm256_madd_epi16(_mm256_sub_epi32(_mm256_set1_epi32(1 << kWeightBits), kept), fill));
  }
  __m256i top_weights = _mm256_or_si256(w00, _mm256_slli_epi32(w01, 16));
  __m256i bottom_weights = _mm256_or_si256(w10, _mm256_slli_epi32(w11, 16));
  alignas(32) int32_t offset[8];
  __m256i column = C == 3 ? _mm256_add_epi32(ix, _mm256_add_epi32(ix, ix)) : _mm256_slli_epi32(ix, 2);
  _mm256_store_si256(reinterpret_cast<__m256i*>(offset),
                     _mm256_add_epi32(column, _mm256_mullo_epi32(iy, _mm256_set1_epi32(src.stride))));
  // The channels of the two pixels in 16 bits, with the left and the right value side by side for madd.
  const __m256i top_order =
      _mm256_broadcastsi128_si256(C == 3 ? _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1)
                                         : _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
  const __m256i bottom_order =
      C == 4 ? top_order
             : _mm256_broadcastsi128_si256(_mm_setr_epi8(2, -1, 5, -1, 3, -1, 6, -1, 4, -1, 7, -1, -1, -1, -1, -1));
  const uint8_t* top = src.data;
  const uint8_t* bottom = src.data + src.stride - (C == 3 ? 2 : 0);
  __m256i v0 = Blend<0>(top, bottom, offset, top_order, bottom_order, top_weights, bottom_weights, round);
  __m256i v1 = Blend<1>(top, bottom, offset, top_order, bottom_order, top_weights, bottom_weights, round);
  __m256i v2 = Blend<2>(top, bottom, offset, top_order, bottom_order, top_weights, bottom_weights, round);
  __m256i v3 = Blend<3>(top, bottom, offset, top_order, bottom_order, top_weights, bottom_weights, round);
  __m256i v = _mm256_packus_epi16(_mm256_packus_epi32(v0, v1), _mm256_packus_epi32(v2, v3));
  if constexpr (C == 3) {  // closes the gaps of pixels of four bytes
    v = _mm256_shuffle_epi8(
        v, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)));
    v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
  }
  return v;
}

// Stores eight pixels of C channels, which are 8 * C bytes.
template <int C>
JAXDALI_SIMD JAXDALI_INLINE void Store8(uint8_t* out, __m256i v) {
  if constexpr (C == 4) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), v);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(v));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 16), _mm256_extracti128_si256(v, 1));
  }
}

// Makes the pixels [begin, end) of a row; `pos` is the source point of pixel 0.
template <int C, Edge kEdge>
JAXDALI_SIMD JAXDALI_INLINE void WarpRun(const WarpArgs& a, const Source& src, const int64_t* pos, int64_t begin,
                                         int64_t end, uint8_t* out) {
  const int64_t dx = a.map[0][0], dy = a.map[1][0], x0 = pos[0] + begin * dx, y0 = pos[1] + begin * dy;
  // The positions of pixels 0 1 4 5; those of 2 3 6 7 are two steps further on.
  __m256i xa = _mm256_setr_epi64x(x0, x0 + dx, x0 + 4 * dx, x0 + 5 * dx);
  __m256i ya = _mm256_setr_epi64x(y0, y0 + dy, y0 + 4 * dy, y0 + 5 * dy);
  const __m256i two_x = _mm256_set1_epi64x(2 * dx), two_y = _mm256_set1_epi64x(2 * dy);
  const __m256i next_x = _mm256_set1_epi64x(8 * dx), next_y = _mm256_set1_epi64x(8 * dy);
  const __m256i fill = _mm256_set1_epi32(static_cast<int32_t>(a.fill));
  for (int64_t x = begin; x < end; x += 8) {
    __m256i v = Warp8<C, kEdge>(src, fill, xa, _mm256_add_epi64(xa, two_x), ya, _mm256_add_epi64(ya, two_y));
    if (x + 8 <= end) {
      Store8<C>(out + x * C, v);
    } else {
      alignas(32) uint8_t last[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(last), v);
      std::memcpy(out + x * C, last, (end - x) * C);
    }
    xa = _mm256_add_epi64(xa, next_x);
    ya = _mm256_add_epi64(ya, next_y);
  }
}

// Steep rows are processed in pieces of this many pixels, so that the source lines that one piece crosses are still in
// the cache for the next row: a 4000 x 3000 image rotated by 90 degrees takes 31 ms instead of 106. Flat rows are not
// cut: rotated by 10 degrees the image would take 89 ms instead of 30.
constexpr int64_t kPiece = 512;

// Warps images of C channels. Each row is cut into spans: fill, pixels at the border, pixels inside, pixels at the
// border, fill.
template <int C>
JAXDALI_SIMD void WarpSimd(const WarpArgs& a) {
  Source src{static_cast<const uint8_t*>(a.in), static_cast<int32_t>(a.in_size[0]), static_cast<int32_t>(a.in_size[1]),
             static_cast<int32_t>(a.in_size[0] * C)};
  uint8_t* frame = static_cast<uint8_t*>(a.out);
  const int fill = static_cast<int>(a.fill);
  const int64_t width = a.out_size[0], height = a.out_size[1];
  const int64_t length = std::abs(a.map[1][0]) > kOnePixel / 3 ? kPiece : width;
  for (int64_t f = 0; f < a.frames; f++, src.data += a.in_size[1] * src.stride, frame += height * width * C) {
    for (int64_t x = 0; x < width; x += length) {
      const Span piece{x, std::min(x + length, width)};
      for (int64_t y = 0; y < height; y++) {
        uint8_t* out = frame + y * width * C;
        int64_t pos[2];
        RowStart(a, y, /*z=*/0, pos);
        Span touching = Touching(a, pos, piece), inside = touching;
        for (int s = 0; s < 2; s++) Clip(pos[s], a.map[s][0], /*lo=*/0, /*hi=*/(a.in_size[s] - 1) * kOnePixel, &inside);
        inside.end = inside.begin + (inside.end - inside.begin) / 8 * 8;  // a partial block belongs to the edge
        if (inside.end == inside.begin) inside.begin = inside.end = touching.begin;
        if (a.has_fill) {
          std::memset(out + piece.begin * C, fill, (touching.begin - piece.begin) * C);
          WarpRun<C, Edge::kFill>(a, src, pos, touching.begin, inside.begin, out);
          WarpRun<C, Edge::kInside>(a, src, pos, inside.begin, inside.end, out);
          WarpRun<C, Edge::kFill>(a, src, pos, inside.end, touching.end, out);
          std::memset(out + touching.end * C, fill, (piece.end - touching.end) * C);
        } else {
          WarpRun<C, Edge::kClamp>(a, src, pos, touching.begin, inside.begin, out);
          WarpRun<C, Edge::kInside>(a, src, pos, inside.begin, inside.end, out);
          WarpRun<C, Edge::kClamp>(a, src, pos, inside.end, touching.end, out);
        }
      }
    }
  }
}

// Whether WarpSimd can make the image: pairs of neighbours need two rows and columns, and offsets have 32 bits.
bool TakesSimd(const WarpArgs& a) {
  return a.dims == 2 && a.linear && (a.channels == 3 || a.channels == 4) && a.in_size[0] >= 2 && a.in_size[1] >= 2 &&
         a.in_size[0] * a.in_size[1] * a.channels <= std::numeric_limits<int32_t>::max() && kHasSimd;
}

#endif  // defined(JAXDALI_SIMD)

// Warps a sample by the fastest path for its types and extents.
template <class In, class Out>
void Dispatch(const WarpArgs& a) {
#if defined(JAXDALI_SIMD)
  if constexpr (std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>)
    if (TakesSimd(a)) return a.channels == 3 ? WarpSimd<3>(a) : WarpSimd<4>(a);
#endif
  if (a.dims == 2) return a.linear ? WarpPixels<In, Out, 2, true>(a) : WarpPixels<In, Out, 2, false>(a);
  return a.linear ? WarpPixels<In, Out, 3, true>(a) : WarpPixels<In, Out, 3, false>(a);
}

using Kernel = void (*)(const WarpArgs&);

// The kernel for a pair of types; null if there is none, see WarpTypes.
Kernel KernelFor(DType in, DType out) {
  switch (in) {
    case DType::kU8:
      return out == in ? Dispatch<uint8_t, uint8_t> : out == DType::kF32 ? Dispatch<uint8_t, float> : nullptr;
    case DType::kI16:
      return out == in ? Dispatch<int16_t, int16_t> : out == DType::kF32 ? Dispatch<int16_t, float> : nullptr;
    case DType::kI32:
      return out == in ? Dispatch<int32_t, int32_t> : out == DType::kF32 ? Dispatch<int32_t, float> : nullptr;
    case DType::kF16:
      return out == in ? Dispatch<Half, Half> : out == DType::kF32 ? Dispatch<Half, float> : nullptr;
    case DType::kBF16:
      return out == in ? Dispatch<BFloat16, BFloat16> : out == DType::kF32 ? Dispatch<BFloat16, float> : nullptr;
    case DType::kF32:
      switch (out) {
        case DType::kU8:
          return Dispatch<float, uint8_t>;
        case DType::kI16:
          return Dispatch<float, int16_t>;
        case DType::kI32:
          return Dispatch<float, int32_t>;
        case DType::kF16:
          return Dispatch<float, Half>;
        case DType::kBF16:
          return Dispatch<float, BFloat16>;
        case DType::kF32:
          return Dispatch<float, float>;
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Warp(const WarpBatch& batch, int i) {
  WarpArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (batch.out.size(i) > 0) WarpWhole(a);
  return kOk;
}

void WarpWhole(const WarpArgs& a) { KernelFor(a.in_type, a.out_type)(a); }

}  // namespace jaxdali
