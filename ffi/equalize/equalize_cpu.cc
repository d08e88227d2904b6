// CPU kernel of histogram equalization: for each plane the histograms and tables of its tiles, then its pixels.
#include <algorithm>
#include <vector>

#include "ffi/common/border.h"
#include "ffi/equalize/equalize.h"

namespace jaxdali {
namespace {

// Counts the values of the tile (row, column) of a plane.
void Count(const EqualizeBatch& b, const EqualizeArgs& a, int64_t plane, int row, int column, uint32_t* histogram) {
  uint32_t parts[4][kBins] = {};  // four, since neighbours are often equal and would wait
  const int64_t first = column * a.tile_width, most = first + a.tile_width;
  const int64_t inside = most < a.width ? most : a.width;
  for (int64_t y = row * a.tile_height; y < (row + 1) * a.tile_height; y++) {
    // Tiles at the lower and right border extend into the mirrored image.
    const int64_t line = a.At(plane, Reflect(y, a.height), /*x=*/0);
    for (int64_t x = first; x < inside; x++) parts[x & 3][b.Value(a, line + x * a.inner)]++;
    for (int64_t x = std::max(first, inside); x < most; x++)
      parts[x & 3][b.Value(a, line + Reflect(x, a.width) * a.inner)]++;
  }
  for (int k = 0; k < kBins; k++) histogram[k] = parts[0][k] + parts[1][k] + parts[2][k] + parts[3][k];
}

// Makes the table of a histogram: the level of each value. Changes the histogram.
void MakeTable(const EqualizeBatch& b, const EqualizeArgs& a, uint32_t* histogram, uint8_t* table) {
  uint32_t counted = a.Area();
  if (b.stretch) {
    uint32_t* first = std::find_if(histogram, histogram + kBins, [](uint32_t n) { return n > 0; });
    if (*first == counted) {  // a single value, which is kept
      for (int k = 0; k < kBins; k++) table[k] = static_cast<uint8_t>(k);
      return;
    }
    counted -= *first;
    *first = 0;
  }
  EqualizeBatch::Clip clip = EqualizeBatch::ClipOf(a);
  uint32_t excess = 0, sum = 0;
  for (int k = 0; k < kBins; k++) excess += clip.Excess(histogram[k]);
  clip.Spread(excess);
  const float scale = EqualizeBatch::ScaleOf(counted);
  for (uint32_t k = 0; k < kBins; k++) {
    sum += clip.Count(k, histogram[k]);
    table[k] = EqualizeBatch::Level(sum, scale);
  }
}

// Equalizes a sample plane by plane. The tiles around a column are the same in all rows.
void Run(const EqualizeBatch& b, const EqualizeArgs& a) {
  std::vector<uint8_t> tables(static_cast<size_t>(b.Tiles()) * kBins);
  std::vector<EqualizeBatch::Between> columns(static_cast<size_t>(a.width));
  for (int64_t x = 0; x < a.width; x++) columns[static_cast<size_t>(x)] = b.Around(x, a.tile_width, b.tiles_x);
  for (int64_t plane = 0; plane < a.planes; plane++) {
    for (int t = 0; t < b.Tiles(); t++) {
      uint32_t histogram[kBins];
      Count(b, a, plane, t / b.tiles_x, t % b.tiles_x, histogram);
      MakeTable(b, a, histogram, tables.data() + t * kBins);
    }
    for (int64_t y = 0; y < a.height; y++) {
      const EqualizeBatch::Between v = b.Around(y, a.tile_height, b.tiles_y);
      const int64_t line = a.At(plane, y, /*x=*/0);
      for (int64_t x = 0; x < a.width; x++)
        b.Put(a, tables.data(), line + x * a.inner, v, columns[static_cast<size_t>(x)]);
    }
  }
}

}  // namespace

// The CPU kernel: makes sample i of the output.
Status Equalize(const EqualizeBatch& batch, int i) {
  EqualizeArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  Run(batch, a);
  return kOk;
}

}  // namespace jaxdali
