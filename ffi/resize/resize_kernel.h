// The CUDA kernel that resamples one or two axes by tiles, see resize_tile.h. What it makes is an image in memory, or a
// window of an image.
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

// Copied to shared memory, because divergent reads are fast there but not from a kernel's parameters.
template <class Block>
JAXDALI_HD void Share(const Block& block, const FilterTables& tables, FilterTables* shared) {
  block.Phase([&](int thread) {
    for (int i = thread; i < 129; i += kThreads) shared->cubic[i] = tables.cubic[i];
    for (int i = thread; i < 193; i += kThreads) shared->lanczos[i] = tables.lanczos[i];
    for (int i = thread; i < 65; i += kThreads) shared->gaussian[i] = tables.gaussian[i];
  });
}

template <class Call>
struct ResizePlanner : Call {
  using Plan = ResizePlan<typename Call::Window>;

  FilterTables tables;
  int64_t most;  // upper bound of the parts of a sample

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->parts = 0;
    const ResizeBatch& image = this->image();
    if (!image.out.valid(i)) return kInternal;
    if (Status e = image.Sample(i, &s->job); e != kOk) return e;
    if (image.out.size(i) > 0) {
      if (Status e = s->axes.Make(s->job); e != kOk) return e;
    }
    if constexpr (!Plan::kWhole) {
      if (Status e = s->window.Set(this->window, i); e != kOk) return InStage(1, e);
    }
    if (this->out.size(i) == 0) return kOk;
    const Axis &y = s->axes.axis[1], &x = s->axes.axis[2];
    s->margin = 0;
    const int64_t size = SizeOf(image.in.dtype), row = x.n_in * s->job.inner * size;
    constexpr int64_t kOver = 12;  // bytes: three words are read for one
    if ((this->in.capacity - this->in.start(i) - this->in.size(i)) * size < kOver)
      s->margin = static_cast<int>(CeilDiv(kOver, row));
    for (int d = 0; d < 2; d++) s->made[d] = s->axes.axis[1 + d].n_out;
    s->made[2] = s->job.inner;
    if constexpr (!Plan::kWhole)
      for (int d = 0; d < 3; d++) s->made[d] = s->window.extent[d];
    s->channels = s->made[2] < kThreads ? static_cast<int>(s->made[2]) : kThreads;
    s->groups = CeilDiv(s->made[2], s->channels);
    s->whole_pixels = s->groups == 1;
    if constexpr (!Plan::kWhole) s->whole_pixels = s->window.KeepsChannels(s->job.inner);
    s->count_x = EdgeTaps(x, tables).count;
    s->count_y = EdgeTaps(y, tables).count;
    const bool bytes = image.in.dtype == DType::kU8 && image.out.dtype == DType::kU8;
    const int chunk = bytes ? ChunkColumns<uint8_t, uint8_t>(s->channels) : ChunkColumns<float, float>(s->channels);
    s->taps_x = s->count_x < chunk ? s->count_x : chunk;
    s->taps_y = s->count_y < Plan::kMostTapsY ? s->count_y : Plan::kMostTapsY;
    s->row_weights = bytes ? (s->taps_y + 1) / 2 : s->taps_y;
    const int fit = kThreads / s->channels, weighed = Plan::kTapsX / s->taps_x;
    s->strips = CeilDiv(s->made[1], fit < weighed ? fit : weighed);
    s->columns = static_cast<int>(CeilDiv(s->made[1], s->strips));
    s->strips = CeilDiv(s->made[1], s->columns);
    int64_t rows = CeilDiv(s->made[0], CeilDiv(most, s->strips * s->groups * s->job.outer));
    const int fitting = Plan::kTapsY / s->taps_y < Plan::kRows ? Plan::kTapsY / s->taps_y : Plan::kRows;
    if (rows > Plan::kBand) rows = CeilDiv(rows, Plan::kBand) * Plan::kBand;
    s->rows = static_cast<int>(rows < fitting ? rows : fitting / Plan::kBand * Plan::kBand);
    s->bands = CeilDiv(s->made[0], s->rows);
    s->parts = s->job.outer * s->groups * s->bands * s->strips;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.parts; }

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

  Parts parts;

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    Share(block, this->tables, &s.tables);
    parts.ForEach(block, s, [&](int64_t first, int64_t end) {
      block.Phase([&](int thread) {
        if (thread == 0) s.parts[0] = Tile::PartAt(s, first);
      });
      int now = 0;
      for (int64_t k = first; k < end; k++, now ^= 1) {
        auto next = [&, k](int thread) {  // what the part after this one is, in the first phase
          if (thread == 0 && k + 1 < end) s.parts[now ^ 1] = Tile::PartAt(s, k + 1);
        };
        if (s.plan.axes.nearest)
          Copy(block, s, s.parts[now], next);
        else
          ResizePasses<In, Out, typename Call::Window>::Filter(block, s, s.parts[now], next);
      }
    });
  }

 private:
  template <class Block, class Next>
  JAXDALI_HD static void Copy(const Block& block, Shared& s, const typename Tile::Part& p, Next next) {
    const Axis &y = s.plan.axes.axis[1], &x = s.plan.axes.axis[2];
    block.Phase([&](int thread) {
      next(thread);
      const Nearest nearest = Nearest::Make(x, false, s.plan.axes.second == 2);
      if (thread < p.elements) {
        const Quotient q = Divide(thread, p.channels);
        const int64_t column = s.plan.window.At(1, p.x + q.quotient);
        s.place[thread] = nearest.Index(nearest.At(column)) * s.plan.job.inner + q.rest * s.plan.window.Step(2);
      }
      if (thread < p.rows) {
        const Nearest down = Nearest::Make(y, true, s.plan.axes.second == 1);
        s.first_y[thread] = down.Index(down.Accumulated(s.plan.window.At(0, p.y + thread)));
      }
    });
    block.Phase([&](int thread) {
      Tile::Write(thread, s, p, 0, p.rows, [&](int row, int e) {
        const In v = p.in[s.first_y[row] * x.n_in * s.plan.job.inner + s.place[e]];
        if constexpr (std::is_same_v<In, Out>)
          return v;
        else
          return ConvertTo<Out>(static_cast<float>(v));
      });
    });
  }
};

// Into how many parts a sample is cut. Each part is a few bands of a tile, or many source pixels. Small batches are cut
// finer, to fill the GPU.
inline int64_t PartsOfSample(const Batch& in, const Batch& out) {
  constexpr int64_t kOutput = 12288, kInput = 131072, kLeast = 1024, kAtOnce = 1024, kMost = 2048;
  const int64_t made = out.capacity / out.n, read = in.capacity / in.n;
  const int64_t spread = std::min<int64_t>(kAtOnce / out.n, made / kLeast);
  return std::clamp<int64_t>(std::max({made / kOutput, read / kInput, spread}), 1, kMost);
}

// The call is Whole<ResizeBatch> or Windowed<ResizeBatch>.
template <class In, class Out, class Call>
const char* LaunchResizeTiles(const Call& call, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  return LaunchPlanned(ResizeTiles<In, Out, Call>{{call, FilterTables::Get(), PartsOfSample(call.in, call.out)}, {}},
                       samples, call.out.capacity, stream);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESIZE_RESIZE_KERNEL_H_
