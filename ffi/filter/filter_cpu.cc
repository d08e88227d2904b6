// CPU kernel of separable filters, in float. Class Slices filters along the rows, then across the last few of them. A
// third axis, if there is one, comes last, from a volume of floats. All axes use the same sum of rows (WeighRows), with
// AVX-512, AVX2 or NEON, or none.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ffi/common/rows.h"
#include "ffi/common/simd.h"
#include "ffi/filter/filter.h"

namespace jaxdali {
namespace {

// Sums rows: out[i] = sum of weights[k] * from[k][i], k < taps, i < n. A filter along a row is the same sum, of the row
// itself, shifted.
void Weigh(const float* const* from, const float* weights, int taps, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) {
    float sum = 0;
    for (int k = 0; k < taps; k++) sum += from[k][i] * weights[k];
    out[i] = sum;
  }
}

#if defined(JAXDALI_SIMD)
// Weigh with AVX2 or NEON, from element i on. Sums of 32 elements at a time stay in registers, as variables, because
// compilers keep arrays of vectors in memory.
JAXDALI_SIMD_FMA void WeighSimd(const float* const* from, int64_t i, const float* weights, int taps, int64_t n,
                                float* out) {
  for (; i + 32 <= n; i += 32) {
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    for (int k = 0; k < taps; k++) {
      const float* v = from[k] + i;
      const __m256 weight = _mm256_broadcast_ss(weights + k);
      a = _mm256_fmadd_ps(_mm256_loadu_ps(v), weight, a);
      b = _mm256_fmadd_ps(_mm256_loadu_ps(v + 8), weight, b);
      c = _mm256_fmadd_ps(_mm256_loadu_ps(v + 16), weight, c);
      d = _mm256_fmadd_ps(_mm256_loadu_ps(v + 24), weight, d);
    }
    _mm256_storeu_ps(out + i, a);
    _mm256_storeu_ps(out + i + 8, b);
    _mm256_storeu_ps(out + i + 16, c);
    _mm256_storeu_ps(out + i + 24, d);
  }
  for (; i + 8 <= n; i += 8) {
    __m256 sum = _mm256_setzero_ps();
    for (int k = 0; k < taps; k++)
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(from[k] + i), _mm256_broadcast_ss(weights + k), sum);
    _mm256_storeu_ps(out + i, sum);
  }
  for (; i < n; i++) {
    float sum = 0;
    for (int k = 0; k < taps; k++) sum = std::fma(from[k][i], weights[k], sum);
    out[i] = sum;
  }
}
#endif

#if defined(JAXDALI_AVX512)
// Weigh with AVX-512, 64 elements at a time; the rest by WeighSimd.
JAXDALI_AVX512 void WeighAvx512(const float* const* from, const float* weights, int taps, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (int k = 0; k < taps; k++) {
      const float* v = from[k] + i;
      const __m512 weight = _mm512_set1_ps(weights[k]);
      a = _mm512_fmadd_ps(_mm512_loadu_ps(v), weight, a);
      b = _mm512_fmadd_ps(_mm512_loadu_ps(v + 16), weight, b);
      c = _mm512_fmadd_ps(_mm512_loadu_ps(v + 32), weight, c);
      d = _mm512_fmadd_ps(_mm512_loadu_ps(v + 48), weight, d);
    }
    _mm512_storeu_ps(out + i, a);
    _mm512_storeu_ps(out + i + 16, b);
    _mm512_storeu_ps(out + i + 32, c);
    _mm512_storeu_ps(out + i + 48, d);
  }
  WeighSimd(from, i, weights, taps, n, out);
}
#endif

// out[i] = sum of weights[k] * from[k][i], k < taps, i < n: Weigh in the version for this CPU.
void WeighRows(const float* const* from, const float* weights, int taps, int64_t n, float* out) {
#if defined(JAXDALI_AVX512)
  if (kHasAvx512) return WeighAvx512(from, weights, taps, n, out);
#endif
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return WeighSimd(from, /*i=*/0, weights, taps, n, out);
#endif
  Weigh(from, weights, taps, n, out);
}

// Filters slices [n[1], n[2], inner] along both their axes.
class Slices {
 public:
  explicit Slices(const FilterArgs& a)
      : a_(a),
        row_(a.n[2] * a.inner),
        padded_(static_cast<size_t>((a.n[2] + a.taps[2] - 1) * a.inner)),
        ring_(static_cast<size_t>(row_ * a.taps[1])),
        from_(static_cast<size_t>(std::max(a.taps[1], a.taps[2]))),
        ring_rows_(static_cast<size_t>(a.taps[1])) {}

  // Filters the slice that begins at element `first`, and calls put(y, row).
  template <class Put>
  void Filter(int64_t first, Put put) {
    std::vector<float> out(static_cast<size_t>(row_));
    const int centre = a_.taps[1] / 2;  // number of the centre tap
    std::fill(ring_rows_.begin(), ring_rows_.end(), -1);
    for (int64_t y = 0; y < a_.n[1]; y++) {
      if (a_.taps[1] == 1 && !a_.window[1]) {  // not filtered along this axis
        put(y, Row(first, y));
        continue;
      }
      for (int k = 0; k < a_.taps[1]; k++) from_y_[k] = Row(first, Reflect(y - centre + k, a_.n[1]));
      WeighRows(from_y_.data(), a_.window[1], a_.taps[1], row_, out.data());
      put(y, out.data());
    }
  }
  // Makes room for the rows that are summed across each other. It must be called before Filter.
  void Prepare() { from_y_.resize(static_cast<size_t>(a_.taps[1])); }

 private:
  // Row y, filtered along itself. One output row needs at most taps[1] neighbouring rows, which have different slots of
  // the ring.
  const float* Row(int64_t first, int64_t y) {
    const size_t slot = static_cast<size_t>(y % a_.taps[1]);
    float* to = ring_.data() + static_cast<int64_t>(slot) * row_;
    if (ring_rows_[slot] == y) return to;
    ring_rows_[slot] = y;
    const int centre = a_.taps[2] / 2;
    float* middle = padded_.data() + centre * a_.inner;
    LoadRow(a_.in_type, a_.in, first + y * row_, /*step=*/1, row_, middle);
    for (int x = 1; x <= centre; x++) Mirror(-x, middle);
    for (int x = 0; x < a_.taps[2] - 1 - centre; x++) Mirror(a_.n[2] + x, middle);
    for (int k = 0; k < a_.taps[2]; k++) from_[static_cast<size_t>(k)] = padded_.data() + k * a_.inner;
    WeighRows(from_.data(), a_.window[2], a_.taps[2], row_, to);
    return to;
  }
  // Writes pixel x of the padded row, which is beyond an end of the row that begins at `middle`.
  void Mirror(int64_t x, float* middle) {
    std::copy_n(middle + Reflect(x, a_.n[2]) * a_.inner, a_.inner, middle + x * a_.inner);
  }

  const FilterArgs& a_;
  int64_t row_;                              // elements of a row
  std::vector<float> padded_;                // a row of the input, mirrored at both ends
  std::vector<float> ring_;                  // filtered rows
  std::vector<const float*> from_, from_y_;  // rows that are summed, along and across rows
  std::vector<int64_t> ring_rows_;           // the row in each slot of the ring; -1: none
};

// Filters a sample: its slices and, if the third axis is filtered, a volume of filtered slices along this axis.
void Run(const FilterArgs& a) {
  const int64_t row = a.n[2] * a.inner, slice = a.n[1] * row;
  Slices slices(a);
  slices.Prepare();
  if (!a.window[0]) {
    for (int64_t s = 0; s < a.outer; s++)
      slices.Filter(s * slice, [&](int64_t y, const float* values) {
        StoreRow(a.out_type, values, row, a.out, s * slice + y * row);
      });
    return;
  }
  std::vector<float> volume(static_cast<size_t>(a.n[0] * slice)), out(static_cast<size_t>(row));
  std::vector<const float*> from(static_cast<size_t>(a.taps[0]));
  for (int64_t s = 0; s < a.outer; s++) {
    for (int64_t z = 0; z < a.n[0]; z++)
      slices.Filter((s * a.n[0] + z) * slice, [&](int64_t y, const float* values) {
        std::copy_n(values, row, volume.data() + z * slice + y * row);
      });
    for (int64_t z = 0; z < a.n[0]; z++) {
      for (int64_t y = 0; y < a.n[1]; y++) {
        for (int k = 0; k < a.taps[0]; k++)
          from[static_cast<size_t>(k)] = volume.data() + Reflect(z - a.taps[0] / 2 + k, a.n[0]) * slice + y * row;
        WeighRows(from.data(), a.window[0], a.taps[0], row, out.data());
        StoreRow(a.out_type, out.data(), row, a.out, (s * a.n[0] + z) * slice + y * row);
      }
    }
  }
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Filter(const FilterBatch& batch, int i) {
  FilterArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (batch.out.size(i) == 0) return kOk;
  Run(a);
  return kOk;
}

}  // namespace jaxdali
