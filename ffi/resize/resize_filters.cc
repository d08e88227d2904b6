// The tables of the filters.
#include "ffi/resize/resize.h"

namespace jaxdali {

const FilterTables& FilterTables::Get() {
  static const FilterTables tables = [] {
    FilterTables t;
    for (int i = 0; i < 129; i++) {  // Catmull-Rom over [-2, 2]
      float x = std::fabs(4 * (i - 64) / 128.0f);
      t.cubic[i] = x >= 2 ? 0 : x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
    }
    auto sinc = [](float x) {
      double v = x * M_PI;
      return v == 0 ? 1.0f : static_cast<float>(std::sin(v) / v);
    };
    for (int i = 0; i < 193; i++) {
      float x = 6 * (i - 96) / 192.0f;
      t.lanczos[i] = std::fabs(x) >= 3 ? 0 : sinc(x) * sinc(x / 3);
    }
    for (int i = 0; i < 65; i++) {
      float x = 4 * (i - 32) / 64.0f;
      t.gaussian[i] = std::exp(-x * x);
    }
    return t;
  }();
  return tables;
}

}  // namespace jaxdali
