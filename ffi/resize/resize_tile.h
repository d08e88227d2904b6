// Resampling along one or two axes on CUDA, tile by tile.
//
// A block works on parts of a sample: some output rows of a strip of columns, at most kThreads elements wide. It keeps
// the taps of these in shared memory and makes bands of kBand rows: first the vertical pass, from the image's words
// into `mid`, in shared memory as well, then the horizontal pass, then whole words of output. A strip's source columns
// that do not fit `mid` come in several chunks, and so do vertical taps.
#ifndef JAXDALI_FFI_RESIZE_TILE_H_
#define JAXDALI_FFI_RESIZE_TILE_H_

#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/resize/resize.h"

namespace jaxdali {

// a * b + c; fused where that is one instruction.
JAXDALI_HD inline float MulAdd(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// What is between the passes: elements of two rows together.
template <class In, class Out>
struct Middle {
  struct Pair {
    float row[2];
  };
  static constexpr int kWidth = 640;   // elements of a row
  static constexpr float kOffset = 0;  // what Read adds to the elements
  JAXDALI_HD static float Read(uint32_t word, int i) { return ElementOf<In>(word, i); }
  JAXDALI_HD static float Read(In v) { return static_cast<float>(v); }
  JAXDALI_HD static Pair Pack(float a, float b) { return {{a, b}}; }
  template <int kRow>
  JAXDALI_HD static float Unpack(Pair p) {
    return p.row[kRow];
  }
  JAXDALI_HD static float Value(float unpacked) { return unpacked; }
  JAXDALI_HD static Out Finish(float sum) { return ConvertEvenTo<Out>(sum); }
};

// uint8: shared memory is read half as often with two rows in a word. A byte, or 15 bits, in the middle of a float's
// mantissa are the float 2^15 + byte: one instruction. Weights sum to 1, so in the end there is 2^15 to subtract; what
// it costs is a hundredth of a level. 15 bits: 1/64 from -128 on, more than any filter overshoots by.
template <>
struct Middle<uint8_t, uint8_t> {
  using Pair = uint32_t;
  static constexpr int kWidth = 1024;
  static constexpr float kOffset = 32768;
  static constexpr float kUnit = 64, kLow = 128, kRound = 8388608;  // 2^23: floats are integers from here on
  JAXDALI_HD static float Read(uint32_t word, int i) {
    return AsFloat(Permute(word, 0x47000000, 0x7404u | static_cast<uint32_t>(i) << 4));
  }
  JAXDALI_HD static float Read(uint8_t v) { return static_cast<float>(v) + kOffset; }
  JAXDALI_HD static Pair Pack(float a, float b) {
    return Permute(AsBits(MulAdd(a, kUnit, kLow * kUnit + kRound)), AsBits(MulAdd(b, kUnit, kLow * kUnit + kRound)),
                   0x5410);
  }
  template <int kRow>
  JAXDALI_HD static float Unpack(Pair p) {
    return AsFloat(Permute(p, 0x47000000, kRow ? 0x7324 : 0x7104));
  }
  JAXDALI_HD static float Value(float unpacked) { return (unpacked - kOffset) / kUnit - kLow; }
  JAXDALI_HD static uint8_t Finish(float sum) {
    float v = MulAdd(sum, 1 / kUnit, -kLow - kOffset / kUnit);
    v = v > 0 ? v : 0;
    v = v < 255 ? v : 255;
    return static_cast<uint8_t>(AsBits(v + kRound));  // halves to even
  }
};

// The taps of an axis: source samples First() + j, j < count, all inside: what is outside counts for the edge.
struct EdgeTaps {
  const Axis& axis;
  FilterTable table;
  int count, last;

  JAXDALI_HD EdgeTaps(const Axis& a, const FilterTables& tables)
      : axis(a),
        table(tables[a.filter]),
        count(a.support < static_cast<double>(a.n_in) ? static_cast<int>(a.support) : static_cast<int>(a.n_in)),
        last(static_cast<int>(a.n_in) - 1) {}

  JAXDALI_HD float Raw(const Window& w, int j) const {
    return axis.filter == Interp::kLinear ? w.Linear(axis, j) : w.Weight(axis, table, j);
  }
  // The first tap of output o, and the factor that makes the sum of its weights 1.
  JAXDALI_NOINLINE JAXDALI_HD int First(int64_t o, bool accumulate, float* norm) const {
    *norm = 1;
    if (axis.filter == Interp::kNN) {
      const Nearest n = Nearest::Make(axis, accumulate, false);
      return n.Index(accumulate ? n.Accumulated(o) : n.At(o));
    }
    const Window w = Window::Of(axis, o);
    float sum = 0;
    for (int j = 0; j < static_cast<int>(axis.support); j++) sum += Raw(w, j);
    *norm = sum != 0 ? 1 / sum : 0;
    const int most = last + 1 - count;
    return w.first < 0 ? 0 : w.first > most ? most : w.first;
  }
  // The weight of source sample `at`, one of output o's.
  JAXDALI_NOINLINE JAXDALI_HD float Weight(int64_t o, int at, float norm) const {
    if (axis.filter == Interp::kNN) return 1;
    const Window w = Window::Of(axis, o);
    const int support = static_cast<int>(axis.support), j = at - w.first;
    int begin = at == 0 ? 0 : j, end = at == last ? support - 1 : j;
    begin = begin > 0 ? begin : 0;
    end = end < support ? end : support - 1;
    float sum = 0;
    for (int k = begin; k <= end; k++) sum += Raw(w, k) * norm;
    return sum;
  }
};

template <class In, class Out>
struct TileKernel : ResizeBatch {
  using Mid = Middle<In, Out>;
  using Pair = typename Mid::Pair;

  static constexpr int kBlocksPerSm = 3;        // what fits shared memory, and registers without spilling
  static constexpr int kBand = 8;               // rows that are worked on at a time
  static constexpr int kRows = 64;              // rows of a part
  static constexpr int kTapsX = 1536;           // weights of a strip's columns
  static constexpr int kTapsY = 512;            // and of a part's rows,
  static constexpr int kMostTapsY = 64;         // of one at most
  static constexpr int kEach = 4 / sizeof(In);  // elements of a word
  static constexpr int kSlack = 8;              // elements of `mid` that fill up words
  static_assert(kTapsX >= Mid::kWidth && kTapsY >= kMostTapsY * kBand && kThreads * 2 + kSlack < Mid::kWidth);

  FilterTables tables;
  Samples samples;
  int blocks;  // of each sample

  // Some rows of one strip.
  struct Part {
    const In* in;  // the image, at the first channel
    Out* out;      // the first element
    int64_t x, y;  // of it
    int columns, rows, channels, elements;
  };

  struct alignas(sizeof(Pair) * kEach) PairsOfWord {
    Pair pair[kEach];
  };
  struct Shared {
    bool runs;
    ResizeJob job;
    Axes axes;
    Part part;
    int margin;  // rows at the end of an image which a word must not touch: it could reach outside the buffer
    int columns, rows, channels;  // of a part, at most
    int64_t strips, bands, groups, parts;
    int count_x, count_y;  // taps of one column or row
    int taps_x, taps_y;    // in one chunk, at most
    FilterTables tables;
    int first_x[kThreads], first_y[kRows];
    float norm_x[kThreads], norm_y[kRows];
    // Of each element of an output row: where in `mid` and in weight_x its taps are, how many.
    uint16_t from[kThreads], at[kThreads], count[kThreads];
    float weight_x[kTapsX], weight_y[kTapsY], sum_y[kBand];
    PairsOfWord mid[kBand / 2][Mid::kWidth / kEach];
    union {
      float sum[kBand][kThreads];
      int64_t place[kThreads];  // nearest neighbours: the source element of each output element
    };
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int i = block.index / blocks, own = block.index % blocks;
    block.Phase([&](int thread) {
      if (thread == 0) {
        s.runs = false;
        Status code = kOk;
        if (samples.present[i]) code = in.valid(i) && out.valid(i) ? Prepare(i, s) : kInternal;
        if (own == 0) samples.status[i] = code;
      }
      for (int k = thread; k < 129; k += kThreads) s.tables.cubic[k] = tables.cubic[k];
      for (int k = thread; k < 193; k += kThreads) s.tables.lanczos[k] = tables.lanczos[k];
      for (int k = thread; k < 65; k += kThreads) s.tables.gaussian[k] = tables.gaussian[k];
    });
    if (!s.runs) return;
    for (int64_t k = own; k < s.parts; k += blocks) {
      block.Phase([&](int thread) {
        if (thread == 0) s.part = PartAt(s, k);
      });
      if (s.axes.nearest)
        Copy(block, s);
      else
        Filter(block, s);
    }
  }

 private:
  JAXDALI_HD static int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

  JAXDALI_NOINLINE JAXDALI_HD Status Prepare(int i, Shared& s) const {
    if (Status e = Sample(i, &s.job); e != kOk) return e;
    if (out.size(i) == 0) return kOk;
    if (Status e = s.axes.Make(s.job); e != kOk) return e;
    const Axis &y = s.axes.axis[1], &x = s.axes.axis[2];
    s.margin = 0;
    constexpr int64_t kSize = sizeof(In), kOver = 8;  // bytes: two words are read for one
    const int64_t row = x.n_in * s.job.inner * kSize;
    if (kSize < 4 && (in.capacity - in.start(i) - in.size(i)) * kSize < kOver)
      s.margin = static_cast<int>(CeilDiv(kOver, row));
    s.channels = s.job.inner < kThreads ? static_cast<int>(s.job.inner) : kThreads;
    s.groups = CeilDiv(s.job.inner, s.channels);
    s.count_x = EdgeTaps(x, s.tables).count;
    s.count_y = EdgeTaps(y, s.tables).count;
    const int chunk = Chunk(s.channels);
    s.taps_x = s.count_x < chunk ? s.count_x : chunk;
    s.taps_y = s.count_y < kMostTapsY ? s.count_y : kMostTapsY;
    const int fit = kThreads / s.channels, weighed = kTapsX / s.taps_x;
    s.strips = CeilDiv(x.n_out, fit < weighed ? fit : weighed);
    s.columns = static_cast<int>(CeilDiv(x.n_out, s.strips));
    s.strips = CeilDiv(x.n_out, s.columns);
    // As many parts as there are blocks.
    int64_t rows = CeilDiv(y.n_out, CeilDiv(blocks, s.strips * s.groups * s.job.outer));
    const int most = kTapsY / s.taps_y < kRows ? kTapsY / s.taps_y : kRows;
    if (rows > kBand) rows = CeilDiv(rows, kBand) * kBand;
    s.rows = static_cast<int>(rows < most ? rows : most / kBand * kBand);
    s.bands = CeilDiv(y.n_out, s.rows);
    s.parts = s.job.outer * s.groups * s.bands * s.strips;
    s.runs = true;
    return kOk;
  }

  // Source pixels that fit `mid`.
  JAXDALI_HD static int Chunk(int channels) { return (Mid::kWidth - kSlack) / channels; }

  // Neighbouring blocks work on the same rows.
  JAXDALI_NOINLINE JAXDALI_HD static Part PartAt(const Shared& s, int64_t k) {
    const Axis &y = s.axes.axis[1], &x = s.axes.axis[2];
    const Quotient strip = Divide(k, s.strips), band = Divide(strip.quotient, s.bands),
                   group = Divide(band.quotient, s.groups);
    const int64_t image = group.quotient, c = group.rest * s.channels;
    auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
    Part p;
    p.x = strip.rest * s.columns;
    p.y = band.rest * s.rows;
    p.columns = least(s.columns, x.n_out - p.x);
    p.rows = least(s.rows, y.n_out - p.y);
    p.channels = least(s.channels, s.job.inner - c);
    p.elements = p.columns * p.channels;
    p.in = static_cast<const In*>(s.job.in) + image * y.n_in * x.n_in * s.job.inner + c;
    p.out = static_cast<Out*>(s.job.out) + ((image * y.n_out + p.y) * x.n_out + p.x) * s.job.inner + c;
    return p;
  }

  // Item k of several rows of n: k < 2^16. Cheaper than a division.
  struct Item {
    int row, at;
    JAXDALI_HD Item(int k, int n, float inverse) {
      row = static_cast<int>((static_cast<float>(k) + 0.5f) * inverse);
      at = k - row * n;
    }
  };

  // Rows begin ... begin + rows - 1 of the part; get(row, element) -> Out.
  template <class Get>
  JAXDALI_HD static void Write(int thread, const Shared& s, const Part& p, int begin, int rows, Get get) {
    const int words = WordsOf<Out>(p.elements);
    const float inverse = 1 / static_cast<float>(words);
    const int64_t stride = s.axes.axis[2].n_out * s.job.inner;
    for (int k = thread; k < rows * words; k += kThreads) {
      const Item item(k, words, inverse);
      WriteElements(p.out + (begin + item.row) * stride, p.elements, item.at, [&](int e) { return get(item.row, e); });
    }
  }

  // --- Nearest neighbours --------------------------------------------------------------------------------------

  template <class Block>
  JAXDALI_HD static void Copy(const Block& block, Shared& s) {
    const Part& p = s.part;
    const Axis &y = s.axes.axis[1], &x = s.axes.axis[2];
    block.Phase([&](int thread) {
      const Nearest nearest = Nearest::Make(x, false, s.axes.second == 2);
      if (thread < p.elements) {
        const Quotient q = Divide(thread, p.channels);
        s.place[thread] = nearest.Index(nearest.At(p.x + q.quotient)) * s.job.inner + q.rest;
      }
      if (thread < p.rows) {
        const Nearest down = Nearest::Make(y, true, s.axes.second == 1);
        s.first_y[thread] = down.Index(down.Accumulated(p.y + thread));
      }
    });
    block.Phase([&](int thread) {
      Write(thread, s, p, 0, p.rows, [&](int row, int e) {
        const In v = p.in[s.first_y[row] * x.n_in * s.job.inner + s.place[e]];
        if constexpr (std::is_same_v<In, Out>)
          return v;
        else
          return static_cast<Out>(v);
      });
    });
  }

  // --- Filters -------------------------------------------------------------------------------------------------

  // What of the source one pass over `mid` is about.
  struct Source {
    int begin, end;  // columns
    int row, rows;   // of the part: one band
    int tap, taps;   // vertical ones
  };

  template <class Block>
  JAXDALI_HD void Filter(const Block& block, Shared& s) const {
    const Part& p = s.part;
    block.Phase([&](int thread) {
      const EdgeTaps x(s.axes.axis[2], s.tables), y(s.axes.axis[1], s.tables);
      for (int k = thread; k < p.columns + p.rows; k += kThreads) {
        if (k < p.columns)
          s.first_x[k] = x.First(p.x + k, false, &s.norm_x[k]);
        else
          s.first_y[k - p.columns] = y.First(p.y + k - p.columns, true, &s.norm_y[k - p.columns]);
      }
    });
    const int a = s.first_x[0], b = s.first_x[p.columns - 1];  // taps ascend, or descend when mirrored
    const int low = a < b ? a : b, high = (a < b ? b : a) + s.count_x, chunk = Chunk(s.channels);
    const bool one_x = high - low <= chunk, one_y = s.count_y <= s.taps_y;
    const int all = p.rows;  // not asked for after the last phase: a fast thread sets up the next part by then
    Source from;
    for (from.row = 0; from.row < all; from.row += kBand) {
      from.rows = all - from.row < kBand ? all - from.row : kBand;
      for (from.begin = low; from.begin < high; from.begin += chunk) {
        from.end = high - from.begin < chunk ? high : from.begin + chunk;
        for (from.tap = 0; from.tap < s.count_y; from.tap += s.taps_y) {
          from.taps = s.count_y - from.tap < s.taps_y ? s.count_y - from.tap : s.taps_y;
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
                for (int j = 0; j < from.taps; j++) sum += s.weight_y[thread * s.taps_y + j];
                s.sum_y[thread] = sum;
              }
            });
          }
          block.Phase([&](int thread) { Down(thread, s, from); });
        }
        block.Phase([&](int thread) { Across(thread, s, p, from.begin == low); });
      }
      block.Phase([&](int thread) { Finish(thread, s, from.row, from.rows); });
    }
  }

  JAXDALI_NOINLINE JAXDALI_HD static void WeighColumns(int thread, Shared& s, const Part& p, const Source& from) {
    const EdgeTaps x(s.axes.axis[2], s.tables);
    const int lead = Lead(s, p, from);
    for (int k = thread; k < p.columns * s.taps_x; k += kThreads) {
      const Quotient q = Divide(k, s.taps_x);
      const int column = static_cast<int>(q.quotient), first = s.first_x[column];
      const int at = (first > from.begin ? first : from.begin) + static_cast<int>(q.rest);
      if (at < first + x.count && at < from.end) s.weight_x[k] = x.Weight(p.x + column, at, s.norm_x[column]);
    }
    if (thread < p.elements) {
      const Quotient q = Divide(thread, p.channels);
      const int column = static_cast<int>(q.quotient), first = s.first_x[column], end = first + x.count;
      const int low = first > from.begin ? first : from.begin, high = end < from.end ? end : from.end;
      s.at[thread] = static_cast<uint16_t>(column * s.taps_x);
      s.count[thread] = static_cast<uint16_t>(high > low ? high - low : 0);
      s.from[thread] =
          static_cast<uint16_t>(high > low ? lead + (low - from.begin) * p.channels + static_cast<int>(q.rest) : 0);
    }
  }

  JAXDALI_NOINLINE JAXDALI_HD static void WeighRows(int thread, Shared& s, const Part& p, const Source& from, int begin,
                                                    int rows) {
    const EdgeTaps y(s.axes.axis[1], s.tables);
    for (int k = thread; k < rows * s.taps_y; k += kThreads) {
      const Quotient q = Divide(k, s.taps_y);
      const int row = begin + static_cast<int>(q.quotient), j = static_cast<int>(q.rest);
      if (j < from.taps) s.weight_y[k] = y.Weight(p.y + row, s.first_y[row] + from.tap + j, s.norm_y[row]);
    }
  }

  // Whether all rows begin at the same place in a word.
  JAXDALI_HD static bool SameInWord(const Shared& s) {
    return s.axes.axis[2].n_in * s.job.inner * static_cast<int64_t>(sizeof(In)) % 4 == 0;
  }
  JAXDALI_HD static const In* Start(const Shared& s, const Part& p, const Source& from) {
    return p.in + from.begin * s.job.inner;
  }
  // Elements of the first word that are before the source's first one.
  JAXDALI_HD static int Lead(const Shared& s, const Part& p, const Source& from) {
    if (!SameInWord(s) || p.channels != s.job.inner) return 0;
    return static_cast<int>(reinterpret_cast<uintptr_t>(Start(s, p, from)) & 3) / static_cast<int>(sizeof(In));
  }

  // The vertical pass.
  JAXDALI_HD static void Down(int thread, Shared& s, const Source& from) {
    const int64_t rows = s.axes.axis[1].n_in;
    const int a = s.first_y[from.row], b = s.first_y[from.row + from.rows - 1];
    if (s.part.channels != s.job.inner || (a < b ? b : a) + s.count_y > rows - s.margin)
      DownElements(thread, s, from);
    else if (SameInWord(s))
      DownWords<true>(thread, s, from);
    else
      DownWords<false>(thread, s, from);
  }

  // Row `r` of a pair of the band's, which may lack the second one.
  struct Row {
    int of_part;
    const float* weight;
    float offset;

    JAXDALI_HD Row(const Shared& s, const Source& from, int pair, int r) {
      const int of_band = 2 * pair + r < from.rows ? 2 * pair + r : from.rows - 1;
      const bool one = from.taps == s.count_y;
      of_part = from.row + of_band;
      weight = s.weight_y + (one ? of_part : of_band) * s.taps_y;
      offset = one ? -Mid::kOffset : -Mid::kOffset * s.sum_y[of_band];
    }
  };
  template <int kRow>
  JAXDALI_HD static float Begin(const Source& from, float offset, Pair old) {
    return from.tap == 0 ? offset : offset + Mid::Value(Mid::template Unpack<kRow>(old));
  }

  // By words, two to a thread, of two rows. Some elements are not in use: those before the first one, and after the
  // last one.
  template <bool kAligned>
  JAXDALI_NOINLINE JAXDALI_HD static void DownWords(int thread, Shared& s, Source from) {
    const int64_t stride = s.axes.axis[2].n_in * s.job.inner * static_cast<int64_t>(sizeof(In));
    const int lead = Lead(s, s.part, from), n = lead + (from.end - from.begin) * s.part.channels;
    const uint8_t* start = reinterpret_cast<const uint8_t*>(Start(s, s.part, from) - lead);
    const int words = (n + kEach - 1) / kEach, items = (words + 1) / 2;
    const float inverse = 1 / static_cast<float>(items);
    for (int k = thread; k < (from.rows + 1) / 2 * items; k += kThreads) {
      const Item item(k, items, inverse);
      const int at = item.at, next = at + items < words ? at + items : at;
      float v[2][2][kEach];
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) {
        const Row row(s, from, item.row, r);
        JAXDALI_UNROLL
        for (int e = 0; e < kEach; e++) {
          v[r][0][e] = r == 0 ? Begin<0>(from, row.offset, s.mid[item.row][at].pair[e])
                              : Begin<1>(from, row.offset, s.mid[item.row][at].pair[e]);
          v[r][1][e] = r == 0 ? Begin<0>(from, row.offset, s.mid[item.row][next].pair[e])
                              : Begin<1>(from, row.offset, s.mid[item.row][next].pair[e]);
        }
        const uint8_t* line = start + (s.first_y[row.of_part] + from.tap) * stride + 4 * at;
        JAXDALI_UNROLL_BY(2)
        for (int j = 0; j < from.taps; j++, line += stride) {
          uint32_t first, second;
          if constexpr (kAligned) {
            first = ReadWord(line);
            second = ReadWord(line + 4 * (next - at));
          } else {
            const int over = static_cast<int>(reinterpret_cast<uintptr_t>(line) & 3);
            const uint8_t *a = line - over, *b = a + 4 * (next - at);
            first = Funnel(ReadWord(a), ReadWord(a + 4), 8 * over);
            second = Funnel(ReadWord(b), ReadWord(b + 4), 8 * over);
          }
          JAXDALI_UNROLL
          for (int e = 0; e < kEach; e++) {
            v[r][0][e] = MulAdd(Mid::Read(first, e), row.weight[j], v[r][0][e]);
            v[r][1][e] = MulAdd(Mid::Read(second, e), row.weight[j], v[r][1][e]);
          }
        }
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

  // Element by element: where a word would reach outside the buffer, and for pixels of which only some channels count.
  JAXDALI_NOINLINE JAXDALI_HD static void DownElements(int thread, Shared& s, Source from) {
    const int64_t channels = s.job.inner, stride = s.axes.axis[2].n_in * channels;
    const int lead = Lead(s, s.part, from), n = (from.end - from.begin) * s.part.channels;
    const In* start = Start(s, s.part, from);
    for (int k = thread; k < (from.rows + 1) / 2 * n; k += kThreads) {
      const Quotient item = Divide(k, n), pixel = Divide(item.rest, s.part.channels);
      const int pair = static_cast<int>(item.quotient), at = lead + static_cast<int>(item.rest);
      Pair& mid = s.mid[pair][at / kEach].pair[at % kEach];
      float v[2];
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) {
        const Row row(s, from, pair, r);
        v[r] = r == 0 ? Begin<0>(from, row.offset, mid) : Begin<1>(from, row.offset, mid);
        const In* line = start + (s.first_y[row.of_part] + from.tap) * stride + pixel.quotient * channels + pixel.rest;
        for (int j = 0; j < from.taps; j++) v[r] = MulAdd(Mid::Read(line[j * stride]), row.weight[j], v[r]);
      }
      mid = Mid::Pack(v[0], v[1]);
    }
  }

  JAXDALI_NOINLINE JAXDALI_HD static void Finish(int thread, const Shared& s, int begin, int rows) {
    Write(thread, s, s.part, begin, rows, [&](int row, int e) { return Mid::Finish(s.sum[row][e]); });
  }

  // The horizontal pass, one element of all rows of the band.
  JAXDALI_NOINLINE JAXDALI_HD static void Across(int thread, Shared& s, const Part& p, bool is_first) {
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
    JAXDALI_UNROLL
    for (int r = 0; r < kBand; r++) s.sum[r][thread] = sum[r];
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_TILE_H_
