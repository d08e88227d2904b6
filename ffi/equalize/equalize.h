// Histogram equalization of uint8 images. Each tile of a plane gets a histogram, and each histogram a table. Every
// pixel is looked up in the tables of the tiles around it, and the results are blended. One tile equalizes a whole
// plane.
#ifndef JAXDALI_FFI_EQUALIZE_EQUALIZE_H_
#define JAXDALI_FFI_EQUALIZE_EQUALIZE_H_

#include <cmath>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int kBins = 256;

// Converts sRGB pixels to lightness (CIE L*a*b* in 8 bits) and back, in OpenCV's integer arithmetic (its
// color_lab.cpp). jaxdali/fn/_image/clahe.py makes the tables. In 8 bits, L* is scaled by 255 / 100, and a* and b* are
// shifted by 128.
struct Lab {
  static constexpr int kLinear = 256, kRoot = 3072, kLightness = 256, kGamma = 4096;  // lengths of the tables
  static constexpr int kTables = kLinear + kRoot + 2 * kLightness + kGamma;

  const int32_t* linear;     // linear light of a channel value, 8 + 3 bits
  const int32_t* root;       // f(t), 15 bits, for t of 8 + 3 bits
  const int32_t* lightness;  // Y for each L, 14 bits
  const int32_t* root_of;    // f(Y) for each L, 14 bits
  const int32_t* gamma;      // channel value for each linear light of 12 bits

  JAXDALI_HD explicit Lab(const int32_t* tables)
      : linear(tables),
        root(linear + kLinear),
        lightness(root + kRoot),
        root_of(lightness + kLightness),
        gamma(root_of + kLightness) {}

  struct Pixel {
    int l, a, b;
  };
  // The pixel in L*a*b*, 8 bits each.
  JAXDALI_HD Pixel FromRgb(const uint8_t* rgb) const {
    // Linear RGB to XYZ, relative to the white point D65, with coefficients in units of 2^-12; then f(X), f(Y), f(Z).
    const int r = linear[rgb[0]], g = linear[rgb[1]], b = linear[rgb[2]];
    const int x = root[Scaled(1777 * r + 1541 * g + 778 * b, 12)];
    const int y = root[Scaled(871 * r + 2929 * g + 296 * b, 12)];
    const int z = root[Scaled(73 * r + 448 * g + 3575 * b, 12)];
    // L* = 116 f(Y) - 16, a* = 500 (f(X) - f(Y)), b* = 200 (f(Y) - f(Z)), in units of 2^-15: 296 is 116 * 255 / 100,
    // rounded, and 1336934 is 16 * 255 / 100 * 2^15.
    return {Limited(Scaled(296 * y - 1336934, 15), 255), Limited(Scaled(500 * (x - y) + (128 << 15), 15), 255),
            Limited(Scaled(200 * (y - z) + (128 << 15), 15), 255)};
  }
  // Writes the sRGB pixel of a pixel in L*a*b*.
  JAXDALI_HD void ToRgb(Pixel p, uint8_t* rgb) const {
    const int y = lightness[p.l], f = root_of[p.l];
    // f(X) = f(Y) + a* / 500 and f(Z) = f(Y) - b* / 200, in units of 2^-14: 5 * 53687 / 2^13 is 2^14 / 500, and 41943 /
    // 2^9 is 2^14 / 200. The last numbers undo the shift of a* and b* by 128.
    const int x = Cube(f + ((5 * p.a * 53687 + 128) >> 13) - 4194), z = Cube(f - ((p.b * 41943 + 16) >> 9) + 10484);
    // XYZ, relative to D65, to linear RGB: coefficients in units of 2^-12.
    rgb[0] = Channel(12615 * x - 6296 * y - 2223 * z);
    rgb[1] = Channel(-3773 * x + 7684 * y + 185 * z);
    rgb[2] = Channel(217 * x - 836 * y + 4715 * z);
  }

 private:
  JAXDALI_HD static int Limited(int v, int most) { return v < 0 ? 0 : v > most ? most : v; }
  // v / 2^bits, rounded.
  JAXDALI_HD static int Scaled(int v, int bits) { return (v + (1 << (bits - 1))) >> bits; }
  // The inverse of f(t), in units of 2^-14: linear up to 6 / 29, which is 3390, then the third power.
  JAXDALI_HD static int Cube(int f) { return f <= 3390 ? f * 108 / 841 - 290 : f * f / 16384 * f / 16384; }
  JAXDALI_HD uint8_t Channel(int v) const { return static_cast<uint8_t>(gamma[Limited(Scaled(v, 14), kGamma - 1)]); }
};

// One sample, [outer, height, width, inner]. It has one plane for each (outer, inner), or one for each outer.
struct EqualizeArgs {
  const uint8_t* in;
  uint8_t* out;
  int64_t height, width, inner, planes;
  int channels;                     // 3: a plane is the lightness of three channels; 1: it is a channel
  int64_t tile_height, tile_width;  // tiles at the lower and right border extend into the mirrored image
  float limit;                      // most pixels of one value in a tile, relative to their mean; 0: no limit

  JAXDALI_HD uint32_t Area() const { return static_cast<uint32_t>(tile_height * tile_width); }

  // Index of the first channel of a plane's pixel.
  JAXDALI_HD int64_t At(int64_t plane, int64_t y, int64_t x) const {
    const int64_t per_pixel = inner / channels;  // planes
    return ((plane / per_pixel * height + y) * width + x) * inner + plane % per_pixel;
  }
};

// The operands of the custom call.
struct EqualizeBatch {
  // CUDA: a large tile is counted in several parts. The working memory has a histogram for each of this number of
  // elements of the input, and the tables behind them.
  static constexpr int64_t kElementsPerPart = 8192;

  Batch in, out;               // of equal shape
  const float* limit;          // [n] most pixels of one value in a tile, relative to their mean; 0: no limit
  const int32_t* first_table;  // [n] number of the sample's first table in the working memory
  const int32_t* lab;          // Lab::kTables numbers: three channels are one plane; null: each channel is one
  int height_axis, tiles_y, tiles_x;
  bool stretch;    // true: a table's first value becomes 0, as in equalization of planes; false: its share of the tile
  float* scratch;  // CUDA only: histograms of parts, kBins counts each; then the tables, kBins bytes each
  int64_t scratch_size;
  JAXDALI_ATTRIBUTES(height_axis, tiles_y, tiles_x, stretch);

  JAXDALI_HD int Tiles() const { return tiles_y * tiles_x; }

  // Describes sample i. The caller has checked that it lies inside both buffers. kInternal: its shapes differ.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, EqualizeArgs* a) const {
    int64_t outer = 1;
    a->inner = 1;
    for (int d = 0; d < in.ndim; d++) {
      if (out.dim(i, d) != in.dim(i, d)) return kInternal;
      if (d < height_axis) outer *= in.dim(i, d);
      if (d > height_axis + 1) a->inner *= in.dim(i, d);
    }
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->height = in.dim(i, height_axis);
    a->width = in.dim(i, height_axis + 1);
    a->channels = lab && a->inner == 3 ? 3 : 1;
    a->planes = a->height * a->width == 0 ? 0 : outer * (a->inner / a->channels);
    // If the image is no whole number of tiles, they are larger along both axes, and extend beyond it.
    const bool whole = a->height % tiles_y == 0 && a->width % tiles_x == 0;
    a->tile_height = a->height / tiles_y + (whole ? 0 : 1);
    a->tile_width = a->width / tiles_x + (whole ? 0 : 1);
    a->limit = limit[i];
    return kOk;
  }

  // Bytes of the working memory before the tables.
  JAXDALI_HD int64_t PartBytes() const {
    return in.capacity / kElementsPerPart * kBins * static_cast<int64_t>(sizeof(uint32_t));
  }
  // Describes sample i, and sets `tables` to its tables in the working memory. kInternal: they do not fit into it.
  JAXDALI_HD Status Sample(int i, EqualizeArgs* a, uint8_t** tables) const {
    const int64_t first = first_table[i], bytes = scratch_size * static_cast<int64_t>(sizeof(float)) - PartBytes();
    *tables = reinterpret_cast<uint8_t*>(scratch) + PartBytes() + first * kBins;
    const Status s = Sample(i, a);
    return s != kOk || (first >= 0 && (first + a->planes * Tiles()) * kBins <= bytes) ? s : kInternal;
  }

  // The value of the pixel whose first channel is element i.
  JAXDALI_HD int Value(const EqualizeArgs& a, int64_t i) const {
    return a.channels == 3 ? Lab(lab).FromRgb(a.in + i).l : a.in[i];
  }

  // Clips the histogram of a tile, as OpenCV's CLAHE does: no count exceeds the limit, and the excess is spread over
  // all bins.
  struct Clip {
    uint32_t limit;        // 0: there is none
    uint32_t per_bin = 0;  // the share of the excess that each bin gets
    uint32_t rest = 0;     // the remainder of that division ...
    uint32_t step = 1;     // ... goes to every step-th bin, one pixel each

    JAXDALI_HD uint32_t Excess(uint32_t count) const { return limit > 0 && count > limit ? count - limit : 0; }
    JAXDALI_HD void Spread(uint32_t excess) {
      per_bin = excess / kBins;
      rest = excess % kBins;
      step = rest > 0 ? kBins / rest : 1;
    }
    JAXDALI_HD uint32_t Count(uint32_t bin, uint32_t count) const {
      return count - Excess(count) + per_bin + (bin % step == 0 && bin / step < rest ? 1 : 0);
    }
  };
  // The limit of a sample's histograms, without a share of the excess yet (Spread).
  JAXDALI_HD static Clip ClipOf(const EqualizeArgs& a) {
    if (!(a.limit > 0)) return {0};
    const double limit = static_cast<double>(a.limit) * a.Area() / kBins;
    // No count exceeds the area, so neither need the limit, which must fit the integer.
    return {limit < 1 ? 1 : limit > a.Area() ? a.Area() : static_cast<uint32_t>(limit)};
  }
  // The level of a value is the number of pixels up to it, scaled so that all that are counted become 255.
  JAXDALI_HD static float ScaleOf(uint32_t counted) { return 255.0f / static_cast<float>(counted); }
  JAXDALI_HD static uint8_t Level(uint32_t pixels, float scale) { return Rounded(static_cast<float>(pixels) * scale); }

  // The two tiles whose centres are around a coordinate, and the weight of the second one.
  struct Between {
    int first, second;
    float weight;
  };
  // The tiles around a coordinate along an axis; beyond the outermost centres both are the outermost one. `tile`:
  // extent of a tile; `tiles`: how many there are.
  JAXDALI_HD static Between Around(int64_t coordinate, int64_t tile, int tiles) {
    // The position in tiles, from the centre of tile 0.
    const float position = static_cast<float>(coordinate) * (1.0f / static_cast<float>(tile)) - 0.5f,
                floor = std::floor(position);
    const int first = static_cast<int>(floor);
    return {first > 0 ? first : 0, first + 1 < tiles ? first + 1 : tiles - 1, position - floor};
  }

  // Writes the pixel whose first channel is element i, with the value that the tables of its plane give. `v`: the tiles
  // above and below it; `h`: those left and right of it. With one tile, they are not used.
  JAXDALI_HD void Put(const EqualizeArgs& a, const uint8_t* tables, int64_t i, Between v, Between h) const {
    if (a.channels == 1) {
      a.out[i] = Blend(tables + a.in[i], v, h);
      return;
    }
    Lab::Pixel pixel = Lab(lab).FromRgb(a.in + i);
    pixel.l = Blend(tables + pixel.l, v, h);
    Lab(lab).ToRgb(pixel, a.out + i);
  }

 private:
  // Interpolates between four tables. `levels`: the value's place in the first table of the plane.
  JAXDALI_HD uint8_t Blend(const uint8_t* levels, Between v, Between h) const {
    if (Tiles() == 1) return *levels;
    const uint8_t *above = levels + v.first * tiles_x * kBins, *below = levels + v.second * tiles_x * kBins;
    const float top = above[h.first * kBins] * (1 - h.weight) + above[h.second * kBins] * h.weight;
    const float bottom = below[h.first * kBins] * (1 - h.weight) + below[h.second * kBins] * h.weight;
    return Rounded(top * (1 - v.weight) + bottom * v.weight);
  }
  JAXDALI_HD static uint8_t Rounded(float v) {  // rounds half to even
    const float r = std::rint(v);
    return static_cast<uint8_t>(r > 255 ? 255 : r);
  }
};

// The CPU kernel.
Status Equalize(const EqualizeBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchEqualize(const EqualizeBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_EQUALIZE_EQUALIZE_H_
