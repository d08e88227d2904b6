// The CUDA kernel that resamples one or two axes by tiles: its plan of a sample, and its loop over tiles. The output is
// an image in memory (Call is Whole<ResizeBatch>) or a window of an image (Windowed<ResizeBatch>). resize_tile.h
// describes tiles, and resize_passes.h has the passes over one.
#ifndef JAXDALI_FFI_RESIZE_RESIZE_KERNEL_H_
#define JAXDALI_FFI_RESIZE_RESIZE_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ffi/common/launch.h"
#include "ffi/common/stages.h"
#include "ffi/resize/resize.h"
#include "ffi/resize/resize_passes.h"
#include "ffi/resize/resize_tile.h"
#include "ffi/window/window_tile.h"

namespace jaxdali {

// Copies the tables to shared memory, because divergent reads are fast there but not from a kernel's parameters.
template <class Block>
JAXDALI_HD void Share(const Block& block, const FilterTables& tables, FilterTables* shared) {
  block.Phase([&](int thread) {
    for (int i = thread; i < 129; i += kThreads) shared->cubic[i] = tables.cubic[i];
    for (int i = thread; i < 193; i += kThreads) shared->lanczos[i] = tables.lanczos[i];
    for (int i = thread; i < 65; i += kThreads) shared->gaussian[i] = tables.gaussian[i];
  });
}

// Decides how a sample is cut into tiles. Shared memory has room for kTapsX weights of columns and kTapsY of rows, and
// a row of a tile has at most kThreads elements. So strips are narrower if filters are wide, and tiles lower.
template <class Call>
struct ResizePlanner : Call {
  using Plan = ResizePlan<typename Call::Window>;

  FilterTables tables;
  int64_t tiles_wanted;  // number of tiles of a sample that suits the GPU, see TilesOfSample

  // Fills in the plan of sample i: what the threads that work on it need. An empty output has no tiles.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->tiles = 0;
    const ResizeBatch& image = this->image();
    if (!image.out.valid(i)) return kInternal;
    if (Status e = image.Sample(i, &s->job); e != kOk) return e;
    if (image.out.size(i) > 0) {
      if (Status e = s->axes.Make(s->job); e != kOk) return e;
    }
    if constexpr (!Plan::kWhole) {
      // In a chain of two stages, the window is stage 1.
      if (Status e = s->window.Set(this->window, i); e != kOk) return InStage(1, e);
    }
    if (this->out.size(i) == 0) return kOk;
    const Axis &y = s->axes.axis[1], &x = s->axes.axis[2];
    // Rows are read by words. Near the end of the buffer, the words of a row could reach outside.
    s->margin = 0;
    const int64_t size = SizeOf(image.in.dtype), row = x.n_in * s->job.inner * size;
    constexpr int64_t kOver = 12;  // bytes: three words are read for one
    if ((this->in.capacity - this->in.start(i) - this->in.size(i)) * size < kOver)
      s->margin = static_cast<int>(CeilDiv(kOver, row));
    for (int d = 0; d < 2; d++) s->output[d] = s->axes.axis[1 + d].n_out;
    s->output[2] = s->job.inner;
    if constexpr (!Plan::kWhole)
      for (int d = 0; d < 3; d++) s->output[d] = s->window.extent[d];
    s->channels = s->output[2] < kThreads ? static_cast<int>(s->output[2]) : kThreads;
    s->groups = CeilDiv(s->output[2], s->channels);
    s->whole_pixels = s->groups == 1;
    if constexpr (!Plan::kWhole) s->whole_pixels = s->window.KeepsChannels(s->job.inner);
    // Taps of one output. If they are more than a chunk has, a tile needs several chunks.
    s->count_x = EdgeTaps(x, tables).count;
    s->count_y = EdgeTaps(y, tables).count;
    const bool bytes = image.in.dtype == DType::kU8 && image.out.dtype == DType::kU8;
    const int chunk = bytes ? ChunkColumns<uint8_t, uint8_t>(s->channels) : ChunkColumns<float, float>(s->channels);
    s->taps_x = s->count_x < chunk ? s->count_x : chunk;
    s->taps_y = s->count_y < Plan::kMostTapsY ? s->count_y : Plan::kMostTapsY;
    s->row_weights = bytes ? (s->taps_y + 1) / 2 : s->taps_y;
    // The columns of a strip: by its threads, and by the memory for their weights. Strips of equal width.
    const int by_threads = kThreads / s->channels, by_weights = Plan::kTapsX / s->taps_x;
    s->strips = CeilDiv(s->output[1], by_threads < by_weights ? by_threads : by_weights);
    s->columns = static_cast<int>(CeilDiv(s->output[1], s->strips));
    s->strips = CeilDiv(s->output[1], s->columns);
    // The rows of a tile: few enough for tiles_wanted tiles, whole bands, and weights that fit.
    int64_t rows = CeilDiv(s->output[0], CeilDiv(tiles_wanted, s->strips * s->groups * s->job.outer));
    const int most_rows = Plan::kTapsY / s->taps_y < Plan::kRows ? Plan::kTapsY / s->taps_y : Plan::kRows;
    if (rows > Plan::kBand) rows = CeilDiv(rows, Plan::kBand) * Plan::kBand;
    s->rows = static_cast<int>(rows < most_rows ? rows : most_rows / Plan::kBand * Plan::kBand);
    s->tile_rows = CeilDiv(s->output[0], s->rows);
    s->tiles = s->job.outer * s->groups * s->tile_rows * s->strips;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.tiles; }

 private:
  JAXDALI_HD static int64_t CeilDiv(int64_t a, int64_t b) { return Divide(a + b - 1, b).quotient; }
};

// Resamples one or two axes by tiles.
template <class In, class Out, class Call>
struct ResizeTiles : ResizePlanner<Call> {
  using Planner = ResizePlanner<Call>;
  using Tile = ResizeTile<In, Out, typename Call::Window>;
  using Plan = typename Tile::Plan;
  using Shared = typename Tile::Shared;

  static constexpr int kBlocksPerSm = 4;  // as many as shared memory allows, and registers without spilling

  WorkSplit split;

  // The work of one CUDA block: its share of the tiles of all samples, which are tiles first ... end - 1 of each, one
  // after another.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    Share(block, this->tables, &s.tables);
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      block.Phase([&](int thread) {
        if (thread == 0) s.tiles[0] = Tile::TileAt(s, first);
      });
      // s.tiles has this tile and the next one, in turn.
      int current = 0;
      for (int64_t k = first; k < end; k++, current ^= 1) {
        auto next = [&, k](int thread) {  // describes the next tile, in the first phase
          if (thread == 0 && k + 1 < end) s.tiles[current ^ 1] = Tile::TileAt(s, k + 1);
        };
        if (s.plan.axes.nearest)
          Copy(block, s, s.tiles[current], next);
        else
          ResizePasses<In, Out, typename Call::Window>::Filter(block, s, s.tiles[current], next);
      }
    });
  }

 private:
  // Makes a tile by nearest neighbours. The first phase finds the source element of each element of a row, and the
  // source row of each row. `next` describes the next tile, in the first phase.
  template <class Block, class Next>
  JAXDALI_HD static void Copy(const Block& block, Shared& s, const typename Tile::OutputTile& p, Next next) {
    const Axis &y = s.plan.axes.axis[1], &x = s.plan.axes.axis[2];
    block.Phase([&](int thread) {
      next(thread);
      const Nearest nearest = Nearest::Make(x, /*accumulate=*/false, /*relative=*/s.plan.axes.second == 2);
      if (thread < p.elements) {
        const Quotient q = Divide(thread, p.channels);
        const int64_t column = s.plan.window.At(1, p.x + q.quotient);
        s.place[thread] = nearest.Index(nearest.At(column)) * s.plan.job.inner + q.rest * s.plan.window.Step(2);
      }
      if (thread < p.rows) {
        const Nearest down = Nearest::Make(y, /*accumulate=*/true, /*relative=*/s.plan.axes.second == 1);
        s.first_y[thread] = down.Index(down.Accumulated(s.plan.window.At(0, p.y + thread)));
      }
    });
    // Copies the elements, converted to the output's type.
    block.Phase([&](int thread) {
      Tile::Write(thread, s, p, /*begin=*/0, p.rows, [&](int row, int e) {
        const In v = p.in[s.first_y[row] * x.n_in * s.plan.job.inner + s.place[e]];
        if constexpr (std::is_same_v<In, Out>)
          return v;
        else
          return ConvertTo<Out>(static_cast<float>(v));
      });
    });
  }
};

// The number of tiles into which a sample is cut. A tile makes kOutput elements, or reads kInput, which is a few bands
// or many source pixels. Small batches are cut finer, down to kLeast elements, so that all samples together have
// kAtOnce tiles and fill the GPU.
inline int64_t TilesOfSample(const Batch& in, const Batch& out) {
  constexpr int64_t kOutput = 12288, kInput = 131072, kLeast = 1024, kAtOnce = 1024, kMost = 2048;
  const int64_t out_elements = out.capacity / out.n, in_elements = in.capacity / in.n;
  const int64_t to_fill = std::min<int64_t>(kAtOnce / out.n, out_elements / kLeast);
  return std::clamp<int64_t>(std::max({out_elements / kOutput, in_elements / kInput, to_fill}), 1, kMost);
}

// Launches the kernel. The call is Whole<ResizeBatch> or Windowed<ResizeBatch>. Returns null or an error message.
template <class In, class Out, class Call>
const char* LaunchResizeTiles(const Call& call, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  return LaunchPlanned(
      ResizeTiles<In, Out, Call>{{call, FilterTables::Get(), TilesOfSample(call.in, call.out)}, /*split=*/{}}, samples,
      call.out.capacity, stream);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_KERNEL_H_
