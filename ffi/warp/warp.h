// Affine warp of images and volumes (rotate, warp_affine), with nearest-neighbour or linear interpolation.
//
// Coordinates are fixed point with 32 fractional bits. So a position is an exact integer function of the output pixel,
// which is the same in a scalar loop, in vectors and in CUDA threads, and integer division cuts rows into spans.
#ifndef JAXDALI_FFI_WARP_WARP_H_
#define JAXDALI_FFI_WARP_WARP_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/half.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

inline constexpr int64_t kOnePixel = int64_t{1} << 32;
inline constexpr double kMaxCoordinate = 1 << 29;  // positions and their differences must fit into 64 bits
inline constexpr int kWeightBits = 14;             // for uint8: four weights fit into int16 and sum to 2^14

// One sample. Axes are counted from the innermost: 0 = x, 1 = y, 2 = z.
struct WarpArgs {
  DType in_type, out_type;
  const void* in;  // [frames, (D,) H, W, C]
  void* out;       // [frames, (D',) H', W', C]
  int dims;        // 2 or 3
  int64_t frames;
  int64_t in_size[3], out_size[3];
  int64_t channels;
  int64_t map[3][4];  // source axis s of output pixel (x, y, z): map[s][0]*x + map[s][1]*y + map[s][2]*z + map[s][3]
  bool linear;
  bool has_fill;  // outside the image the value is `fill`; otherwise the nearest pixel
  float fill;     // representable in the output's type and, if it is blended with pixels, in the input's
};

// Fills `map` from the parameters [dims, dims + 1] in pixels. The centre of output pixel (x, y, z) comes from the
// source point sum_k m[s][k] * o_k + m[s][dims], with the image's corner as the origin. kTooLarge: the image is.
// kArgument: the parameters are not finite, or lead too far from the image.
JAXDALI_HD inline Status SetMap(const double* m, WarpArgs* a) {
  const int d = a->dims;
  for (int s = 0; s < d; s++, m += d + 1) {
    if (a->in_size[s] >= kMaxCoordinate) return kTooLarge;
    // How much the coordinates of output pixels differ from that of the origin. Vectors compute positions of whole
    // groups of eight pixels, also beyond the end of a row.
    double extent = 0;
    for (int k = 0; k < d; k++) extent += fabs(m[k]) * static_cast<double>(a->out_size[k] + 8);
    const bool is_near = fabs(m[d]) + extent < kMaxCoordinate;
    // If all are on one side of the image, it does not matter how far they are.
    if (!is_near && !(fabs(m[d]) - extent > static_cast<double>(a->in_size[s] + 1))) return kArgument;
    for (int k = 0; k < d; k++) a->map[s][k] = is_near ? llrint(m[k] * kOnePixel) : 0;
    a->map[s][3] = llrint((is_near ? m[d] : copysign(kMaxCoordinate, m[d])) * kOnePixel);
  }
  return kOk;
}

// Sets `pos` to the source point of the first pixel of output row (y, z). For linear interpolation it is half a pixel
// less, so that its whole part is the index of the first of the two neighbours.
JAXDALI_HD inline void RowStart(const WarpArgs& a, int64_t y, int64_t z, int64_t* pos) {
  for (int s = 0; s < a.dims; s++) {
    pos[s] = a.map[s][3] + y * a.map[s][1] - (a.linear ? kOnePixel / 2 : 0);
    if (a.dims == 3) pos[s] += z * a.map[s][2];
  }
}

// Whether there is a kernel for these types.
inline bool WarpTypes(DType in, DType out) {
  auto is_supported = [](DType t) {
    return t == DType::kU8 || t == DType::kI16 || t == DType::kI32 || t == DType::kF16 || t == DType::kBF16 ||
           t == DType::kF32;
  };
  return is_supported(in) && is_supported(out) && (in == out || in == DType::kF32 || out == DType::kF32);
}

// The operands of the custom call.
struct WarpBatch {
  Batch in, out;
  const double* map;  // [n, dims, dims + 1], see SetMap
  const float* fill;  // [n]
  int dims, first;    // number of spatial axes, 2 or 3, and of axes before them: frames
  bool linear, has_fill;
  JAXDALI_ATTRIBUTES(dims, first, linear, has_fill);

  // Describes sample i. The caller has checked that it lies inside both buffers. kEmpty: there are output pixels, but
  // neither input nor fill.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, WarpArgs* a) const {
    a->in_type = in.dtype;
    a->out_type = out.dtype;
    a->in = in.bytes(i);
    a->out = out.bytes(i);
    a->dims = dims;
    a->frames = 1;
    for (int d = 0; d < first; d++) {
      a->frames *= in.dim(i, d);
      if (out.dim(i, d) != in.dim(i, d)) return kInternal;
    }
    for (int s = 0; s < dims; s++) {
      a->in_size[s] = in.dim(i, first + dims - 1 - s);
      a->out_size[s] = out.dim(i, first + dims - 1 - s);
    }
    a->channels = in.dim(i, first + dims);
    if (out.dim(i, first + dims) != a->channels) return kInternal;
    a->linear = linear;
    a->has_fill = has_fill;
    a->fill = fill[i];
    if (Status s = SetMap(map + static_cast<int64_t>(i) * dims * (dims + 1), a); s != kOk) return s;
    return in.size(i) == 0 && out.size(i) > 0 && !has_fill ? kEmpty : kOk;
  }
};

// The CPU kernel, for sample i of a batch and for one sample.
Status Warp(const WarpBatch& batch, int i);
void WarpWhole(const WarpArgs& a);

// The CUDA kernel. Returns null or an error message.
const char* LaunchWarp(const WarpBatch& batch, const Samples& samples, void* stream);

// The weights of the taps (x0,y0), (x1,y0), (x0,y1), (x1,y1) for the low words of the two coordinates, which are their
// fractions. Only one product is rounded. The others follow from it, so that the four sum to 2^kWeightBits.
JAXDALI_HD inline void Weights(uint32_t fx, uint32_t fy, int32_t w[4]) {
  // The fractions in kWeightBits bits, rounded.
  int32_t qx = static_cast<int32_t>(((fx >> 17) + 1) >> 1), qy = static_cast<int32_t>(((fy >> 17) + 1) >> 1);
  w[3] = (qx * qy + (1 << (kWeightBits - 1))) >> kWeightBits;
  w[1] = qx - w[3];
  w[2] = qy - w[3];
  w[0] = (1 << kWeightBits) - qx - w[2];
}

// Makes all channels of one output pixel. `pos` is the source point; for linear interpolation, less half a pixel on
// each axis.
template <class In, class Out, int D, bool kLinear>
JAXDALI_HD inline void WarpPixel(const WarpArgs& a, const In* in, const int64_t* pos, Out* out) {
  // Bit s of a tap's number says whether it is the second of the two neighbours along axis s.
  constexpr int kTaps = kLinear ? 1 << D : 1;
  int64_t offset[kTaps];
  bool outside[kTaps];
  for (int t = 0; t < kTaps; t++) {
    offset[t] = 0;
    outside[t] = false;
    for (int s = D - 1; s >= 0; s--) {
      int64_t i = (pos[s] >> 32) + (t >> s & 1), last = a.in_size[s] - 1;
      if (i < 0 || i > last) {
        outside[t] = a.has_fill;
        i = i < 0 ? 0 : last;
      }
      offset[t] = offset[t] * a.in_size[s] + i;
    }
    offset[t] *= a.channels;
  }
  const In fill = ConvertTo<In>(a.fill);
  for (int64_t c = 0; c < a.channels; c++) {
    In v[kTaps];
    for (int t = 0; t < kTaps; t++) v[t] = outside[t] ? fill : in[offset[t] + c];
    if constexpr (!kLinear) {
      if (outside[0])
        out[c] = ConvertTo<Out>(a.fill);  // not blended, so the input's type need not represent it
      else if constexpr (std::is_same_v<In, Out>)
        out[c] = v[0];
      else
        out[c] = ConvertTo<Out>(static_cast<float>(v[0]));
    } else if constexpr (D == 2 && std::is_same_v<In, uint8_t> && std::is_same_v<Out, uint8_t>) {
      int32_t w[4], sum = 1 << (kWeightBits - 1);
      Weights(static_cast<uint32_t>(pos[0]), static_cast<uint32_t>(pos[1]), w);
      for (int t = 0; t < 4; t++) sum += w[t] * v[t];
      out[c] = static_cast<uint8_t>(sum >> kWeightBits);
    } else {
      float f[kTaps];
      for (int t = 0; t < kTaps; t++) f[t] = static_cast<float>(v[t]);
      for (int s = 0; s < D; s++) {  // blends along x, then y, then z
        // The fraction of the position, cut to 24 bits, which a float holds.
        float q = static_cast<float>(static_cast<uint32_t>(pos[s]) >> 8) * (1.0f / (1 << 24));
        for (int t = 0; t < kTaps >> (s + 1); t++) f[t] = f[2 * t] * (1.0f - q) + f[2 * t + 1] * q;
      }
      out[c] = ConvertTo<Out>(f[0]);
    }
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WARP_WARP_H_
