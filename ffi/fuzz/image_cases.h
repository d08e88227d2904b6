// What the fuzzers of image decoders share.
#ifndef JAXDALI_FFI_FUZZ_IMAGE_CASES_H_
#define JAXDALI_FFI_FUZZ_IMAGE_CASES_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ffi/decode/decode.h"
#include "ffi/fuzz/choices.h"

namespace jaxdali {

// A copy of a file that ends where its heap block ends, and its header.
struct ImageFile {
  explicit ImageFile(const Data& file) : data(Exact<uint8_t>(file.size())), size(static_cast<int64_t>(file.size())) {
    std::copy(file.begin(), file.end(), data.get());
    info = ParseHeader(data.get(), size);
  }
  // Whether a kernel decodes it. Larger images cost time and find nothing else.
  bool IsDecoded(int64_t max_pixels) const {
    return info.status == kOk && !info.host_decode && int64_t{info.height} * info.width <= max_pixels;
  }

  std::unique_ptr<uint8_t[]> data;
  int64_t size;
  ImageInfo info;
};

// Chooses a part of the image.
inline void ChooseRegion(ImageInfo* info, Choices& choose) {
  info->region_y = choose.below(static_cast<size_t>(info->height));
  info->region_x = choose.below(static_cast<size_t>(info->width));
  info->region_h = 1 + choose.below(static_cast<size_t>(info->height - info->region_y));
  info->region_w = 1 + choose.below(static_cast<size_t>(info->width - info->region_x));
}

// Chooses 1/2, 1/4 or 1/8 of the image's size.
inline void ChooseScale(ImageInfo* info, Choices& choose) {
  const int scale = 2 << choose.below(3);
  info->height = info->region_h = (info->height + scale - 1) / scale;
  info->width = info->region_w = (info->width + scale - 1) / scale;
}

// Decodes the region of an image into a heap block of exactly the output's size.
inline Status DecodeExactly(const ImageFile& file, const ImageInfo& info, const DecodeOptions& options, DType dtype) {
  int64_t h = info.region_h, w = info.region_w, c = OutputChannels(info, options.type);
  if (Transposes(info, options.adjust_orientation)) std::swap(h, w);
  auto out = Exact<uint8_t>(static_cast<size_t>(h * w * c * SizeOf(dtype)));
  return DecodeImage(file.data.get(), file.size, info, options, dtype, out.get(), h, w, c);
}

inline constexpr int64_t kLearnedPixels = 1
                                          << 12;  // of images in libFuzzer's harnesses, which need many fast decodings

// Decodes a file with any options, whole or in part, scaled down or not.
inline void DecodeAnyhow(const Data& data, Choices& choose) {
  constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kU16, DType::kF32, DType::kI16, DType::kF16, DType::kBF16};
  const ImageFile file(data);
  ImageInfo info = file.info;
  if (!file.IsDecoded(kLearnedPixels) || info.height <= 0) return;
  const auto type = static_cast<ImageType>(choose.below(5));
  const bool adjust_orientation = choose.below(3) != 0;
  const DecodeOptions options{type, adjust_orientation, /*fast_idct=*/choose.below(3) == 1};
  const DType dtype = kTypes[choose.below(7)];
  info.truncated = choose.below(2);
  if (info.palette == kHasPalette && choose.below(3) == 1) info.palette = kAsIndices, info.channels = 1;
  if (choose.below(4) == 1 && info.format != static_cast<int32_t>(Format::kPng)) ChooseScale(&info, choose);
  if (choose.below(2)) ChooseRegion(&info, choose);
  DecodeExactly(file, info, options, dtype);
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_IMAGE_CASES_H_
