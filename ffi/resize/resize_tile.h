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

// What a block keeps of a sample, and the parts that it works on.
template <class In, class Out>
struct ResizeTile {
  using Mid = Middle<In, Out>;
  using Pair = typename Mid::Pair;

  static constexpr int kBand = 8;               // rows that are worked on at a time
  static constexpr int kRows = 64;              // rows of a part
  static constexpr int kTapsX = 1536;           // weights of a strip's columns
  static constexpr int kTapsY = 512;            // and of a part's rows,
  static constexpr int kMostTapsY = 64;         // of one at most
  static constexpr int kEach = 4 / sizeof(In);  // elements of a word
  static constexpr int kSlack = 8;              // elements of `mid` that fill up words
  static_assert(kTapsX >= Mid::kWidth && kTapsY >= kMostTapsY * kBand && kThreads * 2 + kSlack < Mid::kWidth);

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
  // What is known of a sample.
  struct Plan {
    ResizeJob job;
    Axes axes;
    int64_t strips, bands, groups, parts;
    int margin;  // rows at the end of an image which a word must not touch: it could reach outside the buffer
    int columns, rows, channels;  // of a part, at most
    int count_x, count_y;         // taps of one column or row
    int taps_x, taps_y;           // in one chunk, at most
  };
  struct Shared {
    int slot;
    Plan plan;
    Part part;
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

  // Source pixels that fit `mid`.
  JAXDALI_HD static int Chunk(int channels) { return (Mid::kWidth - kSlack) / channels; }

  // Neighbouring blocks work on the same rows.
  JAXDALI_NOINLINE JAXDALI_HD static Part PartAt(const Shared& s, int64_t k) {
    const Axis &y = s.plan.axes.axis[1], &x = s.plan.axes.axis[2];
    const Quotient strip = Divide(k, s.plan.strips), band = Divide(strip.quotient, s.plan.bands),
                   group = Divide(band.quotient, s.plan.groups);
    const int64_t image = group.quotient, c = group.rest * s.plan.channels;
    auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
    Part p;
    p.x = strip.rest * s.plan.columns;
    p.y = band.rest * s.plan.rows;
    p.columns = least(s.plan.columns, x.n_out - p.x);
    p.rows = least(s.plan.rows, y.n_out - p.y);
    p.channels = least(s.plan.channels, s.plan.job.inner - c);
    p.elements = p.columns * p.channels;
    p.in = static_cast<const In*>(s.plan.job.in) + image * y.n_in * x.n_in * s.plan.job.inner + c;
    p.out = static_cast<Out*>(s.plan.job.out) + ((image * y.n_out + p.y) * x.n_out + p.x) * s.plan.job.inner + c;
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
    const int64_t stride = s.plan.axes.axis[2].n_out * s.plan.job.inner;
    for (int k = thread; k < rows * words; k += kThreads) {
      const Item item(k, words, inverse);
      WriteElements(p.out + (begin + item.row) * stride, p.elements, item.at, [&](int e) { return get(item.row, e); });
    }
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_TILE_H_
