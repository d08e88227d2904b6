// The two passes of a filter over one tile; see resize_tile.h. The order of a tile's phases, with a barrier after each:
//
//   Begin               taps and weights of the columns and rows
//   for each band, for each chunk of source columns:
//     for each chunk of vertical taps:
//       WeighColumns, WeighRow   weights, where Begin could not make all
//       Down                     the vertical pass, from the image to `mid`
//     Across                     the horizontal pass, from `mid` to sums or, after the last chunk, to the output
//
// Words of the image are read (four bytes, two 16-bit values or one float), because a GPU reads words faster than
// bytes.
#ifndef JAXDALI_FFI_RESIZE_RESIZE_PASSES_H_
#define JAXDALI_FFI_RESIZE_RESIZE_PASSES_H_

#include <cstdint>
#include <type_traits>

#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/resize/resize.h"
#include "ffi/resize/resize_tile.h"

namespace jaxdali {

template <class In, class Out, class Window>
struct ResizePasses {
  using Tile = ResizeTile<In, Out, Window>;
  using Mid = typename Tile::Mid;
  using Pair = typename Tile::Pair;
  using OutputTile = typename Tile::OutputTile;
  using Shared = typename Tile::Shared;
  using PairsOfWord = typename Tile::PairsOfWord;
  using RowWeight = typename Tile::RowWeight;
  using Sum = std::conditional_t<Tile::kIntegers, int32_t, float>;
  static constexpr int kBand = Tile::kBand, kEach = Tile::kEach;

  // The source pixels of one pass over `mid`.
  struct Source {
    int begin, end;  // columns
    int row, rows;   // in the tile: the first row of a band, and how many
    int tap, taps;   // the first vertical tap, and how many
  };

  // Makes tile `p`: for each band of rows, the vertical pass into `mid`, then the horizontal pass, in the phases that
  // the file's comment lists. `next(thread)` lets thread 0 describe the next tile during the first phase.
  template <class Block, class Next>
  JAXDALI_HD static void Filter(const Block& block, Shared& s, const OutputTile& p, Next next) {
    block.Phase([&](int thread) {
      next(thread);
      Begin(thread, s, p);
    });
    const Extent x(s.plan, s.first_x[0], s.first_x[p.columns - 1]);
    const bool one_chunk_y = s.plan.count_y <= s.plan.taps_y;  // one chunk has all vertical taps
    // Read before the last phase: after it, a fast thread may describe another tile there.
    const int tile_rows = p.rows;
    Source from;
    for (from.row = 0; from.row < tile_rows; from.row += kBand) {
      from.rows = tile_rows - from.row < kBand ? tile_rows - from.row : kBand;
      for (from.begin = x.low; from.begin < x.high; from.begin += x.chunk) {
        from.end = x.high - from.begin < x.chunk ? x.high : from.begin + x.chunk;
        for (from.tap = 0; from.tap < s.plan.count_y; from.tap += s.plan.taps_y) {
          from.taps = s.plan.count_y - from.tap < s.plan.taps_y ? s.plan.count_y - from.tap : s.plan.taps_y;
          // Whether the weights of the columns must be made: not by Begin, and only once if one chunk has all columns.
          const bool fill_x = from.tap == 0 && !x.weights_by_begin && (from.row == 0 || !x.one_chunk);
          if (fill_x || !one_chunk_y) {
            block.Phase([&](int thread) {
              if (fill_x) WeighColumns(thread, s, p, from);
              if (!one_chunk_y && thread < from.rows) WeighRow(s, p, from, thread);
            });
          }
          block.Phase([&](int thread) { Down(thread, s, p, from); });
        }
        block.Phase([&](int thread) {
          Across(thread, s, p, from, /*is_first=*/from.begin == x.low, /*is_last=*/from.end == x.high);
        });
      }
    }
  }

 private:
  // The source columns of a tile: [low, high). a and b: the first tap of its first and of its last column. Taps ascend,
  // or descend if mirrored.
  struct Extent {
    int low, high, chunk;
    bool one_chunk;         // it has all of them
    bool weights_by_begin;  // the first phase of the tile (Begin) makes the weights of its columns

    JAXDALI_HD Extent(const typename Tile::Plan& plan, int a, int b)
        : low(a < b ? a : b),
          high((a < b ? b : a) + plan.count_x),
          chunk(ChunkColumns<In, Out>(plan.channels)),
          one_chunk(high - low <= chunk),
          weights_by_begin(one_chunk && plan.count_x <= Tile::kFewTaps) {}
  };

  // The first phase of a tile. Weights of columns and of rows are made by the last threads, because the first ones are
  // busy with the elements.
  JAXDALI_NOINLINE JAXDALI_HD static void Begin(int thread, Shared& s, const OutputTile& p) {
    const EdgeTaps x(s.plan.axes.axis[2], s.tables);
    auto first = [&](int column) { return x.First(s.plan.window.At(1, p.x + column), /*accumulate=*/false); };
    const Extent extent(s.plan, first(0), first(p.columns - 1));
    Source from{extent.low, extent.high, /*row=*/0, /*rows=*/0, /*tap=*/0, s.plan.count_y};
    if (extent.weights_by_begin) {
      // Thread 0, and so its warp of 32 threads, is busy with the next tile.
      if (thread == 32) SetChunk(s, p, from);
      SetElement(thread, s, p, from, first);
    }
    for (int k = kThreads - 1 - thread; k < p.columns + p.rows; k += kThreads) {
      if (k < p.columns) {
        const int64_t column = s.plan.window.At(1, p.x + k);
        const int first_tap = x.First(column, /*accumulate=*/false);
        const float norm = x.Norm(column);
        s.first_x[k] = first_tap;
        if (extent.weights_by_begin) {
          float* to = s.weight_x + k * s.plan.taps_x;
          x.Weigh(column, first_tap, x.count, norm, [&](float w) { *to++ = w; });
        } else {
          s.norm_x[k] = norm;
        }
      } else {
        const EdgeTaps y(s.plan.axes.axis[1], s.tables);
        const int row = k - p.columns;
        const int64_t image_row = s.plan.window.At(0, p.y + row);
        s.first_y[row] = y.First(image_row, /*accumulate=*/true);
        s.norm_y[row] = y.Norm(image_row);
        if (s.plan.count_y <= s.plan.taps_y) WeighRow(s, p, from, row);
      }
    }
  }

  // Sets the values that the vertical pass needs, for one range of source columns.
  JAXDALI_HD static void SetChunk(Shared& s, const OutputTile& p, const Source& from) {
    const int lead = Lead(s, p, from);
    const Axis& y = s.plan.axes.axis[1];
    auto& c = s.chunk;
    c.start = reinterpret_cast<const uint8_t*>(Start(s, p, from) - lead);
    const int64_t pitch = s.plan.axes.axis[2].n_in * s.plan.job.inner * static_cast<int64_t>(sizeof(In));
    c.pitch = static_cast<int>(pitch);
    c.words = (lead + (from.end - from.begin) * p.channels + kEach - 1) / kEach;
    c.items = (c.words + 1) / 2;
    c.per_items = 1 / static_cast<float>(c.items);
    // Words are read for whole pixels only, and if `pitch` fits into an int. -1: never.
    c.last_row =
        s.plan.whole_pixels && pitch >> 31 == 0 ? static_cast<int>(y.n_in) - s.plan.margin - s.plan.count_y : -1;
    c.aligned = SameInWord(s);
  }
  // Sets the values that the horizontal pass needs for one element of an output row, for one range of source columns:
  // its taps, as far as they lie in the range. first(column) is the first tap of a column.
  template <class First>
  JAXDALI_HD static void SetElement(int thread, Shared& s, const OutputTile& p, const Source& from, First first) {
    if (thread >= p.elements) return;
    const TileItem item(thread, p.channels, 1 / static_cast<float>(p.channels));
    const int column = item.row, tap = first(column), end = tap + s.plan.count_x;
    const int low = tap > from.begin ? tap : from.begin, high = end < from.end ? end : from.end;
    s.first_weight[thread] = static_cast<uint16_t>(column * s.plan.taps_x);
    s.count[thread] = static_cast<uint16_t>(high > low ? high - low : 0);
    s.first_mid[thread] =
        static_cast<uint16_t>(high > low ? Lead(s, p, from) + (low - from.begin) * p.channels + item.column : 0);
    s.column[thread] = static_cast<uint8_t>(column);
    s.channel[thread] = static_cast<uint8_t>(item.column);
  }

  // Weights of one range of source columns, by all threads: there are many, or they are made anew for each band.
  JAXDALI_NOINLINE JAXDALI_HD static void WeighColumns(int thread, Shared& s, const OutputTile& p, const Source& from) {
    const EdgeTaps x(s.plan.axes.axis[2], s.tables);
    if (thread == 0) SetChunk(s, p, from);
    SetElement(thread, s, p, from, [&](int column) { return s.first_x[column]; });
    for (int k = thread; k < p.columns * s.plan.taps_x; k += kThreads) {
      const Quotient q = Divide(k, s.plan.taps_x);
      const int column = static_cast<int>(q.quotient), first = s.first_x[column];
      const int source_column = (first > from.begin ? first : from.begin) + static_cast<int>(q.rest);
      if (source_column < first + x.count && source_column < from.end)
        x.Weigh(s.plan.window.At(1, p.x + column), source_column, /*n=*/1, s.norm_x[column],
                [&](float w) { s.weight_x[k] = w; });
    }
  }

  // The weights of a row of the band or, if all its taps are in one range, of the tile. As integers, each is the
  // difference of two rounded sums, so that all of them together are exactly 1. Two taps share a word.
  JAXDALI_NOINLINE JAXDALI_HD static void WeighRow(Shared& s, const OutputTile& p, const Source& from, int row) {
    const EdgeTaps y(s.plan.axes.axis[1], s.tables);
    const int tile_row = from.row + row;
    RowWeight* to = s.weight_y + row * s.plan.row_weights;
    const int64_t image_row = s.plan.window.At(0, p.y + tile_row);
    const int first_tap = s.first_y[tile_row] + from.tap;
    const float norm = s.norm_y[tile_row];
    if constexpr (!Tile::kIntegers) {
      y.Weigh(image_row, first_tap, from.taps, norm, [&](float w) { *to++ = w; });
    } else {
      float sum = 0;
      int previous = 0;
      uint32_t pair = 0;
      bool second = false;
      y.Weigh(image_row, first_tap, from.taps, norm, [&](float w) {
        constexpr float kMost = 32000;  // weights have 16 bits
        sum += Clamped(w * Mid::kOne, -kMost, kMost);
        const int rounded = static_cast<int>(floorf(sum + 0.5f));
        const uint32_t weight = static_cast<uint32_t>(rounded - previous) & 0xFFFF;
        previous = rounded;
        pair = second ? pair | weight << 16 : weight;
        if (second) *to++ = pair;
        second = !second;
      });
      if (second) *to = pair;
    }
  }

  // Whether all rows begin at the same offset in a word.
  JAXDALI_HD static bool SameInWord(const Shared& s) {
    return s.plan.axes.axis[2].n_in * s.plan.job.inner * static_cast<int64_t>(sizeof(In)) % 4 == 0;
  }
  // The first element of a range of source columns, in source row 0.
  JAXDALI_HD static const In* Start(const Shared& s, const OutputTile& p, const Source& from) {
    return p.in + from.begin * s.plan.job.inner;
  }
  // Elements of the first word before the source's first element. 0 if rows begin at different offsets in a word: then
  // words are read from the first element on.
  JAXDALI_HD static int Lead(const Shared& s, const OutputTile& p, const Source& from) {
    if (!SameInWord(s) || !s.plan.whole_pixels) return 0;
    return static_cast<int>(reinterpret_cast<uintptr_t>(Start(s, p, from)) & 3) / static_cast<int>(sizeof(In));
  }

  // The vertical pass.
  JAXDALI_HD static void Down(int thread, Shared& s, const OutputTile& p, const Source& from) {
    // First taps rise or fall monotonically along the rows, so the larger of these two is the last one of the band.
    const int a = s.first_y[from.row], b = s.first_y[from.row + from.rows - 1];
    if ((a < b ? b : a) > s.chunk.last_row)
      DownElements(thread, s, p, from);
    else if (thread >= (from.rows + 1) / 2 * s.chunk.items)
      return;  // most bands have less work than threads
    else if (s.chunk.aligned)
      DownWords<true>(thread, s, from);
    else
      DownWords<false>(thread, s, from);
  }

  // Row `r` of a pair in the band. The second row may be missing.
  struct Row {
    int tile_row;
    const RowWeight* weight;

    JAXDALI_HD Row(const Shared& s, const Source& from, int pair, int r) {
      const int band_row = 2 * pair + r < from.rows ? 2 * pair + r : from.rows - 1;
      tile_row = from.row + band_row;
      weight = s.weight_y + (from.taps == s.plan.count_y ? tile_row : band_row) * s.plan.row_weights;
    }
  };
  // Unpacks the sums of the taps so far, for two rows.
  JAXDALI_HD static void Continue(const Pair& old, Sum* upper, Sum* lower) {
    if constexpr (Tile::kIntegers) {
      *upper = Mid::template Again<0>(old);
      *lower = Mid::template Again<1>(old);
    } else {
      *upper = Mid::template Unpack<0>(old);
      *lower = Mid::template Unpack<1>(old);
    }
  }

  // By words: each thread takes two neighbouring words of two rows. Elements before the first one and after the last
  // one are unused. kAligned: all source rows begin with a word.
  template <bool kAligned>
  JAXDALI_HD static void DownWords(int thread, Shared& s, Source from) {
    const uint8_t* start = s.chunk.start;
    const uint32_t stride = static_cast<uint32_t>(s.chunk.pitch);
    const int words = s.chunk.words, items = s.chunk.items;
    for (int k = thread; k < (from.rows + 1) / 2 * items; k += kThreads) {
      const TileItem item(k, items, s.chunk.per_items);
      const int word = 2 * item.column, next_word = word + 1 < words ? word + 1 : word;
      const Row rows[2] = {Row(s, from, /*pair=*/item.row, /*r=*/0), Row(s, from, /*pair=*/item.row, /*r=*/1)};
      PairsOfWord *const first = &s.mid[item.row][word], *const second = &s.mid[item.row][next_word];
      Sum v[2][2][kEach];  // row, word, element
      JAXDALI_UNROLL
      for (int e = 0; e < kEach; e++) v[0][0][e] = v[0][1][e] = v[1][0][e] = v[1][1][e] = Mid::kStart;
      if (from.tap > 0) {
        JAXDALI_UNROLL
        for (int e = 0; e < kEach; e++) {
          Continue(first->pair[e], &v[0][0][e], &v[1][0][e]);
          Continue(second->pair[e], &v[0][1][e], &v[1][1][e]);
        }
      }
      auto line = [&](const Row& row) {  // 32 times 32 bits, which is one instruction
        return start + 4 * word + uint64_t{static_cast<uint32_t>(s.first_y[row.tile_row] + from.tap)} * stride;
      };
      const uint8_t* lines[2] = {line(rows[0]), line(rows[1])};
      // Reads both words of both rows for one tap, and goes to the source row of the next tap. Rows that don't begin
      // with a word take two words from three aligned ones; Funnel uses the lowest five bits of `shift`.
      auto load = [&](uint32_t (&words)[2][2]) {
        JAXDALI_UNROLL
        for (int r = 0; r < 2; r++) {
          if constexpr (kAligned) {
            words[r][0] = ReadWord(lines[r]);
            words[r][1] = ReadWord(lines[r] + 4);
          } else {
            const auto place = reinterpret_cast<uintptr_t>(lines[r]);
            const uint8_t* from = reinterpret_cast<const uint8_t*>(place & ~uintptr_t{3});
            const uint32_t middle = ReadWord(from + 4), shift = static_cast<uint32_t>(place) * 8;
            words[r][0] = Funnel(ReadWord(from), middle, shift);
            words[r][1] = Funnel(middle, ReadWord(from + 8), shift);
          }
          lines[r] += stride;
        }
      };
      if constexpr (Tile::kIntegers) {
        auto add = [&](const uint32_t (&a)[2][2], const uint32_t (&b)[2][2], int j) {  // taps j and j + 1
          JAXDALI_UNROLL
          for (int r = 0; r < 2; r++) {
            const uint32_t weights = rows[r].weight[j / 2];
            JAXDALI_UNROLL
            for (int w = 0; w < 2; w++) {
              // The bytes of taps j and j + 1 side by side: a0 b0 a1 b1, and a2 b2 a3 b3.
              const uint32_t low = Permute(a[r][w], b[r][w], 0x5140), high = Permute(a[r][w], b[r][w], 0x7362);
              v[r][w][0] = WeighBytes<0>(weights, low, v[r][w][0]);
              v[r][w][1] = WeighBytes<1>(weights, low, v[r][w][1]);
              v[r][w][2] = WeighBytes<0>(weights, high, v[r][w][2]);
              v[r][w][3] = WeighBytes<1>(weights, high, v[r][w][3]);
            }
          }
        };
        uint32_t a[2][2], b[2][2], c[2][2], d[2][2];
        int j = 0;
        JAXDALI_UNROLL_BY(1)
        for (; j + 4 <= from.taps; j += 4) {  // a thread waits for sixteen words at a time
          load(a), load(b), load(c), load(d);
          add(a, b, j);
          add(c, d, j + 2);
        }
        JAXDALI_UNROLL_BY(1)
        for (; j + 2 <= from.taps; j += 2) {
          load(a), load(b);
          add(a, b, j);
        }
        if (j < from.taps) {
          load(a);
          add(a, /*b=*/{}, j);
        }
      } else {
        auto add = [&](const uint32_t (&words)[2][2], int j) {
          JAXDALI_UNROLL
          for (int r = 0; r < 2; r++) {
            const float weight = rows[r].weight[j];
            JAXDALI_UNROLL
            for (int e = 0; e < kEach; e++) {
              v[r][0][e] = MulAdd(Mid::Read(words[r][0], e), weight, v[r][0][e]);
              v[r][1][e] = MulAdd(Mid::Read(words[r][1], e), weight, v[r][1][e]);
            }
          }
        };
        uint32_t even[2][2], odd[2][2];
        int j = 0;
        JAXDALI_UNROLL_BY(1)
        for (; j + 2 <= from.taps; j += 2) {  // a thread waits for eight words at a time
          load(even);
          load(odd);
          add(even, j);
          add(odd, j + 1);
        }
        if (j < from.taps) {
          load(even);
          add(even, j);
        }
      }
      PairsOfWord sums[2];
      JAXDALI_UNROLL
      for (int e = 0; e < kEach; e++) {
        sums[0].pair[e] = Mid::Pack(v[0][0][e], v[1][0][e]);
        sums[1].pair[e] = Mid::Pack(v[0][1][e], v[1][1][e]);
      }
      *first = sums[0];
      if (next_word != word) *second = sums[1];
    }
  }

  // Element by element: where a word would reach outside the buffer, and for pixels of which only some channels are
  // resized.
  JAXDALI_NOINLINE JAXDALI_HD static void DownElements(int thread, Shared& s, const OutputTile& p, Source from) {
    const int64_t channels = s.plan.job.inner, stride = s.plan.axes.axis[2].n_in * channels;
    const int lead = Lead(s, p, from), n = (from.end - from.begin) * p.channels;
    const In* start = Start(s, p, from);
    for (int k = thread; k < (from.rows + 1) / 2 * n; k += kThreads) {
      const Quotient item = Divide(k, n), pixel = Divide(item.rest, p.channels);
      const int pair = static_cast<int>(item.quotient), element = lead + static_cast<int>(item.rest);
      Pair& mid = s.mid[pair][element / kEach].pair[element % kEach];
      Sum v[2] = {Mid::kStart, Mid::kStart};
      if (from.tap > 0) Continue(mid, &v[0], &v[1]);
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) {
        const Row row(s, from, pair, r);
        const In* line = start + (s.first_y[row.tile_row] + from.tap) * stride + pixel.quotient * channels +
                         pixel.rest * s.plan.window.Step(2);
        JAXDALI_UNROLL_BY(1)
        for (int j = 0; j < from.taps; j++) {
          if constexpr (Tile::kIntegers)  // a word has the weights of two taps, 16 bits each
            v[r] += static_cast<int16_t>(row.weight[j / 2] >> (j % 2 * 16)) * line[j * stride];
          else
            v[r] = MulAdd(Mid::Read(line[j * stride]), row.weight[j], v[r]);
        }
      }
      mid = Mid::Pack(v[0], v[1]);
    }
  }

  // The horizontal pass: a thread makes one element of all rows of the band. `is_first`, `is_last`: of the chunks of
  // source columns, whose sums are kept in s.sum between them.
  JAXDALI_HD static void Across(int thread, Shared& s, const OutputTile& p, Source source, bool is_first,
                                bool is_last) {
    if (thread >= p.elements) return;
    float sum[kBand];
    JAXDALI_UNROLL
    for (int r = 0; r < kBand; r++) sum[r] = is_first ? 0 : s.sum[r][thread];
    const Pair* from = s.mid[0][0].pair + s.first_mid[thread];
    const float* weight = s.weight_x + s.first_weight[thread];
    const int count = s.count[thread], channels = p.channels;
    for (int j = 0; j < count; j++, from += channels) {
      const float w = weight[j];
      JAXDALI_UNROLL
      for (int r = 0; r < kBand; r += 2) {
        const Pair both = from[r / 2 * Mid::kWidth];
        sum[r] = MulAdd(Mid::template Unpack<0>(both), w, sum[r]);
        sum[r + 1] = MulAdd(Mid::template Unpack<1>(both), w, sum[r + 1]);
      }
    }
    if (is_last) return Tile::WriteSums(thread, s, p, source.row, source.rows, sum);
    JAXDALI_UNROLL
    for (int r = 0; r < kBand; r++) s.sum[r][thread] = sum[r];
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_PASSES_H_
