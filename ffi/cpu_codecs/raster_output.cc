// Two steps for each batch of rows: ConvertColor to the output's channels, then PlaceChannels, which converts the
// element type and moves pixels to their places. Templates over the types keep the inner loops simple enough to be
// vectorized.
#include "ffi/cpu_codecs/raster_output.h"

#include <cstring>
#include <type_traits>

namespace jaxdali {
namespace {

// Converts the colour space of src[pixels, channels] to dst[pixels, C], where C depends on the type. Alpha is dropped.
template <class S>
void ConvertColor(const S* src, int64_t pixels, int channels, ImageType type, S* dst) {
  const bool gray = channels <= 2;
  // A gray pixel is all three colours; its second channel, if any, is alpha.
  const int g = gray ? 0 : 1, b = gray ? 0 : 2;
  if ((type == ImageType::kRgb && channels == 3) || (type == ImageType::kGray && channels == 1)) type = ImageType::kAny;
  switch (type) {
    case ImageType::kAny:
      std::memcpy(dst, src, pixels * channels * sizeof(S));
      break;
    case ImageType::kRgb:
      for (int64_t x = 0; x < pixels; x++, src += channels, dst += 3) dst[0] = src[0], dst[1] = src[g], dst[2] = src[b];
      break;
    case ImageType::kBgr:
      for (int64_t x = 0; x < pixels; x++, src += channels, dst += 3) dst[0] = src[b], dst[1] = src[g], dst[2] = src[0];
      break;
    case ImageType::kGray:
      if (gray) {
        for (int64_t x = 0; x < pixels; x++, src += channels) dst[x] = src[0];
      } else {
        for (int64_t x = 0; x < pixels; x++, src += channels) dst[x] = GrayOfRgb(src[0], src[1], src[2]);
      }
      break;
    case ImageType::kYcbcr:
      for (int64_t x = 0; x < pixels; x++, src += channels, dst += 3) YcbcrOfRgb(src[0], src[g], src[b], dst);
      break;
  }
}

}  // namespace

void ConvertPixels(const uint8_t* from, int64_t pixels, int channels, ImageType type, uint8_t* to) {
  ConvertColor(from, pixels, channels, type, to);
}

RasterOutput::RasterOutput(const ImageInfo& info, const DecodeOptions& options, DType dtype, void* out)
    : stored_width_(info.width),
      first_row_(info.region_y),
      first_column_(info.region_x),
      height_(info.region_h),
      width_(info.region_w),
      whole_(info.region_h == info.height && info.region_w == info.width),
      type_(options.type),
      dtype_(dtype),
      out_(out),
      channels_(OutputChannels(info, options.type)),
      placement_(Orientation(options.adjust_orientation ? info.orientation : 1), height_, width_) {}

// Takes n rows of the stored raster from row y on, each pixel with `channels` values of `depth` bits.
void RasterOutput::Put(int64_t y, int n, const void* rows, int channels, int depth) {
  if (depth == 32)
    PutRows<float>(y, n, static_cast<const float*>(rows), channels);
  else if (depth == 16)
    PutRows<uint16_t>(y, n, static_cast<const uint16_t*>(rows), channels);
  else
    PutRows<uint8_t>(y, n, static_cast<const uint8_t*>(rows), channels);
}

void RasterOutput::PutOrdered(int64_t y, int n, const uint8_t* rows) {
  PlaceRows(y, n, rows + first_column_ * channels_, stored_width_ * channels_);
}

// Put for rows of values S: converts the region's part of them to the output's channels, then places it.
template <class S>
void RasterOutput::PutRows(int64_t y, int n, const S* rows, int channels) {
  const bool is_direct = direct(8 * sizeof(S));
  // If the output has the type and layout of the stored rows, they are converted in place.
  S* converted = reinterpret_cast<S*>(is_direct ? row(y) : scratch_.data());
  if (width_ == stored_width_) {
    ConvertColor(rows, n * width_, channels, type_, converted);
  } else {
    rows += first_column_ * channels;
    for (int r = 0; r < n; r++)
      ConvertColor(rows + r * stored_width_ * channels, width_, channels, type_, converted + r * width_ * channels_);
  }
  if (!is_direct) PlaceRows(y, n, converted, width_ * channels_);
}

// Writes rows that are in the output's colour space, with `pitch` values from one row to the next.
template <class S>
void RasterOutput::PlaceRows(int64_t y, int n, const S* rows, int64_t pitch) {
  switch (dtype_) {
    case DType::kU8:
      return PlaceAs<S, uint8_t>(y, n, rows, pitch);
    case DType::kI8:
      return PlaceAs<S, int8_t>(y, n, rows, pitch);
    case DType::kU16:
      return PlaceAs<S, uint16_t>(y, n, rows, pitch);
    case DType::kI16:
      return PlaceAs<S, int16_t>(y, n, rows, pitch);
    case DType::kU32:
      return PlaceAs<S, uint32_t>(y, n, rows, pitch);
    case DType::kI32:
      return PlaceAs<S, int32_t>(y, n, rows, pitch);
    case DType::kF16:
      return PlaceAs<S, Half>(y, n, rows, pitch);
    case DType::kBF16:
      return PlaceAs<S, BFloat16>(y, n, rows, pitch);
    case DType::kF32:
      return PlaceAs<S, float>(y, n, rows, pitch);
    case DType::kF64:
      return PlaceAs<S, double>(y, n, rows, pitch);
    default:
      return;  // DecodeImage refuses this type
  }
}

// PlaceRows for an output of elements D: makes the number of channels a constant.
template <class S, class D>
void RasterOutput::PlaceAs(int64_t y, int n, const S* rows, int64_t pitch) {
  switch (channels_) {
    case 1:
      return PlaceChannels<S, D>(y, n, rows, pitch, std::integral_constant<int, 1>());
    case 2:
      return PlaceChannels<S, D>(y, n, rows, pitch, std::integral_constant<int, 2>());
    case 3:
      return PlaceChannels<S, D>(y, n, rows, pitch, std::integral_constant<int, 3>());
    case 4:
      return PlaceChannels<S, D>(y, n, rows, pitch, std::integral_constant<int, 4>());
    default:
      return PlaceChannels<S, D>(y, n, rows, pitch, channels_);
  }
}

// PlaceRows for an output of elements D. The number of channels is a constant, or an int.
template <class S, class D, class Channels>
void RasterOutput::PlaceChannels(int64_t y, int n, const S* rows, int64_t pitch, Channels channels) {
  const int C = channels;
  // Placement counts pixels; values are C times as many.
  const int64_t step_y = placement_.step_y * C, step_x = placement_.step_x * C;
  D* out = static_cast<D*>(out_) + placement_.start * C + (y - first_row_) * step_y;
  // Upright or flipped vertically: whole rows, which the compiler vectorizes. The next case is a horizontal flip.
  if (placement_.step_x == 1) {
    for (int r = 0; r < n; r++, rows += pitch) {
      D* to = out + r * step_y;
      for (int64_t i = 0; i < width_ * C; i++) to[i] = Scale<D>(rows[i]);
    }
  } else if (placement_.step_x == -1) {
    for (int r = 0; r < n; r++, rows += pitch) {
      const S* from = rows;
      D* to = out + r * step_y;
      for (int64_t x = 0; x < width_; x++, to -= C, from += C)
        for (int c = 0; c < C; c++) to[c] = Scale<D>(from[c]);
    }
  } else {  // transposed: writes n neighbours in a row of the output at a time, so that it fills whole cache lines
    for (int64_t x = 0; x < width_; x++, rows += C) {
      D* to = out + x * step_x;
      for (int r = 0; r < n; r++, to += step_y)
        for (int c = 0; c < C; c++) to[c] = Scale<D>(rows[r * pitch + c]);
    }
  }
}

}  // namespace jaxdali
