// The two passes of a filter over one tile; see resize_tile.h.
#ifndef JAXDALI_FFI_RESIZE_PASSES_H_
#define JAXDALI_FFI_RESIZE_PASSES_H_

#include <cstdint>

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
  using Part = typename Tile::Part;
  using Shared = typename Tile::Shared;
  using PairsOfWord = typename Tile::PairsOfWord;
  static constexpr int kBand = Tile::kBand, kEach = Tile::kEach;

  // The source pixels of one pass over `mid`.
  struct Source {
    int begin, end;  // columns
    int row, rows;   // in the part: one band
    int tap, taps;   // vertical taps
  };

  template <class Block>
  JAXDALI_HD static void Filter(const Block& block, Shared& s) {
    const Part& p = s.part;
    block.Phase([&](int thread) {
      const EdgeTaps x(s.plan.axes.axis[2], s.tables), y(s.plan.axes.axis[1], s.tables);
      for (int k = thread; k < p.columns + p.rows; k += kThreads) {
        if (k < p.columns)
          s.first_x[k] = x.First(s.plan.window.At(1, p.x + k), false, &s.norm_x[k]);
        else
          s.first_y[k - p.columns] = y.First(s.plan.window.At(0, p.y + k - p.columns), true, &s.norm_y[k - p.columns]);
      }
    });
    const int a = s.first_x[0], b = s.first_x[p.columns - 1];  // taps ascend, or descend if mirrored
    const int low = a < b ? a : b, high = (a < b ? b : a) + s.plan.count_x, chunk = Tile::ChunkColumns(s.plan.channels);
    const bool one_x = high - low <= chunk, one_y = s.plan.count_y <= s.plan.taps_y;
    const int all = p.rows;  // read before the last phase: a fast thread may set up the next part after it
    Source from;
    for (from.row = 0; from.row < all; from.row += kBand) {
      from.rows = all - from.row < kBand ? all - from.row : kBand;
      for (from.begin = low; from.begin < high; from.begin += chunk) {
        from.end = high - from.begin < chunk ? high : from.begin + chunk;
        for (from.tap = 0; from.tap < s.plan.count_y; from.tap += s.plan.taps_y) {
          from.taps = s.plan.count_y - from.tap < s.plan.taps_y ? s.plan.count_y - from.tap : s.plan.taps_y;
          const bool fill_x = from.tap == 0 && (from.row == 0 || !one_x);
          const bool fill_y = !one_y || (from.row == 0 && from.begin == low);
          if (fill_x || fill_y) {
            block.Phase([&](int thread) {
              if (fill_x) WeighColumns(thread, s, p, from);
              if (fill_y) WeighRows(thread, s, p, from, one_y ? 0 : from.row, one_y ? p.rows : from.rows);
            });
          }
          if (!one_y) {
            block.Phase([&](int thread) {
              if (thread < from.rows) {
                float sum = 0;
                for (int j = 0; j < from.taps; j++) sum += s.weight_y[thread * s.plan.taps_y + j];
                s.sum_y[thread] = sum;
              }
            });
          }
          block.Phase([&](int thread) { Down(thread, s, from); });
        }
        block.Phase([&](int thread) { Across(thread, s, p, from, from.begin == low, from.end == high); });
      }
    }
  }

 private:
  JAXDALI_NOINLINE JAXDALI_HD static void WeighColumns(int thread, Shared& s, const Part& p, const Source& from) {
    const EdgeTaps x(s.plan.axes.axis[2], s.tables);
    const int lead = Lead(s, p, from);
    if (thread == 0) {
      const Axis& y = s.plan.axes.axis[1];
      auto& c = s.chunk;
      c.start = reinterpret_cast<const uint8_t*>(Start(s, p, from) - lead);
      const int64_t pitch = s.plan.axes.axis[2].n_in * s.plan.job.inner * static_cast<int64_t>(sizeof(In));
      c.pitch = static_cast<int>(pitch);
      c.words = (lead + (from.end - from.begin) * p.channels + kEach - 1) / kEach;
      c.items = (c.words + 1) / 2;
      c.per_items = 1 / static_cast<float>(c.items);
      c.last_row =
          s.plan.whole_pixels && pitch >> 31 == 0 ? static_cast<int>(y.n_in) - s.plan.margin - s.plan.count_y : -1;
      c.aligned = SameInWord(s);
    }
    for (int k = thread; k < p.columns * s.plan.taps_x; k += kThreads) {
      const Quotient q = Divide(k, s.plan.taps_x);
      const int column = static_cast<int>(q.quotient), first = s.first_x[column];
      const int at = (first > from.begin ? first : from.begin) + static_cast<int>(q.rest);
      if (at < first + x.count && at < from.end)
        s.weight_x[k] = x.Weight(s.plan.window.At(1, p.x + column), at, s.norm_x[column]);
    }
    if (thread < p.elements) {
      const Quotient q = Divide(thread, p.channels);
      const int column = static_cast<int>(q.quotient), first = s.first_x[column], end = first + x.count;
      const int low = first > from.begin ? first : from.begin, high = end < from.end ? end : from.end;
      s.at[thread] = static_cast<uint16_t>(column * s.plan.taps_x);
      s.count[thread] = static_cast<uint16_t>(high > low ? high - low : 0);
      s.from[thread] =
          static_cast<uint16_t>(high > low ? lead + (low - from.begin) * p.channels + static_cast<int>(q.rest) : 0);
      s.column[thread] = static_cast<uint8_t>(column);
      s.channel[thread] = static_cast<uint8_t>(q.rest);
    }
  }

  JAXDALI_NOINLINE JAXDALI_HD static void WeighRows(int thread, Shared& s, const Part& p, const Source& from, int begin,
                                                    int rows) {
    const EdgeTaps y(s.plan.axes.axis[1], s.tables);
    for (int k = thread; k < rows * s.plan.taps_y; k += kThreads) {
      const Quotient q = Divide(k, s.plan.taps_y);
      const int row = begin + static_cast<int>(q.quotient), j = static_cast<int>(q.rest);
      if (j < from.taps)
        s.weight_y[k] = y.Weight(s.plan.window.At(0, p.y + row), s.first_y[row] + from.tap + j, s.norm_y[row]);
    }
  }

  // Whether all rows begin at the same offset in a word.
  JAXDALI_HD static bool SameInWord(const Shared& s) {
    return s.plan.axes.axis[2].n_in * s.plan.job.inner * static_cast<int64_t>(sizeof(In)) % 4 == 0;
  }
  JAXDALI_HD static const In* Start(const Shared& s, const Part& p, const Source& from) {
    return p.in + from.begin * s.plan.job.inner;
  }
  // Elements of the first word before the source's first element.
  JAXDALI_HD static int Lead(const Shared& s, const Part& p, const Source& from) {
    if (!SameInWord(s) || !s.plan.whole_pixels) return 0;
    return static_cast<int>(reinterpret_cast<uintptr_t>(Start(s, p, from)) & 3) / static_cast<int>(sizeof(In));
  }

  // The vertical pass.
  JAXDALI_HD static void Down(int thread, Shared& s, const Source& from) {
    const int a = s.first_y[from.row], b = s.first_y[from.row + from.rows - 1];
    if ((a < b ? b : a) > s.chunk.last_row)
      DownElements(thread, s, from);
    else if (thread >= (from.rows + 1) / 2 * s.chunk.items)
      return;  // most bands have less work than threads
    else if (s.chunk.aligned)
      DownWords<true>(thread, s, from);
    else
      DownWords<false>(thread, s, from);
  }

  // Row `r` of a pair in the band. The second row may be missing.
  struct Row {
    int of_part;
    const float* weight;
    float offset;

    JAXDALI_HD Row(const Shared& s, const Source& from, int pair, int r) {
      const int of_band = 2 * pair + r < from.rows ? 2 * pair + r : from.rows - 1;
      const bool one = from.taps == s.plan.count_y;
      of_part = from.row + of_band;
      weight = s.weight_y + (one ? of_part : of_band) * s.plan.taps_y;
      offset = one ? -Mid::kOffset : -Mid::kOffset * s.sum_y[of_band];
    }
  };
  // Adds what the taps before these gave.
  JAXDALI_HD static void AddOld(Pair old, float* upper, float* lower) {
    *upper += Mid::Value(Mid::template Unpack<0>(old));
    *lower += Mid::Value(Mid::template Unpack<1>(old));
  }

  // By words: each thread takes two neighbouring words of two rows. Elements before the first one and after the last
  // one are unused.
  template <bool kAligned>
  JAXDALI_NOINLINE JAXDALI_HD static void DownWords(int thread, Shared& s, Source from) {
    const uint8_t* start = s.chunk.start;
    const int stride = s.chunk.pitch;
    const int words = s.chunk.words, items = s.chunk.items;
    for (int k = thread; k < (from.rows + 1) / 2 * items; k += kThreads) {
      const TileItem item(k, items, s.chunk.per_items);
      const int at = 2 * item.at, next = at + 1 < words ? at + 1 : at;
      float v[2][2][kEach];
      const Row rows[2] = {Row(s, from, item.row, 0), Row(s, from, item.row, 1)};
      JAXDALI_UNROLL
      for (int e = 0; e < kEach; e++) {
        v[0][0][e] = v[0][1][e] = rows[0].offset;
        v[1][0][e] = v[1][1][e] = rows[1].offset;
      }
      if (from.tap > 0) {
        JAXDALI_UNROLL
        for (int e = 0; e < kEach; e++) {
          AddOld(s.mid[item.row][at].pair[e], &v[0][0][e], &v[1][0][e]);
          AddOld(s.mid[item.row][next].pair[e], &v[0][1][e], &v[1][1][e]);
        }
      }
      const uint8_t* lines[2] = {start + int64_t{s.first_y[rows[0].of_part] + from.tap} * stride + 4 * at,
                                 start + int64_t{s.first_y[rows[1].of_part] + from.tap} * stride + 4 * at};
      auto load = [&](uint32_t (&words)[2][2]) {
        JAXDALI_UNROLL
        for (int r = 0; r < 2; r++) {
          if constexpr (kAligned) {
            words[r][0] = ReadWord(lines[r]);
            words[r][1] = ReadWord(lines[r] + 4);
          } else {
            const int over = static_cast<int>(reinterpret_cast<uintptr_t>(lines[r]) & 3);
            const uint8_t* from = lines[r] - over;
            const uint32_t middle = ReadWord(from + 4);
            words[r][0] = Funnel(ReadWord(from), middle, 8 * over);
            words[r][1] = Funnel(middle, ReadWord(from + 8), 8 * over);
          }
          lines[r] += stride;
        }
      };
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
      uint32_t now[2][2], then[2][2];
      int j = 0;
      JAXDALI_UNROLL_BY(1)
      for (; j + 2 <= from.taps; j += 2) {  // a thread waits for eight words at a time
        load(now);
        load(then);
        add(now, j);
        add(then, j + 1);
      }
      if (j < from.taps) {
        load(now);
        add(now, j);
      }
      PairsOfWord first, second;
      JAXDALI_UNROLL
      for (int e = 0; e < kEach; e++) {
        first.pair[e] = Mid::Pack(v[0][0][e], v[1][0][e]);
        second.pair[e] = Mid::Pack(v[0][1][e], v[1][1][e]);
      }
      s.mid[item.row][at] = first;
      if (next != at) s.mid[item.row][next] = second;
    }
  }

  // Element by element: where a word would reach outside the buffer, and for pixels of which only some channels are
  // resized.
  JAXDALI_NOINLINE JAXDALI_HD static void DownElements(int thread, Shared& s, Source from) {
    const int64_t channels = s.plan.job.inner, stride = s.plan.axes.axis[2].n_in * channels;
    const int lead = Lead(s, s.part, from), n = (from.end - from.begin) * s.part.channels;
    const In* start = Start(s, s.part, from);
    for (int k = thread; k < (from.rows + 1) / 2 * n; k += kThreads) {
      const Quotient item = Divide(k, n), pixel = Divide(item.rest, s.part.channels);
      const int pair = static_cast<int>(item.quotient), at = lead + static_cast<int>(item.rest);
      Pair& mid = s.mid[pair][at / kEach].pair[at % kEach];
      float v[2];
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) v[r] = Row(s, from, pair, r).offset;
      if (from.tap > 0) AddOld(mid, &v[0], &v[1]);
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) {
        const Row row(s, from, pair, r);
        const In* line = start + (s.first_y[row.of_part] + from.tap) * stride + pixel.quotient * channels +
                         pixel.rest * s.plan.window.Step(2);
        for (int j = 0; j < from.taps; j++) v[r] = MulAdd(Mid::Read(line[j * stride]), row.weight[j], v[r]);
      }
      mid = Mid::Pack(v[0], v[1]);
    }
  }

  // The horizontal pass: one element of all rows of the band.
  JAXDALI_NOINLINE JAXDALI_HD static void Across(int thread, Shared& s, const Part& p, Source source, bool is_first,
                                                 bool is_last) {
    if (thread >= p.elements) return;
    float sum[kBand];
    JAXDALI_UNROLL
    for (int r = 0; r < kBand; r++) sum[r] = is_first ? 0 : s.sum[r][thread];
    const Pair* from = s.mid[0][0].pair + s.from[thread];
    const float* weight = s.weight_x + s.at[thread];
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

#endif  // JAXDALI_FFI_RESIZE_PASSES_H_
