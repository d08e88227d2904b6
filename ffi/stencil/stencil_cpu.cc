// CPU kernel of reductions of windows: rows in floats, of which those of a window stay, with what is beyond the border.
#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "ffi/common/rows.h"
#include "ffi/common/simd.h"
#include "ffi/stencil/stencil.h"

namespace jaxdali {
namespace {

constexpr int kEach = 16;    // elements at a time
constexpr int kSorted = 49;  // windows up to this size are sorted in vectors

// The medians of kEach windows: in each round the smallest of the values that are left goes to their beginning.
JAXDALI_INLINE void Median(const float* const* from, int64_t taps, int64_t i, float* out) {
  float v[kSorted][kEach];
  for (int64_t k = 0; k < taps; k++) std::memcpy(v[k], from[k] + i, sizeof v[k]);
  for (int64_t first = 0; first <= taps / 2; first++) {
    for (int64_t k = first + 1; k < taps; k++) {
      for (int e = 0; e < kEach; e++) {
        const float a = v[first][e], b = v[k][e];
        v[first][e] = a < b ? a : b;
        v[k][e] = a < b ? b : a;
      }
    }
  }
  std::memcpy(out, v[taps / 2], sizeof v[0]);
}

template <class F>
JAXDALI_INLINE void Fold(const float* const* from, int64_t taps, int64_t i, float* out, F f) {
  float sum[kEach];
  std::memcpy(sum, from[0] + i, sizeof sum);
  for (int64_t k = 1; k < taps; k++) {
    const float* v = from[k] + i;
    for (int e = 0; e < kEach; e++) sum[e] = f(sum[e], v[e]);
  }
  std::memcpy(out, sum, sizeof sum);
}

// out[i] of from[k][i], k < taps. There are kEach elements more behind each row.
JAXDALI_INLINE void Reduce(StencilReduction what, const float* const* from, const float* weights, int64_t taps,
                           int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kEach) {
    if (what == StencilReduction::kSum) {
      float sum[kEach] = {};
      for (int64_t k = 0; k < taps; k++) {
        const float *v = from[k] + i, weight = weights[k];
        for (int e = 0; e < kEach; e++) sum[e] += v[e] * weight;
      }
      std::memcpy(out + i, sum, sizeof sum);
    } else if (what == StencilReduction::kMedian) {
      Median(from, taps, i, out + i);
    } else if (what == StencilReduction::kMax) {
      Fold(from, taps, i, out + i, [](float a, float b) { return a > b ? a : b; });
    } else {
      Fold(from, taps, i, out + i, [](float a, float b) { return a < b ? a : b; });
    }
  }
}

#if defined(__x86_64__)
JAXDALI_AVX2 void ReduceAvx2(StencilReduction what, const float* const* from, const float* weights, int64_t taps,
                             int64_t n, float* out) {
  Reduce(what, from, weights, taps, n, out);
}
#endif

void ReduceRows(StencilReduction what, const float* const* from, const float* weights, int64_t taps, int64_t n,
                float* out) {
  if (what == StencilReduction::kMedian && taps > kSorted) {
    std::vector<float> values(static_cast<size_t>(taps));
    for (int64_t i = 0; i < n; i++) {
      for (int64_t k = 0; k < taps; k++) values[static_cast<size_t>(k)] = from[k][i];
      std::nth_element(values.begin(), values.begin() + taps / 2, values.end());
      out[i] = values[static_cast<size_t>(taps / 2)];
    }
    return;
  }
#if defined(__x86_64__)
  if (kHasAvx2) return ReduceAvx2(what, from, weights, taps, n, out);
#endif
  Reduce(what, from, weights, taps, n, out);
}

class Rows {
 public:
  Rows(const StencilBatch& b, const StencilArgs& a)
      : b_(b),
        a_(a),
        outside_(b.what == StencilReduction::kMax   ? -std::numeric_limits<float>::infinity()
                 : b.what == StencilReduction::kMin ? std::numeric_limits<float>::infinity()
                                                    : a.fill),
        width_(a.out_n[2] + a.window[2] - 1),
        length_(width_ * a.inner + kEach),
        slots_(a.window[0] * a.window[1]),
        rows_(static_cast<size_t>(slots_ * length_), 0.0f),
        loaded_(static_cast<size_t>(a.n[2] * a.inner)),
        held_(static_cast<size_t>(slots_), Held{-1, 0, 0}),
        from_(static_cast<size_t>(a.Taps())),
        out_(static_cast<size_t>(a.out_n[2] * a.inner + kEach)) {}

  void Run() {
    const int64_t row = a_.out_n[2] * a_.inner;
    int64_t at = 0;
    for (int64_t s = 0; s < a_.outer; s++) {
      for (int64_t z = 0; z < a_.out_n[0]; z++) {
        for (int64_t y = 0; y < a_.out_n[1]; y++, at += row) {
          size_t tap = 0;
          for (int64_t i = 0; i < a_.window[0]; i++) {
            for (int64_t j = 0; j < a_.window[1]; j++) {
              const float* first = Row(s, z + i, y + j);
              for (int64_t k = 0; k < a_.window[2]; k++) from_[tap++] = first + k * a_.inner;
            }
          }
          ReduceRows(b_.what, from_.data(), a_.weights, a_.Taps(), row, out_.data());
          StoreRow(b_.out.dtype, out_.data(), row, a_.out, at);
        }
      }
    }
  }

 private:
  struct Held {
    int64_t outer, z, y;
  };

  // Row (z - anchor, y - anchor) of a frame, from its element -anchor on. A window's rows have a slot each.
  const float* Row(int64_t outer, int64_t z, int64_t y) {
    const int64_t slot = z % a_.window[0] * a_.window[1] + y % a_.window[1];
    float* row = rows_.data() + slot * length_;
    Held& held = held_[static_cast<size_t>(slot)];
    if (held.outer == outer && held.z == z && held.y == y) return row;
    held = {outer, z, y};
    const int64_t from_z = Inside(b_.border, z - a_.anchor[0], a_.n[0]);
    const int64_t from_y = Inside(b_.border, y - a_.anchor[1], a_.n[1]);
    if (from_z < 0 || from_y < 0) {
      std::fill_n(row, width_ * a_.inner, outside_);
      return row;
    }
    const int64_t n = a_.n[2];
    LoadRow(b_.in.dtype, a_.in, ((outer * a_.n[0] + from_z) * a_.n[1] + from_y) * n * a_.inner, 1, n * a_.inner,
            loaded_.data());
    const int64_t first = std::clamp<int64_t>(a_.anchor[2], 0, width_),
                  last = std::clamp(n + a_.anchor[2], first, width_);
    for (int64_t x = 0; x < first; x++) PutBeyond(x, row);
    std::copy_n(loaded_.data() + (first - a_.anchor[2]) * a_.inner, (last - first) * a_.inner, row + first * a_.inner);
    for (int64_t x = last; x < width_; x++) PutBeyond(x, row);
    return row;
  }
  void PutBeyond(int64_t x, float* row) {
    const int64_t from = Inside(b_.border, x - a_.anchor[2], a_.n[2]);
    if (from < 0)
      std::fill_n(row + x * a_.inner, a_.inner, outside_);
    else
      std::copy_n(loaded_.data() + from * a_.inner, a_.inner, row + x * a_.inner);
  }

  const StencilBatch& b_;
  const StencilArgs& a_;
  float outside_;
  int64_t width_, length_, slots_;
  std::vector<float> rows_, loaded_;
  std::vector<Held> held_;
  std::vector<const float*> from_;
  std::vector<float> out_;
};

}  // namespace

Status RunStencil(const StencilBatch& batch, int i) {
  StencilArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  if (batch.out.size(i) == 0) return kOk;
  try {
    Rows(batch, a).Run();
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
  return kOk;
}

}  // namespace jaxdali
