// The second half of decoding on a GPU: coefficients to planes, planes to pixels; and finished pixels, which are only
// copied. Kernels as ffi/common/launch.h wants them. A block does every `grid`th unit of work, so that a launch depends
// on capacities alone.
#ifndef JAXDALI_FFI_JPEG_RASTER_H_
#define JAXDALI_FFI_JPEG_RASTER_H_

#include <cstdint>

#include "ffi/common/launch.h"
#include "ffi/decode.h"
#include "ffi/jpeg/idct.h"
#include "ffi/jpeg/shard.h"
#include "ffi/jpeg/table.h"
#include "ffi/jpeg/tile.h"
#include "ffi/jpeg/words.h"

namespace jaxdali::jpeg {

// --- coefficients to planes ---------------------------------------------------------------------------------------

// A unit is up to kIdctBlocks blocks of one component. Eight threads transform a block, all of one warp: each
// dequantizes a row, then transforms a column, then a row.
struct IdctKernel {
  Shard shard;
  bool luminance_only;  // the output has no use for chroma
  int32_t grid;         // blocks of the launch

  static constexpr int kAtOnce = kThreads / 8;
  // Of a block in shared memory: eight rows, and the one that all rows of a flat block are. 16-byte accesses to rows
  // and 2-byte ones to columns meet no bank twice.
  static constexpr int kStride = 9 * 8;

  struct Shared {
    int32_t slot, count;  // of the unit's blocks; 0: not to be done
    const Component* component;
    const ScanTable* scan;
    const int16_t* coefficients;
    const int16_t* dc;
    uint8_t* plane;
    int32_t first, columns;  // the unit's first block among the component's, which are `columns` across
    int16_t block_dc[kIdctBlocks];
    uint8_t is_flat[kIdctBlocks];  // rows 1 to 7 are zero
    int32_t place[kIdctBlocks];    // of a block's first sample in the plane
    alignas(16) uint16_t quantizer[64];
    alignas(16) int16_t values[kAtOnce * kStride];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = shard.Total(Work::kIdct);
    for (int32_t unit = block.index; unit < total; unit += grid) {
      shard.FindSlot(block, Work::kIdct, unit, &s.slot);
      block.Phase([&](int thread) {
        if (thread == 0) Begin(unit, &s);
      });
      if (s.count == 0) continue;
      block.Phase([&](int thread) { Prepare(thread, &s); });
      for (int at = 0; at < s.count; at += kAtOnce) {
        const int last = s.count - at;
        block.Phase([&](int thread) {
          if (thread / 8 < last) LoadRow(at + thread / 8, thread % 8, s.values + thread / 8 * kStride, &s);
        });
        block.Phase([&](int thread) {
          if (thread / 8 < last) Column(s.values + thread / 8 * kStride + thread % 8);
        });
        block.Phase([&](int thread) {
          if (thread / 8 < last) Row(s, at + thread / 8, thread % 8, s.values + thread / 8 * kStride);
        });
      }
    }
  }

 private:
  JAXDALI_HD void Begin(int32_t unit, Shared* s) const {
    const int image = s->slot / kMaxComponents, number = s->slot % kMaxComponents;
    const ImageTable& table = shard.tables[image];
    s->count = 0;
    if (!shard.Active(image) || (luminance_only && number > 0 && table.color == ColorTransform::kYcc)) return;
    const Component& c = table.component[number];
    s->component = &c;
    s->scan = &table.scan[c.scan];
    s->coefficients = shard.At<const int16_t>(c.coefficients);
    s->dc = shard.At<const int16_t>(s->scan->dc);
    s->plane = shard.At<uint8_t>(c.plane);
    s->columns = c.columns();
    s->first = (unit - shard.Firsts(Work::kIdct)[s->slot]) * kIdctBlocks;
    s->count = c.blocks() - s->first;
    if (s->count > kIdctBlocks) s->count = kIdctBlocks;
  }

  JAXDALI_HD void Prepare(int thread, Shared* s) const {
    const Component& c = *s->component;
    for (int i = thread; i < s->count; i += kThreads) {
      const int32_t y = (s->first + i) / s->columns, x = (s->first + i) % s->columns;
      s->block_dc[i] = s->dc[s->scan->DcIndex(c, c.x0 + x, c.y0 + y)];
      s->is_flat[i] = 1;
      s->place[i] = (y * s->columns * 8 + x) * 8;
    }
    for (int i = thread; i < 64; i += kThreads) s->quantizer[i] = c.quantizer[i];
  }

  JAXDALI_HD static void LoadRow(int i, int row, int16_t* values, Shared* s) {
    Words4 w = Load4(s->coefficients + static_cast<int64_t>(s->first + i) * 64 + row * 8);
    if (row == 0)
      w.word[0] = (w.word[0] & 0xFFFF0000) | static_cast<uint16_t>(s->block_dc[i]);
    else if ((w.word[0] | w.word[1] | w.word[2] | w.word[3]) != 0)
      s->is_flat[i] = 0;
    const Words4 q = Load4(s->quantizer + row * 8);
    for (int k = 0; k < 4; k++)  // 16 bits of products, whatever the signs
      w.word[k] = ((w.word[k] & 0xFFFF) * (q.word[k] & 0xFFFF) & 0xFFFF) | (w.word[k] >> 16) * (q.word[k] >> 16) << 16;
    Store4(values + row * 8, w);
  }

  JAXDALI_HD static void Column(int16_t* values) {
    int32_t v[8], out[8];
    for (int y = 0; y < 8; y++) v[y] = values[y * 8];
    IdctColumn(v, out);
    for (int y = 0; y < 8; y++) values[y * 8] = static_cast<int16_t>(out[y]);
    values[64] = static_cast<int16_t>(IdctFlatColumn(v[0]));
  }

  JAXDALI_HD static void Row(const Shared& s, int i, int row, const int16_t* values) {
    const Words4 w = Load4(values + (s.is_flat[i] ? 8 : row) * 8);
    int32_t v[8], out[8];
    for (int x = 0; x < 8; x++) v[x] = static_cast<int16_t>(w.word[x / 2] >> 16 * (x % 2));
    IdctRow(v, out);
    Words2 samples;
    for (int k = 0; k < 2; k++)
      samples.word[k] = static_cast<uint32_t>(out[4 * k] | out[4 * k + 1] << 8 | out[4 * k + 2] << 16) |
                        uint32_t(out[4 * k + 3]) << 24;
    Store2(s.plane + s.place[i] + row * s.columns * 8, samples);
  }
};

// --- planes to pixels ---------------------------------------------------------------------------------------------

JAXDALI_HD inline Plane PlaneOf(const Shard& shard, const Component& c) {
  const int32_t end_y = 8 * c.y1 < c.height ? 8 * c.y1 : c.height, end_x = 8 * c.x1 < c.width ? 8 * c.x1 : c.width;
  return {shard.At<const uint8_t>(c.plane),
          8 * c.columns(),
          8 * c.y0,
          end_y,
          8 * c.x0,
          end_x,
          c.expand_x,
          c.expand_y,
          c.upsampling};
}

// Tile number `number` of image i.
JAXDALI_HD inline void MakeTile(const DecodeBatch& b, const Shard& shard, int i, int32_t number, Tile* t) {
  const ImageTable& table = shard.tables[i];
  const ImageType type = b.type;
  const bool is_ycc = table.color == ColorTransform::kYcc, is_bgr = type == ImageType::kBgr;
  t->channels = OutputChannels(b.info[i], type);
  t->weights = ColorWeights::Make(is_bgr);
  t->finish = type == ImageType::kYcbcr ? Finish::kYcbcr : Finish::kNone;
  t->by_groups = false;
  if (t->channels == 1 && table.color != ColorTransform::kRgb) {
    t->source = Source::kOnePlane;
    t->plane[0] = PlaneOf(shard, table.component[0]);
  } else if (table.components == 1) {
    t->source = Source::kGrayToThree;
    t->plane[0] = PlaneOf(shard, table.component[0]);
  } else {
    t->source = is_ycc ? Source::kYcc : Source::kThreePlanes;
    const int red = is_ycc ? 2 : 0, blue = is_ycc ? 1 : 2;  // the planes that carry most of them
    t->plane[0] = PlaneOf(shard, table.component[is_ycc ? 0 : is_bgr ? blue : red]);
    t->plane[1] = PlaneOf(shard, table.component[!is_ycc ? 1 : is_bgr ? blue : red]);
    t->plane[2] = PlaneOf(shard, table.component[is_bgr ? red : blue]);
    if (t->channels == 1) t->finish = Finish::kGray;
    t->by_groups = is_ycc && t->finish == Finish::kNone && t->plane[0].mode == Upsampling::kFull &&
                   HasGroups(t->plane[1]) && HasGroups(t->plane[2]);
  }

  const int32_t columns = table.tile_columns();
  t->y = table.region_y / kGroupHeight * kGroupHeight + number / columns * kTileHeight;
  t->x = table.region_x / kGroupWidth * kGroupWidth + number % columns * kTileWidth;
  const int32_t end_y = table.region_y + table.region_h - t->y, end_x = table.region_x + table.region_w - t->x;
  t->begin_y = t->y < table.region_y ? table.region_y - t->y : 0;
  t->begin_x = t->x < table.region_x ? table.region_x - t->x : 0;
  t->end_y = end_y < kTileHeight ? end_y : kTileHeight;
  t->end_x = end_x < kTileWidth ? end_x : kTileWidth;

  const Orientation orientation(b.adjust_orientation ? b.info[i].orientation : 1);
  const Placement place(orientation, table.region_h, table.region_w);
  t->out = b.out.bytes(i);
  t->dtype = b.out.dtype;
  t->transpose = orientation.transpose;
  t->upright = place.upright() && !orientation.transpose;
  t->step_y = place.step_y;
  t->step_x = place.step_x;
  t->first = place.start + (t->y + t->begin_y - table.region_y) * place.step_y +
             (t->x + t->begin_x - table.region_x) * place.step_x;
}

// A unit is a tile. Each thread makes a group of its pixels; then each warp stores lines of it.
struct PixelKernel {
  DecodeBatch batch;
  Shard shard;
  int32_t grid;  // blocks of the launch

  static constexpr int kGroupsAcross = kTileWidth / kGroupWidth;
  // Multiples of 8 bytes that begin at different banks; what is read beyond a row's end is inside.
  static constexpr int kRowBytes = 3 * kTileWidth + 8;
  static_assert(kGroupWidth == 8 && kGroupHeight == 2, "as FillGroup has them");
  static_assert(kGroupsAcross * (kTileHeight / kGroupHeight) == kThreads, "a group for each thread");

  struct Shared {
    int32_t slot;
    bool runs;
    Tile tile;
    alignas(16) uint8_t rows[kTileHeight * kRowBytes];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = shard.Total(Work::kPixels);
    for (int32_t unit = block.index; unit < total; unit += grid) {
      shard.FindSlot(block, Work::kPixels, unit, &s.slot);
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.runs = shard.Active(s.slot);
        if (s.runs) MakeTile(batch, shard, s.slot, unit - shard.Firsts(Work::kPixels)[s.slot], &s.tile);
      });
      if (!s.runs) continue;
      block.Phase([&](int thread) { Fill(thread, &s); });
      block.Phase(
          [&](int thread) { StoreTile(s.tile, s.rows, kRowBytes, thread / 32, kThreads / 32, thread % 32, 32); });
    }
  }

 private:
  JAXDALI_HD static void Fill(int thread, Shared* s) {
    const Tile& t = s->tile;
    const int32_t x = thread % kGroupsAcross * kGroupWidth, y = thread / kGroupsAcross * kGroupHeight;
    if (x >= t.end_x || x + kGroupWidth <= t.begin_x || y >= t.end_y || y + kGroupHeight <= t.begin_y) return;
    uint8_t* to = s->rows + y * kRowBytes + x * t.channels;
    if (t.by_groups) return FillGroup(t, t.y + y, t.x + x, to, kRowBytes);
    const int32_t left = x < t.begin_x ? t.begin_x : x, right = x + kGroupWidth < t.end_x ? x + kGroupWidth : t.end_x;
    const int32_t top = y < t.begin_y ? t.begin_y : y, bottom = y + kGroupHeight < t.end_y ? y + kGroupHeight : t.end_y;
    for (int32_t row = top; row < bottom; row++)
      for (int32_t column = left; column < right; column++)
        FillPixel(t, t.y + row, t.x + column, to + (row - y) * kRowBytes + (column - x) * t.channels);
  }
};

// --- finished pixels ----------------------------------------------------------------------------------------------

// Each sample is copied by `chunks` blocks. What is not to be copied they leave alone.
struct CopyKernel {
  DecodeBatch batch;
  Samples samples;
  int32_t chunks;

  struct Shared {
    const uint8_t* from;
    uint8_t* to;
    int64_t bytes, wide;  // in all, and those that 16-byte words hold
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      if (thread == 0) Begin(block.index / chunks, &s);
    });
    block.Phase([&](int thread) {
      const int64_t first = static_cast<int64_t>(block.index % chunks) * kThreads + thread;
      const int64_t step = static_cast<int64_t>(chunks) * kThreads;
      for (int64_t i = 16 * first; i < s.wide; i += 16 * step) Store4(s.to + i, Load4(s.from + i));
      for (int64_t i = s.wide + first; i < s.bytes; i += step) s.to[i] = s.from[i];
    });
  }

 private:
  JAXDALI_HD void Begin(int i, Shared* s) const {
    s->bytes = s->wide = 0;
    if (!samples.present[i] || samples.status[i] != kOk || !IsFinished(batch.info[i])) return;
    s->from = batch.in.sample<const uint8_t>(i);
    s->to = batch.out.bytes(i);
    s->bytes = batch.in.size(i);
    if (((reinterpret_cast<uintptr_t>(s->from) | reinterpret_cast<uintptr_t>(s->to)) & 15) == 0)
      s->wide = s->bytes & ~int64_t{15};
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_RASTER_H_
