// CPU kernel of `resample`, in three parts:
//
//   Weights      taps and weights of one output, for each convention: WeighPillow, WeighTensorFlow, WeighTorchvision.
//                Make collects them for an axis.
//   Passes       a weighted sum along one axis, in double precision; in integers for bytes of Pillow and torchvision.
//                Images of bytes have faster ones, row by row (resample_u8.h).
//   One sample   the axes one after the other, with an intermediate array of floats or bytes.
//
// Passes are compiled for AVX2 or NEON and for any CPU, from the same source and with the same results.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "ffi/common/kept_memory.h"
#include "ffi/common/simd.h"
#include "ffi/resample/resample.h"
#include "ffi/resample/resample_u8.h"

namespace jaxdali {
namespace {

using resample_u8::kBits;  // of Pillow's weights for uint8, after the point

// --- Weights ---------------------------------------------------------------------------------------------------

// The taps of one axis: output o is the sum of weight[o * k + j] * source[first[o] + j], j < count[o]. Taps outside the
// image have no weight; the others are divided by their sum.
struct WeightedTaps {
  int64_t n = 0;
  int k = 0;
  std::vector<int32_t> first, count;  // [n]
  std::vector<double> weight;         // [n * k]
  std::vector<int32_t> fixed;         // [n * k], in units of 2^-kBits
  double largest = 0;                 // of the weights; torchvision's only
  int32_t lo = 0, hi = 0;             // the source samples in use are [lo, hi)
  bool wide = false;                  // the weights are so large, outside the image, that sums of 32 bits overflow
};

double Cubic(double x, double a = -0.5) {  // Keys
  x = std::fabs(x);
  return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

double Sinc(double x) {
  x *= M_PI;
  return x == 0 ? 1 : std::sin(x) / x;
}

// A filter, in source samples; `area`: half a sample on each side, without its left end, as in Pillow.
double Weight(Interp filter, double x) {
  switch (filter) {
    case Interp::kLinear:
    case Interp::kTriangular:
      return std::max(0.0, 1 - std::fabs(x));
    case Interp::kCubic:
      return Cubic(x);
    case Interp::kLanczos3:
      return std::fabs(x) < 3 ? Sinc(x) * Sinc(x / 3) : 0;
    case Interp::kGaussian:  // standard deviation 0.5
      return std::fabs(x) < 1.5 ? std::exp(-2 * x * x) : 0;
    default:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
  }
}

// Half the width of a filter in source samples, before it is widened for antialiasing.
double Radius(Interp filter) {
  return filter == Interp::kCubic      ? 2
         : filter == Interp::kLanczos3 ? 3
         : filter == Interp::kGaussian ? 1.5
         : filter == Interp::kArea     ? 0.5
                                       : 1;
}

// The positions of an axis's outputs in its source. Output k of a mirrored axis has the taps of output n_out - 1 - k.
struct Line {
  Convention convention;
  Interp filter;
  bool antialias, mirrored;
  int64_t n_in, n_out;
  double lo, length;  // the source interval: its left end and its length, in source samples

  // Axis `a` of a job.
  static Line Of(const ResizeJob& job, int a) {
    Line line;
    line.convention = job.convention;
    line.n_in = job.in_extent[a];
    line.n_out = job.out_extent[a];
    line.mirrored = job.hi[a] < job.lo[a];
    line.lo = std::min(job.lo[a], job.hi[a]);
    line.length = std::fabs(static_cast<double>(job.hi[a]) - job.lo[a]);
    const bool shrinks = static_cast<double>(line.n_out) < line.length;
    line.filter = shrinks ? job.min_filter : job.mag_filter;
    line.antialias = job.antialias;
    if (job.convention == Convention::kPillow && line.n_in == line.n_out && line.lo == 0 &&
        line.length == static_cast<double>(line.n_in))
      line.filter = Interp::kNN;  // Pillow leaves such an axis as it is
    return line;
  }

  double scale() const { return length / static_cast<double>(n_out); }
  double widen() const { return antialias && filter != Interp::kNN ? std::max(scale(), 1.0) : 1; }
  // An upper bound of the number of taps inside the image. A region far larger than the image makes filters wide.
  double taps() const {
    const double all = filter == Interp::kNN     ? 1
                       : filter == Interp::kArea ? std::ceil(scale()) + 2
                                                 : 2 * std::ceil(Radius(filter) * widen()) + 1;
    return std::min(all, static_cast<double>(n_in));
  }
  // Memory for the weights of one output. Rounding can give it a few taps more than `taps`.
  std::vector<double> Weights() const { return std::vector<double>(static_cast<size_t>(taps()) + 2); }
};

// The source samples that one output reads.
struct Reach {
  int64_t first, count;
};

// Of taps first ... end - 1, those that are inside the image; at least one.
Reach Inside(double first, double end, int64_t n_in) {
  const double n = static_cast<double>(n_in);
  const auto begin = static_cast<int64_t>(std::clamp(first, 0.0, n - 1)),
             stop = static_cast<int64_t>(std::clamp(end, 1.0, n));
  return {begin, std::max<int64_t>(stop - begin, 1)};
}

// The one source sample at `position`, with weight 1.
Reach Nearest(const Line& line, double position, double* w) {
  w[0] = 1;
  return Inside(std::floor(position), /*end=*/0, line.n_in);  // always one sample
}

// Weights of Pillow's filters, in double precision (its precompute_coeffs in Resample.c). Make has its nearest
// neighbours. Like the two functions that follow, it returns the samples that output o reads, and writes their weights,
// which need not sum to 1, to `w`.
Reach WeighPillow(const Line& line, int64_t o, double* w) {
  const double widen = line.widen(), radius = Radius(line.filter) * widen;
  const double center = line.lo + (static_cast<double>(o) + 0.5) * line.scale();
  const Reach r = Inside(std::trunc(center - radius + 0.5), std::trunc(center + radius + 0.5), line.n_in);
  for (int64_t j = 0; j < r.count; j++)
    w[j] = Weight(line.filter, (static_cast<double>(r.first + j) - center + 0.5) * (1 / widen));
  return r;
}

// Weights of TensorFlow and JAX: positions in single precision.
Reach WeighTensorFlow(const Line& line, int64_t o, double* w) {
  const float in = static_cast<float>(line.length), out = static_cast<float>(line.n_out);
  const float lo = static_cast<float>(line.lo), sample_position = static_cast<float>(o) + 0.5f;
  if (line.filter == Interp::kNN) return Nearest(line, lo + sample_position * (in / out), w);
  if (line.filter == Interp::kArea) {  // a sample's weight is its length inside of the output's interval
    const double scale = in / out, begin = lo + static_cast<float>(o) * (in / out), end = begin + scale;
    const Reach r = Inside(std::floor(begin), std::ceil(end), line.n_in);
    for (int64_t j = 0; j < r.count; j++) {
      const double left = static_cast<double>(r.first + j);
      w[j] = std::max(0.0, std::min(left + 1, end) - std::max(left, begin));
    }
    return r;
  }
  const bool linear = line.filter == Interp::kLinear || line.filter == Interp::kTriangular;
  if (!line.antialias && (linear || line.filter == Interp::kCubic)) {
    const float position = lo + sample_position * (in / out) - 0.5f, whole = std::floor(position);
    double fraction = position - whole;
    if (!linear) fraction = std::rint(fraction * 1024) / 1024;  // TensorFlow has a table of 1024 weights
    const double radius = linear ? 1 : 2;
    const Reach r = Inside(whole - radius + 1, whole + radius + 1, line.n_in);
    for (int64_t j = 0; j < r.count; j++)
      w[j] = Weight(line.filter, static_cast<double>(r.first + j) - whole - fraction);
    return r;
  }
  const float inverse = 1 / (out / in), position = lo + sample_position * inverse;
  const double widen = line.antialias ? std::max(inverse, 1.0f) : 1, radius = Radius(line.filter) * widen;
  if (position < 0 || position > static_cast<float>(line.n_in)) {  // the output is 0 there
    w[0] = 0;
    return Inside(position, /*end=*/0, line.n_in);
  }
  const Reach r = Inside(std::ceil(position - radius - 0.5), std::floor(position + radius - 0.5) + 1, line.n_in);
  for (int64_t j = 0; j < r.count; j++)
    w[j] = Weight(line.filter, (static_cast<double>(r.first + j) + 0.5 - position) / widen);
  return r;
}

// Weights of torchvision: with antialiasing those of Pillow, otherwise taps outside the image repeat its edge.
// `largest` becomes the largest weight so far, on which the number of bits of integer weights depends (FixedBits).
Reach WeighTorchvision(const Line& line, int64_t o, double* w, double* largest) {
  if (line.filter == Interp::kNN) {  // of the left end of an output, in single precision
    const float scale = static_cast<float>(line.length) / static_cast<float>(line.n_out);
    return Nearest(line, line.lo + static_cast<double>(std::floor(static_cast<float>(o) * scale)), w);
  }
  if (line.antialias) {
    const Reach r = WeighPillow(line, o, w);
    double sum = 0;
    for (int64_t j = 0; j < r.count; j++) sum += w[j];
    for (int64_t j = 0; j < r.count && sum != 0; j++) *largest = std::max(*largest, w[j] / sum);
    return r;
  }
  const bool cubic = line.filter == Interp::kCubic;  // with Keys' parameter -0.75
  double position = line.lo + (static_cast<double>(o) + 0.5) * line.scale() - 0.5;
  if (!cubic) position = std::max(position, 0.0);
  const double whole = std::min(std::floor(position), static_cast<double>(line.n_in - 1));
  const double fraction = std::clamp(position - whole, 0.0, 1.0);
  const int radius = cubic ? 2 : 1;
  const Reach r = Inside(whole - radius + 1, whole + radius + 1, line.n_in);
  std::fill(w, w + r.count, 0);
  for (int tap = 1 - radius; tap <= radius; tap++) {
    const double place = std::clamp(whole + tap - static_cast<double>(r.first), 0.0, static_cast<double>(r.count - 1));
    double& sum = w[static_cast<int64_t>(place)];
    sum += cubic ? Cubic(tap - fraction, -0.75) : Weight(line.filter, tap - fraction);
    *largest = std::max(*largest, sum);
  }
  return r;
}

// Weights of output o in the axis's convention. Only torchvision's change `largest`.
Reach Weigh(const Line& line, int64_t o, double* w, double* largest) {
  switch (line.convention) {
    case Convention::kPillow:
      return WeighPillow(line, o, w);
    case Convention::kTorchvision:
      return WeighTorchvision(line, o, w, largest);
    default:
      return WeighTensorFlow(line, o, w);
  }
}

// Makes the taps of some outputs of an axis, without their integer weights (MakeFixed). Returns false if there are too
// many to store.
bool Make(const Line& line, Range outputs, WeightedTaps* taps) {
  constexpr double kMost = 1 << 27;
  constexpr double kLongest = std::numeric_limits<float>::max();  // of an interval; longer ones become infinite floats
  const double num_taps = line.taps();
  if (!(num_taps * static_cast<double>(outputs.size()) <= kMost) || line.n_in > INT32_MAX / 2 ||
      !(line.length <= kLongest))
    return false;
  taps->n = outputs.size();
  taps->k = static_cast<int>(num_taps);
  taps->first.resize(taps->n);
  taps->count.resize(taps->n);
  taps->weight.assign(taps->n * taps->k, 0);
  taps->lo = std::numeric_limits<int32_t>::max();
  taps->hi = 0;
  taps->largest = 0;
  std::vector<double> w = line.Weights();
  const int64_t first_output = line.mirrored ? line.n_out - outputs.end : outputs.begin;
  // Pillow adds up the steps between nearest neighbours, and rounding decides at the borders of pixels.
  const bool adds_up = line.convention == Convention::kPillow && line.filter == Interp::kNN;
  double position = line.lo + line.scale() * 0.5;
  for (int64_t o = 0; adds_up && o < first_output; o++) position += line.scale();
  for (int64_t i = 0; i < taps->n; i++, position += line.scale()) {
    const int64_t k = line.mirrored ? taps->n - 1 - i : i;  // of output first_output + i
    const Reach r =
        adds_up ? Nearest(line, position, w.data()) : Weigh(line, first_output + i, w.data(), &taps->largest);
    double sum = 0;
    for (int64_t j = 0; j < r.count; j++) sum += w[j];
    const int64_t count = std::min<int64_t>(r.count, taps->k);
    for (int64_t j = 0; j < count; j++) taps->weight[k * taps->k + j] = sum != 0 ? w[j] / sum : w[j];
    taps->first[k] = static_cast<int32_t>(r.first);
    taps->count[k] = static_cast<int32_t>(count);
    taps->lo = std::min(taps->lo, taps->first[k]);
    taps->hi = std::max(taps->hi, taps->first[k] + taps->count[k]);
  }
  return true;
}

// The number of bits after the point of integer weights for uint8. Pillow has kBits. torchvision takes the most with
// which the largest weight of the whole axis fits int16, even if `taps` has only some of the outputs.
int FixedBits(const Line& line, const WeightedTaps& taps) {
  if (line.convention != Convention::kTorchvision) return kBits;
  double largest = taps.largest;
  std::vector<double> w = line.Weights();
  for (int64_t o = 0; o < line.n_out && taps.n < line.n_out; o++) Weigh(line, o, w.data(), &largest);
  int bits = 0;
  while (bits < kBits && 0.5 + largest * (1 << (bits + 1)) < 1 << 15) bits++;
  return bits;
}

// Sets `fixed` and `wide`. Weights with fewer bits are shifted to kBits, so that one sum serves all conventions.
void MakeFixed(int bits, WeightedTaps* taps) {
  taps->fixed.resize(taps->weight.size());
  taps->wide = false;
  for (size_t k = 0; k < taps->weight.size();) {
    int64_t total = 0;
    for (int j = 0; j < taps->k; j++, k++) {
      // A sign, 9 bits and kBits after the point are 32 bits.
      const double w = std::clamp(taps->weight[k], -511.0, 511.0);
      taps->fixed[k] = static_cast<int32_t>((w < 0 ? -0.5 : 0.5) + w * (1 << bits)) * (1 << (kBits - bits));
      total += std::abs(taps->fixed[k]);
    }
    // Whether the largest possible sum of an output exceeds 31 bits.
    taps->wide = taps->wide || total * 255 >= (int64_t{1} << 31) - (1 << kBits);
  }
}

// --- Passes ----------------------------------------------------------------------------------------------------

// Sums in double precision, or Pillow's in whole numbers. kWide: Pillow's 32 bits are not enough, see WeightedTaps.
template <class T, bool kWide>
struct Sum {
  using Value = double;
  static constexpr Value kStart = 0;
  static const double* Weights(const WeightedTaps& t) { return t.weight.data(); }
  static T Finish(double sum) { return static_cast<T>(sum); }
};
template <bool kWide>
struct Sum<uint8_t, kWide> {
  using Value = std::conditional_t<kWide, int64_t, int32_t>;
  static constexpr Value kStart = 1 << (kBits - 1);  // a half, for rounding
  static const int32_t* Weights(const WeightedTaps& t) { return t.fixed.data(); }
  static uint8_t Finish(Value sum) { return static_cast<uint8_t>(std::clamp<Value>(sum >> kBits, 0, 255)); }
};

// Resizes the first axis of an array [n, inner]: out[o, i] is the sum of in[first[o] + j, i] times the weights of
// output o, over its taps j. kBlock sums at a time stay in registers.
template <bool kWide, class In, class Out>
inline __attribute__((always_inline)) void PassImpl(const In* in, const WeightedTaps& t, int64_t inner, Out* out) {
  using S = Sum<Out, kWide>;
  using Value = typename S::Value;
  constexpr int kBlock = 32;
  const auto* w = S::Weights(t);
  for (int64_t o = 0; o < t.n; o++, w += t.k, out += inner) {
    const In* rows = in + t.first[o] * inner;
    const int count = t.count[o];
    int64_t i = 0;
    for (; i + kBlock <= inner; i += kBlock) {
      Value sum[kBlock];
      for (Value& s : sum) s = S::kStart;
      for (int j = 0; j < count; j++)
        for (int b = 0; b < kBlock; b++)
          sum[b] += Value{w[j]} * static_cast<Value>(static_cast<Out>(rows[j * inner + i + b]));
      for (int b = 0; b < kBlock; b++) out[i + b] = S::Finish(sum[b]);
    }
    for (; i < inner; i++) {
      Value sum = S::kStart;
      for (int j = 0; j < count; j++) sum += Value{w[j]} * static_cast<Value>(static_cast<Out>(rows[j * inner + i]));
      out[i] = S::Finish(sum);
    }
  }
}

// PassImpl where an output is a few numbers, such as the channels of a pixel.
template <bool kWide, int kChannels, class In, class Out>
inline __attribute__((always_inline)) void PixelsImpl(const In* in, const WeightedTaps& t, Out* out) {
  using S = Sum<Out, kWide>;
  using Value = typename S::Value;
  const auto* w = S::Weights(t);
  for (int64_t o = 0; o < t.n; o++, w += t.k, out += kChannels) {
    const In* p = in + int64_t{t.first[o]} * kChannels;
    Value sum[kChannels];
    for (Value& s : sum) s = S::kStart;
    for (int j = 0; j < t.count[o]; j++, p += kChannels)
      for (int c = 0; c < kChannels; c++) sum[c] += Value{w[j]} * static_cast<Value>(static_cast<Out>(p[c]));
    for (int c = 0; c < kChannels; c++) out[c] = S::Finish(sum[c]);
  }
}

// PassImpl, or PixelsImpl for the usual numbers of channels.
template <bool kWide = false, class In, class Out>
inline __attribute__((always_inline)) void AnyPass(const In* in, const WeightedTaps& t, int64_t inner, Out* out) {
  if (inner == 1) return PixelsImpl<kWide, 1>(in, t, out);
  if (inner == 3) return PixelsImpl<kWide, 3>(in, t, out);
  if (inner == 4) return PixelsImpl<kWide, 4>(in, t, out);
  PassImpl<kWide>(in, t, inner, out);
}

#if defined(JAXDALI_SIMD)
// Without fused products, so that the results are those of other machines.
template <class In, class Out>
JAXDALI_SIMD void PassSimd(const In* in, const WeightedTaps& t, int64_t inner, Out* out) {
  AnyPass(in, t, inner, out);
}
#endif

// Resizes the middle axis of an array [outer, n_in, inner], in the version for this CPU.
template <class In, class Out>
void Pass(const In* in, int64_t outer, int64_t n_in, const WeightedTaps& t, int64_t inner, Out* out) {
  for (int64_t k = 0; k < outer; k++, in += n_in * inner, out += t.n * inner) {
    if (t.wide) {
      AnyPass<true>(in, t, inner, out);
      continue;
    }
#if defined(JAXDALI_SIMD)
    if (kHasSimd) {
      PassSimd(in, t, inner, out);
      continue;
    }
#endif
    AnyPass(in, t, inner, out);
  }
}

// --- One sample ------------------------------------------------------------------------------------------------

// Working memory of a thread, kept between samples.
struct Scratch {
  WeightedTaps taps[3];
  U8Resampler u8;
  KeptMemory memory[2];  // results of even and of odd passes
};

Scratch& ScratchOfThread() {
  static thread_local Scratch s;
  return s;
}

// Whether the vertical pass comes first. Pillow (since 13) does so where the height shrinks by more than twice as many
// pixels as the width; with uint8, which is rounded after each pass, that makes a difference.
bool VerticalFirst(const ResizeJob& job) {
  if (job.convention != Convention::kPillow || job.num_axes != 2) return false;
  const int64_t rows = job.in_extent[0] - job.out_extent[0], columns = job.in_extent[1] - job.out_extent[1];
  return rows > 0 && rows > 2 * columns;
}

// Resizes along the axes one after the other. Mid is the type of the elements between them.
template <class In, class Mid, class Out>
void Run(const ResizeJob& job, const ResizePart& part, Scratch& s) {
  const bool is_ascending = VerticalFirst(job);
  const void* from = job.in;
  int64_t extent[3];
  for (int a = 0; a < job.num_axes; a++) extent[a] = part.source[a].size();
  int64_t size = 0;
  for (int pass = 0; pass < job.num_axes; pass++) {
    const int a = is_ascending ? pass : job.num_axes - 1 - pass;
    int64_t outer = job.outer, inner = job.inner;
    for (int b = 0; b < job.num_axes; b++) (b < a ? outer : inner) *= b == a ? 1 : extent[b];
    const int64_t n_in = extent[a];
    extent[a] = part.output[a].size();
    size = outer * extent[a] * inner;
    const bool is_last = pass == job.num_axes - 1 && std::is_same_v<Mid, Out>;
    Mid* to =
        static_cast<Mid*>(is_last ? job.out : s.memory[pass % 2].OfSize(size * static_cast<int64_t>(sizeof(Mid))));
    if (pass == 0)
      Pass(static_cast<const In*>(from), outer, n_in, s.taps[a], inner, to);
    else
      Pass(static_cast<const Mid*>(from), outer, n_in, s.taps[a], inner, to);
    from = to;
  }
  if constexpr (!std::is_same_v<Mid, Out>) {
    const Mid* mid = static_cast<const Mid*>(from);
    for (int64_t i = 0; i < size; i++) static_cast<Out*>(job.out)[i] = ConvertEvenTo<Out>(mid[i]);
  }
}

// Run for the output's type, which is a float or the input's, with floats between the passes.
template <class In>
void RunFrom(const ResizeJob& job, const ResizePart& part, Scratch& s) {
  if (job.out_type == DType::kF32)
    Run<In, float, float>(job, part, s);
  else if (job.out_type == DType::kF16)
    Run<In, float, Half>(job, part, s);
  else if (job.out_type == DType::kBF16)
    Run<In, float, BFloat16>(job, part, s);
  else
    Run<In, float, In>(job, part, s);
}

// Whether Pillow's or torchvision's bytes are resized, which are rounded to bytes after each pass.
bool IsOfBytes(const ResizeJob& job) {
  return job.convention != Convention::kTensorFlow && job.in_type == DType::kU8 && job.out_type == DType::kU8;
}

// Prepares the resize of an image of bytes by the taps in s.taps. False: only Run can do it.
bool PrepareBytes(const ResizeJob& job, int64_t channels, Scratch& s) {
  const WeightedTaps &y = s.taps[0], &x = s.taps[1];
  if (job.num_axes != 2 || y.wide || x.wide || channels > 4) return false;
  const auto fixed = [](const WeightedTaps& t) {
    return resample_u8::Taps{t.n, t.k, t.first.data(), t.count.data(), t.fixed.data()};
  };
  return s.u8.Init(fixed(y), fixed(x), static_cast<int>(channels), VerticalFirst(job));
}

// Resizes by the types of a job. All but bytes of Pillow and torchvision are floats between the passes.
Status RunTyped(const ResizeJob& job, const ResizePart& part, Scratch& s) {
  if (IsOfBytes(job) && PrepareBytes(job, job.inner, s)) {
    const int64_t rows = part.source[0].size(), row_size = part.source[1].size() * job.inner;
    for (int64_t i = 0; i < job.outer; i++)
      s.u8.RunOnImage(static_cast<const uint8_t*>(job.in) + i * rows * row_size, row_size, rows,
                      static_cast<uint8_t*>(job.out) + i * s.taps[0].n * s.taps[1].n * job.inner);
    return kOk;
  }
  if (IsOfBytes(job)) {
    Run<uint8_t, uint8_t, uint8_t>(job, part, s);
    return kOk;
  }
  switch (job.in_type) {
    case DType::kU8:
      RunFrom<uint8_t>(job, part, s);
      return kOk;
    case DType::kI16:
      RunFrom<int16_t>(job, part, s);
      return kOk;
    case DType::kU16:
      RunFrom<uint16_t>(job, part, s);
      return kOk;
    case DType::kF16:
      RunFrom<Half>(job, part, s);
      return kOk;
    case DType::kBF16:
      RunFrom<BFloat16>(job, part, s);
      return kOk;
    case DType::kF32:
      RunFrom<float>(job, part, s);
      return kOk;
    default:
      return kInternal;
  }
}

// Makes the taps of axis `a` of a job. Returns kEmpty if the source has no samples, kTooLarge if there are too many
// taps, or kOk.
Status MakeTaps(const ResizeJob& job, int a, Range outputs, WeightedTaps* taps) {
  if (job.in_extent[a] == 0) return kEmpty;
  return Make(Line::Of(job, a), outputs, taps) ? kOk : kTooLarge;
}

// Makes the taps of all axes of a part, counted from the first source sample in memory. kInternal: a tap lies outside
// the source in memory.
Status TapsOf(const ResizeJob& job, const ResizePart& part, Scratch& s) {
  for (int a = 0; a < job.num_axes; a++) {
    WeightedTaps& taps = s.taps[a];
    if (Status status = MakeTaps(job, a, part.output[a], &taps); status != kOk) return status;
    if (taps.lo < part.source[a].begin || taps.hi > part.source[a].end) return kInternal;
    for (int32_t& first : taps.first) first -= static_cast<int32_t>(part.source[a].begin);
    if (IsOfBytes(job)) MakeFixed(FixedBits(Line::Of(job, a), taps), &taps);
  }
  return kOk;
}

}  // namespace

// Sets part->source to the source samples that part->output depends on.
Status ResampleSourceOf(const ResizeJob& job, ResizePart* part) {
  WeightedTaps first, last;
  for (int a = 0; a < job.num_axes; a++) {
    // Along the outputs, the ends of the taps rise or fall, so the first and the last output give the range.
    const Range& outputs = part->output[a];
    if (Status status = MakeTaps(job, a, {outputs.begin, outputs.begin + 1}, &first); status != kOk) return status;
    if (Status status = MakeTaps(job, a, {outputs.end - 1, outputs.end}, &last); status != kOk) return status;
    part->source[a] = {std::min(first.lo, last.lo), std::max(first.hi, last.hi)};
  }
  return kOk;
}

// Resizes a part of a job. kInternal: no such types, or a tap outside the source in memory.
Status ResampleSome(const ResizeJob& job, const ResizePart& part) {
  if (!ResampleTypes(job.convention, job.in_type, job.out_type)) return kInternal;
  int64_t size = job.outer * job.inner;
  for (int a = 0; a < job.num_axes; a++) size *= part.output[a].size();
  if (size == 0) return kOk;
  Scratch& s = ScratchOfThread();
  if (Status status = TapsOf(job, part, s); status != kOk) return status;
  return RunTyped(job, part, s);
}

// ResizeRows (resize.h) for all conventions but DALI's.
bool ResampleRows(const ResizeJob& job, const ResizePart& part, const std::function<bool(uint8_t*)>& next, bool gray) {
  if (!IsOfBytes(job) || job.num_axes != 2 || job.outer != 1 || (gray && job.inner != 3)) return false;
  if (part.output[0].size() * part.output[1].size() * job.inner == 0) return false;
  Scratch& s = ScratchOfThread();
  if (TapsOf(job, part, s) != kOk) return false;
  const int64_t channels = gray ? 1 : job.inner;
  const WeightedTaps& y = s.taps[0];
  if (!std::is_sorted(y.first.begin(), y.first.end())) return false;  // mirrored
  return PrepareBytes(job, channels, s) && s.u8.RunOnRows(next, part.source[1].size() * channels, part.source[0].size(),
                                                          gray, static_cast<uint8_t*>(job.out));
}

// The CPU kernel: makes sample i of the output.
Status Resample(const ResizeBatch& batch, int i) {
  ResizeJob job;
  const Status s = batch.Sample(i, &job);
  return s == kOk ? ResampleSome(job, ResizePart::Whole(job)) : s;
}

}  // namespace jaxdali
