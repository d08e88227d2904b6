// PNG by libpng: the files that decode_png.cc leaves to it. Its errors are longjmps, so no object with a destructor may
// be created in Start and Read.
#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "ffi/cpu_codecs/raster_output.h"

#if defined(JAXDALI_LIBPNG)
#include <png.h>
#endif

namespace jaxdali {

#if defined(JAXDALI_LIBPNG)
const bool kPng = true;

namespace {

class PngDecoder {
 public:
  PngDecoder(const uint8_t* data, int64_t size) : next_(data), bytes_left_(static_cast<size_t>(size)) {}
  ~PngDecoder() {
    if (png_) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Decodes the region. Objects with destructors are created here, outside of the functions that longjmp leaves.
  Status Decode(const ImageInfo& info, const DecodeOptions& options, RasterOutput* out) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, [](png_structp, png_const_charp) {});
    if (!png_) return kOutOfMemory;
    info_ = png_create_info_struct(png_);
    if (!info_) return kOutOfMemory;
    Status status = Start(info, options, out);
    if (status != kOk) return status;
    // Interlaced files need the whole raster. It is allocated here, where no longjmp skips its destructor.
    const int64_t rows = passes_ > 1 ? info.height : kRows;
    if (!is_direct_ || out->first_row() > 0) rows_.resize(static_cast<size_t>(is_direct_ ? 1 : rows) * stride_);
    if (!is_direct_) out->Reserve(info.depth);
    return Read(info, out);
  }

 private:
  // libpng's error: goes back to the setjmp of Start or Read.
  static void OnError(png_structp png, png_const_charp) {
    std::longjmp(static_cast<PngDecoder*>(png_get_error_ptr(png))->jump_, 1);
  }
  // libpng's request for the next n bytes of the file.
  static void OnRead(png_structp png, png_bytep destination, size_t n) {
    auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (n > decoder->bytes_left_) {
      decoder->is_past_end_ = true;
      png_error(png, "end of data");
    }
    std::memcpy(destination, decoder->next_, n);
    decoder->next_ += n;
    decoder->bytes_left_ -= n;
  }

  // Reads the header, and sets what libpng makes of the pixels: the output's channels if it can write straight to the
  // output, otherwise the file's.
  Status Start(const ImageInfo& info, const DecodeOptions& options, RasterOutput* out) {
    if (setjmp(jump_)) return is_past_end_ ? kTruncated : kCorrupt;  // after an error
    png_set_read_fn(png_, this, &OnRead);
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // ParseHeader has its own limits
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    // Only pixels are needed. Colour profiles are slow to check, and transparency is ignored.
    // Names of four letters with a zero after each, so five bytes a name.
    static const png_byte kSkip[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0tRNS\0zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kSkip, sizeof(kSkip) / 5);
#endif
    png_read_info(png_, info_);
    // The file has changed since its header was read.
    if (png_get_image_width(png_, info_) != static_cast<png_uint_32>(info.width) ||
        png_get_image_height(png_, info_) != static_cast<png_uint_32>(info.height))
      return kSizeMismatch;
    const int color = png_get_color_type(png_, info_), bits = png_get_bit_depth(png_, info_);
    // Indices of less than 8 bits are unpacked to bytes.
    if (color == PNG_COLOR_TYPE_PALETTE && info.palette == kAsIndices) {
      png_set_packing(png_);
    } else if (color == PNG_COLOR_TYPE_PALETTE) {
      png_set_palette_to_rgb(png_);
      if (png_get_valid(png_, info_, PNG_INFO_tRNS)) png_set_strip_alpha(png_);
    }
    // Gray values of 1, 2 and 4 bits are scaled to the range of 8 bits.
    if (color == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png_);
    // PNG stores big-endian values.
    if (bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    const bool is_interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    is_direct_ = out->direct(info.depth) && (out->whole() || !is_interlaced);
    if (is_direct_) {  // libpng can make the output's channels itself
      switch (options.type) {
        case ImageType::kBgr:
          if (info.channels >= 3) png_set_bgr(png_);
          [[fallthrough]];
        case ImageType::kRgb:
          if (color & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png_);
          if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png_);
          break;
        case ImageType::kGray:
          is_direct_ = !(color & PNG_COLOR_MASK_COLOR);
          if (is_direct_ && (color & PNG_COLOR_MASK_ALPHA)) png_set_strip_alpha(png_);
          break;
        case ImageType::kYcbcr:
          is_direct_ = false;
          break;
        case ImageType::kAny:
          break;
      }
    }
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const int channels = is_direct_ ? OutputChannels(info, options.type) : info.channels;
    stride_ = static_cast<int64_t>(info.width) * channels * (info.depth / 8);
    return png_get_rowbytes(png_, info_) == static_cast<size_t>(stride_) ? kOk : kSizeMismatch;
  }

  // Reads the rows down to the region's end, and hands over the region's.
  Status Read(const ImageInfo& info, RasterOutput* out) {
    if (setjmp(jump_)) return is_past_end_ ? kTruncated : kCorrupt;  // after an error
    const int64_t first = out->first_row(), end = out->end_row();
    // Adam7: each pass completes the rows, so all of them are kept.
    if (passes_ > 1) {
      for (int pass = 0; pass < passes_; pass++)
        for (int64_t y = 0; y < info.height; y++)
          png_read_row(png_, is_direct_ ? out->row(y) : rows_.data() + y * stride_, nullptr);
      if (is_direct_) return kOk;
      for (int64_t y = first; y < end; y += kRows)
        out->Put(y, static_cast<int>(std::min<int64_t>(kRows, end - y)), rows_.data() + y * stride_, info.channels,
                 info.depth);
      return kOk;
    }
    // Rows above the region must be read, since filters depend on the row above.
    for (int64_t y = 0; y < first; y++) png_read_row(png_, rows_.data(), nullptr);
    for (int64_t y = first; y < end; y++) {
      const int64_t slot = (y - first) % kRows;
      png_read_row(png_, is_direct_ ? out->row(y) : rows_.data() + slot * stride_, nullptr);
      if (!is_direct_ && (slot == kRows - 1 || y == end - 1))
        out->Put(y - slot, static_cast<int>(slot) + 1, rows_.data(), info.channels, info.depth);
    }
    return kOk;
  }

  const uint8_t* next_;
  size_t bytes_left_;
  std::jmp_buf jump_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  bool is_past_end_ = false;   // libpng asked for more bytes than there are: the file is truncated
  bool is_direct_ = false;     // libpng writes rows straight to the output
  int passes_ = 1;             // 7 for an interlaced file
  int64_t stride_ = 0;         // bytes of a row
  std::vector<uint8_t> rows_;  // rows that don't go straight to the output
};

}  // namespace

Status DecodePngByLibpng(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out) {
  return PngDecoder(data, size).Decode(info, options, out);
}

#else
const bool kPng = false;

Status DecodePngByLibpng(const uint8_t*, int64_t, const ImageInfo&, const DecodeOptions&, RasterOutput*) {
  return kUnsupported;
}
#endif

}  // namespace jaxdali
