// The second half of decoding on a GPU: coefficients to planes, planes to pixels, and copies of finished pixels. The
// kernels follow ffi/common/launch.h. Each block does every `grid`th unit of work, so a launch depends only on
// capacities.
#ifndef JAXDALI_FFI_CUDA_JPEG_RASTER_H_
#define JAXDALI_FFI_CUDA_JPEG_RASTER_H_

#include <algorithm>
#include <cstdint>

#include "ffi/common/launch.h"
#include "ffi/cuda_jpeg/compact.h"
#include "ffi/cuda_jpeg/dc.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/cuda_jpeg/tile.h"
#include "ffi/cuda_jpeg/words.h"
#include "ffi/decode/decode.h"
#include "ffi/jpeg/idct.h"

namespace jaxdali::jpeg {

// --- coefficients to planes ---------------------------------------------------------------------------------------

// A unit is up to kIdctBlocks blocks of one component. Eight threads transform a block: each does a column, then a row.
// Where another group follows, its memory is cleared while it is still in the caches.
struct IdctKernel {
  Shard shard;
  Batch in;
  bool luminance_only;  // the output does not use chroma
  bool clears;          // another group follows
  int32_t grid;         // blocks of the launch
  int32_t group;        // number of the images' group that is decoded, see kGroupBytes

  static constexpr int kBlocksPerSm = 6;
  static constexpr int kBlocksAtOnce = kThreads / 8;  // with eight threads each
  // Stride of a block in shared memory: eight rows, and a ninth that stands for all rows of a flat block. With it,
  // 16-byte accesses to rows and 2-byte accesses to columns have no bank conflicts.
  static constexpr int kStride = 9 * 8;

  struct Shared {
    int32_t slot;     // image * kMaxComponents + component
    int32_t count;    // blocks in the unit; 0: skip it
    bool transforms;  // false: it is only cleared
    bool clears;      // its coefficients are set to zero, for the next group
    const Component* component;
    const ScanTable* scan;
    int16_t* coefficients;
    const uint8_t* compact;  // the image's data if they are compact coefficients, or null
    uint8_t* plane;
    int32_t first, columns;  // first block of the unit within the component, and blocks per row of the component
    int16_t block_dc[kIdctBlocks];
    // Of compact coefficients: the mask of each block's nonzero coefficients, and the place of its values.
    uint64_t present[kIdctBlocks];
    uint32_t values_at[kIdctBlocks];
    alignas(8) uint8_t zigzag[64];       // the indices of coefficients in zigzag order, column by column
    alignas(8) uint8_t by_column[64];    // the inverse: the place in columns of a coefficient in zigzag order
    uint32_t place[kIdctBlocks];         // first sample of a block in the plane, which may have more than 2^31
    alignas(16) uint16_t quantizer[64];  // column by column
    alignas(16) int16_t columns_of[kBlocksAtOnce * kStride];  // coefficients, column by column
    alignas(16) int16_t values[kBlocksAtOnce * kStride];
    alignas(8) uint8_t has_ac[kBlocksAtOnce * 8];  // columns in which some row below the first is not zero
  };

  // One CUDA block: every `grid`th unit of the group.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t end = shard.GroupFirst(Work::kIdct, group + 1);
    for (int32_t unit = shard.GroupFirst(Work::kIdct, group) + block.index; unit < end; unit += grid) {
      shard.FindSlot(block, Work::kIdct, unit, &s.slot);
      block.Phase([&](int thread) {
        if (thread == 0) BeginUnit(unit, &s);
      });
      if (s.count == 0) continue;
      if (s.transforms) Transform(block, s);
      if (s.clears) {
        block.Phase([&](int thread) {
          // A block has eight words of 16 bytes.
          for (int i = thread; i < s.count * 8; i += kThreads)
            Store4(s.coefficients + static_cast<int64_t>(s.first) * 64 + i * 8, {});
        });
      }
    }
  }

 private:
  // Transforms the unit's coefficients to samples of the plane, kBlocksAtOnce blocks at a time.
  template <class Block>
  JAXDALI_HD void Transform(const Block& block, Shared& s) const {
    block.Phase([&](int thread) { LoadUnit(thread, &s); });
    for (int first_block = 0; first_block < s.count; first_block += kBlocksAtOnce) {
      const int blocks_left = s.count - first_block;
      if (!s.compact) {
        block.Phase([&](int thread) {
          if (thread / 8 < blocks_left) ToColumns(first_block, thread, &s);
        });
      }
      block.Phase([&](int thread) {
        if (thread / 8 < blocks_left) TransformColumn(first_block, thread, &s);
      });
      block.Phase([&](int thread) {
        if (thread / 8 < blocks_left) TransformRow(s, first_block, thread);
      });
    }
  }

  // Sets up a unit: up to kIdctBlocks blocks of the component in `s->slot`. A count of 0 means that there is nothing to
  // do.
  JAXDALI_HD void BeginUnit(int32_t unit, Shared* s) const {
    const int image = s->slot / kMaxComponents, number = s->slot % kMaxComponents;
    const ImageTable& table = shard.tables[image];
    s->count = 0;
    // Gray output needs no chroma, but its coefficients are cleared for the next group.
    s->transforms = shard.Active(image) && !(luminance_only && number > 0 && table.color == ColorTransform::kYcc);
    s->clears = clears && shard.MayHaveCoefficients(image);
    if (!s->transforms && !s->clears) return;
    const Component& c = table.component[number];
    s->component = &c;
    s->scan = &table.scan[c.scan];
    s->coefficients = shard.At<int16_t>(c.coefficients);
    s->compact = nullptr;
    if (table.coding == Coding::kCompact) {
      s->compact = in.sample<const uint8_t>(image);
      // The compact data come from the host, but their places are checked like those of any input.
      if (c.compact + CompactBytes(c) > in.size(image)) {
        AtomicMax(&shard.samples.status[image], kInternal);
        return;  // the count is 0
      }
    }
    s->plane = shard.At<uint8_t>(c.plane);
    s->columns = c.columns();
    s->first = (unit - shard.Firsts(Work::kIdct)[s->slot]) * kIdctBlocks;
    s->count = c.blocks() - s->first;
    if (s->count > kIdctBlocks) s->count = kIdctBlocks;
  }

  // Prepares the unit in shared memory: DC values, places of blocks, and the tables of the component.
  JAXDALI_HD void LoadUnit(int thread, Shared* s) const {
    const Component& c = *s->component;
    for (int i = thread; i < s->count; i += kThreads) {
      const int32_t y = (s->first + i) / s->columns, x = (s->first + i) % s->columns;
      if (s->compact)
        FindValues(i, s);
      else
        s->block_dc[i] = ReadDc(shard, *s->scan, s->slot % kMaxComponents, s->scan->DcIndex(c, c.x0 + x, c.y0 + y));
      // Above the block are 8 * y rows of 8 * columns samples, to its left 8 * x samples.
      s->place[i] = static_cast<uint32_t>(y * s->columns * 8 + x) * 8;
    }
    // The tables are column by column: entry k is row k % 8 of column k / 8.
    if (thread < 64) {
      s->quantizer[thread] = c.quantizer[thread % 8 * 8 + thread / 8];
      s->zigzag[ColumnOrder(thread)] = static_cast<uint8_t>(thread);
      s->by_column[thread] = ColumnOrder(thread);
    }
  }

  // Reads the compact form of the unit's block number i: its DC value, the mask of its other coefficients, and the
  // place of their values in the image's data. A place outside of the data is an error, and the block has no values.
  JAXDALI_HD void FindValues(int i, Shared* s) const {
    const Component& c = *s->component;
    const int image = s->slot / kMaxComponents;
    const auto* blocks = reinterpret_cast<const CompactBlock*>(s->compact + c.compact);
    const CompactBlock block = blocks[s->first + i];
    // Behind the component's blocks is a word for each unit: the place of its first block's values.
    const uint32_t values =
        reinterpret_cast<const uint32_t*>(blocks + c.blocks())[s->first / kIdctBlocks] + block.values;
    const bool is_good = int64_t{values} + ValueBytes(block.present()) <= in.size(image);
    if (!is_good) AtomicMax(&shard.samples.status[image], kInternal);
    s->block_dc[i] = block.dc;
    s->present[i] = is_good ? block.present() : 0;
    s->values_at[i] = values;
  }

  // Moves coefficients from zigzag order into columns; eight threads for each of the blocks from `first_block` on, each
  // for eight coefficients.
  JAXDALI_HD static void ToColumns(int first_block, int thread, Shared* s) {
    const int eighth = thread % 8;
    const Words4 c =
        Load4(s->coefficients + static_cast<int64_t>(s->first + first_block + thread / 8) * 64 + eighth * 8);
    const Words2 places = Load2(s->by_column + eighth * 8);
    int16_t* column_values = s->columns_of + thread / 8 * kStride;
    // Four places are in a word, and two coefficients.
    for (int k = 0; k < 8; k++)
      column_values[places.word[k / 4] >> 8 * (k % 4) & 255] = static_cast<int16_t>(c.word[k / 2] >> 16 * (k % 2));
  }

  // Transforms the columns; eight threads for each of the blocks from `first_block` on.
  JAXDALI_HD static void TransformColumn(int first_block, int thread, Shared* s) {
    const int i = first_block + thread / 8, column = thread % 8;
    int16_t* values = s->values + thread / 8 * kStride;
    const Words4 c = s->compact ? ExpandColumn(s->present[i], s->compact + s->values_at[i], s->zigzag + column * 8)
                                : Load4(s->columns_of + thread / 8 * kStride + column * 8);
    const Words4 q = Load4(s->quantizer + column * 8);  // as the coefficients, two in a word
    // The lower half of the first word is the value in the first row.
    s->has_ac[thread] = (c.word[0] >> 16 | c.word[1] | c.word[2] | c.word[3]) != 0;
    int32_t v[8], out[8];
    for (int y = 0; y < 8; y++)
      v[y] = Dequantize(static_cast<int16_t>(c.word[y / 2] >> 16 * (y % 2)),
                        static_cast<uint16_t>(q.word[y / 2] >> 16 * (y % 2)));
    // DC values are stored apart from the other coefficients.
    if (column == 0) v[0] = Dequantize(s->block_dc[i], s->quantizer[0]);
    IdctColumn(v, out);
    for (int y = 0; y < 8; y++) values[y * 8 + column] = static_cast<int16_t>(out[y]);
    // The ninth row stands for all rows if the block is flat.
    values[64 + column] = static_cast<int16_t>(IdctFlatColumn(v[0]));
  }

  // Transforms the rows and stores samples; eight threads for each of the blocks from `first_block` on. A block is flat
  // if all its columns are: each has only its value in the first row.
  JAXDALI_HD static void TransformRow(const Shared& s, int first_block, int thread) {
    const int block = thread / 8, row = thread % 8;
    // Eight flags at a time.
    const Words2 uneven = Load2(s.has_ac + block * 8);
    const bool is_flat = (uneven.word[0] | uneven.word[1]) == 0;
    // Row 8 is the ninth, which stands for all rows of a flat block.
    const Words4 w = Load4(s.values + block * kStride + (is_flat ? 8 : row) * 8);
    int32_t v[8], out[8];
    for (int x = 0; x < 8; x++) v[x] = static_cast<int16_t>(w.word[x / 2] >> 16 * (x % 2));
    IdctRow(v, out);
    Words2 samples;
    for (int k = 0; k < 2; k++)
      samples.word[k] = static_cast<uint32_t>(out[4 * k] | out[4 * k + 1] << 8 | out[4 * k + 2] << 16) |
                        static_cast<uint32_t>(out[4 * k + 3]) << 24;
    Store2(s.plane + s.place[first_block + block] + row * s.columns * 8, samples);
  }
};

// --- planes to pixels ---------------------------------------------------------------------------------------------

// A component's samples in the working memory, as upsampling reads them. They end where the component does, without
// the samples that fill up its last blocks.
JAXDALI_HD inline Plane PlaneOf(const Shard& shard, const Component& c) {
  const int32_t end_y = 8 * c.y1 < c.height ? 8 * c.y1 : c.height, end_x = 8 * c.x1 < c.width ? 8 * c.x1 : c.width;
  Plane p;
  p.data = shard.At<const uint8_t>(c.plane);
  p.pitch = 8 * c.columns();
  p.begin_y = 8 * c.y0;
  p.end_y = end_y;
  p.begin_x = 8 * c.x0;
  p.end_x = end_x;
  p.expand_x = c.expand_x;
  p.expand_y = c.expand_y;
  p.mode = c.upsampling;
  return p;
}

// Fills part number `part` of the description of tile `number` of image i. Parts 0 to 3 are the planes, part 4 is the
// way from them to the output's channels, part 5 is the tile's place in image and output. Different threads make the
// parts, because this is much of a block's sequential work.
inline constexpr int kTileParts = kMaxComponents + 2;
JAXDALI_HD inline void MakeTile(const DecodeBatch& b, const ImageTable& table, const Shard& shard, int i,
                                int32_t number, int part, Tile* t) {
  const bool is_ycc = table.color == ColorTransform::kYcc || table.color == ColorTransform::kInvertedYcck;
  const bool is_bgr = b.type == ImageType::kBgr;
  const int channels = OutputChannels(b.info[i], b.type);
  const int planes = table.color == ColorTransform::kYcc && channels == 1 ? 1 : table.components;
  if (part < kMaxComponents) {
    // RGB takes the planes in the order Cr, Cb (numbers 2 and 1) for YCbCr, or as they are. BGR reverses the order.
    const int other_plane = is_ycc ? 3 - part : 2 - part;
    const bool takes_other = part < 3 && planes > 1 && (is_ycc ? part > 0 && !is_bgr : is_bgr);
    if (part < planes) t->plane[part] = PlaneOf(shard, table.component[takes_other ? other_plane : part]);
  } else if (part == kMaxComponents) {
    t->channels = channels;
    t->weights = ColorWeights::Make(is_bgr);
    if (planes == 1)
      t->source = channels == 1 ? Source::kOnePlane : Source::kGrayToThree;
    else
      t->source = is_ycc ? Source::kYcc : Source::kThreePlanes;
    t->inks = planes < 4 ? Inks::kNone : table.color == ColorTransform::kCmyk ? Inks::kPlain : Inks::kInverted;
    t->finish = Finish::kNone;
    if (b.type == ImageType::kYcbcr) t->finish = Finish::kYcbcr;
    if (channels == 1 && planes > 1) t->finish = Finish::kGray;
    t->by_groups =
        t->source != Source::kThreePlanes && t->inks == Inks::kNone && t->finish == Finish::kNone &&
        table.component[0].upsampling == Upsampling::kFull &&
        (planes == 1 || (HasGroups(table.component[1].upsampling) && HasGroups(table.component[2].upsampling)));
  } else {
    const int32_t columns = table.tile_columns();
    const int32_t y = table.region_y / kGroupHeight * kGroupHeight + number / columns * kTileHeight;
    const int32_t x = table.region_x / kGroupWidth * kGroupWidth + number % columns * kTileWidth;
    const int32_t end_y = table.region_y + table.region_h - y, end_x = table.region_x + table.region_w - x;
    const int32_t begin_y = y < table.region_y ? table.region_y - y : 0;
    const int32_t begin_x = x < table.region_x ? table.region_x - x : 0;
    const Orientation orientation(b.adjust_orientation ? b.info[i].orientation : 1);
    const Placement place(orientation, table.region_h, table.region_w);
    t->y = y;
    t->x = x;
    t->begin_y = begin_y;
    t->begin_x = begin_x;
    t->end_y = end_y < kTileHeight ? end_y : kTileHeight;
    t->end_x = end_x < kTileWidth ? end_x : kTileWidth;
    t->out = b.out.bytes(i);
    t->dtype = b.out.dtype;
    t->transpose = orientation.transpose;
    t->upright = place.upright() && !orientation.transpose;
    t->step_y = place.step_y;
    t->step_x = place.step_x;
    t->first =
        place.start + (y + begin_y - table.region_y) * place.step_y + (x + begin_x - table.region_x) * place.step_x;
  }
}

// A unit is a tile. Each thread makes one group of its pixels, then each warp stores lines of it.
struct PixelKernel {
  DecodeBatch batch;
  Shard shard;
  int32_t grid;  // blocks of the launch

  static constexpr int kBlocksPerSm = 5;
  static constexpr int kGroupsAcross = kTileWidth / kGroupWidth;
  // Rows are multiples of 8 bytes and begin at different banks. Reads beyond a row's end stay inside the buffer.
  static constexpr int kRowBytes = 3 * kTileWidth + 8;
  static_assert(kGroupWidth == 8 && kGroupHeight == 2, "as FillGroup has them");
  static_assert(kGroupsAcross * (kTileHeight / kGroupHeight) == kThreads, "a group for each thread");

  struct Shared {
    int32_t slot;  // the image
    bool is_active;
    Tile tile;
    // The tile's pixels, with the output's channels.
    alignas(16) uint8_t rows[kTileHeight * kRowBytes];
  };

  // One CUDA block: every `grid`th tile of all images.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = shard.Total(Work::kPixels);
    for (int32_t unit = block.index; unit < total; unit += grid) {
      shard.FindSlot(block, Work::kPixels, unit, &s.slot);
      // The first thread of each warp makes a part of the tile's description, one more asks for the status.
      block.Phase([&](int thread) {
        const int part = thread / 32;
        if (thread % 32 != 0 || part > kTileParts) return;
        if (part == kTileParts)
          s.is_active = shard.Active(s.slot);
        else
          MakeTile(batch, shard.tables[s.slot], shard, s.slot, unit - shard.Firsts(Work::kPixels)[s.slot], part,
                   &s.tile);
      });
      if (!s.is_active) continue;
      block.Phase([&](int thread) { Fill(thread, &s); });
      block.Phase([&](int thread) {
        StoreTile(s.tile, s.rows, kRowBytes, /*warp=*/thread / 32, /*warps=*/kThreads / 32, /*lane=*/thread % 32,
                  /*lanes=*/32);
      });
    }
  }

 private:
  // Makes a thread's group of pixels in shared memory, if the group has pixels of the region.
  JAXDALI_HD static void Fill(int thread, Shared* s) {
    const Tile& t = s->tile;
    const int32_t x = thread % kGroupsAcross * kGroupWidth, y = thread / kGroupsAcross * kGroupHeight;
    if (x >= t.end_x || x + kGroupWidth <= t.begin_x || y >= t.end_y || y + kGroupHeight <= t.begin_y) return;
    uint8_t* pixels = s->rows + y * kRowBytes + x * t.channels;
    // The usual case: eight by two pixels at once. Pixels outside of the region are made too, but not stored.
    if (t.by_groups) return FillGroup(t, t.y + y, t.x + x, pixels, kRowBytes);
    const int32_t left = x < t.begin_x ? t.begin_x : x, right = x + kGroupWidth < t.end_x ? x + kGroupWidth : t.end_x;
    const int32_t top = y < t.begin_y ? t.begin_y : y, bottom = y + kGroupHeight < t.end_y ? y + kGroupHeight : t.end_y;
    for (int32_t row = top; row < bottom; row++)
      for (int32_t column = left; column < right; column++)
        FillPixel(t, t.y + row, t.x + column, pixels + (row - y) * kRowBytes + (column - x) * t.channels);
  }
};

// --- finished pixels ----------------------------------------------------------------------------------------------

// `chunks` blocks copy each sample that is to be copied.
struct CopyKernel {
  DecodeBatch batch;
  Samples samples;
  int32_t chunks;

  struct Shared {
    const uint8_t* source;
    uint8_t* destination;
    int64_t bytes, word_bytes;  // all bytes, and those that fill 16-byte words
  };

  // CUDA block b: every `chunks`th piece of sample b / chunks. First in words of 16 bytes, then the bytes that are
  // left.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    block.Phase([&](int thread) {
      if (thread == 0) BeginCopy(block.index / chunks, &s);
    });
    block.Phase([&](int thread) {
      const int64_t first = static_cast<int64_t>(block.index % chunks) * kThreads + thread;
      const int64_t step = static_cast<int64_t>(chunks) * kThreads;
      for (int64_t i = 16 * first; i < s.word_bytes; i += 16 * step) Store4(s.destination + i, Load4(s.source + i));
      for (int64_t i = s.word_bytes + first; i < s.bytes; i += step) s.destination[i] = s.source[i];
    });
  }

 private:
  // Finds the source and destination of a sample, if it is one that is only copied.
  JAXDALI_HD void BeginCopy(int i, Shared* s) const {
    s->bytes = s->word_bytes = 0;
    if (!samples.present[i] || samples.status[i] != kOk || !IsFinished(batch.info[i])) return;
    s->source = batch.in.sample<const uint8_t>(i);
    s->destination = batch.out.bytes(i);
    s->bytes = batch.in.size(i);
    // Words need both addresses aligned; other samples are copied byte by byte.
    if (((reinterpret_cast<uintptr_t>(s->source) | reinterpret_cast<uintptr_t>(s->destination)) & 15) == 0)
      s->word_bytes = s->bytes & ~int64_t{15};
  }
};

// Launches the kernels that follow the inverse DCT. Returns null or an error message.
inline const char* LaunchPixels(const DecodeBatch& b, const Shard& shard, void* stream) {
  if (b.out.dtype == DType::kU64 || b.out.dtype == DType::kI64 || b.out.dtype == DType::kBool)
    return "decode: element type";
  // As many blocks as there are units of work in an output of this capacity. If there is more, each block does several.
  const int64_t n = b.out.n, tile = kTileWidth * kTileHeight * (b.type == ImageType::kGray ? 1 : 3);
  const int64_t tiles = std::min<int64_t>(b.out.capacity / tile + n, 1 << 24);
  // A copy has about 64 KB for each block.
  const int64_t chunks = std::clamp<int64_t>(b.out.capacity / n * SizeOf(b.out.dtype) / 65536, 1, 64);
  const PixelKernel pixels{b, shard, static_cast<int32_t>(tiles)};
  if (const char* error = LaunchBlocks(pixels, tiles, stream)) return error;
  return LaunchBlocks(CopyKernel{b, shard.samples, static_cast<int32_t>(chunks)}, n * chunks, stream);
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_RASTER_H_
