// A tile of an image on its way from the planes to the output. A block of threads makes its pixels, with the output's
// channels, in shared memory. Then it stores them: in wide words if bytes can be copied, otherwise one by one,
// converted to the element type and moved to the place that the orientation gives.
#ifndef JAXDALI_FFI_CUDA_JPEG_TILE_H_
#define JAXDALI_FFI_CUDA_JPEG_TILE_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/words.h"
#include "ffi/cpu_codecs/pixels.h"
#include "ffi/cuda_jpeg/upsample.h"
#include "ffi/cuda_jpeg/words.h"
#include "ffi/decode/decode.h"
#include "ffi/jpeg/color.h"

namespace jaxdali::jpeg {

// The way from planes to the output's channels: Source first, then Inks, then Finish.
enum class Source : int32_t { kOnePlane, kGrayToThree, kYcc, kThreePlanes };
enum class Finish : int32_t { kNone, kGray, kYcbcr };
// Whether the planes are the inks cyan, magenta, yellow and black. kInverted: black, and inks that are not YCbCr, are
// inverted.
enum class Inks : int32_t { kNone, kPlain, kInverted };

struct Tile {
  // About the image. The planes are in the order of the output's channels, before black. kYcc: luminance, then the
  // chroma for the first and the third channel.
  Plane plane[kMaxComponents];
  ColorWeights weights;
  Source source;
  Inks inks;
  Finish finish;
  bool by_groups;  // FillGroup supports this image
  int32_t channels;
  // The tile's place. Its first pixel is (y, x) of the stored raster. Rows [begin_y, end_y) and columns [begin_x,
  // end_x), counted from there, belong to the region.
  int32_t y, x, begin_y, end_y, begin_x, end_x;
  // Its destination. The first of those pixels is number `first` in the output.
  void* out;
  DType dtype;
  bool transpose, upright;        // rows and columns change places; the image is not reoriented at all
  int64_t first, step_y, step_x;  // in pixels of the output: the steps are those from row to row, column to column
};

// --- making the pixels --------------------------------------------------------------------------------------------

// Eight pixels of a YCbCr image, in 24 bytes. Words i of the chroma are pixels i and i + 4.
JAXDALI_HD inline void ConvertGroup(const ColorWeights& weights, const Words2& luminance, const uint32_t (&first)[4],
                                    const uint32_t (&third)[4], Words2 (&to)[3]) {
  uint32_t packed[6];
  for (int half = 0; half < 2; half++) {
    uint32_t v[4][3];
    for (int i = 0; i < 4; i++)
      YccToChannels(weights, luminance.word[half] >> 8 * i & 0xFF, first[i] >> 16 * half & 0xFFFF,
                    third[i] >> 16 * half & 0xFFFF, v[i]);
    packed[3 * half] = PackChannels(v[0][0], v[0][1], v[0][2], v[1][0]);
    packed[3 * half + 1] = PackChannels(v[1][1], v[1][2], v[2][0], v[2][1]);
    packed[3 * half + 2] = PackChannels(v[2][2], v[3][0], v[3][1], v[3][2]);
  }
  for (int i = 0; i < 3; i++) to[i] = {{packed[2 * i], packed[2 * i + 1]}};
}

// Makes 8 x 2 pixels from (y, x) on, where y is even and x a multiple of 8, for tiles with `by_groups`: YCbCr to three
// channels, one plane as it is, or gray to three channels. `to`: the first row's pixels in shared memory. Row addresses
// are multiples of 8.
JAXDALI_HD inline void FillGroup(const Tile& t, int32_t y, int32_t x, uint8_t* to, int32_t row_bytes) {
  if (t.source == Source::kYcc) {
    uint32_t first[2][4], third[2][4];
    UpsampleGroup(t.plane[1], y, x, first);
    UpsampleGroup(t.plane[2], y, x, third);
    for (int r = 0; r < 2; r++) {
      Words2 pixels[3];
      ConvertGroup(t.weights, Load2(t.plane[0].Row(y + r) + x), first[r], third[r], pixels);
      for (int i = 0; i < 3; i++) Store2(to + r * row_bytes + 8 * i, pixels[i]);
    }
  } else if (t.source == Source::kOnePlane) {
    for (int r = 0; r < 2; r++) Store2(to + r * row_bytes, Load2(t.plane[0].Row(y + r) + x));
  } else {
    for (int r = 0; r < 2; r++) {
      const Words2 plane = Load2(t.plane[0].Row(y + r) + x);
      const uint32_t a = plane.word[0], b = plane.word[1];
      uint8_t* row = to + r * row_bytes;
      // Each of the eight bytes three times: nibbles of the selectors number the bytes of a word.
      Store2(row, {{Permute(a, a, 0x1000), Permute(a, a, 0x2211)}});
      Store2(row + 8, {{Permute(a, a, 0x3332), Permute(b, b, 0x1000)}});
      Store2(row + 16, {{Permute(b, b, 0x2211), Permute(b, b, 0x3332)}});
    }
  }
}

// Makes pixel (y, x) of any image, all its channels: planes, then inks, then the finish, see Source.
JAXDALI_HD inline void FillPixel(const Tile& t, int32_t y, int32_t x, uint8_t* to) {
  uint8_t v[kMaxComponents];
  const int colors = t.source == Source::kYcc || t.source == Source::kThreePlanes ? 3 : 1;
  const int planes = t.inks == Inks::kNone ? colors : 4;
  for (int i = 0; i < planes; i++) v[i] = static_cast<uint8_t>(Upsample(t.plane[i], y, x));
  if (t.source == Source::kGrayToThree) v[1] = v[2] = v[0];
  if (t.source == Source::kYcc) {
    uint32_t c[3];
    YccToChannels(t.weights, v[0], v[1], v[2], c);
    for (int i = 0; i < 3; i++) v[i] = static_cast<uint8_t>(c[i] >> 16);
  }
  if (t.inks != Inks::kNone) {
    const bool is_inverted = t.inks == Inks::kInverted;
    // Adobe's files store 255 - ink.
    const int light = is_inverted ? v[3] : 255 - v[3];
    for (int i = 0; i < 3; i++)
      v[i] = LightThrough(is_inverted && t.source == Source::kThreePlanes ? 255 - v[i] : v[i], light);
  }
  if (t.finish == Finish::kGray) v[0] = GrayOfRgb(v[0], v[1], v[2]);
  if (t.finish == Finish::kYcbcr) {
    uint8_t rgb[3] = {v[0], v[1], v[2]};
    YcbcrOfRgb(rgb[0], rgb[1], rgb[2], v);
  }
  to[0] = v[0];
  if (t.channels == 3) to[1] = v[1], to[2] = v[2];
}

// --- storing them -------------------------------------------------------------------------------------------------

// Stores n bytes with the `lanes` threads of a warp, in aligned 16-byte words except at the ends. The first byte is at
// `from` + `skip`. `from` is a multiple of 4, and up to 4 bytes after the last one may be read.
JAXDALI_HD inline void StoreBytes(uint8_t* to, const uint8_t* from, int32_t skip, int32_t n, int lane, int lanes) {
  const int32_t misalignment = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) & 15);  // of `to` in its word
  for (int32_t offset = 16 * lane - misalignment; offset < n; offset += 16 * lanes) {
    if (offset >= 0 && offset + 16 <= n) {
      const int32_t source_offset = skip + offset;
      const auto* words = reinterpret_cast<const uint32_t*>(from) + (source_offset >> 2);
      Words4 w;
      for (int i = 0; i < 4; i++) w.word[i] = Funnel(words[i], words[i + 1], 8 * (source_offset & 3));
      Store4(to + offset, w);
    } else {
      for (int32_t i = offset < 0 ? 0 : offset; i < offset + 16 && i < n; i++) to[i] = from[skip + i];
    }
  }
}

// Stores the tile in element type D, scaled to the type's range, by warp number `warp` of `warps`, one line of
// neighbours in the output at a time.
template <class D>
JAXDALI_HD inline void StoreScaled(const Tile& t, const uint8_t* rows, int32_t row_bytes, int warp, int warps, int lane,
                                   int lanes) {
  const int32_t height = t.end_y - t.begin_y, width = t.end_x - t.begin_x, channels = t.channels;
  D* out = static_cast<D*>(t.out);
  rows += t.begin_y * row_bytes + t.begin_x * channels;
  if (t.upright) {
    for (int32_t y = warp; y < height; y += warps) {
      D* to = out + (t.first + y * t.step_y) * channels;
      for (int32_t i = lane; i < width * channels; i += lanes) to[i] = Scale<D>(rows[y * row_bytes + i]);
    }
    return;
  }
  const int32_t lines = t.transpose ? width : height, length = t.transpose ? height : width;
  for (int32_t line = warp; line < lines; line += warps) {
    for (int32_t i = lane; i < length; i += lanes) {
      const int32_t y = t.transpose ? i : line, x = t.transpose ? line : i;
      D* to = out + (t.first + y * t.step_y + x * t.step_x) * channels;
      for (int c = 0; c < channels; c++) to[c] = Scale<D>(rows[y * row_bytes + x * channels + c]);
    }
  }
}

// Stores the region's part of a tile, whose pixels are in `rows`, with lane `lane` of warp number `warp`: bytes of
// upright images by wide words, all others one by one.
JAXDALI_HD inline void StoreTile(const Tile& t, const uint8_t* rows, int32_t row_bytes, int warp, int warps, int lane,
                                 int lanes) {
  if (t.dtype == DType::kU8 && t.upright) {
    for (int32_t y = t.begin_y + warp; y < t.end_y; y += warps)
      StoreBytes(static_cast<uint8_t*>(t.out) + (t.first + (y - t.begin_y) * t.step_y) * t.channels,
                 rows + y * row_bytes, t.begin_x * t.channels, (t.end_x - t.begin_x) * t.channels, lane, lanes);
    return;
  }
  switch (t.dtype) {
    case DType::kU8:
      return StoreScaled<uint8_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kI8:
      return StoreScaled<int8_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kU16:
      return StoreScaled<uint16_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kI16:
      return StoreScaled<int16_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kU32:
      return StoreScaled<uint32_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kI32:
      return StoreScaled<int32_t>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kF16:
      return StoreScaled<Half>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kBF16:
      return StoreScaled<BFloat16>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kF32:
      return StoreScaled<float>(t, rows, row_bytes, warp, warps, lane, lanes);
    case DType::kF64:
      return StoreScaled<double>(t, rows, row_bytes, warp, warps, lane, lanes);
    default:
      return;  // LaunchRaster refuses this type
  }
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_TILE_H_
