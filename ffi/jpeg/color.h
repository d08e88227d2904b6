// YCbCr to RGB (T.871, the full-range version of BT.601) in 16.16 fixed point, with the same bits as libjpeg-turbo. It
// adds the luminance before the shift, which changes nothing, and clamps before the shift, so that a byte can be picked
// instead of shifted.
#ifndef JAXDALI_FFI_JPEG_COLOR_H_
#define JAXDALI_FFI_JPEG_COLOR_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/common/words.h"

namespace jaxdali::jpeg {

// Weights of two chroma planes in the three channels of RGB or BGR. The first plane is the one that the first channel
// needs (Cr for RGB, Cb for BGR), the third plane that of the third channel. Green needs both.
struct ColorWeights {
  int32_t first, third;                // factors of the chroma planes in these channels
  int32_t second_first, second_third;  // and in the second channel, green
  int32_t offset, offset2, offset3;    // for rounding and the chroma zero of 128, in each channel

  // The weights for RGB or BGR.
  JAXDALI_HD static ColorWeights Make(bool bgr) {
    // libjpeg's constants 1.40200, 1.77200, -0.71414 and -0.34414, times 2^16 and rounded.
    constexpr int32_t kRed = 91881, kBlue = 116130, kGreenRed = -46802, kGreenBlue = -22554, kHalf = 32768;
    ColorWeights w;
    w.first = bgr ? kBlue : kRed;
    w.third = bgr ? kRed : kBlue;
    w.second_first = bgr ? kGreenBlue : kGreenRed;
    w.second_third = bgr ? kGreenRed : kGreenBlue;
    w.offset = kHalf - 128 * w.first;
    w.offset2 = kHalf - 128 * (w.second_first + w.second_third);
    w.offset3 = kHalf - 128 * w.third;
    return w;
  }
};

// 0 to 255 in 16.16 fixed point.
JAXDALI_HD inline uint32_t Clamp24(int32_t v) { return static_cast<uint32_t>(v < 0 ? 0 : v > 0xFFFFFF ? 0xFFFFFF : v); }

// Three channels in 16.16 fixed point: their bytes are bits 16 to 23.
JAXDALI_HD inline void YccToChannels(const ColorWeights& w, int32_t y, int32_t chroma_first, int32_t chroma_third,
                                     uint32_t* out) {
  y *= 65536;
  out[0] = Clamp24(y + w.offset + w.first * chroma_first);
  out[1] = Clamp24(y + w.offset2 + w.second_first * chroma_first + w.second_third * chroma_third);
  out[2] = Clamp24(y + w.offset3 + w.third * chroma_third);
}

// The bytes of four channels, the first one lowest.
JAXDALI_HD inline uint32_t PackChannels(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  // Nibbles of a selector number the bytes of both operands, 0 to 7: 2 and 6 are the bits 16 to 23 of each.
  return Permute(Permute(a, b, 0x62), Permute(c, d, 0x62), 0x5410);
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_COLOR_H_
