// Histogram equalization on CUDA: first the tables, a block for each tile, then the pixels, a thread for each.
#include "ffi/common/block.h"
#include "ffi/common/border.h"
#include "ffi/common/launch.h"
#include "ffi/equalize/equalize.h"

namespace jaxdali {
namespace {

struct Tables : EqualizeBatch {
  Samples samples;
  int blocks;  // of each sample

  struct Shared {
    bool runs;
    EqualizeArgs args;
    uint8_t* tables;
    uint32_t histogram[kBins];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int i = block.index / blocks, own = block.index % blocks;
    block.Phase([&](int thread) {
      if (thread > 0) return;
      Status code = kOk;
      s.runs = false;
      if (samples.present[i]) {
        code = in.valid(i) && out.valid(i) ? Sample(i, &s.args, &s.tables) : kInternal;
        s.runs = code == kOk;
      }
      if (own == 0) samples.status[i] = code;
    });
    if (!s.runs) return;
    const EqualizeArgs& a = s.args;
    for (int64_t job = own; job < a.planes * Tiles(); job += blocks) {
      const int64_t plane = job / Tiles();
      const int64_t top = job % Tiles() / tiles_x * a.tile_height, left = job % tiles_x * a.tile_width;
      block.Phase([&](int thread) { s.histogram[thread] = 0; });
      block.Phase([&](int thread) {
        for (int64_t k = thread; k < a.tile_height * a.tile_width; k += kThreads) {
          const Quotient q = Divide(k, a.tile_width);
          const int64_t y = Reflect(top + q.quotient, a.height), x = Reflect(left + q.rest, a.width);
          jpeg::AtomicAdd(&s.histogram[Value(a, a.At(plane, y, x))], 1);
        }
      });
      block.Phase([&](int thread) {
        if (thread == 0) Table(a, s.histogram, s.tables + job * kBins);
      });
    }
  }
};
static_assert(kBins == kThreads);

struct Pixels : EqualizeBatch {
  struct Plan {
    int64_t units;  // pixels
    EqualizeArgs args;
    uint8_t* tables;
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args, &s->tables); e != kOk) return e;
    s->units = s->args.planes * s->args.height * s->args.width;
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const EqualizeArgs& a = s.args;
    const int64_t each = a.inner / a.channels;
    for (int64_t i = first; i < end; i += kThreads) {  // as they lie in memory
      const Quotient place = Divide(i, each), column = Divide(place.quotient, a.width);
      const Quotient row = Divide(column.quotient, a.height);
      const int64_t plane = row.quotient * each + place.rest;
      Put(a, s.tables + plane * Tiles() * kBins, i * a.channels, Around(row.rest, a.tile_height, tiles_y),
          Around(column.rest, a.tile_width, tiles_x));
    }
  }
};

}  // namespace

const char* LaunchEqualize(const EqualizeBatch& b, const Samples& samples, void* stream) {
  if (samples.n == 0) return nullptr;
  const int blocks = static_cast<int>(std::clamp<int64_t>(b.out.capacity / b.out.n / 4096, 1, 256));
  if (const char* what = LaunchBlocks(Tables{b, samples, blocks}, int64_t{samples.n} * blocks, stream)) return what;
  return Launch(Pixels{b}, samples, stream);
}

}  // namespace jaxdali
