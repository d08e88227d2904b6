// The tables of the filters, and the taps made from them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ffi/resize/resize.h"

namespace jaxdali {

// The tables are made at the first call. Their sizes and arithmetic are DALI's, so that weights equal its weights.
const FilterTables& FilterTables::Get() {
  static const FilterTables tables = [] {
    FilterTables t;
    for (int i = 0; i < 129; i++) {  // Catmull-Rom over [-2, 2]: Keys' cubic with a = -0.5
      float x = std::fabs(4 * (i - 64) / 128.0f);
      t.cubic[i] = x >= 2 ? 0 : x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
    }
    auto sinc = [](float x) {
      double v = x * M_PI;
      return v == 0 ? 1.0f : static_cast<float>(std::sin(v) / v);
    };
    for (int i = 0; i < 193; i++) {  // sinc, windowed by a wider sinc, over [-3, 3]
      float x = 6 * (i - 96) / 192.0f;
      t.lanczos[i] = std::fabs(x) >= 3 ? 0 : sinc(x) * sinc(x / 3);
    }
    for (int i = 0; i < 65; i++) {  // exp(-x^2) over [-2, 2]; Axis::Make chooses the width so that sigma fits
      float x = 4 * (i - 32) / 64.0f;
      t.gaussian[i] = std::exp(-x * x);
    }
    return t;
  }();
  return tables;
}

// Writes first[o] and the k weights of each output. `raw` has the weights of all `support` taps of the filter, inside
// the source or not; `last` is the last source sample.
bool Taps::Make(const Axis& axis, bool accumulate, bool relative, Range outputs) {
  if (!axis.representable()) return false;
  n = outputs.size();
  const int support = static_cast<int>(axis.support);
  const int last = static_cast<int>(axis.n_in) - 1;
  k = std::min(support, last + 1);
  first.resize(n);
  weight.resize(n * k);
  negative = axis.filter == Interp::kCubic || axis.filter == Interp::kLanczos3;

  if (axis.filter == Interp::kNN) {
    const Nearest nearest = Nearest::Make(axis, accumulate, relative);
    float position = accumulate ? nearest.Accumulated(outputs.begin) : 0;
    for (int64_t o = 0; o < n; o++) {
      first[o] = nearest.Index(accumulate ? position : nearest.At(outputs.begin + o));
      weight[o] = 1;
      position += axis.scale;
    }
  } else {
    const FilterTable table = FilterTables::Get()[axis.filter];
    std::vector<float> raw(support);
    for (int64_t o = 0; o < n; o++) {
      const TapWindow window = TapWindow::Of(axis, outputs.begin + o);
      const int f = window.first;
      // Weights are normalized by their sum before those outside the source are added to the edge, as in DALI.
      float sum = 0;
      if (axis.filter == Interp::kLinear) {
        for (int j = 0; j < support; j++) {
          raw[j] = window.Linear(axis, j);
          sum += raw[j];
        }
      } else {
        for (int j = 0; j < support; j++) {
          raw[j] = window.Weight(axis, table, j);
          sum += raw[j];
        }
      }
      float norm = sum != 0 ? 1 / sum : 0;
      float* w = &weight[o * k];
      int begin = std::min(std::max(f, 0), last + 1 - k);
      first[o] = begin;
      if (f == begin && k == support) {  // all taps are inside
        for (int j = 0; j < k; j++) w[j] = raw[j] * norm;
      } else {
        std::fill(w, w + k, 0.0f);
        for (int j = 0; j < support; j++) w[std::min(std::max(f + j, 0), last) - begin] += raw[j] * norm;
      }
    }
  }
  auto [least, most] = std::minmax_element(first.begin(), first.end());
  lo = n ? *least : 0;
  hi = n ? *most + k : 0;
  return true;
}

void Taps::CountFrom(int64_t source) {
  const auto offset = static_cast<int32_t>(source);
  for (int32_t& f : first) f -= offset;
  lo -= offset;
  hi -= offset;
}

}  // namespace jaxdali
