// Histogram equalization on CUDA: first the histograms, and tables of those that one block counts; then the tables of
// larger tiles, of which several blocks count parts; then the pixels, with one thread each.
#include "ffi/common/block.h"
#include "ffi/common/border.h"
#include "ffi/common/launch.h"
#include "ffi/equalize/equalize.h"

namespace jaxdali {
namespace {

// The first two launches: histograms of tiles, and the tables made from them.
struct Tables : EqualizeBatch {
  static constexpr int64_t kPixels = 64 * kThreads;  // that a block counts, at least

  bool joins;  // the second launch
  WorkSplit split;

  struct Plan {
    int64_t pieces;  // parts, or tables
    int64_t chunks;  // parts of a tile
    int64_t chunk;   // pixels of a part
    Divisor tile_width;
    EqualizeArgs args;
    uint32_t* counts;  // [tables, chunks, kBins] if there are several chunks
    uint8_t* out;      // [tables, kBins], the tables
  };
  struct Shared {
    Plan plan;
    uint32_t histogram[kBins];
    uint32_t first, lowest, excess;  // the first value that the tile has, and its pixels; what is clipped
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    EqualizeArgs& a = s->args;
    if (Status e = Sample(i, &a, &s->out); e != kOk) return e;
    const int64_t tables = a.planes * Tiles();
    s->tile_width = Divisor(a.tile_width);
    // Tiles may extend beyond the image. All parts together are less than the sample's share of the working memory.
    const int64_t most = tables > 0 ? in.size(i) / kElementsPerPart / tables : 0;
    const int64_t chunks_of_tile = (a.Area() + kPixels - 1) / kPixels;
    s->chunks = chunks_of_tile < 1 || most < 1 ? 1 : chunks_of_tile < most ? chunks_of_tile : most;
    s->chunk = (a.Area() + s->chunks - 1) / s->chunks;
    s->pieces = !joins ? tables * s->chunks : s->chunks > 1 ? tables : 0;
    s->counts = reinterpret_cast<uint32_t*>(scratch) + in.start(i) / kElementsPerPart * kBins;
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.pieces; }

  // The work of one CUDA block: its share of the parts of tiles or, in the second launch, of the tables of all samples.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) joins ? Join(block, s, piece) : Count(block, s, piece);
    });
  }

 private:
  // Counts a part of a tile in shared memory. If the tile has several parts, their histograms go to device memory.
  // There are as many bins as threads, and a thread clears and stores one.
  template <class Block>
  JAXDALI_HD void Count(const Block& block, Shared& s, int64_t piece) const {
    const EqualizeArgs& a = s.plan.args;
    const int64_t chunks = s.plan.chunks, table = Divide(piece, chunks).quotient;
    const int64_t plane = Divide(table, Tiles()).quotient, tile = Divide(table, Tiles()).rest;
    const int64_t top = tile / tiles_x * a.tile_height, left = tile % tiles_x * a.tile_width;
    const bool is_inside = top + a.tile_height <= a.height && left + a.tile_width <= a.width;
    const int64_t begin = piece % chunks * s.plan.chunk;
    const int64_t end = begin + s.plan.chunk < a.Area() ? begin + s.plan.chunk : a.Area();
    block.Phase([&](int thread) { s.histogram[thread] = 0; });
    // Thread t counts pixels begin + t, begin + t + kThreads, ... of the tile.
    block.Phase([&](int thread) {
      const int64_t base = a.At(plane, /*y=*/0, /*x=*/0);
      for (int64_t pixel = begin + thread; pixel < end; pixel += kThreads) {
        const Divisor::Result p = s.plan.tile_width.Divide(static_cast<uint64_t>(pixel));
        int64_t y = top + static_cast<int64_t>(p.quotient), x = left + static_cast<int64_t>(p.rest);
        if (!is_inside) {
          y = Reflect(y, a.height);
          x = Reflect(x, a.width);
        }
        AtomicAdd(&s.histogram[Value(a, base + (y * a.width + x) * a.inner)], 1);
      }
    });
    if (chunks == 1)
      Make(block, s, table);
    else
      block.Phase([&](int thread) { s.plan.counts[piece * kBins + thread] = s.histogram[thread]; });
  }
  // The second launch: sums up the histograms of a tile's parts.
  template <class Block>
  JAXDALI_HD void Join(const Block& block, Shared& s, int64_t table) const {
    block.Phase([&](int thread) {
      const uint32_t* counts = s.plan.counts + table * s.plan.chunks * kBins + thread;
      uint32_t sum = 0;
      for (int64_t chunk = 0; chunk < s.plan.chunks; chunk++) sum += counts[chunk * kBins];
      s.histogram[thread] = sum;
    });
    Make(block, s, table);
  }
  // Makes the table of the histogram. Each thread has a bin.
  template <class Block>
  JAXDALI_HD void Make(const Block& block, Shared& s, int64_t table) const {
    const EqualizeArgs& a = s.plan.args;
    uint8_t* to = s.plan.out + table * kBins;
    block.Phase([&](int thread) {
      if (thread == 0) {
        s.first = kBins;
        s.lowest = s.excess = 0;
      }
    });
    // With `stretch`, the lowest value becomes 0: its pixels don't count.
    if (stretch) {
      block.Phase([&](int thread) {
        if (s.histogram[thread] > 0) AtomicMin(&s.first, static_cast<uint32_t>(thread));
      });
      block.Phase([&](int thread) {
        if (thread == 0) s.lowest = s.histogram[s.first];
      });
      if (s.lowest == a.Area()) {  // a single value, which is kept
        block.Phase([&](int thread) { to[thread] = static_cast<uint8_t>(thread); });
        return;
      }
    }
    const float scale = ScaleOf(a.Area() - s.lowest);
    // Clips the counts, and spreads the excess of all bins. Then each level follows from the sum of the counts up to
    // it.
    const Clip unclipped = ClipOf(a);
    block.Phase([&](int thread) {
      if (static_cast<uint32_t>(thread) == s.first) s.histogram[thread] = 0;
      if (const uint32_t excess = unclipped.Excess(s.histogram[thread])) AtomicAdd(&s.excess, excess);
    });
    Clip clip = unclipped;
    clip.Spread(s.excess);
    block.Phase(
        [&](int thread) { s.histogram[thread] = clip.Count(static_cast<uint32_t>(thread), s.histogram[thread]); });
    ScanBlock(block, s.histogram, [](uint32_t x, uint32_t y) { return x + y; });
    block.Phase([&](int thread) { to[thread] = Level(s.histogram[thread], scale); });
  }
};
static_assert(kBins == kThreads);

// The last launch: each pixel by the tables of the four tiles around it.
struct Pixels : EqualizeBatch {
  struct Plan {
    int64_t units;  // pixels
    EqualizeArgs args;
    uint8_t* tables;
    Divisor per_pixel, image, width;  // planes of an outer index, pixels of a plane and of its row
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    const EqualizeArgs& a = s->args;
    if (Status e = Sample(i, &s->args, &s->tables); e != kOk) return e;
    s->units = a.planes * a.height * a.width;
    s->per_pixel = Divisor(a.inner / a.channels);
    s->image = Divisor(a.height * a.width);
    s->width = Divisor(a.width);
    return kOk;
  }
  // The work of a thread: pixels first, first + kThreads, ...
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const EqualizeArgs& a = s.args;
    for (int64_t i = first; i < end; i += kThreads) {  // in the order of memory
      const auto place = s.per_pixel.Divide(static_cast<uint64_t>(i)), pixel = s.image.Divide(place.quotient);
      const auto plane = static_cast<int64_t>(pixel.quotient) * s.per_pixel.n() + static_cast<int64_t>(place.rest);
      Between v{}, h{};
      if (Tiles() > 1) {
        const auto row = s.width.Divide(pixel.rest);
        v = Around(static_cast<int64_t>(row.quotient), a.tile_height, tiles_y);
        h = Around(static_cast<int64_t>(row.rest), a.tile_width, tiles_x);
      }
      Put(a, s.tables + plane * Tiles() * kBins, i * a.channels, v, h);
    }
  }
};

}  // namespace

// Launches the three kernels; the second one only if tiles may have several parts. Returns null or an error message.
const char* LaunchEqualize(const EqualizeBatch& b, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  const int64_t bytes = b.scratch_size * static_cast<int64_t>(sizeof(float)) - b.PartBytes();
  if (bytes < 0) return "equalize: the working memory is too small";
  // At most so many tables, and parts of tiles that have several.
  const int64_t tables = bytes / kBins, chunks = b.in.capacity / b.kElementsPerPart;
  if (const char* error = LaunchPlanned(Tables{b, /*joins=*/false, /*split=*/{}}, samples, tables + chunks, stream))
    return error;
  if (chunks > 1)
    if (const char* error = LaunchPlanned(Tables{b, /*joins=*/true, /*split=*/{}}, samples, tables, stream))
      return error;
  return Launch(Pixels{b}, samples, stream);
}

}  // namespace jaxdali
