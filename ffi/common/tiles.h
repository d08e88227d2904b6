// Reductions by windows along the two inner axes of images, one axis after the other, for CUDA kernels. A block makes a
// tile of the result: first it reduces the rows that the tile depends on along themselves, into shared memory, then
// across each other.
#ifndef JAXDALI_FFI_COMMON_TILES_H_
#define JAXDALI_FFI_COMMON_TILES_H_

#include <cstdint>

#include "ffi/common/border.h"
#include "ffi/common/launch.h"
#include "ffi/common/slide.h"

namespace jaxdali {

inline constexpr int kTileRows = 80, kTileColumns = 96;  // elements of a tile
inline constexpr int kMostTileTaps = 16;                 // of a window across rows
inline constexpr int kMostTileColumns = 128;             // and along them
inline constexpr int kTileSteps = 8;                     // results of a thread along a row

// Planes [rows, columns, inner], and how they are cut into tiles. [0] is the axis across rows, [1] along them.
struct TilePlan {
  DType in_type, out_type;
  const void* in;
  void* out;
  int32_t n[2], out_n[2], taps[2], anchor[2];  // window i begins at i - anchor
  int32_t inner;
  Border border;
  float outside;  // the value beyond a constant border

  // The rest follows from these.
  int64_t pieces, row, out_row;  // elements of a row
  Divisor across, down;          // tiles of a plane
  Divisor channels, row_units;   // inner; units of work along a row of a tile, each of one thread
  int32_t rows_at_once;          // rows of a tile for whose units there are threads
  int32_t pixels;                // along a row of a tile, or more
  int32_t columns;               // of a tile
  bool by_steps;                 // a thread has kTileSteps results along a row, not one

  // Cuts a number of planes into tiles: sets the members above from those before them.
  JAXDALI_HD void Cut(int64_t planes) {
    // A thread has kTileSteps neighbouring results of a channel if a tile has room for that, otherwise one. Then a
    // tile's columns are a multiple of the steps.
    row = int64_t{n[1]} * inner;
    out_row = int64_t{out_n[1]} * inner;
    by_steps = inner <= kTileColumns / kTileSteps;
    columns = kTileColumns;
    if (by_steps && inner > 0) columns -= kTileColumns % (kTileSteps * inner);
    across = Divisor((out_row + columns - 1) / columns);
    down = Divisor((out_n[0] + kTileRows - 1) / kTileRows);
    channels = Divisor(inner);
    row_units = Divisor(by_steps ? columns / kTileSteps : columns);
    rows_at_once = kThreads / static_cast<int32_t>(row_units.n());
    pixels = columns / (inner > 0 ? inner : 1) + 2;  // a tile may begin and end inside a pixel
    pieces = planes * across.n() * down.n();
  }
};

struct Tile {
  int64_t plane, column;  // column: its first element in a row
  int32_t y, rows, columns;
  int32_t x, channel;                                 // of its first element
  bool is_inside;                                     // the columns that it depends on exist
  int32_t from[kTileColumns + kMostTileColumns + 2];  // where they begin in a row, or -1
};

// Rows of a tile that are reduced along themselves.
struct TileRows {
  Four values[(kTileRows + kMostTileTaps - 1) * (kTileColumns / 4)];
};

// Describes tile number `piece` of a sample: thread 0 finds its place, then all threads make the table of its columns.
template <class Block>
JAXDALI_HD inline void FindTile(const Block& block, const TilePlan& a, int64_t piece, Tile* t) {
  block.Phase([&](int thread) {
    if (thread > 0) return;
    const auto q = a.across.Divide(static_cast<uint64_t>(piece)), p = a.down.Divide(q.quotient);
    t->plane = static_cast<int64_t>(p.quotient);
    t->column = static_cast<int64_t>(q.rest) * a.columns;
    t->y = static_cast<int32_t>(p.rest) * kTileRows;
    t->rows = a.out_n[0] - t->y < kTileRows ? a.out_n[0] - t->y : kTileRows;
    t->columns = static_cast<int32_t>(a.out_row - t->column < a.columns ? a.out_row - t->column : a.columns);
    const auto first = a.channels.Divide(static_cast<uint64_t>(t->column));
    t->x = static_cast<int32_t>(first.quotient);
    t->channel = static_cast<int32_t>(first.rest);
    // If all windows along the row are inside, RowSlider needs no border.
    const int64_t begin = t->x - a.anchor[1];
    t->is_inside = a.by_steps && begin >= 0 && (begin + a.taps[1] - 1) * a.inner + a.columns <= a.row;
  });
  block.Phase([&](int thread) {
    for (int32_t i = thread; i < a.pixels + a.taps[1] - 1; i += kThreads) {
      const int64_t from = Inside(a.border, t->x - a.anchor[1] + i, a.n[1]);
      t->from[i] = from < 0 ? -1 : static_cast<int32_t>(from) * a.inner;
    }
  });
}

// Slides along the rows of the input that a tile depends on. A thread has n results of one channel in some of the rows.
// kInner is TilePlan's `inner`, for which addresses are constants; 0: any.
template <class In, int n, int kInner>
class RowSlider {
 public:
  // Finds the place of a thread in the rows: a unit is n results of one channel, `step` pixels from the tile's first.
  JAXDALI_HD RowSlider(const TilePlan& a, const Tile& t, int thread)
      : row_(static_cast<int32_t>(a.row)),
        type_(a.in_type),
        border_(a.border),
        first_y_(t.y - a.anchor[0]),
        rows_(a.n[0]),
        taps_(a.taps[1]),
        inner_(kInner > 0 ? kInner : a.inner),
        outside_(a.outside),
        at_border_(t.is_inside ? 0 : -1) {
    const auto unit = a.row_units.Divide(static_cast<uint32_t>(thread));
    const auto place = a.channels.Divide(unit.rest + static_cast<uint32_t>(t.channel));  // n > 1: t.channel is 0
    const int32_t step = n * static_cast<int32_t>(place.quotient);
    const int32_t channel = static_cast<int32_t>(place.rest), left = a.out_n[1] - t.x - step;
    first = static_cast<int32_t>(unit.quotient);
    stride = a.rows_at_once;
    results = first >= stride || left < 0 ? 0 : left < n ? left : n;
    offset = step * inner_ + channel - t.channel;
    columns_ = t.from + step;
    in_ = static_cast<const uint8_t*>(a.in) + (t.plane * a.n[0] * a.row + channel) * SizeAs<In>(type_);
  }

  int32_t first, stride;  // the thread has rows first, first + stride, ...
  int32_t results;        // the number of results in the image: 0 to n
  int32_t offset;         // elements of a row from the tile's first to the first result

  // Row m of the rows that the tile depends on; `of_tap` as Slide has it.
  template <class OfTap, class Result>
  JAXDALI_HD void operator()(int32_t m, OfTap of_tap, Result (&result)[n]) const {
    int32_t y = first_y_ + m;
    if (static_cast<uint32_t>(y) >= static_cast<uint32_t>(rows_)) y = static_cast<int32_t>(Inside(border_, y, rows_));
    // A negative y is a row beyond a constant border, whose address is not used.
    const uint8_t* from = in_ + int64_t{y} * row_ * SizeAs<In>(type_);
    // Three ways to read a row: pixel after pixel; by the table of columns, for borders; the same with a constant
    // outside.
    if ((y | at_border_) >= 0) {  // neither is negative
      from += *columns_ * SizeAs<In>(type_);
      auto next = [&] {
        const float v = LoadAs<float, In>(type_, from, /*i=*/0);
        from += (kInner > 0 ? kInner : inner_) * SizeAs<In>(type_);
        return v;
      };
      Slide<n, float>(taps_, next, of_tap, result);
    } else if (border_ != Border::kConstant) {
      auto next = [&, column = columns_]() mutable { return LoadAs<float, In>(type_, from, *column++); };
      Slide<n, float>(taps_, next, of_tap, result);
    } else {
      auto next = [&, column = columns_, none = y < 0 ? -1 : 0]() mutable {
        const int32_t e = *column++ | none;  // -1 if the row or the column is outside
        return e < 0 ? outside_ : LoadAs<float, In>(type_, from, e);
      };
      Slide<n, float>(taps_, next, of_tap, result);
    }
  }

 private:
  const int32_t* columns_;  // where the columns begin in a row (Tile::from), from the thread's first one on
  const uint8_t* in_;       // the channel's first element in the plane
  int32_t row_;             // elements of a row
  DType type_;
  Border border_;
  int32_t first_y_;              // the first row that the tile depends on
  int32_t rows_, taps_, inner_;  // rows of a plane, taps along a row, channels
  float outside_;                // the value beyond a constant border
  int32_t at_border_;            // -1: some columns that the tile depends on are outside
};

// Calls f with the slider of a thread: with kTileSteps results or one, and with known addresses for RGB bytes.
template <class In, class F>
JAXDALI_HD inline void WithSlider(const TilePlan& a, const Tile& t, int thread, F f) {
  if (!a.by_steps) return f(RowSlider<In, 1, 0>(a, t, thread));
  if constexpr (std::is_same_v<In, uint8_t>)
    if (a.inner == 3) return f(RowSlider<In, kTileSteps, 3>(a, t, thread));
  f(RowSlider<In, kTileSteps, 0>(a, t, thread));
}

// Reduces the rows that a tile depends on along themselves, beginning with `initial`, and stores the results in `rows`.
template <class In, int n, int kInner, class OfTap>
JAXDALI_HD inline void AlongRowsBy(const TilePlan& a, const Tile& t, const RowSlider<In, n, kInner>& slide,
                                   float initial, OfTap of_tap, TileRows* rows) {
  if (slide.results == 0) return;
  const int32_t end = t.rows + a.taps[0] - 1, inner = kInner > 0 ? kInner : a.inner;
  float* to = reinterpret_cast<float*>(rows->values) + slide.first * kTileColumns + slide.offset;
  for (int32_t m = slide.first; m < end; m += slide.stride, to += slide.stride * kTileColumns) {
    float results[n];
    JAXDALI_UNROLL
    for (int r = 0; r < n; r++) results[r] = initial;
    slide(m, of_tap, results);
    JAXDALI_UNROLL
    for (int r = 0; r < n; r++) to[r * inner] = results[r];
  }
}
// AlongRowsBy for the slider of a thread.
template <class In, class OfTap>
JAXDALI_HD inline void AlongRows(const TilePlan& a, const Tile& t, int thread, float initial, OfTap of_tap,
                                 TileRows* rows) {
  WithSlider<In>(a, t, thread, [&](const auto& slide) { AlongRowsBy(a, t, slide, initial, of_tap, rows); });
}

// Reduces these rows across each other, and stores the tile. A thread has four results of four elements at a time.
template <class Out, class OfTap>
JAXDALI_HD inline void AcrossRows(const TilePlan& a, const Tile& t, int thread, float initial, OfTap of_tap,
                                  const TileRows& rows) {
  constexpr uint32_t kUnits = kTileColumns / 4;
  const int32_t taps = a.taps[0], end = t.rows, columns = t.columns;
  const DType type = a.out_type;
  const int64_t pitch = a.out_row * SizeAs<Out>(type);
  const int64_t start = (t.plane * a.out_n[0] + t.y) * a.out_row + t.column;
  uint8_t* const out = static_cast<uint8_t*>(a.out) + start * SizeAs<Out>(type);
  const bool is_aligned = (pitch | static_cast<int64_t>(reinterpret_cast<uintptr_t>(out))) % 16 == 0;
  const uint32_t units = static_cast<uint32_t>(end + 3) / 4 * kUnits;
  for (uint32_t u = static_cast<uint32_t>(thread); u < units; u += kThreads) {
    const int32_t y = static_cast<int32_t>(u / kUnits * 4), column = static_cast<int32_t>(u % kUnits * 4);
    const int32_t n = columns - column;
    if (n <= 0) continue;
    Four results[4];  // elements column ... column + 3 of output rows y ... y + 3
    JAXDALI_UNROLL
    for (int r = 0; r < 4; r++) results[r] = {{initial, initial, initial, initial}};
    // The four elements of each row that the results depend on, from row y of the tile's rows on.
    auto next = [from = rows.values + u / kUnits * 4 * kUnits + u % kUnits]() mutable {
      from += kUnits;
      return *(from - kUnits);
    };
    Slide<4, Four>(taps, next, of_tap, results);
    uint8_t* to = out + y * pitch + column * SizeAs<Out>(type);
    if (is_aligned && n >= 4 && y + 4 <= end) {
      JAXDALI_UNROLL
      for (int r = 0; r < 4; r++) StoreFour<Out>(type, to + r * pitch, results[r]);
    } else {
      JAXDALI_UNROLL
      for (int r = 0; r < 4; r++)
        if (y + r < end) StorePart<Out>(type, to + r * pitch, n, results[r]);
    }
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_TILES_H_
