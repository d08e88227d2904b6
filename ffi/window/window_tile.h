// A window of an image that another CUDA kernel makes tile by tile. That kernel makes the pixels of the window alone,
// in the window's order, and the window writes them. There is no image in memory. See ffi/chain/chain.cu.
#ifndef JAXDALI_FFI_WINDOW_WINDOW_TILE_H_
#define JAXDALI_FFI_WINDOW_WINDOW_TILE_H_

#include "ffi/common/convert.h"
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/window/window.h"

namespace jaxdali {

// Row and column of item k, if rows have n items: k / n and k % n for k < 2^16, by a multiplication with
// `inverse`, 1 / n. The half keeps the product away from whole numbers, so that rounding errors of the float do no
// harm.
struct TileItem {
  int row, column;
  JAXDALI_HD TileItem(int k, int n, float inverse) {
    row = static_cast<int>((static_cast<float>(k) + 0.5f) * inverse);
    column = k - row * n;
  }
};

// In place of a window: the image itself.
struct WholeImage {
  JAXDALI_HD static int64_t At(int /*axis*/, int64_t index) { return index; }
  JAXDALI_HD static int Step(int /*axis*/) { return 1; }
  struct Lines {};
};

// A window of one image HWC, inside of it.
struct TileWindow {
  uint8_t* out;
  DType type;
  int32_t start[3], step[3], extent[3];                       // as in WindowBatch
  float scale[kMostTileChannels], offset[kMostTileChannels];  // by channel of the window
  bool scales, planar;                                        // planar: CHW, otherwise HWC

  // Whether the kernel supports the window: HWC or CHW of an image, without fill, to bytes or floats.
  static bool Supports(const WindowBatch& b) {
    const int* p = b.permutation;
    const bool order =
        b.in.ndim == 3 && ((p[0] == 0 && p[1] == 1 && p[2] == 2) || (p[0] == 2 && p[1] == 0 && p[2] == 1));
    const DType t = b.out.dtype;
    return order && b.fills == 0 && b.channel == 2 &&
           (t == DType::kU8 || t == DType::kF16 || t == DType::kBF16 || t == DType::kF32);
  }

  // Makes it the window of sample i. kInternal: the image or the window has too many channels.
  JAXDALI_HD Status Set(const WindowBatch& b, int i) {
    WindowArgs a;
    if (Status s = b.Sample(i, &a); s != kOk) return s;
    if (b.in.dim(i, 2) > kMostTileChannels) return kInternal;
    out = a.out;
    type = b.out.dtype;
    scales = b.scales > 0;
    planar = b.permutation[0] == 2;
    for (int d = 0; d < 3; d++) {
      const int64_t entry = int64_t{3} * i + d;
      start[d] = b.start[entry];
      extent[d] = b.extent[entry];
      step[d] = extent[d] > 1 ? b.step[entry] : 1;  // the step of a single index has no effect; KeepsChannels wants 1
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

  // Lines of the output from pixel (x, y) on: the distances to the next line and channel are in bytes.
  struct Lines {
    uint8_t* first;
    int64_t pitch, plane;
  };
  JAXDALI_HD Lines Below(const Lines& lines, int rows) const {
    return {lines.first + rows * lines.pitch, lines.pitch, lines.plane};
  }
  // The lines of the output from pixel (x, y) of the window on.
  JAXDALI_HD Lines LinesAt(int64_t x, int64_t y) const {
    const int64_t pixel = SizeOf(type) * (planar ? 1 : extent[2]), pitch = extent[1] * pixel;
    return {out + y * pitch + x * pixel, pitch, extent[0] * pitch};
  }

  // Writes a tile of the window, whose first pixel is (x, y): get(row, column, channel) is an element of the image. A
  // row has at most kThreads elements. A thread writes elements of one column and channel.
  template <class Get>
  JAXDALI_HD void Write(int thread, int64_t x, int64_t y, int columns, int rows, Get get) const {
    const int channels = extent[2], width = columns * channels, at_once = kThreads / width;
    const TileItem line(thread, width, 1 / static_cast<float>(width));
    if (line.row >= at_once) return;
    const int inner = planar ? columns : channels;  // neighbouring threads write neighbouring elements
    const TileItem item(line.column, inner, 1 / static_cast<float>(inner));
    const int column = planar ? item.column : item.row, channel = planar ? item.row : item.column;
    WithColumn(LinesAt(x, y + line.row), at_once, column, channel, [&](auto to) {
      JAXDALI_UNROLL_BY(4)
      for (int row = line.row; row < rows; row += at_once) to.Put(get(row, column, channel));
    });
  }

  // Writes the first rows, at most kMost, of a column of a tile, in one channel: get(row) is an element of the image.
  template <int kMost, class Get>
  JAXDALI_HD void WriteColumn(const Lines& lines, int column, int channel, int rows, Get get) const {
    WithColumn(lines, /*step=*/1, column, channel, [&](auto to) {
      JAXDALI_UNROLL
      for (int row = 0; row < kMost; row++) {
        if (row >= rows) return;
        to.Put(get(row));
      }
    });
  }

 private:
  // Elements of the output below each other. They have one scale and offset, which are in registers.
  template <class T>
  struct Column {
    uint8_t* to;
    int64_t step;  // bytes from one to the next
    bool scales;
    float scale, offset;

    template <class V>
    JAXDALI_HD void Put(V of_image) {
      *reinterpret_cast<T*>(to) = Element(of_image);
      to += step;
    }
    // The window's element that is made from an element of the image.
    template <class V>
    JAXDALI_HD T Element(V of_image) const {
      if constexpr (std::is_same_v<T, V>)
        if (!scales) return of_image;
      float v = Value(of_image);
      if (scales) v = v * scale + offset;
      return ConvertTo<T>(v);
    }
    JAXDALI_HD static float Value(float v) { return v; }
    JAXDALI_HD static float Value(uint8_t v) {       // conversions of integers are slow on a GPU
      return AsFloat(0x4B000000u | v) - 8388608.0f;  // 0x4B000000 is the float 2^23, whose mantissa counts in ones
    }
  };
  // Calls f with a Column, whose elements are `step` lines apart.
  template <class F>
  JAXDALI_HD void WithColumn(const Lines& lines, int step, int column, int channel, F f) const {
    uint8_t* const to = lines.first + (planar ? channel * lines.plane : 0);
    const int element = planar ? column : column * extent[2] + channel;
    auto with_type = [&](auto t) {
      using T = decltype(t);
      f(Column<T>{to + element * static_cast<int>(sizeof(T)), step * lines.pitch, scales, scale[channel],
                  offset[channel]});
    };
    switch (type) {
      case DType::kU8:
        return with_type(uint8_t{});
      case DType::kF16:
        return with_type(Half{});
      case DType::kBF16:
        return with_type(BFloat16{});
      default:
        return with_type(float{});
    }
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
