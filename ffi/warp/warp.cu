// The affine warp on CUDA: one thread makes all channels of an output pixel. Images are processed in square tiles,
// whose source pixels are close together at any angle, and written in whole words. RGB bytes have special tiles
// (warp_tile.h).
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/warp/warp.h"
#include "ffi/warp/warp_tile.h"

namespace jaxdali {
namespace {

template <class In, class Out, bool kLinear>
struct WarpImages : WarpBatch {
  static constexpr int kBlocksPerSm = 5;
  static constexpr int kTile = 32, kMostChannels = 4;  // pixels with more channels are written directly
  static constexpr bool kBytes = kLinear && std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>;
  struct Nothing {};
  static_assert(kTile * kTile == 4 * kThreads);

  Parts parts;

  struct Plan {
    WarpArgs args;
    int64_t across, down;  // tiles
    std::conditional_t<kBytes, WarpTiles::Plan, Nothing> tiles;
  };
  struct Shared {
    int slot;
    Plan plan;
    union {
      Out out[kTile][kTile * kMostChannels];
      std::conditional_t<kBytes, WarpTiles::Shared, Nothing> tiles;
    };
  };

  JAXDALI_HD Status Prepare(int i, Plan* plan) const {
    if (Status s = Sample(i, &plan->args); s != kOk) return s;
    const bool empty = out.size(i) == 0;
    plan->across = empty ? 0 : (plan->args.out_size[0] + kTile - 1) / kTile;
    plan->down = (plan->args.out_size[1] + kTile - 1) / kTile;
    if constexpr (kBytes) {
      plan->tiles = WarpTiles::PlanOf(plan->args, in, i);
      if (!empty && plan->tiles.fits) plan->across = plan->tiles.across;
    }
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.across * plan.down * plan.args.frames; }

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    parts.ForEach(block, s, [&](int64_t first, int64_t end) {
      if constexpr (kBytes) {
        if (s.plan.tiles.fits) return WarpTiles{s.plan.args, s.plan.tiles, s.tiles}.Make(block, first, end);
      }
      Tiles(block, s, first, end);
    });
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

  // A warp works on 8 x 4 pixels at a time, and a thread on four pixels of a row.
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
      WarpPixel<In, Out, 2, kLinear>(a, from, pos, pixel);
      pos[0] += 8 * a.map[0][0];
      pos[1] += 8 * a.map[1][0];
    }
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
  // Images of one pixel have a tile, too. The bound assumes that tiles are filled by a quarter at least.
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
    case DType::kBF16:
      return LaunchFrom<BFloat16>(b, samples, stream);
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
    case DType::kBF16:
      return LaunchTypes<float, BFloat16>(b, samples, stream);
    default:
      return LaunchTypes<float, float>(b, samples, stream);
  }
}

}  // namespace jaxdali
