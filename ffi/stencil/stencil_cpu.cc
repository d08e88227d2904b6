// CPU kernel of window reductions. Class Rows keeps the rows of a window as floats, extended beyond the border, and
// ReduceRows makes a row of the output from them: sums, extremes and small medians in vectors of 32 floats (AVX2, NEON,
// or those of any CPU), large medians by std::nth_element.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "ffi/common/rows.h"
#include "ffi/common/simd.h"
#include "ffi/stencil/stencil.h"

namespace jaxdali {
namespace {

constexpr int kEach = 32;    // elements at a time
constexpr int kSorted = 49;  // windows up to this size are sorted in vectors

// kEach elements in vectors of kBytes, the size of a register. Compilers vectorize neither comparisons in loops nor
// sums that stay in registers.
template <int kBytes>
struct Elements {
  using Vector __attribute__((vector_size(kBytes))) = float;
  static constexpr int kParts = kEach * static_cast<int>(sizeof(float)) / kBytes;
  Vector part[kParts];

  JAXDALI_INLINE void Load(const float* from) { std::memcpy(part, from, sizeof part); }
  JAXDALI_INLINE void Store(float* to) const { std::memcpy(to, part, sizeof part); }
};

// The medians of kEach windows, by half a selection sort: each round moves the smallest remaining value to the front,
// and the last round that is needed leaves the median there.
template <int kBytes>
JAXDALI_INLINE void Median(const float* const* from, int64_t taps, int64_t i, float* out) {
  Elements<kBytes> v[kSorted];
  for (int64_t k = 0; k < taps; k++) v[k].Load(from[k] + i);
  for (int64_t first = 0; first <= taps / 2; first++) {
    for (int64_t k = first + 1; k < taps; k++) {
      for (int p = 0; p < Elements<kBytes>::kParts; p++) {
        const auto a = v[first].part[p], b = v[k].part[p];
        v[first].part[p] = a < b ? a : b;
        v[k].part[p] = a < b ? b : a;
      }
    }
  }
  v[taps / 2].Store(out);
}

// The value with which a sum or an extreme begins.
constexpr float Start(StencilReduction reduction) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return reduction == StencilReduction::kMax ? -kInfinity : reduction == StencilReduction::kMin ? kInfinity : 0;
}

// Adds a weighted vector to a sum, or makes an extreme of both. An extreme leaves out values that are NaN.
template <StencilReduction kReduction, class Vector>
JAXDALI_INLINE void Take(const float* from, float weight, Vector* result) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  if constexpr (kReduction == StencilReduction::kSum)
    *result += v * weight;
  else
    *result = kReduction == StencilReduction::kMax ? (v > *result ? v : *result) : (v < *result ? v : *result);
}

// The sums or extremes of kEach windows. Results are variables, because compilers keep arrays of vectors in memory.
template <int kBytes, StencilReduction kReduction>
JAXDALI_INLINE void SumOrExtreme(const float* const* from, const float* weights, int64_t taps, int64_t i, float* out) {
  using Vector = typename Elements<kBytes>::Vector;
  constexpr int kLanes = kBytes / static_cast<int>(sizeof(float));
  constexpr bool kIsSum = kReduction == StencilReduction::kSum;
  static_assert(kEach % (4 * kLanes) == 0);
  const Vector start = Vector{} + Start(kReduction);
  for (int j = 0; j < kEach; j += 4 * kLanes) {
    Vector a = start, b = start, c = start, d = start;
    for (int64_t k = 0; k < taps; k++) {
      const float* v = from[k] + i + j;
      const float weight = kIsSum ? weights[k] : 0;
      Take<kReduction>(v, weight, &a);
      Take<kReduction>(v + kLanes, weight, &b);
      Take<kReduction>(v + 2 * kLanes, weight, &c);
      Take<kReduction>(v + 3 * kLanes, weight, &d);
    }
    std::memcpy(out + j, &a, sizeof a);
    std::memcpy(out + j + kLanes, &b, sizeof b);
    std::memcpy(out + j + 2 * kLanes, &c, sizeof c);
    std::memcpy(out + j + 3 * kLanes, &d, sizeof d);
  }
}

// Reduces from[k][i], k < taps, to out[i]. Each row has kEach extra elements.
template <int kBytes>
JAXDALI_INLINE void Reduce(StencilReduction reduction, const float* const* from, const float* weights, int64_t taps,
                           int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kEach) {
    switch (reduction) {
      case StencilReduction::kSum:
        SumOrExtreme<kBytes, StencilReduction::kSum>(from, weights, taps, i, out + i);
        break;
      case StencilReduction::kMax:
        SumOrExtreme<kBytes, StencilReduction::kMax>(from, weights, taps, i, out + i);
        break;
      case StencilReduction::kMin:
        SumOrExtreme<kBytes, StencilReduction::kMin>(from, weights, taps, i, out + i);
        break;
      case StencilReduction::kMedian:
        Median<kBytes>(from, taps, i, out + i);
        break;
      case StencilReduction::kCount:
        break;
    }
  }
}

#if defined(JAXDALI_SIMD)
JAXDALI_SIMD void ReduceSimd(StencilReduction reduction, const float* const* from, const float* weights, int64_t taps,
                             int64_t n, float* out) {
  Reduce<kSimdBytes>(reduction, from, weights, taps, n, out);
}
#endif

// Reduce for any number of taps, in the version for this CPU. Large medians are made element by element.
void ReduceRows(StencilReduction reduction, const float* const* from, const float* weights, int64_t taps, int64_t n,
                float* out) {
  if (reduction == StencilReduction::kMedian && taps > kSorted) {
    std::vector<float> values(static_cast<size_t>(taps));
    for (int64_t i = 0; i < n; i++) {
      for (int64_t k = 0; k < taps; k++) values[static_cast<size_t>(k)] = from[k][i];
      std::nth_element(values.begin(), values.begin() + taps / 2, values.end());
      out[i] = values[static_cast<size_t>(taps / 2)];
    }
    return;
  }
#if defined(JAXDALI_SIMD)
  if (kHasSimd) return ReduceSimd(reduction, from, weights, taps, n, out);
#endif
  Reduce<16>(reduction, from, weights, taps, n, out);
}

// The rows of the windows of one sample. Each row of a window (z, y) has a slot, which the rows of the following
// windows take over in turn.
class Rows {
 public:
  Rows(const StencilBatch& b, const StencilArgs& a)
      : b_(b),
        a_(a),
        outside_(b.reduction == StencilReduction::kMax || b.reduction == StencilReduction::kMin ? Start(b.reduction)
                                                                                                : a.fill),
        width_(a.out_n[2] + a.window[2] - 1),
        length_(width_ * a.inner + kEach),
        slots_(a.window[0] * a.window[1]),
        rows_(static_cast<size_t>(slots_ * length_), 0.0f),
        loaded_(static_cast<size_t>(a.n[2] * a.inner)),
        slot_rows_(static_cast<size_t>(slots_), SlotRow{-1, 0, 0}),
        from_(static_cast<size_t>(a.Taps())),
        out_(static_cast<size_t>(a.out_n[2] * a.inner + kEach)) {}

  // Makes the sample row by row: finds the rows of its windows, reduces them, and stores the result.
  void Run() {
    const int64_t row = a_.out_n[2] * a_.inner;
    int64_t out_element = 0;
    for (int64_t s = 0; s < a_.outer; s++) {
      for (int64_t z = 0; z < a_.out_n[0]; z++) {
        for (int64_t y = 0; y < a_.out_n[1]; y++, out_element += row) {
          size_t tap = 0;
          for (int64_t i = 0; i < a_.window[0]; i++) {
            for (int64_t j = 0; j < a_.window[1]; j++) {
              const float* first = Row(s, z + i, y + j);
              for (int64_t k = 0; k < a_.window[2]; k++) from_[tap++] = first + k * a_.inner;
            }
          }
          ReduceRows(b_.reduction, from_.data(), a_.weights, a_.Taps(), row, out_.data());
          StoreRow(b_.out.dtype, out_.data(), row, a_.out, out_element);
        }
      }
    }
  }

 private:
  // The row that a slot has. outer -1: none.
  struct SlotRow {
    int64_t outer, z, y;
  };

  // Row (z - anchor, y - anchor) of a frame, from its pixel -anchor on, extended beyond the borders. It is made in the
  // slot of this row of a window, unless it is already there.
  const float* Row(int64_t outer, int64_t z, int64_t y) {
    const int64_t slot = z % a_.window[0] * a_.window[1] + y % a_.window[1];
    float* row = rows_.data() + slot * length_;
    SlotRow& slot_row = slot_rows_[static_cast<size_t>(slot)];
    if (slot_row.outer == outer && slot_row.z == z && slot_row.y == y) return row;
    slot_row = {outer, z, y};
    const int64_t from_z = Inside(b_.border, z - a_.anchor[0], a_.n[0]);
    const int64_t from_y = Inside(b_.border, y - a_.anchor[1], a_.n[1]);
    if (from_z < 0 || from_y < 0) {
      std::fill_n(row, width_ * a_.inner, outside_);
      return row;
    }
    const int64_t n = a_.n[2];
    LoadRow(b_.in.dtype, a_.in, ((outer * a_.n[0] + from_z) * a_.n[1] + from_y) * n * a_.inner, /*step=*/1,
            n * a_.inner, loaded_.data());
    // Pixels first ... last - 1 of the extended row are those of the input.
    const int64_t first = std::clamp<int64_t>(a_.anchor[2], 0, width_),
                  last = std::clamp(n + a_.anchor[2], first, width_);
    for (int64_t x = 0; x < first; x++) PutBeyond(x, row);
    std::copy_n(loaded_.data() + (first - a_.anchor[2]) * a_.inner, (last - first) * a_.inner, row + first * a_.inner);
    for (int64_t x = last; x < width_; x++) PutBeyond(x, row);
    return row;
  }
  // Writes pixel x of an extended row, which is beyond the border of the input.
  void PutBeyond(int64_t x, float* row) {
    const int64_t from = Inside(b_.border, x - a_.anchor[2], a_.n[2]);
    if (from < 0)
      std::fill_n(row + x * a_.inner, a_.inner, outside_);
    else
      std::copy_n(loaded_.data() + from * a_.inner, a_.inner, row + x * a_.inner);
  }

  const StencilBatch& b_;
  const StencilArgs& a_;
  float outside_;  // the value beyond a constant border: one that does not change an extreme, or the fill
  int64_t width_, length_, slots_;    // pixels and elements of an extended row; rows of a window
  std::vector<float> rows_, loaded_;  // [slots, length]: the slots; a row of the input
  std::vector<SlotRow> slot_rows_;    // [slots]
  std::vector<const float*> from_;    // for each tap, where its value for the first element is
  std::vector<float> out_;            // a row of the output
};

}  // namespace

// The CPU kernel: makes sample i of the output.
Status RunStencil(const StencilBatch& batch, int i) {
  StencilArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (batch.out.size(i) == 0) return kOk;
  Rows(batch, a).Run();
  return kOk;
}

}  // namespace jaxdali
