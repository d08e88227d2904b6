// Warps of images of three bytes a pixel on CUDA, tile by tile.
//
// The source pixels of a tile lie in a rectangle that is little larger than the tile. A block copies them to shared
// memory, one word each, together with the fill outside the image. After that no pixel needs a bounds check. A row of a
// tile begins at a word of memory, up to three pixels before the tile's column.
#ifndef JAXDALI_FFI_WARP_WARP_TILE_H_
#define JAXDALI_FFI_WARP_WARP_TILE_H_

#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window_tile.h"

namespace jaxdali {

// Two 16-bit weights times two bytes of `pairs`, the lower or the upper ones, plus `sum`.
template <int kHalf>
JAXDALI_HD inline uint32_t WeighPair(uint32_t weights, uint32_t pairs, uint32_t sum) {
#if defined(__CUDA_ARCH__)
  return kHalf ? __dp2a_hi(weights, pairs, sum) : __dp2a_lo(weights, pairs, sum);
#else
  const uint32_t pair = kHalf ? pairs >> 16 : pairs & 0xFFFF;
  return sum + (weights & 0xFFFF) * (pair & 255) + (weights >> 16) * (pair >> 8);
#endif
}

// The plan of a sample.
template <class Window>
struct WarpTilePlan {
  static constexpr bool kWhole = std::is_same_v<Window, WholeImage>;
  static constexpr int kLines = 32, kLanes = kThreads / kLines;  // a line of output pixels has eight threads
  static constexpr int kWide = 64, kNarrow = 32;                 // columns
  static constexpr int kBefore = 3;                              // pixels by which a row may begin before its tile
  static constexpr int kSide = 88;  // source pixels in each direction; 8 columns of 4 rows are in different banks
  static constexpr int kGroup = 4;  // source pixels that a thread reads together: 12 bytes
  static_assert(kThreads % kLines == 0 && kSide % kGroup == 0);

  // Fixed point, kOnePixel for a pixel. The first index is the axis of the source, the second one that of the output; 0
  // is x, 1 is y.
  int64_t map[2][2];          // steps of the source point from an output pixel to the next: WarpArgs::map
  int64_t least[2], most[2];  // range of the source points of a tile's pixels, relative to its first one
  int32_t columns;            // of a tile
  int32_t lead;  // pixels by which rows may begin before their tile: kBefore, or 0 if all output rows begin with a word
  int32_t out_row, in_row;  // bytes of a row
  int32_t width;            // of the source
  uint32_t safe_rows;       // source rows in which the words of a group are inside the buffer
  uint32_t fill;            // a pixel of three equal bytes
  int32_t across;           // tiles in a row
  bool fits;                // false: the rectangles are too large, or pixels do not have three bytes

  // Makes the plan of sample i of batch `in`. Its `fits` says whether the sample can be made by these tiles.
  JAXDALI_HD static WarpTilePlan Of(const WarpArgs& a, const Batch& in, int i) {
    WarpTilePlan p{};
    constexpr int64_t kMost = int64_t{1} << 31;  // limit of 32-bit counters
    const int64_t row = a.in_size[0] * 3, frame = a.in_size[1] * row;
    if (a.channels != 3 || frame >= kMost || a.out_size[0] * 3 * kLines >= kMost) return p;
    const bool by_words = a.out_size[0] % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 4 == 0;
    p.lead = !kWhole || by_words ? 0 : kBefore;
    p.fits = SetColumns(a, kWide, &p) || SetColumns(a, kNarrow, &p);
    if (!p.fits) return p;
    p.across = static_cast<int32_t>((a.out_size[0] + p.lead + p.columns - 1) / p.columns);
    p.width = static_cast<int32_t>(a.in_size[0]);
    p.in_row = static_cast<int32_t>(row);
    p.out_row = static_cast<int32_t>(a.out_size[0] * 3);
    p.fill = ConvertTo<uint8_t>(a.fill) * 0x010101u;
    // A group of pixels is read by whole words, which may reach 4 bytes beyond it. Only in the last frame these may lie
    // outside the buffer: its first `safe_bytes` bytes have four more behind them.
    const int64_t safe_bytes = in.capacity - in.start(i) - (a.frames - 1) * frame - 4;
    if (p.width >= kGroup && safe_bytes > 0)
      p.safe_rows = static_cast<uint32_t>(safe_bytes < frame ? safe_bytes / row : a.in_size[1]);
    return p;
  }

 private:
  // Sets the members that depend on the columns of a tile. False: the rectangles of such tiles are too large.
  JAXDALI_HD static bool SetColumns(const WarpArgs& a, int columns, WarpTilePlan* p) {
    p->columns = columns;
    const int across = p->lead + columns - 1, down = kLines - 1;
    for (int axis = 0; axis < 2; axis++) {
      const int64_t x = a.map[axis][0], y = a.map[axis][1];
      // With such steps two neighbouring pixels are too far apart already.
      if (x <= -kSide * kOnePixel || x >= kSide * kOnePixel || y <= -kSide * kOnePixel || y >= kSide * kOnePixel)
        return false;
      p->map[axis][0] = x;
      p->map[axis][1] = y;
      p->least[axis] = (x < 0 ? across * x : 0) + (y < 0 ? down * y : 0);
      p->most[axis] = (x < 0 ? 0 : across * x) + (y < 0 ? 0 : down * y);
      // The largest extent that Find computes, with the second neighbour and both ends rounded.
      if (((p->most[axis] - p->least[axis]) >> 32) + 3 > kSide) return false;
    }
    return true;
  }
};

template <class Window, bool kLinear>
struct WarpTiles {
  using Plan = WarpTilePlan<Window>;
  static constexpr bool kWhole = Plan::kWhole;
  static constexpr int kLines = Plan::kLines, kLanes = Plan::kLanes, kWide = Plan::kWide, kNarrow = Plan::kNarrow,
                       kSide = Plan::kSide, kGroup = Plan::kGroup;
  static constexpr int kRowBytes = 224;  // in shared memory, also without bank conflicts
  static constexpr int kBatch = 32;      // tiles that are planned together
  static_assert(kRowBytes >= 3 * kWide);

  // Aligned, because members that are read together lie in the same 16 bytes.
  struct alignas(16) Tile {
    int64_t pos[2];              // source point of the pixel `lead` its first, relative to the rectangle's first pixel
    uint8_t* out;                // the first pixel
    int32_t lines, columns;      // from the first pixel to the image's end
    const uint8_t* in;           // the frame
    int32_t first[2];            // the rectangle's first pixel
    int32_t groups, all_groups;  // of the rectangle: per row, and in total
    uint32_t per_group;          // 2^16 / groups
    bool leftmost;
    bool whole;  // all rows consist of whole words
  };
  struct Shared {
    Tile tiles[kBatch];
    alignas(16) uint32_t pixels[kSide * kSide];
    alignas(16) uint8_t out[kLines][kRowBytes];
  };

  const WarpArgs& a;
  const Plan& plan;
  const Window& window;
  Shared& s;

  // Makes tiles `first` to `end - 1` of the sample. While the pixels of a tile are read, those of the tile before are
  // written, so that both wait for memory at the same time.
  template <class Block>
  JAXDALI_HD void Make(const Block& block, int64_t first, int64_t end) const {
    for (; first < end; first += kBatch) {
      const int n = static_cast<int>(end - first < kBatch ? end - first : kBatch);
      block.Phase([&](int thread) {
        if (thread < n) s.tiles[thread] = Find(first + thread);
      });
      for (int k = 0; k < n; k++) {
        block.Phase([&](int thread) {
          if (k > 0) Write(s.tiles[k - 1], thread);
          Read(s.tiles[k], thread);
        });
        block.Phase([&](int thread) { Blend(s.tiles[k], thread); });
      }
      block.Phase([&](int thread) { Write(s.tiles[n - 1], thread); });
    }
  }

 private:
  // Describes tile k: its rectangle in the source, and its place in the output.
  JAXDALI_HD Tile Find(int64_t k) const {
    const Quotient row = Divide(k, plan.across), frame = Divide(row.quotient, (a.out_size[1] + kLines - 1) / kLines);
    const int64_t x = row.rest * plan.columns, y = frame.rest * kLines;
    Tile t;
    int32_t extent[2];
    for (int axis = 0; axis < 2; axis++) {
      // For linear interpolation, source points are relative to the centre of the first source pixel. They are rounded
      // to the weights' unit here, once for all pixels. If this leads to the next source pixel, that pixel has all of
      // the weight anyway.
      t.pos[axis] = a.map[axis][3] + y * a.map[axis][1] + (x - plan.lead) * a.map[axis][0];
      if constexpr (kLinear) t.pos[axis] += (kOnePixel >> (kWeightBits + 1)) - kOnePixel / 2;
      t.first[axis] = static_cast<int32_t>((t.pos[axis] + plan.least[axis]) >> 32);
      extent[axis] = static_cast<int32_t>((t.pos[axis] + plan.most[axis]) >> 32) + 2 - t.first[axis];
      t.pos[axis] -= t.first[axis] * kOnePixel;
    }
    t.in = static_cast<const uint8_t*>(a.in) + frame.quotient * a.in_size[1] * plan.in_row;
    t.out = static_cast<uint8_t*>(a.out) + (frame.quotient * a.out_size[1] + y) * plan.out_row + x * 3;
    t.groups = (extent[0] + kGroup - 1) / kGroup;
    t.all_groups = t.groups * extent[1];
    t.per_group = 65536 / static_cast<uint32_t>(t.groups) + 1;
    t.columns = static_cast<int32_t>(a.out_size[0] - x);
    t.lines = static_cast<int32_t>(a.out_size[1] - y);
    t.leftmost = x == 0;
    t.whole = (x > 0 || plan.lead == 0) && t.columns >= plan.columns;
    return t;
  }

  // Reads the pixels of the rectangle from memory.
  JAXDALI_HD void Read(const Tile& tile, int thread) const {
    const Tile t = tile;
    const uint32_t safe_rows = plan.safe_rows, last = static_cast<uint32_t>(plan.width - kGroup);
    const int in_row = plan.in_row;
    for (int item = thread; item < t.all_groups; item += kThreads) {
      const int row = static_cast<int>(static_cast<uint32_t>(item) * t.per_group >> 16);  // item / t.groups
      const int column = (item - row * t.groups) * kGroup, x = t.first[0] + column, y = t.first[1] + row;
      uint32_t pixels[kGroup];
      if (static_cast<uint32_t>(y) < safe_rows && static_cast<uint32_t>(x) <= last) {
        const uint8_t* p = t.in + (y * in_row + x * 3);
        const int offset_in_word = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3), shift = 8 * offset_in_word;
        p -= offset_in_word;
        const uint32_t word0 = ReadWord(p), word1 = ReadWord(p + 4), word2 = ReadWord(p + 8), word3 = ReadWord(p + 12);
        // The group's 12 bytes are the words pixels[0], `middle` and `high`; pixel k begins with byte 3 * k of them.
        // The highest byte of a pixel's word is not used.
        const uint32_t middle = Funnel(word1, word2, shift), high = Funnel(word2, word3, shift);
        pixels[0] = Funnel(word0, word1, shift);
        pixels[1] = Funnel(pixels[0], middle, 24);
        pixels[2] = Funnel(middle, high, 16);
        pixels[3] = high >> 8;
      } else {
        for (int k = 0; k < kGroup; k++) pixels[k] = Pixel(t.in, x + k, y);
      }
      WriteWords(reinterpret_cast<uint8_t*>(s.pixels + row * kSide + column), pixels);
    }
  }

  // A pixel at any position: the fill, or the nearest pixel, if it is outside the image.
  JAXDALI_HD uint32_t Pixel(const uint8_t* in, int x, int y) const {
    const int right = plan.width - 1, bottom = static_cast<int>(a.in_size[1]) - 1;
    if (a.has_fill && (x < 0 || x > right || y < 0 || y > bottom)) return plan.fill;
    x = x < 0 ? 0 : x > right ? right : x;
    y = y < 0 ? 0 : y > bottom ? bottom : y;
    const uint8_t* p = in + (y * plan.in_row + x * 3);
    return static_cast<uint32_t>(p[0] | p[1] << 8 | p[2] << 16);
  }

  // Pixels by which a row begins before its tile, so that it begins at a word. A pixel has 3 bytes, so an address that
  // is k bytes beyond a word needs 3 * k pixels modulo 4.
  JAXDALI_HD static int Before(const Tile& t, int row) {
    if constexpr (!kWhole) return 0;
    return static_cast<int>(
        (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(t.out)) + static_cast<uint32_t>(row)) * 3 & 3);
  }

  // Makes output pixels from those of the rectangle. A warp works on 8 x 4 at a time.
  JAXDALI_HD void Blend(const Tile& t, int thread) const {
    const int line = thread / kLanes, column = thread % kLanes;
    if (line >= t.lines) return;
    const uint32_t x = static_cast<uint32_t>(column + plan.lead - Before(t, line * plan.out_row));
    const int64_t down_x = plan.map[0][1], down_y = plan.map[1][1], step_x = plan.map[0][0], step_y = plan.map[1][0];
    int64_t pos_x = t.pos[0] + static_cast<uint32_t>(line) * down_x + x * step_x;
    int64_t pos_y = t.pos[1] + static_cast<uint32_t>(line) * down_y + x * step_y;
    uint8_t* out = s.out[line] + 3 * column;
    constexpr int kAtOnce = kNarrow / kLanes;
    JAXDALI_UNROLL_BY(1)
    for (int done = 0; done < plan.columns; done += kNarrow) {
      JAXDALI_UNROLL
      for (int k = 0; k < kAtOnce; k++) {
        const uint32_t* p = s.pixels + static_cast<uint32_t>(pos_y >> 32) * kSide;
        p += static_cast<uint32_t>(pos_x >> 32);
        uint8_t* pixel = out + 3 * kLanes * k;
        [[maybe_unused]] const uint32_t fraction_x = static_cast<uint32_t>(pos_x),
                                        fraction_y = static_cast<uint32_t>(pos_y);
        pos_x += kLanes * step_x;
        pos_y += kLanes * step_y;
        if constexpr (!kLinear) {
          for (int c = 0; c < 3; c++) pixel[c] = static_cast<uint8_t>(*p >> (8 * c));
          continue;
        }
        const uint32_t upper[] = {p[0], p[1]}, lower[] = {p[kSide], p[kSide + 1]};
        // Like Weights(), two in a word: bottom = w2 + w3 * 2^16, top = w0 + w1 * 2^16. A product with 65535 is one
        // with 2^16, less the number: w2 = qy - w3, and w1 = qx - w3.
        constexpr uint32_t kOne = 1 << kWeightBits, kHalf = kOne / 2;
        const uint32_t qx = fraction_x >> (32 - kWeightBits), qy = fraction_y >> (32 - kWeightBits);
        const uint32_t bottom = ((qx * qy + kHalf) >> kWeightBits) * 65535 + qy, top = qx * 65535 + kOne - bottom;
        // Bytes of the left and the right pixel side by side: red and green in u and v, blue in u2 and v2.
        const uint32_t u = Permute(upper[0], upper[1], 0x5140), v = Permute(lower[0], lower[1], 0x5140);
        const uint32_t u2 = Permute(upper[0], upper[1], 0x0062), v2 = Permute(lower[0], lower[1], 0x0062);
        pixel[0] = static_cast<uint8_t>(WeighPair<0>(bottom, v, WeighPair<0>(top, u, kHalf)) >> kWeightBits);
        pixel[1] = static_cast<uint8_t>(WeighPair<1>(bottom, v, WeighPair<1>(top, u, kHalf)) >> kWeightBits);
        pixel[2] = static_cast<uint8_t>(WeighPair<0>(bottom, v2, WeighPair<0>(top, u2, kHalf)) >> kWeightBits);
      }
      out += 3 * kNarrow;
    }
  }

  // Writes a tile to the window. A function, so that its registers are not those of the passes.
  JAXDALI_NOINLINE JAXDALI_HD static void WriteWindow(int thread, const Tile& t, const WarpArgs& a, const Plan& plan,
                                                      const Window& window, const Shared& s) {
    const int columns = t.columns < plan.columns ? t.columns : plan.columns, rows = t.lines < kLines ? t.lines : kLines;
    window.Write(thread, a.out_size[0] - t.columns, a.out_size[1] - t.lines, columns, rows,
                 [&s](int line, int column, int channel) { return s.out[line][3 * column + channel]; });
  }

  // Writes output pixels to memory, in words except at the ends of the image's rows.
  JAXDALI_HD void Write(const Tile& t, int thread) const {
    if constexpr (!kWhole) return WriteWindow(thread, t, a, plan, window, s);
    // A thread writes words of one line, the first of them at byte `first`, the others kStep bytes apart.
    const int line = thread / kLanes, first = thread % kLanes * 4;
    if (line >= t.lines) return;
    const int row = line * plan.out_row, lead = Before(t, row) * 3;  // in bytes
    const uint8_t* from = s.out[line] + first;
    uint8_t* to = t.out + (row - lead + first);
    constexpr int kStep = 4 * kLanes;
    const int all = plan.columns * 3;
    if (t.whole) {
      JAXDALI_UNROLL_BY(1)
      for (int k = 0; k < all; k += 3 * kStep) {
        uint32_t words[3];
        for (int j = 0; j < 3; j++) std::memcpy(&words[j], __builtin_assume_aligned(from + k + j * kStep, 4), 4);
        for (int j = 0; j < 3; j++) WriteWord(to + k + j * kStep, words[j]);
      }
      return;
    }
    const int begin = (t.leftmost ? lead : 0) - first, end = t.columns * 3 + lead - first;
    JAXDALI_UNROLL_BY(1)
    for (int k = 0; k < all; k += kStep) {
      for (int b = k; b < k + 4; b++)
        if (b >= begin && b < end) to[b] = from[b];
    }
  }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WARP_WARP_TILE_H_
