// JPEG compression artefacts of RGB images: compression by baseline JPEG with chroma of half the size, then
// decompression, with the same bits as libjpeg-turbo with its defaults. Entropy coding is left out, because it loses
// nothing.
#ifndef JAXDALI_FFI_JPEG_DISTORTION_H_
#define JAXDALI_FFI_JPEG_DISTORTION_H_

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/jpeg/color.h"
#include "ffi/jpeg/idct.h"

namespace jaxdali {

inline constexpr int64_t kMcuSide = 16;    // of a minimum coded unit, in pixels
inline constexpr int64_t kMcuBytes = 384;  // luminance, Cb and Cr of a unit

// One sample: frames of height x width RGB pixels.
struct JpegDistortionArgs {
  const uint8_t* in;
  uint8_t* out;
  int64_t frames, height, width, down, across;  // down, across: number of units
  const int32_t* tables;

  JAXDALI_HD int64_t Units() const { return frames * down * across; }
};

struct JpegDistortionBatch {
  Batch in, out;              // of equal shape
  const int32_t* tables;      // [n, 2, 64] quantizers of luminance and of chroma, row by row
  const int32_t* first_unit;  // [n] first unit of the sample in the working memory
  float* scratch;             // CUDA only: the units
  int64_t scratch_size;

  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, JpegDistortionArgs* a) const {
    for (int d = 0; d < in.ndim; d++)
      if (in.dim(i, d) != out.dim(i, d)) return kInternal;
    a->frames = in.ndim == 4 ? in.dim(i, 0) : 1;
    a->height = in.dim(i, in.ndim - 3);
    a->width = in.dim(i, in.ndim - 2);
    if (in.dim(i, in.ndim - 1) != 3) return kInternal;
    a->down = (a->height + kMcuSide - 1) / kMcuSide;
    a->across = (a->width + kMcuSide - 1) / kMcuSide;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->tables = tables + int64_t{i} * 128;
    return kOk;
  }

  // The same, and where the sample's units are in the working memory.
  JAXDALI_HD Status Sample(int i, JpegDistortionArgs* a, uint8_t** units) const {
    const Status s = Sample(i, a);
    const int64_t first = first_unit[i], bytes = scratch_size * static_cast<int64_t>(sizeof(float));
    *units = reinterpret_cast<uint8_t*>(scratch) + first * kMcuBytes;
    return s != kOk || (first >= 0 && (first + a->Units()) * kMcuBytes <= bytes) ? s : kInternal;
  }
};

namespace jpeg {

// One dimension of the accurate forward DCT. kShift: the shift of the even terms, to the left if it is negative: -2 for
// rows, which come first, then 2 for columns. The two passes together scale the samples by 8.
template <int kShift>
JAXDALI_HD inline void ForwardPass(int32_t (&v)[8]) {
  constexpr int kBits = 13 + kShift, kHalf = 1 << (kBits - 1);
  const int32_t s[4] = {v[0] + v[7], v[1] + v[6], v[2] + v[5], v[3] + v[4]};
  const int32_t d[4] = {v[0] - v[7], v[1] - v[6], v[2] - v[5], v[3] - v[4]};
  const int32_t a = s[0] + s[3], b = s[1] + s[2], c = s[1] - s[2], e = s[0] - s[3];
  v[0] = kShift < 0 ? (a + b) * 4 : (a + b + 2) >> 2;
  v[4] = kShift < 0 ? (a - b) * 4 : (a - b + 2) >> 2;
  const int32_t z = (c + e) * 4433 + kHalf;
  v[2] = (z + e * 6270) >> kBits;
  v[6] = (z - c * 15137) >> kBits;
  const int32_t z1 = (d[3] + d[0]) * -7373 + kHalf, z2 = (d[2] + d[1]) * -20995 + kHalf;
  const int32_t z5 = (d[3] + d[1] + d[2] + d[0]) * 9633;
  const int32_t z3 = (d[3] + d[1]) * -16069 + z5, z4 = (d[2] + d[0]) * -3196 + z5;
  v[7] = (d[3] * 2446 + z1 + z3) >> kBits;
  v[5] = (d[2] * 16819 + z2 + z4) >> kBits;
  v[3] = (d[1] * 25172 + z2 + z3) >> kBits;
  v[1] = (d[0] * 12299 + z1 + z4) >> kBits;
}

// Compresses and decompresses 8 x 8 samples of 0 to 255.
JAXDALI_HD inline void Distort(int32_t (&block)[8][8], const int32_t* table, uint8_t* to, int64_t pitch) {
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 8; x++) block[y][x] -= 128;
    ForwardPass<-2>(block[y]);
  }
  int32_t columns[8][8];
  for (int x = 0; x < 8; x++) {
    int32_t v[8];
    for (int y = 0; y < 8; y++) v[y] = block[y][x];
    ForwardPass<2>(v);
    for (int y = 0; y < 8; y++) {
      const int32_t q = table[y * 8 + x], step = q * 8, size = v[y] < 0 ? -v[y] : v[y];
      const int32_t level = static_cast<int32_t>(static_cast<uint32_t>(size + step / 2) / static_cast<uint32_t>(step));
      v[y] = Dequantize(static_cast<int16_t>(v[y] < 0 ? -level : level), static_cast<uint16_t>(q));
    }
    IdctColumn(v, columns[x]);
  }
  for (int y = 0; y < 8; y++) {
    int32_t v[8], samples[8];
    for (int x = 0; x < 8; x++) v[x] = columns[x][y];
    IdctRow(v, samples);
    for (int x = 0; x < 8; x++) to[y * pitch + x] = static_cast<uint8_t>(samples[x]);
  }
}

// Luminance (0), Cb (1) or Cr (2) of a pixel, in 8 bits.
JAXDALI_HD inline int32_t Component(int which, const uint8_t* rgb) {
  const int32_t r = rgb[0], g = rgb[1], b = rgb[2];
  if (which == 0) return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
  if (which == 1) return (-11059 * r - 21709 * g + 32768 * b + (128 << 16) + 32767) >> 16;
  return (32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16;
}

// Compresses block `which` of a unit: four blocks of luminance, one of Cb, one of Cr. Beyond the image its outermost
// pixels repeat; at the bottom the last row of chroma does.
JAXDALI_HD inline void DistortBlock(const JpegDistortionArgs& a, int64_t unit, int which, uint8_t* units) {
  const int64_t frame = unit / (a.down * a.across), row = unit / a.across % a.down, column = unit % a.across;
  const uint8_t* image = a.in + frame * a.height * a.width * 3;
  const int64_t right = a.width - 1, bottom = a.height - 1;
  int32_t block[8][8];
  for (int y = 0; y < 8; y++) {
    for (int x = 0; x < 8; x++) {
      if (which < 4) {
        const int64_t at_y = row * 16 + which / 2 * 8 + y, at_x = column * 16 + which % 2 * 8 + x;
        const int64_t from = (at_y < bottom ? at_y : bottom) * a.width + (at_x < right ? at_x : right);
        block[y][x] = Component(0, image + from * 3);
        continue;
      }
      const int64_t last = bottom / 2, chroma = row * 8 + y, at_y = 2 * (chroma < last ? chroma : last);
      const int64_t at_x = (column * 8 + x) * 2;
      const int64_t left = at_x < right ? at_x : right, beside = at_x + 1 < right ? at_x + 1 : right;
      const uint8_t* upper = image + at_y * a.width * 3;
      const uint8_t* lower = image + (at_y + 1 < bottom ? at_y + 1 : bottom) * a.width * 3;
      const int32_t sum = Component(which - 3, upper + left * 3) + Component(which - 3, upper + beside * 3) +
                          Component(which - 3, lower + left * 3) + Component(which - 3, lower + beside * 3);
      block[y][x] = (sum + 1 + x % 2) >> 2;
    }
  }
  uint8_t* to = units + unit * kMcuBytes;
  if (which < 4)
    Distort(block, a.tables, to + which / 2 * 128 + which % 2 * 8, 16);
  else
    Distort(block, a.tables + 64, to + 256 + (which - 4) * 64, 8);
}

// Writes a pixel of the result.
JAXDALI_HD inline void PutPixel(const JpegDistortionArgs& a, const uint8_t* units, int64_t frame, int64_t y,
                                int64_t x) {
  const int64_t columns = (a.width + 1) / 2, rows = (a.height + 1) / 2;
  const uint8_t* first = units + frame * a.down * a.across * kMcuBytes;
  auto chroma = [&](int which, int64_t cy, int64_t cx) -> int32_t {
    return first[(cy / 8 * a.across + cx / 8) * kMcuBytes + 256 + which * 64 + cy % 8 * 8 + cx % 8];
  };
  const int64_t cy = y / 2, cx = x / 2;
  int32_t c[2];
  for (int which = 0; which < 2; which++) {
    if (columns <= 2) {  // libjpeg repeats the samples of images as narrow as this
      c[which] = chroma(which, cy, cx);
      continue;
    }
    const int64_t far_y = y % 2 ? (cy + 1 < rows ? cy + 1 : cy) : (cy > 0 ? cy - 1 : 0);
    const int64_t far_x = x % 2 ? (cx + 1 < columns ? cx + 1 : cx) : (cx > 0 ? cx - 1 : 0);
    const int32_t near = 3 * chroma(which, cy, cx) + chroma(which, far_y, cx);
    const int32_t far = 3 * chroma(which, cy, far_x) + chroma(which, far_y, far_x);
    c[which] = (3 * near + far + 8 - static_cast<int32_t>(x % 2)) >> 4;
  }
  const int32_t luminance = first[(y / 16 * a.across + x / 16) * kMcuBytes + y % 16 * 16 + x % 16];
  uint32_t rgb[3];
  YccToChannels(ColorWeights::Make(false), luminance, c[1], c[0], rgb);
  uint8_t* to = a.out + ((frame * a.height + y) * a.width + x) * 3;
  for (int k = 0; k < 3; k++) to[k] = static_cast<uint8_t>(rgb[k] >> 16);
}

}  // namespace jpeg

// The CPU kernel.
Status JpegDistortion(const JpegDistortionBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchJpegDistortion(const JpegDistortionBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_JPEG_DISTORTION_H_
