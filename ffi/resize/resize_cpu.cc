// CPU kernel of `resize`: one sample, or a region of one for a chain.
//
//   ResizeSome    the entry. Other conventions than DALI's go to ffi/resample at once.
//     ResizeSample    makes one axis, two axes, or three. Volumes: first along z, slice by slice, into floats.
//       ResizeImage     an image, by the first path that fits:
//         CopyNearest       nearest neighbours along all axes
//         U8Resizer         bytes to bytes with 1, 3 or 4 channels, and weights that fit 16 bits (resize_u8_cpu.cc)
//         ResizeFloat       all else, in floats: with AVX2 or NEON (struct Simd), or on any CPU (struct Portable)
//   ResizeRows    the entry for rows that a decoder makes one by one. It takes the path of U8Resizer, or refuses. Other
//                 conventions have ResampleRows.
//
// resize.h has the arithmetic of positions and weights, and resize_filters.cc makes the taps that all paths read.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "ffi/common/simd.h"
#include "ffi/common/triple.h"
#include "ffi/resample/resample.h"
#include "ffi/resize/resize.h"
#include "ffi/resize/resize_u8.h"

namespace jaxdali {

namespace {

// --- Rows of floats --------------------------------------------------------------------------------------------
// Written so that compilers vectorize it. Functions that are always inlined are compiled for the baseline and for SIMD.

using Vec4 __attribute__((vector_size(16))) = float;

inline Vec4 Load4(const float* p) {
  Vec4 v;
  memcpy(&v, p, sizeof v);
  return v;
}

// The vertical pass: out[i] = sum_j w[j] * rows[j][begin + i], j < k, i < n. With kAdd the sum is added to out[i].
// Blocks of 32 sums stay in registers.
template <bool kAdd, class In>
void WeighSomeRows(const In* const* rows, const float* w, int k, int64_t begin, int64_t n, float* out) {
  constexpr int kBlock = 32;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    float acc[kBlock];
    for (int b = 0; b < kBlock; b++) {
      acc[b] = w[0] * static_cast<float>(rows[0][begin + i + b]);
      if (kAdd) acc[b] += out[i + b];
    }
    for (int j = 1; j < k; j++)
      for (int b = 0; b < kBlock; b++) acc[b] += w[j] * static_cast<float>(rows[j][begin + i + b]);
    memcpy(out + i, acc, sizeof acc);
  }
  for (; i < n; i++) {
    float acc = kAdd ? out[i] : 0;
    for (int j = 0; j < k; j++) acc += w[j] * static_cast<float>(rows[j][begin + i]);
    out[i] = acc;
  }
}

// sum + a * b, rounded once or twice. This is explicit because compilers choose differently.
template <bool kFused>
inline __attribute__((always_inline)) Vec4 MultiplyAdd(Vec4 a, Vec4 b, Vec4 sum) {
  if constexpr (!kFused) return sum + a * b;
  for (int i = 0; i < 4; i++) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
  return sum;
}

constexpr int kMargin = 8;  // elements behind a row that vectors read or write

// The horizontal pass: makes n output pixels from a line of pixels with `c` channels. `line` begins at pixel `origin`,
// and output o has taps first[o] ... first[o] + k - 1. It reads and writes whole vectors, so both rows have kMargin
// extra elements. With one channel `k` is a multiple of 4, and the margin holds zeros. kFused: see MultiplyAdd.
template <bool kFused>
inline __attribute__((always_inline)) void WeighPixelsImpl(const float* line, int32_t origin, const int32_t* first,
                                                           const float* weight, int k, int64_t n, int64_t c,
                                                           float* out) {
  if (c == 1) {  // a vector has four taps of one output
    for (int64_t o = 0; o < n; o++, weight += k) {
      const float* p = line + (first[o] - origin);
      Vec4 acc = Load4(p) * Load4(weight);
      for (int j = 4; j < k; j += 4) acc = MultiplyAdd<kFused>(Load4(p + j), Load4(weight + j), acc);
      out[o] = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    }
    return;
  }
  // A vector has four channels. With fewer, it writes into the next pixel, which is made later.
  for (int64_t o = 0; o < n; o++, weight += k) {
    const float* p = line + (first[o] - origin) * c;
    for (int64_t b = 0; b < c; b += 4) {
      Vec4 acc = Load4(p + b) * weight[0];
      for (int j = 1; j < k; j++)
        acc = MultiplyAdd<kFused>(Load4(p + j * c + b), Vec4{weight[j], weight[j], weight[j], weight[j]}, acc);
      memcpy(out + o * c + b, &acc, sizeof acc);
    }
  }
}

template <class Out>
inline __attribute__((always_inline)) void ConvertImpl(const float* in, int64_t n, Out* out) {
  for (int64_t i = 0; i < n; i++) out[i] = ConvertEvenTo<Out>(in[i]);
}

// A few rows at a time, because hardware prefetchers can't follow hundreds of streams.
constexpr int kRows = 12;

// The row operations of ResizeFloat for any CPU: WeighRows is the vertical pass, see WeighSomeRows, WeighPixels the
// horizontal one, see WeighPixelsImpl.
struct Portable {
  template <class In>
  static void WeighRows(const In* const* rows, const float* w, int k, int64_t begin, int64_t n, float* out) {
    WeighSomeRows<false>(rows, w, std::min(k, kRows), begin, n, out);
    for (int j = kRows; j < k; j += kRows) WeighSomeRows<true>(rows + j, w + j, std::min(k - j, kRows), begin, n, out);
  }
  static void WeighPixels(const float* line, int32_t origin, const int32_t* first, const float* weight, int k,
                          int64_t n, int64_t c, float* out) {
    WeighPixelsImpl<false>(line, origin, first, weight, k, n, c, out);
  }
  template <class Out>
  static void Convert(const float* in, int64_t n, Out* out) {
    ConvertImpl(in, n, out);
  }
};

#if defined(JAXDALI_SIMD)
inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
JAXDALI_SIMD_FMA inline __m256 Load8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
JAXDALI_SIMD_FMA inline __m256 Load8(const int16_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(Load128(p))); }
JAXDALI_SIMD_FMA inline __m256 Load8(const uint16_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(Load128(p)));
}
JAXDALI_SIMD_FMA inline __m256 Load8(const Half* p) { return LoadFloats(p); }
JAXDALI_SIMD_FMA inline __m256 Load8(const BFloat16* p) { return LoadFloats(p); }
JAXDALI_SIMD_FMA inline __m256 Load8(const float* p) { return _mm256_loadu_ps(p); }

// WeighSomeRows with AVX2 (or NEON, see simd.h), because compilers do not vectorize its conversions to float.
template <bool kAdd, class In>
JAXDALI_SIMD_FMA void WeighSomeRowsSimd(const In* const* rows, const float* w, int k, int64_t begin, int64_t n,
                                        float* out) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256 acc[4];
    for (int b = 0; b < 4; b++) acc[b] = kAdd ? _mm256_loadu_ps(out + i + 8 * b) : _mm256_setzero_ps();
    for (int j = 0; j < k; j++) {
      const In* p = rows[j] + begin + i;
      const __m256 weight = _mm256_set1_ps(w[j]);
      for (int b = 0; b < 4; b++) acc[b] = _mm256_fmadd_ps(Load8(p + 8 * b), weight, acc[b]);
    }
    for (int b = 0; b < 4; b++) _mm256_storeu_ps(out + i + 8 * b, acc[b]);
  }
  if (i < n) WeighSomeRows<kAdd>(rows, w, k, begin + i, n - i, out + i);
}

// The same operations as Portable's, with AVX2 or NEON.
struct Simd {
  template <class In>
  static void WeighRows(const In* const* rows, const float* w, int k, int64_t begin, int64_t n, float* out) {
    WeighSomeRowsSimd<false>(rows, w, std::min(k, kRows), begin, n, out);
    for (int j = kRows; j < k; j += kRows)
      WeighSomeRowsSimd<true>(rows + j, w + j, std::min(k - j, kRows), begin, n, out);
  }
  JAXDALI_SIMD_FMA static void WeighPixels(const float* line, int32_t origin, const int32_t* first, const float* weight,
                                           int k, int64_t n, int64_t c, float* out) {
    WeighPixelsImpl<true>(line, origin, first, weight, k, n, c, out);
  }
  template <class Out>
  JAXDALI_SIMD_FMA static void Convert(const float* in, int64_t n, Out* out) {
    int64_t i = 0;
    if constexpr (kIsSmallFloat<Out>)
      for (; i + 8 <= n; i += 8) StoreFloats(_mm256_loadu_ps(in + i), out + i);
    ConvertImpl(in + i, n - i, out + i);
  }
};

#endif

// --- One sample ------------------------------------------------------------------------------------------------

// Working memory of a thread, kept between samples.
struct Scratch {
  Taps taps[3];
  U8Resizer u8;
  std::vector<float> line, row, ring, slice, weight;
  std::vector<int64_t> ring_rows;  // source row in each slot of the ring
  std::vector<uint8_t> rows;       // of ResizeRows: a ring of source rows, and a row of gray pixels
};

template <class T>
T* AtLeast(std::vector<T>& v, int64_t n) {
  if (static_cast<int64_t>(v.size()) < n) v.resize(n);
  return v.data();
}

// An element as the output's type, which is the input's or a float.
template <class Out, class In>
JAXDALI_INLINE Out ElementAs(In v) {
  if constexpr (std::is_same_v<In, Out>)
    return v;
  else
    return ConvertTo<Out>(static_cast<float>(v));
}

// Copies nearest neighbours: pixel x.first[i] of source row y.first[o] becomes pixel i of output row o. `row_size`:
// elements of a source row; `c`: channels.
template <class In, class Out>
void CopyNearest(const In* in, const Taps& y, const Taps& x, int64_t row_size, int64_t c, Out* out) {
  const int64_t out_row = x.n * c;
  for (int64_t o = 0; o < y.n; o++, out += out_row) {
    if (o && y.first[o] == y.first[o - 1]) {  // the row before comes from the same source row
      memcpy(out, out - out_row, out_row * sizeof(Out));
      continue;
    }
    const In* row = in + y.first[o] * row_size;
    if (c == 1) {
      for (int64_t i = 0; i < x.n; i++) out[i] = ElementAs<Out>(row[x.first[i]]);
    } else if (c == 3) {
      for (int64_t i = 0; i < x.n; i++)
        for (int b = 0; b < 3; b++) out[i * 3 + b] = ElementAs<Out>(row[x.first[i] * int64_t{3} + b]);
    } else {
      for (int64_t i = 0; i < x.n; i++)
        for (int64_t b = 0; b < c; b++) out[i * c + b] = ElementAs<Out>(row[x.first[i] * c + b]);
    }
  }
}

// Resizes one image by two passes in floats. K is Portable or Simd. `row_size`: elements of a source row. `c`:
// channels.
template <class K, class In, class Out>
void ResizeFloat(const In* in, const Taps& y, const Taps& x, int64_t row_size, int64_t c, Scratch& s, Out* out) {
  // Elements of a source row that are used, the first of them, and elements of an output row.
  const int64_t used = int64_t{x.hi - x.lo} * c, begin = x.lo * c, out_row = x.n * c;
  float* line = AtLeast(s.line, used + kMargin);
  float* row = AtLeast(s.row, out_row + kMargin);
  std::fill(line + used, line + used + kMargin, 0.0f);
  const float* weight = x.weight.data();
  int k = x.k;
  if (c == 1 && k % 4 != 0) {  // pads the weights of an output with zeros, see WeighPixelsImpl
    k = (k + 3) / 4 * 4;
    float* padded = AtLeast(s.weight, x.n * k);
    for (int64_t o = 0; o < x.n; o++)
      for (int j = 0; j < k; j++) padded[o * k + j] = j < x.k ? x.weight[o * x.k + j] : 0;
    weight = padded;
  }
  auto finish = [&](const float* values, int64_t o) {  // stores output row o
    if constexpr (std::is_same_v<Out, float>)
      memcpy(out + o * out_row, values, out_row * sizeof(float));
    else
      K::Convert(values, out_row, out + o * out_row);
  };
  std::vector<const In*> rows(y.k);

  // The cheaper order of the passes. A tap of the horizontal pass costs about twice as much.
  double vertical_first = static_cast<double>(y.n) * (static_cast<double>(used) * y.k + 2.0 * out_row * x.k);
  double horizontal_first =
      static_cast<double>(y.hi - y.lo) * (used + 2.0 * out_row * x.k) + static_cast<double>(y.n) * out_row * y.k;
  if (vertical_first <= horizontal_first) {
    for (int64_t o = 0; o < y.n; o++) {
      for (int j = 0; j < y.k; j++) rows[j] = in + (y.first[o] + j) * row_size;
      K::WeighRows(rows.data(), &y.weight[o * y.k], y.k, begin, used, line);
      K::WeighPixels(line, x.lo, x.first.data(), weight, k, x.n, c, row);
      finish(row, o);
    }
    return;
  }
  // A ring of horizontally resized rows. Any y.k neighbouring rows have different slots.
  const int64_t stride = out_row + kMargin;
  float* ring = AtLeast(s.ring, stride * y.k);
  s.ring_rows.assign(y.k, -1);
  std::vector<const float*> window(y.k);
  const float one = 1;  // the weight that turns a row into floats
  for (int64_t o = 0; o < y.n; o++) {
    for (int j = 0; j < y.k; j++) {
      int64_t source = y.first[o] + j, slot = source % y.k;
      float* resized = ring + slot * stride;
      window[j] = resized;
      if (s.ring_rows[slot] == source) continue;
      s.ring_rows[slot] = source;
      rows[0] = in + source * row_size;
      K::WeighRows(rows.data(), &one, /*k=*/1, begin, used, line);
      K::WeighPixels(line, x.lo, x.first.data(), weight, k, x.n, c, resized);
    }
    K::WeighRows(window.data(), &y.weight[o * y.k], y.k, /*begin=*/0, out_row, row);
    finish(row, o);
  }
}

// Resizes one image by the taps of its rows (y) and columns (x). `row_size`: elements of a source row; `c`: interleaved
// channels; `nearest`: all axes use nearest neighbours; `fixed`: s.u8 is initialized for this resize.
template <class In, class Out>
void ResizeImage(const In* in, const Taps& y, const Taps& x, int64_t row_size, int64_t c, bool nearest, bool fixed,
                 Scratch& s, Out* out) {
  if (nearest) return CopyNearest(in, y, x, row_size, c, out);
  if constexpr (std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>) {
    if (fixed) {
      std::vector<const uint8_t*> rows(y.k);
      for (int64_t o = 0; o < y.n; o++) {
        for (int j = 0; j < y.k; j++) rows[j] = in + (y.first[o] + j) * row_size;
        s.u8.Row(o, rows.data(), out + o * x.n * c);
      }
      return;
    }
  }
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return ResizeFloat<Simd>(in, y, x, row_size, c, s, out);
#endif
  ResizeFloat<Portable>(in, y, x, row_size, c, s, out);
}

// Resizes all images or volumes of a sample. `extent`: extents of the source in memory. The taps of the axes are in
// s.taps.
template <class In, class Out>
void ResizeSample(const ResizeJob& job, const int64_t* extent, bool nearest, Scratch& s) {
  const In* in = static_cast<const In*>(job.in);
  Out* out = static_cast<Out*>(job.out);
  const int rank = job.num_axes;
  const Taps &y = s.taps[1], &x = s.taps[2];
  const int64_t c = job.inner, row_size = extent[rank - 1] * c;
  const int64_t in_slice = row_size * (rank > 1 ? extent[rank - 2] : 1), out_slice = y.n * x.n * c;
  bool fixed = false;
  // 8 stands for all larger numbers of channels, which Init refuses, too.
  if constexpr (std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>)
    fixed = !nearest && s.u8.Init(y, x, static_cast<int>(std::min<int64_t>(c, 8)));
  if (rank < 3) {
    for (int64_t i = 0; i < job.outer; i++)
      ResizeImage(in + i * in_slice, y, x, row_size, c, nearest, fixed, s, out + i * out_slice);
    return;
  }
  // Volumes. Slices with one tap are resized as they are, others first become one slice of floats.
  const Taps& z = s.taps[0];
  std::vector<const In*> slices(z.k);
  for (int64_t i = 0; i < job.outer; i++, in += in_slice * extent[0]) {
    for (int64_t o = 0; o < z.n; o++, out += out_slice) {
      for (int j = 0; j < z.k; j++) slices[j] = in + (z.first[o] + j) * in_slice;
      if (z.k == 1) {
        ResizeImage(slices[0], y, x, row_size, c, nearest, fixed, s, out);
        continue;
      }
      float* slice = AtLeast(s.slice, in_slice);
#if defined(JAXDALI_SIMD)
      if (kHasSimd)
        Simd::WeighRows(slices.data(), &z.weight[o * z.k], z.k, /*begin=*/0, in_slice, slice);
      else
#endif
        Portable::WeighRows(slices.data(), &z.weight[o * z.k], z.k, /*begin=*/0, in_slice, slice);
      ResizeImage<float, Out>(slice, y, x, row_size, c, /*nearest=*/false, /*fixed=*/false, s, out);
    }
  }
}

// ResizeSample for the output's type, which is a float or the input's.
template <class In>
void ResizeTo(const ResizeJob& job, const int64_t* extent, bool nearest, Scratch& s) {
  if (job.out_type == DType::kF32)
    ResizeSample<In, float>(job, extent, nearest, s);
  else if (job.out_type == DType::kF16)
    ResizeSample<In, Half>(job, extent, nearest, s);
  else if (job.out_type == DType::kBF16)
    ResizeSample<In, BFloat16>(job, extent, nearest, s);
  else
    ResizeSample<In, In>(job, extent, nearest, s);
}

Scratch& ScratchOfThread() {
  static thread_local Scratch s;
  return s;
}

// Makes the taps of axis `d` of Axes (0: z, 1: y, 2: x). False: the filter is too wide. DALI accumulates positions of
// nearest neighbours along z and y, see Nearest.
bool MakeTaps(const Axes& axes, int d, Range outputs, Taps* taps) {
  return taps->Make(axes.axis[d], /*accumulate=*/d < 2, /*relative=*/d == axes.second, outputs);
}

// Makes the taps of a job's axes, counted from the first source sample in memory. kTooLarge: a filter is too wide;
// kInternal: a tap lies outside the source in memory.
Status TapsOf(const Axes& axes, const ResizeJob& job, const ResizePart& part, Scratch& s) {
  for (int a = 0; a < job.num_axes; a++) {
    const int d = a + 3 - job.num_axes;  // axis a of the job in Axes
    Taps& taps = s.taps[d];
    if (!MakeTaps(axes, d, part.output[a], &taps)) return kTooLarge;
    if (taps.lo < part.source[a].begin || taps.hi > part.source[a].end) return kInternal;
    taps.CountFrom(part.source[a].begin);
  }
  return kOk;
}

// ResizeSample for the types of a job. kInternal: there is no kernel for the input's type.
Status ResizeTyped(const ResizeJob& job, const int64_t* extent, bool nearest, Scratch& s) {
  switch (job.in_type) {
    case DType::kU8:
      ResizeTo<uint8_t>(job, extent, nearest, s);
      return kOk;
    case DType::kI16:
      ResizeTo<int16_t>(job, extent, nearest, s);
      return kOk;
    case DType::kU16:
      ResizeTo<uint16_t>(job, extent, nearest, s);
      return kOk;
    case DType::kF16:
      ResizeTo<Half>(job, extent, nearest, s);
      return kOk;
    case DType::kBF16:
      ResizeTo<BFloat16>(job, extent, nearest, s);
      return kOk;
    case DType::kF32:
      ResizeTo<float>(job, extent, nearest, s);
      return kOk;
    default:
      return kInternal;
  }
}

}  // namespace

ResizePart ResizePart::Whole(const ResizeJob& job) {
  ResizePart part;
  for (int a = 0; a < job.num_axes; a++)
    part.output[a] = {0, job.out_extent[a]}, part.source[a] = {0, job.in_extent[a]};
  return part;
}

// Sets part->source to the source samples that part->output depends on.
Status SourceOf(const ResizeJob& job, ResizePart* part) {
  if (job.convention != Convention::kDali) return ResampleSourceOf(job, part);
  Axes axes;
  if (Status status = axes.Make(job); status != kOk) return status;
  for (int a = 0; a < job.num_axes; a++) {
    const int d = a + 3 - job.num_axes;  // axis a of the job in Axes
    // The first taps rise or fall monotonically with the output, so the first and the last output give the range.
    const int64_t ends[2] = {part->output[a].begin, part->output[a].end - 1};
    for (int e = 0; e < 2; e++) {
      Taps& taps = ScratchOfThread().taps[d];
      if (!MakeTaps(axes, d, {ends[e], ends[e] + 1}, &taps)) return kTooLarge;
      Range& source = part->source[a];
      source = e == 0 ? Range{taps.lo, taps.hi}
                      : Range{std::min<int64_t>(source.begin, taps.lo), std::max<int64_t>(source.end, taps.hi)};
    }
  }
  return kOk;
}

// Resizes a part of a job. kTooLarge: a filter is too wide.
Status ResizeSome(const ResizeJob& job, const ResizePart& part) {
  if (job.convention != Convention::kDali) return ResampleSome(job, part);
  Scratch& s = ScratchOfThread();
  if (!ResizeTypes(job.in_type, job.out_type)) return kInternal;
  int64_t size = job.outer * job.inner, extent[3];  // elements of the output; extents of the source
  for (int a = 0; a < job.num_axes; a++) size *= part.output[a].size(), extent[a] = part.source[a].size();
  if (size == 0) return kOk;
  Axes axes;
  if (Status status = axes.Make(job); status != kOk) return status;
  if (Status status = TapsOf(axes, job, part, s); status != kOk) return status;
  // An image of one row: the vertical pass has one output and one tap.
  if (job.num_axes == 1 && !MakeTaps(axes, /*d=*/1, /*outputs=*/{0, 1}, &s.taps[1])) return kTooLarge;
  return ResizeTyped(job, extent, axes.nearest, s);
}

// Resizes bytes row by row, see resize.h. False: this resize is not supported, or a row was missing.
bool ResizeRows(const ResizeJob& job, const ResizePart& part, const std::function<bool(uint8_t*)>& next, bool gray) {
  if (job.convention != Convention::kDali) return ResampleRows(job, part, next, gray);
  if (job.in_type != DType::kU8 || job.out_type != DType::kU8 || job.num_axes != 2 || job.outer != 1) return false;
  if (gray && job.inner != 3) return false;
  if (part.output[0].size() * part.output[1].size() * job.inner == 0) return false;
  Scratch& s = ScratchOfThread();
  Axes axes;
  if (axes.Make(job) != kOk || axes.nearest || TapsOf(axes, job, part, s) != kOk) return false;
  const Taps &y = s.taps[1], &x = s.taps[2];
  if (!std::is_sorted(y.first.begin(), y.first.begin() + y.n)) return false;  // mirrored
  const int64_t channels = gray ? 1 : job.inner;
  // 8 stands for all larger numbers of channels, which Init refuses, too.
  if (!s.u8.Init(y, x, static_cast<int>(std::min<int64_t>(channels, 8)))) return false;
  // A ring, in which any y.k neighbouring rows have different slots, and a resized row of gray pixels.
  const int64_t row_size = part.source[1].size() * channels;
  uint8_t* ring = AtLeast(s.rows, y.k * row_size + x.n);
  uint8_t* resized = ring + y.k * row_size;
  std::vector<const uint8_t*> window(y.k);
  int64_t received = 0;               // rows
  auto receive = [&](int64_t rows) {  // until there are so many; false: a row is missing
    while (received < rows && next(ring + received % y.k * row_size)) received++;
    return received >= rows;
  };
  for (int64_t o = 0; o < y.n; o++) {
    if (!receive(int64_t{y.first[o]} + y.k)) return false;
    for (int j = 0; j < y.k; j++) window[j] = ring + (y.first[o] + j) % y.k * row_size;
    uint8_t* to = static_cast<uint8_t*>(job.out) + o * x.n * job.inner;
    s.u8.Row(o, window.data(), gray ? resized : to);
    if (gray) Triple(resized, x.n, to);
  }
  return receive(part.source[0].size());  // also rows that no output depends on
}

// The CPU kernel: makes sample i of the output.
Status Resize(const ResizeBatch& batch, int i) {
  ResizeJob job;
  const Status s = batch.Sample(i, &job);
  return s == kOk ? ResizeSome(job, ResizePart::Whole(job)) : s;
}

}  // namespace jaxdali
