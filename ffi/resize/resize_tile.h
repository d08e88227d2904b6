// Resampling along one or two axes on CUDA, tile by tile. This file describes a tile: its memory, its taps, and how it
// is stored. resize_kernel.h cuts a sample into tiles, and resize_passes.h makes one.
//
// A tile is some output rows of a strip of columns, at most kThreads elements wide. A block keeps the tile's taps in
// shared memory and makes bands of kBand rows: first the vertical pass, from the image's words to `mid`, which is also
// in shared memory, then the horizontal pass, which stores the output. If a strip's source columns do not fit into
// `mid`, they are processed in several chunks, and so are the vertical taps.
//
// If only a window reads the image, the outputs are those of the window: a tile is some of its rows and columns.
#ifndef JAXDALI_FFI_RESIZE_RESIZE_TILE_H_
#define JAXDALI_FFI_RESIZE_RESIZE_TILE_H_

#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/resize/resize.h"
#include "ffi/window/window_tile.h"

namespace jaxdali {

// a * b + c; fused on machines with such an instruction.
JAXDALI_HD inline float MulAdd(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// Intermediate elements between the passes (`mid`), for two rows together. This is the general form, in floats.
template <class In, class Out>
struct Middle {
  struct Pair {
    float row[2];
  };
  static constexpr int kWidth = 640;  // elements of a row
  static constexpr float kStart = 0;  // of sums
  JAXDALI_HD static float Read(uint32_t word, int i) { return ElementOf<In>(word, i); }
  JAXDALI_HD static float Read(In v) { return static_cast<float>(v); }
  JAXDALI_HD static Pair Pack(float a, float b) { return {{a, b}}; }
  template <int kRow>
  JAXDALI_HD static float Unpack(Pair p) {
    return p.row[kRow];
  }
  JAXDALI_HD static Out Finish(float sum) { return ConvertEvenTo<Out>(sum); }
  JAXDALI_HD static float FinishValue(float sum) { return static_cast<float>(Finish(sum)); }
};

// Two 16-bit weights times two bytes of `bytes`, the lower (kHalf 0) or the upper ones (1), plus `sum`.
template <int kHalf>
JAXDALI_HD inline int32_t WeighBytes(uint32_t weights, uint32_t bytes, int32_t sum) {
#if defined(__CUDA_ARCH__)  // CUDA's functions have signed or unsigned weights and bytes, but both alike
  if constexpr (kHalf)
    asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(bytes));
  else
    asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(bytes));
  return sum;
#else
  const uint32_t pair = kHalf ? bytes >> 16 : bytes & 0xFFFF;
  return sum + static_cast<int16_t>(weights) * static_cast<int32_t>(pair & 255) +
         static_cast<int16_t>(weights >> 16) * static_cast<int32_t>(pair >> 8);
#endif
}

// uint8: the vertical pass computes in integers, two taps at a time, with weights in units of 2^-14. Two rows in a word
// halve the reads of shared memory: 15 bits each, in units of 1/64 from -128 on, which is more than any filter
// overshoots. In the middle of a float's mantissa they are the float 2^15 + bits, which takes one instruction. Weights
// sum to 1, so 2^15 is subtracted in the end, at a cost of a hundredth of a level.
template <>
struct Middle<uint8_t, uint8_t> {
  using Pair = uint32_t;
  static constexpr int kWidth = 1024;
  static constexpr float kUnit = 64, kLow = 128, kRound = 8388608;  // 2^23: from here on floats are integers
  static constexpr float kOne = 16384;                              // the weight 1
  // The sums of the vertical pass: 8 bits more than `mid` has. It begins with a half, for rounding.
  static constexpr int32_t kHalf = 128, kStart = 128 * 64 * 256 + kHalf;
  // Permute numbers the bytes of its first operand 0 to 3, and those of the second 4 to 7, from the lowest on; so does
  // the selector. Pack takes the two middle bytes of each sum: a1 a2 b1 b2.
  JAXDALI_HD static Pair Pack(int32_t a, int32_t b) {
    return Permute(static_cast<uint32_t>(a), static_cast<uint32_t>(b), 0x6521);
  }
  // The sum from which Pack took these bytes, rounded, with a half again: the bytes kHalf, low, high, 0.
  template <int kRow>
  JAXDALI_HD static int32_t Again(Pair p) {
    return static_cast<int32_t>(Permute(p, kHalf, kRow ? 0x5324 : 0x5104));
  }
  template <int kRow>
  JAXDALI_HD static float Unpack(Pair p) {
    // The bytes 0, low, high, 0x47. The float 0x47000000 is 2^15.
    return AsFloat(Permute(p, 0x47000000, kRow ? 0x7324 : 0x7104));
  }
  JAXDALI_HD static uint8_t Finish(float sum) { return static_cast<uint8_t>(AsBits(Rounded(sum))); }
  JAXDALI_HD static float FinishValue(float sum) { return Rounded(sum) - kRound; }

 private:
  JAXDALI_HD static float Rounded(float sum) {  // the result, half to even, plus kRound
    float v = MulAdd(sum, 1 / kUnit, -kLow - 32768 / kUnit);
    v = v > 0 ? v : 0;
    v = v < 255 ? v : 255;
    return v + kRound;
  }
};

// The taps of an axis: source samples First() + j, j < count, all inside. The edge gets the weights of samples outside.
// The result equals that of Taps::Make (resize_filters.cc), but each weight is computed by itself.
struct EdgeTaps {
  const Axis& axis;
  FilterTable table;
  int support, count, last;  // taps of the filter; taps inside the source; the last source sample

  JAXDALI_HD EdgeTaps(const Axis& a, const FilterTables& tables)
      : axis(a),
        table(tables[a.filter]),
        support(static_cast<int>(a.support)),
        count(support < a.n_in ? support : static_cast<int>(a.n_in)),
        last(static_cast<int>(a.n_in) - 1) {}

  // The weight of tap j of the filter, before normalization.
  JAXDALI_HD float Raw(const TapWindow& w, int j) const {
    return axis.filter == Interp::kLinear ? w.Linear(axis, j) : w.Weight(axis, table, j);
  }
  // The first tap of output o. `accumulate`: of nearest neighbours, each position adds the scale to the one before, as
  // in DALI along all axes but the innermost.
  JAXDALI_HD int First(int64_t o, bool accumulate) const {
    if (axis.filter == Interp::kNN) {
      // Not relative: the passes are for jobs with a filtered axis, where Axes::second is -1.
      const Nearest n = Nearest::Make(axis, accumulate, /*relative=*/false);
      return n.Index(accumulate ? n.Accumulated(o) : n.At(o));
    }
    return Inside(TapWindow::Of(axis, o));
  }
  // The window's first source sample, moved so that `count` samples from there on are inside.
  JAXDALI_HD int Inside(const TapWindow& w) const {
    const int most = last + 1 - count;
    return w.first < 0 ? 0 : w.first > most ? most : w.first;
  }
  // The factor that normalizes the weights of an output to a sum of 1.
  JAXDALI_HD float Norm(const TapWindow& w) const {
    float sum = 0;
    JAXDALI_UNROLL_BY(1)
    for (int j = 0; j < support; j++) sum += Raw(w, j);
    return sum != 0 ? 1 / sum : 0;
  }
  // The weight of a source sample.
  JAXDALI_HD float Weight(const TapWindow& w, int sample, float norm) const {
    const int j = sample - w.first;
    // At the edge, all taps beyond it count, too.
    int begin = sample == 0 ? 0 : j, end = sample == last ? support - 1 : j;
    begin = begin > 0 ? begin : 0;
    end = end < support ? end : support - 1;
    float sum = 0;
    JAXDALI_UNROLL_BY(1)
    for (int k = begin; k <= end; k++) sum += Raw(w, k) * norm;
    return sum;
  }
  JAXDALI_HD float Norm(int64_t o) const { return axis.filter == Interp::kNN ? 1 : Norm(TapWindow::Of(axis, o)); }
  // Calls put(weight) for source samples `sample` to sample + n - 1 of output o. `norm`: its Norm.
  template <class Put>
  JAXDALI_HD void Weigh(int64_t o, int sample, int n, float norm, Put put) const {
    const bool nearest = axis.filter == Interp::kNN;
    TapWindow w{};
    if (!nearest) w = TapWindow::Of(axis, o);
    JAXDALI_UNROLL_BY(1)
    for (int end = sample + n; sample < end; sample++) put(nearest ? 1 : Weight(w, sample, norm));
  }
};

// How a block works on a sample, whatever the types of its elements are.
template <class TheWindow>
struct ResizePlan {
  using Window = TheWindow;
  static constexpr bool kWhole = std::is_same_v<Window, WholeImage>;
  static constexpr int kBand = 8;        // rows that are processed at a time
  static constexpr int kRows = 64;       // rows of a tile
  static constexpr int kTapsX = 1536;    // weights of a strip's columns
  static constexpr int kTapsY = 512;     // weights of a tile's rows
  static constexpr int kMostTapsY = 64;  // taps of one row

  ResizeJob job;
  Axes axes;
  Window window;
  int64_t output[3];                  // rows, columns and channels that are made
  int64_t strips, tile_rows, groups;  // tiles along each of these axes
  int64_t tiles;
  int margin;                   // rows at the end of the image in which a word could reach outside the buffer
  int columns, rows, channels;  // of a tile, at most
  int count_x, count_y;         // taps of one column or row
  int taps_x, taps_y;           // at most, in one chunk
  int row_weights;              // of one row in weight_y
  bool whole_pixels;            // a tile has all channels of the image, in their order
};

inline constexpr int kMiddleSlack = 8;  // elements of a row between the passes that pad words

// The number of source pixels that fit between the passes.
template <class In, class Out>
JAXDALI_HD int ChunkColumns(int channels) {
  return (Middle<In, Out>::kWidth - kMiddleSlack) / channels;
}

// The memory of a block and the tiles that it works on.
template <class In, class Out, class Window>
struct ResizeTile {
  using Plan = ResizePlan<Window>;
  static constexpr bool kWhole = Plan::kWhole;
  using Mid = Middle<In, Out>;
  using Pair = typename Mid::Pair;
  static constexpr bool kIntegers = std::is_integral_v<Pair>;        // the vertical pass computes in them
  using RowWeight = std::conditional_t<kIntegers, uint32_t, float>;  // integers: of two taps

  static constexpr int kBand = Plan::kBand, kRows = Plan::kRows, kTapsX = Plan::kTapsX, kTapsY = Plan::kTapsY,
                       kMostTapsY = Plan::kMostTapsY;
  static constexpr int kFewTaps = 12;           // one thread makes so many weights of a column
  static constexpr int kEach = 4 / sizeof(In);  // elements of a word
  static_assert(kTapsX >= Mid::kWidth && kTapsY >= kMostTapsY * kBand && kThreads * 2 + kMiddleSlack < Mid::kWidth);

  // Some rows of one strip.
  struct OutputTile {
    const In* in;  // the image, at the first channel
    Out* out;      // the first element; unused with a window
    typename Window::Lines lines;
    int64_t x, y;  // the position of the first element
    int columns, rows, channels, elements;
  };
  // The values that the threads of the vertical pass share, for one range of source columns.
  struct Chunk {
    const uint8_t* start;  // the first word of source row 0
    int pitch;             // bytes from row to row
    int words, items;      // of a row, and of two rows together: an item is two words of each
    float per_items;       // 1 / items
    int last_row;          // up to this one, the taps of a row can be read by words
    bool aligned;          // all rows begin with a word
  };

  struct alignas(sizeof(Pair) * kEach) PairsOfWord {
    Pair pair[kEach];
  };
  struct Shared {
    Plan plan;
    OutputTile tiles[2];  // a tile and the next one
    Chunk chunk;
    FilterTables tables;
    int first_x[kThreads], first_y[kRows];
    float norm_x[kThreads], norm_y[kRows];
    // For each element of an output row: its first tap in `mid` and in weight_x, and the number of taps.
    uint16_t first_mid[kThreads], first_weight[kThreads], count[kThreads];
    uint8_t column[kThreads], channel[kThreads];  // of these elements, in the tile
    float weight_x[kTapsX];
    RowWeight weight_y[kTapsY];
    PairsOfWord mid[kBand / 2][Mid::kWidth / kEach];
    union {
      float sum[kBand][kThreads];  // of the chunks so far
      int64_t place[kThreads];     // nearest neighbours: the source element of each output element
    };
  };

  // Describes tile k of the sample. Tiles are numbered strip by strip along the rows first, so that neighbouring blocks
  // work on the same rows, for the caches.
  JAXDALI_NOINLINE JAXDALI_HD static OutputTile TileAt(const Shared& s, int64_t k) {
    const Axis &y = s.plan.axes.axis[1], &x = s.plan.axes.axis[2];
    const Quotient strip = Divide(k, s.plan.strips), tile_row = Divide(strip.quotient, s.plan.tile_rows),
                   group = Divide(tile_row.quotient, s.plan.groups);
    const int64_t image = group.quotient, c = group.rest * s.plan.channels;
    auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
    OutputTile p;
    p.x = strip.rest * s.plan.columns;
    p.y = tile_row.rest * s.plan.rows;
    p.columns = least(s.plan.columns, s.plan.output[1] - p.x);
    p.rows = least(s.plan.rows, s.plan.output[0] - p.y);
    p.channels = least(s.plan.channels, s.plan.output[2] - c);
    p.elements = p.columns * p.channels;
    p.in = static_cast<const In*>(s.plan.job.in) + image * y.n_in * x.n_in * s.plan.job.inner + s.plan.window.At(2, c);
    if constexpr (kWhole)
      p.out = static_cast<Out*>(s.plan.job.out) + ((image * y.n_out + p.y) * x.n_out + p.x) * s.plan.job.inner + c;
    else
      p.lines = s.plan.window.LinesAt(p.x, p.y);
    return p;
  }

  // Stores rows begin ... begin + rows - 1 of the tile; get(row, element) returns an Out.
  template <class Get>
  JAXDALI_HD static void Write(int thread, const Shared& s, const OutputTile& p, int begin, int rows, Get get) {
    if constexpr (!kWhole) {
      return s.plan.window.Write(thread, p.x, p.y + begin, p.columns, rows, [&](int row, int column, int channel) {
        return get(row, column * p.channels + channel);
      });
    }
    const int words = WordsOf<Out>(p.elements);
    const float inverse = 1 / static_cast<float>(words);
    const int64_t stride = s.plan.axes.axis[2].n_out * s.plan.job.inner;
    for (int k = thread; k < rows * words; k += kThreads) {
      const TileItem item(k, words, inverse);
      WriteElements(p.out + (begin + item.row) * stride, p.elements, item.column,
                    [&](int e) { return get(item.row, e); });
    }
  }
  // Stores element `element` of rows begin ... begin + rows - 1 of the tile, of which there are at most kBand.
  // Neighbouring threads store neighbouring elements, so they fill the sectors of the caches together.
  JAXDALI_HD static void WriteSums(int element, const Shared& s, const OutputTile& p, int begin, int rows,
                                   const float (&sum)[kBand]) {
    if constexpr (!kWhole) {
      const Window& window = s.plan.window;
      window.template WriteColumn<kBand>(window.Below(p.lines, begin), s.column[element], s.channel[element], rows,
                                         [&](int row) { return Mid::FinishValue(sum[row]); });
    } else {
      const int64_t stride = s.plan.axes.axis[2].n_out * s.plan.job.inner;
      Out* to = p.out + begin * stride + element;
      JAXDALI_UNROLL
      for (int r = 0; r < kBand; r++, to += stride) {
        if (r >= rows) return;
        *to = Mid::Finish(sum[r]);
      }
    }
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_TILE_H_
