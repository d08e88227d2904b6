// The CUDA kernel of affine warps of images. It works on square tiles, whose source pixels are close together at any
// angle, and writes whole words. RGB bytes have special tiles (warp_tile.h). What it makes is an image in memory, or a
// window of an image.
#ifndef JAXDALI_FFI_WARP_WARP_KERNEL_H_
#define JAXDALI_FFI_WARP_WARP_KERNEL_H_

#include <cstdint>
#include <type_traits>

#include "ffi/common/launch.h"
#include "ffi/common/stages.h"
#include "ffi/common/words.h"
#include "ffi/warp/warp.h"
#include "ffi/warp/warp_tile.h"
#include "ffi/window/window_tile.h"

namespace jaxdali {

struct Nothing {};  // in place of a member that a kernel does not need

// The call is Whole<WarpBatch> or Windowed<WarpBatch>. kBytes: input and output are bytes.
template <class Call, bool kBytes>
struct WarpPlanner : Call {
  using Window = typename Call::Window;
  using ByteTiles = WarpTilePlan<Window>;
  static constexpr bool kWhole = ByteTiles::kWhole;
  static constexpr int kTile = 32;

  struct Plan {
    WarpArgs args;  // with a window, its pixels are the output
    Window window;
    int64_t across, down;  // tiles
    std::conditional_t<kBytes, ByteTiles, Nothing> tiles;
  };

  // Fills in the plan of sample i: what the threads that work on it need. An empty output has no tiles.
  JAXDALI_HD Status Prepare(int i, Plan* plan) const {
    const WarpBatch& image = this->image();
    WarpArgs* a = &plan->args;
    if (!image.out.valid(i)) return kInternal;
    if (Status s = image.Sample(i, a); s != kOk) return s;
    if constexpr (!kWhole) {
      // The map of the window's pixels: that of the image, with the window's start and steps. Axes 0 and 1 of the
      // window are y and x, those of the map x and y. In a chain of two stages, the window is stage 1.
      if (Status s = plan->window.Set(this->window, i); s != kOk) return InStage(1, s);
      const auto& w = plan->window;
      for (int s = 0; s < 2; s++) {
        a->map[s][3] += w.start[1] * a->map[s][0] + w.start[0] * a->map[s][1];
        a->map[s][0] *= w.step[1];
        a->map[s][1] *= w.step[0];
        a->out_size[s] = w.extent[1 - s];
      }
    }
    const bool empty = this->out.size(i) == 0;
    plan->across = empty ? 0 : (a->out_size[0] + kTile - 1) / kTile;
    plan->down = (a->out_size[1] + kTile - 1) / kTile;
    if constexpr (kBytes) {
      plan->tiles = ByteTiles::Of(*a, image.in, i);
      if constexpr (!kWhole) plan->tiles.fits = plan->tiles.fits && plan->window.KeepsChannels(a->channels);
      if (!empty && plan->tiles.fits) plan->across = plan->tiles.across;
    }
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.across * plan.down * plan.args.frames; }
};

template <class In, class Out, class Call>
using WarpPlannerOf = WarpPlanner<Call, std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>>;

template <class In, class Out, bool kLinear, class Call>
struct WarpImages : WarpPlannerOf<In, Out, Call> {
  using Planner = WarpPlannerOf<In, Out, Call>;
  using Planner::kTile;
  using Planner::kWhole;
  using typename Planner::Plan;
  using typename Planner::Window;
  using ByteTiles = WarpTiles<Window, kLinear>;
  static constexpr bool kBytes = std::is_same_v<decltype(Plan::tiles), typename ByteTiles::Plan>;
  static constexpr int kBlocksPerSm = 5;
  static constexpr int kMostChannels = 4;  // pixels with more channels are written directly
  static_assert(kTile * kTile == 4 * kThreads && kMostTileChannels <= kMostChannels);

  WorkSplit split;

  struct Shared {
    Plan plan;
    union {
      Out out[kTile][kTile * kMostChannels];
      std::conditional_t<kBytes, typename ByteTiles::Shared, Nothing> tiles;
    };
  };

  // The work of one CUDA block: its share of the tiles of all samples, which are tiles first ... end - 1 of each, by
  // the special tiles of RGB bytes where they fit.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      if constexpr (kBytes) {
        if (s.plan.tiles.fits)
          return ByteTiles{s.plan.args, s.plan.tiles, s.plan.window, s.tiles}.Make(block, first, end);
      }
      Tiles(block, s, first, end);
    });
  }

 private:
  // Makes tiles of any type: pixels into shared memory, then from there in words to the output, or to the window.
  // Pixels of more channels than shared memory holds are written directly.
  template <class Block>
  JAXDALI_HD static void Tiles(const Block& block, Shared& s, int64_t first, int64_t end) {
    for (int64_t k = first; k < end; k++) {
      const Quotient row = Divide(k, s.plan.across), frame = Divide(row.quotient, s.plan.down);
      const int64_t x = row.rest * kTile, y = frame.rest * kTile;
      const WarpArgs& a = s.plan.args;
      const In* from = static_cast<const In*>(a.in) + frame.quotient * a.in_size[0] * a.in_size[1] * a.channels;
      Out* to = nullptr;
      if constexpr (kWhole)
        to = static_cast<Out*>(a.out) + ((frame.quotient * a.out_size[1] + y) * a.out_size[0] + x) * a.channels;
      const int columns = static_cast<int>(a.out_size[0] - x < kTile ? a.out_size[0] - x : kTile);
      const int rows = static_cast<int>(a.out_size[1] - y < kTile ? a.out_size[1] - y : kTile);
      block.Phase([&](int thread) { Warp(thread, s, from, x, y, columns, rows, to); });
      if constexpr (!kWhole) {
        block.Phase([&](int thread) { WriteWindow(thread, s, x, y, columns, rows); });
        continue;
      }
      if (a.channels > kMostChannels) continue;
      block.Phase([&](int thread) {
        const int n = columns * static_cast<int>(a.channels), words = WordsOf<Out>(n);
        const float inverse = 1 / static_cast<float>(words);
        for (int k = thread; k < rows * words; k += kThreads) {
          const TileItem item(k, words, inverse);
          const Out* values = s.out[item.row];
          WriteElements(to + item.row * a.out_size[0] * a.channels, n, item.column, [&](int e) { return values[e]; });
        }
      });
    }
  }

  // Writes the tile from shared memory to the window. A function, so that its registers are not those of `Warp`.
  JAXDALI_NOINLINE JAXDALI_HD static void WriteWindow(int thread, const Shared& s, int64_t x, int64_t y, int columns,
                                                      int rows) {
    const Window& w = s.plan.window;
    const int channels = static_cast<int>(s.plan.args.channels);
    w.Write(thread, x, y, columns, rows,
            [&](int line, int column, int channel) { return s.out[line][column * channels + w.At(2, channel)]; });
  }

  // Makes a thread's pixels of the tile at (x, y), in shared memory or, with many channels, in the output. A warp works
  // on 8 x 4 pixels at a time, and a thread on four pixels of a row.
  JAXDALI_HD static void Warp(int thread, Shared& s, const In* from, int64_t x, int64_t y, int columns, int rows,
                              Out* to) {
    const WarpArgs& a = s.plan.args;
    const int line = thread / 8;
    if (line >= rows) return;
    int64_t pos[2];
    RowStart(a, y + line, /*z=*/0, pos);
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

// Launches the warp of images. The call is Whole<WarpBatch> or Windowed<WarpBatch>. Returns null or an error message.
template <class In, class Out, bool kLinear, class Call>
const char* LaunchWarpImages(const Call& call, const Samples& samples, void* stream) {
  // Images of one pixel have a tile, too. The bound assumes that tiles are filled by a quarter at least.
  constexpr int64_t kQuarter =
      WarpImages<In, Out, kLinear, Call>::kTile * WarpImages<In, Out, kLinear, Call>::kTile / 4;
  return LaunchPlanned(WarpImages<In, Out, kLinear, Call>{{call}, /*split=*/{}}, samples,
                       call.out.capacity / kQuarter + samples.n, stream);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WARP_WARP_KERNEL_H_
