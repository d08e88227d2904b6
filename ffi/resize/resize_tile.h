// Resampling along one or two axes on CUDA, tile by tile.
//
// A block works on parts of a sample. A part is some output rows of a strip of columns, at most kThreads elements wide.
// The block keeps the part's taps in shared memory and makes bands of kBand rows: first the vertical pass, from the
// image's words to `mid`, which is also in shared memory, then the horizontal pass, which stores the output. If a
// strip's source columns do not fit into `mid`, they are processed in several chunks, and so are the vertical taps.
//
// If only a window reads the image, the outputs are those of the window: a part is some of its rows and columns.
#ifndef JAXDALI_FFI_RESIZE_TILE_H_
#define JAXDALI_FFI_RESIZE_TILE_H_

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

// Intermediate elements between the passes, for two rows together.
template <class In, class Out>
struct Middle {
  struct Pair {
    float row[2];
  };
  static constexpr int kWidth = 640;   // elements of a row
  static constexpr float kOffset = 0;  // added to the elements by Read
  JAXDALI_HD static float Read(uint32_t word, int i) { return ElementOf<In>(word, i); }
  JAXDALI_HD static float Read(In v) { return static_cast<float>(v); }
  JAXDALI_HD static Pair Pack(float a, float b) { return {{a, b}}; }
  template <int kRow>
  JAXDALI_HD static float Unpack(Pair p) {
    return p.row[kRow];
  }
  JAXDALI_HD static float Value(float unpacked) { return unpacked; }
  JAXDALI_HD static Out Finish(float sum) { return ConvertEvenTo<Out>(sum); }
  JAXDALI_HD static float FinishValue(float sum) { return static_cast<float>(Finish(sum)); }
};

// uint8: two rows in a word halve the reads of shared memory. A byte, or 15 bits, in the middle of a float's mantissa
// is the float 2^15 + byte, which takes one instruction. Weights sum to 1, so 2^15 is subtracted in the end, at a cost
// of a hundredth of a level. 15 bits: units of 1/64 from -128 on, which is more than any filter overshoots.
template <>
struct Middle<uint8_t, uint8_t> {
  using Pair = uint32_t;
  static constexpr int kWidth = 1024;
  static constexpr float kOffset = 32768;
  static constexpr float kUnit = 64, kLow = 128, kRound = 8388608;  // 2^23: from here on floats are integers
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
  JAXDALI_HD static uint8_t Finish(float sum) { return static_cast<uint8_t>(AsBits(Rounded(sum))); }
  JAXDALI_HD static float FinishValue(float sum) { return Rounded(sum) - kRound; }

 private:
  JAXDALI_HD static float Rounded(float sum) {  // the result, half to even, plus kRound
    float v = MulAdd(sum, 1 / kUnit, -kLow - kOffset / kUnit);
    v = v > 0 ? v : 0;
    v = v < 255 ? v : 255;
    return v + kRound;
  }
};

// The taps of an axis: source samples First() + j, j < count, all inside. The edge gets the weights of samples outside.
struct EdgeTaps {
  const Axis& axis;
  FilterTable table;
  int count, last;

  JAXDALI_HD EdgeTaps(const Axis& a, const FilterTables& tables)
      : axis(a),
        table(tables[a.filter]),
        count(a.support < static_cast<double>(a.n_in) ? static_cast<int>(a.support) : static_cast<int>(a.n_in)),
        last(static_cast<int>(a.n_in) - 1) {}

  JAXDALI_HD float Raw(const TapWindow& w, int j) const {
    return axis.filter == Interp::kLinear ? w.Linear(axis, j) : w.Weight(axis, table, j);
  }
  // The first tap of output o, and the factor that normalizes its weights to a sum of 1.
  JAXDALI_NOINLINE JAXDALI_HD int First(int64_t o, bool accumulate, float* norm) const {
    *norm = 1;
    if (axis.filter == Interp::kNN) {
      const Nearest n = Nearest::Make(axis, accumulate, false);
      return n.Index(accumulate ? n.Accumulated(o) : n.At(o));
    }
    const TapWindow w = TapWindow::Of(axis, o);
    float sum = 0;
    for (int j = 0; j < static_cast<int>(axis.support); j++) sum += Raw(w, j);
    *norm = sum != 0 ? 1 / sum : 0;
    const int most = last + 1 - count;
    return w.first < 0 ? 0 : w.first > most ? most : w.first;
  }
  // The weight of source sample `at` in output o.
  JAXDALI_NOINLINE JAXDALI_HD float Weight(int64_t o, int at, float norm) const {
    if (axis.filter == Interp::kNN) return 1;
    const TapWindow w = TapWindow::Of(axis, o);
    const int support = static_cast<int>(axis.support), j = at - w.first;
    int begin = at == 0 ? 0 : j, end = at == last ? support - 1 : j;
    begin = begin > 0 ? begin : 0;
    end = end < support ? end : support - 1;
    float sum = 0;
    for (int k = begin; k <= end; k++) sum += Raw(w, k) * norm;
    return sum;
  }
};

// What a block stores for a sample, and the parts that it works on.
template <class In, class Out, class Window>
struct ResizeTile {
  static constexpr bool kWhole = std::is_same_v<Window, WholeImage>;
  using Mid = Middle<In, Out>;
  using Pair = typename Mid::Pair;

  static constexpr int kBand = 8;               // rows that are processed at a time
  static constexpr int kRows = 64;              // rows of a part
  static constexpr int kTapsX = 1536;           // weights of a strip's columns
  static constexpr int kTapsY = 512;            // weights of a part's rows
  static constexpr int kMostTapsY = 64;         // taps of one row
  static constexpr int kEach = 4 / sizeof(In);  // elements of a word
  static constexpr int kSlack = 8;              // elements of `mid` that pad words
  static_assert(kTapsX >= Mid::kWidth && kTapsY >= kMostTapsY * kBand && kThreads * 2 + kSlack < Mid::kWidth);

  // Some rows of one strip.
  struct Part {
    const In* in;  // the image, at the first channel
    Out* out;      // the first element; unused with a window
    typename Window::Lines lines;
    int64_t x, y;  // the position of the first element
    int columns, rows, channels, elements;
  };
  // What the threads of the vertical pass share, for one range of source columns.
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
  // The plan of a sample.
  struct Plan {
    ResizeJob job;
    Axes axes;
    Window window;
    int64_t made[3];  // rows, columns and channels that are made
    int64_t strips, bands, groups, parts;
    int margin;                   // rows at the end of the image in which a word could reach outside the buffer
    int columns, rows, channels;  // of a part, at most
    int count_x, count_y;         // taps of one column or row
    int taps_x, taps_y;           // at most, in one chunk
    bool whole_pixels;            // a part has all channels of the image, in their order
  };
  struct Shared {
    Plan plan;
    Part part;
    Chunk chunk;
    FilterTables tables;
    int first_x[kThreads], first_y[kRows];
    float norm_x[kThreads], norm_y[kRows];
    // For each element of an output row: where its taps are in `mid` and in weight_x, and how many.
    uint16_t from[kThreads], at[kThreads], count[kThreads];
    uint8_t column[kThreads], channel[kThreads];  // of these elements, in the part
    float weight_x[kTapsX], weight_y[kTapsY], sum_y[kBand];
    PairsOfWord mid[kBand / 2][Mid::kWidth / kEach];
    union {
      float sum[kBand][kThreads];  // of the chunks so far
      int64_t place[kThreads];     // nearest neighbours: the source element of each output element
    };
  };

  // How many source pixels fit into `mid`.
  JAXDALI_HD static int ChunkColumns(int channels) { return (Mid::kWidth - kSlack) / channels; }

  // Neighbouring blocks work on the same rows, for the caches.
  JAXDALI_NOINLINE JAXDALI_HD static Part PartAt(const Shared& s, int64_t k) {
    const Axis &y = s.plan.axes.axis[1], &x = s.plan.axes.axis[2];
    const Quotient strip = Divide(k, s.plan.strips), band = Divide(strip.quotient, s.plan.bands),
                   group = Divide(band.quotient, s.plan.groups);
    const int64_t image = group.quotient, c = group.rest * s.plan.channels;
    auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
    Part p;
    p.x = strip.rest * s.plan.columns;
    p.y = band.rest * s.plan.rows;
    p.columns = least(s.plan.columns, s.plan.made[1] - p.x);
    p.rows = least(s.plan.rows, s.plan.made[0] - p.y);
    p.channels = least(s.plan.channels, s.plan.made[2] - c);
    p.elements = p.columns * p.channels;
    p.in = static_cast<const In*>(s.plan.job.in) + image * y.n_in * x.n_in * s.plan.job.inner + s.plan.window.At(2, c);
    if constexpr (kWhole)
      p.out = static_cast<Out*>(s.plan.job.out) + ((image * y.n_out + p.y) * x.n_out + p.x) * s.plan.job.inner + c;
    else
      p.lines = s.plan.window.LinesAt(p.x, p.y);
    return p;
  }

  // Stores rows begin ... begin + rows - 1 of the part; get(row, element) returns an Out.
  template <class Get>
  JAXDALI_HD static void Write(int thread, const Shared& s, const Part& p, int begin, int rows, Get get) {
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
      WriteElements(p.out + (begin + item.row) * stride, p.elements, item.at, [&](int e) { return get(item.row, e); });
    }
  }
  // Stores one element of these rows, of which there are at most kBand. Neighbouring threads store neighbouring
  // elements, so they fill the sectors of the caches together.
  JAXDALI_HD static void WriteSums(int element, const Shared& s, const Part& p, int begin, int rows,
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

#endif  // JAXDALI_FFI_RESIZE_TILE_H_
