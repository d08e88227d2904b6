// CPU kernel of JPEG compression and decompression: DistortBlock for each block of all units, then PutPixel for each
// pixel. It is written for clarity; a GPU runs the fast version (jpeg_distortion.cu).
#include <new>
#include <vector>

#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {
namespace jpeg {
namespace {

// Compresses and decompresses 8 x 8 samples of 0 to 255: forward DCT, quantization, inverse DCT. `pitch`: bytes of a
// row of the output.
void Distort(int32_t (&block)[8][8], const int32_t* table, uint8_t* to, int64_t pitch) {
  // Samples are centred around 0. The pass of rows keeps two more bits (-2), which that of columns drops (2).
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 8; x++) block[y][x] -= 128;
    ForwardPass<-2>(block[y]);
  }
  int32_t columns[8][8];
  for (int x = 0; x < 8; x++) {
    int32_t v[8];
    for (int y = 0; y < 8; y++) v[y] = block[y][x];
    ForwardPass<2>(v);
    for (int y = 0; y < 8; y++) v[y] = Requantize(v[y], table[y * 8 + x], Reciprocal(table[y * 8 + x]));
    IdctColumn(v, columns[x]);
  }
  for (int y = 0; y < 8; y++) {
    int32_t v[8], samples[8];
    for (int x = 0; x < 8; x++) v[x] = columns[x][y];
    IdctRow(v, samples);
    for (int x = 0; x < 8; x++) to[y * pitch + x] = static_cast<uint8_t>(samples[x]);
  }
}

// Compresses and decompresses one of the six blocks of a minimum coded unit (`unit` is its number), and stores it in
// `units`: blocks 0 to 3 are luminance, 4 is Cb, 5 is Cr. Beyond the image its outermost pixels repeat; at the bottom
// the last row of chroma does, as in libjpeg.
void DistortBlock(const JpegDistortionArgs& a, int64_t unit, int index, uint8_t* units) {
  const int64_t frame = unit / (a.down * a.across), row = unit / a.across % a.down, column = unit % a.across;
  const uint8_t* image = a.in + frame * a.height * a.width * 3;
  const int64_t right = a.width - 1, bottom = a.height - 1;
  int32_t block[8][8];
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 8; x++) {
      if (index < 4) {
        const int64_t source_y = row * 16 + index / 2 * 8 + y, source_x = column * 16 + index % 2 * 8 + x;
        const int64_t from = (source_y < bottom ? source_y : bottom) * a.width + (source_x < right ? source_x : right);
        block[y][x] = Component(/*component=*/0, image + from * 3);
        continue;
      }
      const int64_t last = bottom / 2, chroma = row * 8 + y, source_y = 2 * (chroma < last ? chroma : last);
      const int64_t source_x = (column * 8 + x) * 2;
      const int64_t left = source_x < right ? source_x : right,
                    right_neighbour = source_x + 1 < right ? source_x + 1 : right;
      const uint8_t* upper = image + source_y * a.width * 3;
      const uint8_t* lower = image + (source_y + 1 < bottom ? source_y + 1 : bottom) * a.width * 3;
      const int32_t sum = Component(index - 3, upper + left * 3) + Component(index - 3, upper + right_neighbour * 3) +
                          Component(index - 3, lower + left * 3) + Component(index - 3, lower + right_neighbour * 3);
      block[y][x] = (sum + 1 + x % 2) >> 2;  // libjpeg's h2v2_downsample adds 1 and 2 in turn
    }
  }
  uint8_t* to = units + unit * kMcuBytes;
  // The four blocks of luminance form a square of 16 x 16, so half of it is above the lower two.
  if (index < 4)
    Distort(block, a.tables, to + index / 2 * (kMcuLuminance / 2) + index % 2 * 8, /*pitch=*/16);
  else
    Distort(block, a.tables + 64, to + kMcuLuminance + (index - 4) * kMcuChroma, /*pitch=*/8);
}

// Writes a pixel of the result. Chroma is interpolated as by libjpeg's "fancy upsampling" (h2v2): the nearest sample
// has 3/4 of the weight along each axis, and the rounding alternates between 8 and 7 sixteenths.
void PutPixel(const JpegDistortionArgs& a, const uint8_t* units, int64_t frame, int64_t y, int64_t x) {
  const int64_t columns = (a.width + 1) / 2, rows = (a.height + 1) / 2;
  const uint8_t* first = units + frame * a.down * a.across * kMcuBytes;
  auto chroma = [&](int component, int64_t cy, int64_t cx) -> int32_t {
    return first[(cy / 8 * a.across + cx / 8) * kMcuBytes + kMcuLuminance + component * kMcuChroma + cy % 8 * 8 +
                 cx % 8];
  };
  const int64_t cy = y / 2, cx = x / 2;
  int32_t c[2];
  for (int component = 0; component < 2; component++) {
    if (columns <= 2) {  // libjpeg repeats the samples of images as narrow as this
      c[component] = chroma(component, cy, cx);
      continue;
    }
    const int64_t far_y = y % 2 ? (cy + 1 < rows ? cy + 1 : cy) : (cy > 0 ? cy - 1 : 0);
    const int64_t far_x = x % 2 ? (cx + 1 < columns ? cx + 1 : cx) : (cx > 0 ? cx - 1 : 0);
    const int32_t near = 3 * chroma(component, cy, cx) + chroma(component, far_y, cx);
    const int32_t far = 3 * chroma(component, cy, far_x) + chroma(component, far_y, far_x);
    c[component] = (3 * near + far + 8 - static_cast<int32_t>(x % 2)) >> 4;
  }
  const int32_t luminance = first[(y / 16 * a.across + x / 16) * kMcuBytes + y % 16 * 16 + x % 16];
  uint32_t rgb[3];  // in 16.16 fixed point
  YccToChannels(ColorWeights::Make(/*bgr=*/false), luminance, c[1], c[0], rgb);
  uint8_t* to = a.out + ((frame * a.height + y) * a.width + x) * 3;
  for (int k = 0; k < 3; k++) to[k] = static_cast<uint8_t>(rgb[k] >> 16);
}

}  // namespace
}  // namespace jpeg

// The CPU kernel: makes sample i of the output.
Status JpegDistortion(const JpegDistortionBatch& batch, int i) {
  JpegDistortionArgs a;
  if (Status s = batch.Sample(i, &a); s != kOk) return s;
  try {
    std::vector<uint8_t> units(static_cast<size_t>(a.Units() * kMcuBytes));
    for (int64_t unit = 0; unit < a.Units(); unit++)
      for (int index = 0; index < 6; index++) jpeg::DistortBlock(a, unit, index, units.data());
    for (int64_t f = 0; f < a.frames; f++)
      for (int64_t y = 0; y < a.height; y++)
        for (int64_t x = 0; x < a.width; x++) jpeg::PutPixel(a, units.data(), f, y, x);
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
  return kOk;
}

}  // namespace jaxdali
