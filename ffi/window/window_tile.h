// A window of an image that another CUDA kernel makes tile by tile. That kernel makes the pixels of the window alone,
// in the window's order, and the window writes them. There is no image in memory. See ffi/chain/chain.cu.
#ifndef JAXDALI_FFI_WINDOW_WINDOW_TILE_H_
#define JAXDALI_FFI_WINDOW_WINDOW_TILE_H_

#include "ffi/common/convert.h"
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/window/window.h"

namespace jaxdali {

// Item k of several rows of n items, k < 2^16. Cheaper than a division.
struct TileItem {
  int row, at;
  JAXDALI_HD TileItem(int k, int n, float inverse) {
    row = static_cast<int>((static_cast<float>(k) + 0.5f) * inverse);
    at = k - row * n;
  }
};

// In place of a window: the image itself.
struct WholeImage {
  JAXDALI_HD static int64_t At(int /*axis*/, int64_t index) { return index; }
  JAXDALI_HD static int Step(int /*axis*/) { return 1; }
};

// A window of one image HWC, inside of it.
struct TileWindow {
  uint8_t* out;
  DType type;
  int32_t start[3], step[3], extent[3];                       // as in WindowBatch
  float scale[kMostTileChannels], offset[kMostTileChannels];  // by channel of the window
  bool scales, planar;                                        // planar: CHW, otherwise HWC

  // What the kernel supports.
  static bool Supports(const WindowBatch& b) {
    const int* p = b.permutation;
    const bool order =
        b.in.ndim == 3 && ((p[0] == 0 && p[1] == 1 && p[2] == 2) || (p[0] == 2 && p[1] == 0 && p[2] == 1));
    const DType t = b.out.dtype;
    return order && b.fills == 0 && b.channel == 2 &&
           (t == DType::kU8 || t == DType::kF16 || t == DType::kBF16 || t == DType::kF32);
  }

  JAXDALI_HD Status Set(const WindowBatch& b, int i) {
    WindowArgs a;
    if (Status s = b.Sample(i, &a); s != kOk) return s;
    if (b.in.dim(i, 2) > kMostTileChannels) return kInternal;
    out = a.out;
    type = b.out.dtype;
    scales = b.scales > 0;
    planar = b.permutation[0] == 2;
    for (int d = 0; d < 3; d++) {
      const int64_t at = int64_t{3} * i + d;
      start[d] = b.start[at];
      extent[d] = b.extent[at];
      step[d] = extent[d] > 1 ? b.step[at] : 1;
    }
    if (extent[2] > kMostTileChannels) return kInternal;
    for (int c = 0; c < kMostTileChannels; c++) {
      const int64_t channel = start[2] + c * step[2];
      scale[c] = scales ? WindowArgs::Pick(a.scale, b.scales, channel) : 1;
      offset[c] = scales ? WindowArgs::Pick(a.offset, b.scales, channel) : 0;
    }
    return kOk;
  }

  // The image's index of an index of the window.
  JAXDALI_HD int64_t At(int axis, int64_t index) const { return start[axis] + index * step[axis]; }
  JAXDALI_HD int Step(int axis) const { return step[axis]; }
  // Whether pixels have all channels of the image, in their order.
  JAXDALI_HD bool KeepsChannels(int64_t channels) const {
    return start[2] == 0 && step[2] == 1 && extent[2] == channels;
  }

  // Writes a tile of the window, whose first pixel is (x, y): get(row, column, channel) is an element of the image.
  template <class Get>
  JAXDALI_HD void Write(int thread, int64_t x, int64_t y, int columns, int rows, Get get) const {
    switch (type) {
      case DType::kU8:
        return WriteAs<uint8_t>(thread, x, y, columns, rows, get);
      case DType::kF16:
        return WriteAs<Half>(thread, x, y, columns, rows, get);
      case DType::kBF16:
        return WriteAs<BFloat16>(thread, x, y, columns, rows, get);
      default:
        return WriteAs<float>(thread, x, y, columns, rows, get);
    }
  }

 private:
  // An item is a few words of a line, which neighbouring threads write together. What they share is computed once.
  template <class T, class Get>
  JAXDALI_HD void WriteAs(int thread, int64_t x, int64_t y, int columns, int rows, Get get) const {
    constexpr int kWords = 4;
    const int channels = extent[2], lines = planar ? rows * channels : rows,
              in_line = planar ? columns : columns * channels;
    const int items = (WordsOf<T>(in_line) + kWords - 1) / kWords;
    const float inverse = 1 / static_cast<float>(items), per_channel = 1 / static_cast<float>(channels);
    for (int k = thread; k < lines * items; k += kThreads) {
      const TileItem item(k, items, inverse);
      if (planar) {  // a line is of one channel
        int row = item.row, c = 0;
        for (; row >= rows; row -= rows) c++;
        T* line = reinterpret_cast<T*>(out) + ((int64_t{c} * extent[0] + y + row) * extent[1] + x);
        JAXDALI_UNROLL
        for (int w = 0; w < kWords; w++)
          WriteElements(line, in_line, item.at + w * items, [&](int e) { return Element<T>(get(row, e, c), c); });
      } else {
        T* line = reinterpret_cast<T*>(out) + ((y + item.row) * extent[1] + x) * channels;
        JAXDALI_UNROLL
        for (int w = 0; w < kWords; w++)
          WriteElements(line, in_line, item.at + w * items, [&](int e) {
            const TileItem pixel(e, channels, per_channel);
            return Element<T>(get(item.row, pixel.row, pixel.at), pixel.at);
          });
      }
    }
  }

  template <class T, class V>
  JAXDALI_HD T Element(V of_image, int channel) const {
    float v = static_cast<float>(of_image);
    if (scales) v = v * scale[channel] + offset[channel];
    return ConvertTo<T>(v);
  }
};

// The operands of a kernel B whose images are in memory. Those of the others: ffi/chain/windowed.h.
template <class B>
struct Whole : B {
  using Window = WholeImage;
  JAXDALI_HD const B& image() const { return *this; }
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WINDOW_WINDOW_TILE_H_
