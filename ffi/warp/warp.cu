// The affine warp on CUDA: one thread per output pixel, all its channels. Images are worked on in square tiles, whose
// source pixels are neighbours at any angle, and written in whole words.
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/warp/warp.h"

namespace jaxdali {
namespace {

// Two 16-bit weights times two bytes of `pairs`, the lower ones or the upper ones, plus `sum`.
template <int kHalf>
JAXDALI_HD inline uint32_t WeighPair(uint32_t weights, uint32_t pairs, uint32_t sum) {
#if defined(__CUDA_ARCH__)
  return kHalf ? __dp2a_hi(weights, pairs, sum) : __dp2a_lo(weights, pairs, sum);
#else
  const uint32_t pair = kHalf ? pairs >> 16 : pairs & 0xFFFF;
  return sum + (weights & 0xFFFF) * (pair & 255) + (weights >> 16) * (pair >> 8);
#endif
}

// The two pixels of 3 bytes at `p`, as pairs of one channel's bytes: first and second channel, third channel.
struct PixelPair {
  uint32_t first, third;

  JAXDALI_HD explicit PixelPair(const uint8_t* p) {
    const int over = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
    const uint32_t a = ReadWord(p - over), b = ReadWord(p - over + 4), c = over == 3 ? ReadWord(p - over + 8) : 0;
    const uint32_t low = Funnel(a, b, 8 * over), high = Funnel(b, c, 8 * over);
    first = Permute(low, high, 0x4130);
    third = Permute(low, high, 0x0052);
  }
};

template <class In, class Out, bool kLinear>
struct WarpImages : WarpBatch {
  static constexpr int kBlocksPerSm = 4;
  static constexpr int kTile = 32, kMostChannels = 4;  // pixels with more channels are written directly
  static constexpr bool kPacked = kLinear && std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>;
  static_assert(kTile * kTile == 4 * kThreads);

  Parts parts;

  struct Plan {
    WarpArgs args;
    int64_t across, down;  // tiles
    uint32_t safe_rows;    // source rows below which a pixel pair and the rest of its words lie inside the buffer
  };
  struct Shared {
    int slot;
    Plan plan;
    Out out[kTile][kTile * kMostChannels];
  };

  JAXDALI_HD Status Prepare(int i, Plan* plan) const {
    if (Status s = Sample(i, &plan->args); s != kOk) return s;
    const bool empty = out.size(i) == 0;
    plan->across = empty ? 0 : (plan->args.out_size[0] + kTile - 1) / kTile;
    plan->down = (plan->args.out_size[1] + kTile - 1) / kTile;
    const int64_t rows = plan->args.in_size[1] - (in.capacity - in.start(i) - in.size(i) < 4 ? 2 : 1);
    plan->safe_rows = rows > 0 ? static_cast<uint32_t>(rows) : 0;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.across * plan.down * plan.args.frames; }

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    parts.ForEach(block, s, [&](int64_t first, int64_t end) { Tiles(block, s, first, end); });
  }

 private:
  template <class Block>
  JAXDALI_HD static void Tiles(const Block& block, Shared& s, int64_t first, int64_t end) {
    for (int64_t k = first; k < end; k++) {
      const Quotient row = Divide(k, s.plan.across), frame = Divide(row.quotient, s.plan.down);
      const int64_t x = row.rest * kTile, y = frame.rest * kTile;
      const WarpArgs& a = s.plan.args;
      const In* from = static_cast<const In*>(a.in) + frame.quotient * a.in_size[0] * a.in_size[1] * a.channels;
      Out* to = static_cast<Out*>(a.out) + ((frame.quotient * a.out_size[1] + y) * a.out_size[0] + x) * a.channels;
      const int columns = static_cast<int>(a.out_size[0] - x < kTile ? a.out_size[0] - x : kTile);
      const int rows = static_cast<int>(a.out_size[1] - y < kTile ? a.out_size[1] - y : kTile);
      block.Phase([&](int thread) { Warp(thread, s, from, x, y, columns, rows, to); });
      if (a.channels > kMostChannels) continue;
      block.Phase([&](int thread) {
        const int n = columns * static_cast<int>(a.channels), words = WordsOf<Out>(n);
        const float inverse = 1 / static_cast<float>(words);
        for (int item = thread; item < rows * words; item += kThreads) {
          const int line = static_cast<int>((static_cast<float>(item) + 0.5f) * inverse);
          const Out* values = s.out[line];
          WriteElements(to + line * a.out_size[0] * a.channels, n, item - line * words,
                        [&](int e) { return values[e]; });
        }
      });
    }
  }

  // A warp works on 8 x 4 pixels at a time, a thread on four of a row.
  JAXDALI_HD static void Warp(int thread, Shared& s, const In* from, int64_t x, int64_t y, int columns, int rows,
                              Out* to) {
    const WarpArgs& a = s.plan.args;
    const int line = thread / 8;
    if (line >= rows) return;
    int64_t pos[2];
    RowStart(a, y + line, 0, pos);
    pos[0] += (x + thread % 8) * a.map[0][0];
    pos[1] += (x + thread % 8) * a.map[1][0];
    for (int column = thread % 8; column < columns; column += 8) {
      Out* pixel = a.channels > kMostChannels ? to + (line * a.out_size[0] + column) * a.channels
                                              : s.out[line] + column * static_cast<int>(a.channels);
      if (!kPacked || !Blend(s, from, pos, s.out[line] + column * 3))
        WarpPixel<In, Out, 2, kLinear>(a, from, pos, pixel);
      pos[0] += 8 * a.map[0][0];
      pos[1] += 8 * a.map[1][0];
    }
  }

  // WarpPixel where all four neighbours are inside, of three bytes each; false: it is not so.
  JAXDALI_HD static bool Blend(const Shared& s, const In* from, const int64_t* pos, Out* pixel) {
    if constexpr (kPacked) {
      const WarpArgs& a = s.plan.args;
      const int32_t column = static_cast<int32_t>(pos[0] >> 32), line = static_cast<int32_t>(pos[1] >> 32);
      if (a.channels != 3 || line < 0 || static_cast<uint32_t>(line) >= s.plan.safe_rows || column < 0 ||
          column >= a.in_size[0] - 1)
        return false;
      const uint8_t* p = from + (line * a.in_size[0] + column) * 3;
      const PixelPair upper(p), lower(p + a.in_size[0] * 3);
      int32_t w[4];
      Weights(static_cast<uint32_t>(pos[0]), static_cast<uint32_t>(pos[1]), w);
      const uint32_t top = static_cast<uint32_t>(w[0] | w[1] << 16), bottom = static_cast<uint32_t>(w[2] | w[3] << 16);
      constexpr uint32_t kHalf = 1 << (kWeightBits - 1);
      pixel[0] =
          static_cast<Out>(WeighPair<0>(bottom, lower.first, WeighPair<0>(top, upper.first, kHalf)) >> kWeightBits);
      pixel[1] =
          static_cast<Out>(WeighPair<1>(bottom, lower.first, WeighPair<1>(top, upper.first, kHalf)) >> kWeightBits);
      pixel[2] =
          static_cast<Out>(WeighPair<0>(bottom, lower.third, WeighPair<0>(top, upper.third, kHalf)) >> kWeightBits);
      return true;
    }
    return false;
  }
};

template <class In, class Out, bool kLinear>
struct WarpVolumes : WarpBatch {
  static constexpr int D = 3;
  struct Plan : WarpArgs {
    int64_t units;  // pixels
  };

  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    a->units = a->frames;
    for (int s = 0; s < D; s++) a->units *= a->out_size[s];
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& a, int64_t begin, int64_t end) const {
    int64_t frame = a.channels;
    for (int s = 0; s < D; s++) frame *= a.in_size[s];
    for (int64_t p = begin; p < end; p += kThreads) {
      const Quotient row = Divide(p, a.out_size[0]), slice = Divide(row.quotient, a.out_size[1]);
      const Quotient volume = Divide(slice.quotient, a.out_size[2]);
      int64_t pos[D];
      RowStart(a, slice.rest, volume.rest, pos);
      for (int s = 0; s < D; s++) pos[s] += row.rest * a.map[s][0];
      WarpPixel<In, Out, D, kLinear>(a, static_cast<const In*>(a.in) + volume.quotient * frame, pos,
                                     static_cast<Out*>(a.out) + p * a.channels);
    }
  }
};

template <class In, class Out, bool kLinear>
const char* LaunchInterp(const WarpBatch& b, const Samples& samples, void* stream) {
  if (b.dims == 3) return Launch(WarpVolumes<In, Out, kLinear>{b}, samples, stream);
  // Images of one pixel have a tile, too: the bound is for those that fill theirs by a quarter.
  constexpr int64_t kQuarter = WarpImages<In, Out, kLinear>::kTile * WarpImages<In, Out, kLinear>::kTile / 4;
  return LaunchPlanned(WarpImages<In, Out, kLinear>{b, {}}, samples, b.out.capacity / kQuarter + samples.n, stream);
}

template <class In, class Out>
const char* LaunchTypes(const WarpBatch& b, const Samples& samples, void* stream) {
  return b.linear ? LaunchInterp<In, Out, true>(b, samples, stream) : LaunchInterp<In, Out, false>(b, samples, stream);
}

template <class In>
const char* LaunchFrom(const WarpBatch& b, const Samples& samples, void* stream) {
  return b.out.dtype == DType::kF32 ? LaunchTypes<In, float>(b, samples, stream)
                                    : LaunchTypes<In, In>(b, samples, stream);
}

}  // namespace

const char* LaunchWarp(const WarpBatch& b, const Samples& samples, void* stream) {
  switch (b.in.dtype) {
    case DType::kU8:
      return LaunchFrom<uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchFrom<int16_t>(b, samples, stream);
    case DType::kI32:
      return LaunchFrom<int32_t>(b, samples, stream);
    case DType::kF16:
      return LaunchFrom<Half>(b, samples, stream);
    default:
      break;
  }
  switch (b.out.dtype) {
    case DType::kU8:
      return LaunchTypes<float, uint8_t>(b, samples, stream);
    case DType::kI16:
      return LaunchTypes<float, int16_t>(b, samples, stream);
    case DType::kI32:
      return LaunchTypes<float, int32_t>(b, samples, stream);
    case DType::kF16:
      return LaunchTypes<float, Half>(b, samples, stream);
    default:
      return LaunchTypes<float, float>(b, samples, stream);
  }
}

}  // namespace jaxdali
