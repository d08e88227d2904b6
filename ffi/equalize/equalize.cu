// Histogram equalization on CUDA: first the tables, with one block per tile, then the pixels, with one thread each.
#include "ffi/common/block.h"
#include "ffi/common/border.h"
#include "ffi/common/launch.h"
#include "ffi/equalize/equalize.h"

namespace jaxdali {
namespace {

struct Tables : EqualizeBatch {
  struct Plan {
    int64_t tables;  // number of tables, in all planes
    EqualizeArgs args;
    uint8_t* out;
  };
  struct Shared {
    int slot;
    Plan plan;
    uint32_t histogram[kBins];
  };

  Parts parts;

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args, &s->out); e != kOk) return e;
    s->tables = s->args.planes * Tiles();
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& plan) { return plan.tables; }

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    parts.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t k = first; k < end; k++) Make(block, s, k);
    });
  }

 private:
  template <class Block>
  JAXDALI_HD void Make(const Block& block, Shared& s, int64_t k) const {
    const EqualizeArgs& a = s.plan.args;
    const int64_t plane = k / Tiles();
    const int64_t top = k % Tiles() / tiles_x * a.tile_height, left = k % tiles_x * a.tile_width;
    block.Phase([&](int thread) { s.histogram[thread] = 0; });
    block.Phase([&](int thread) {
      for (int64_t at = thread; at < a.tile_height * a.tile_width; at += kThreads) {
        const Quotient q = Divide(at, a.tile_width);
        const int64_t y = Reflect(top + q.quotient, a.height), x = Reflect(left + q.rest, a.width);
        jpeg::AtomicAdd(&s.histogram[Value(a, a.At(plane, y, x))], 1);
      }
    });
    block.Phase([&](int thread) {
      if (thread == 0) Table(a, s.histogram, s.plan.out + k * kBins);
    });
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
    for (int64_t i = first; i < end; i += kThreads) {  // in the order of memory
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
  const int64_t tables = b.scratch_size * static_cast<int64_t>(sizeof(float)) / kBins;
  if (const char* what = LaunchPlanned(Tables{b, {}}, samples, tables, stream)) return what;
  return Launch(Pixels{b}, samples, stream);
}

}  // namespace jaxdali
