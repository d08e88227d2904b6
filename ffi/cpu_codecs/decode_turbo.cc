// JPEG by libjpeg-turbo: the files that decode_jpeg.cc leaves to it (CMYK, arithmetic coding, damaged and unusual
// files), and all files on CPUs where the own decoder is slower.
// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "ffi/cpu_codecs/raster_output.h"

namespace jaxdali {

#if defined(D_ARITH_CODING_SUPPORTED)
const bool kJpegArithmetic = true;
#else
const bool kJpegArithmetic = false;
#endif

namespace {

struct JpegError {
  jpeg_error_mgr base;  // first: libjpeg knows only this part
  std::jmp_buf jump;
  Status status;
};

struct JpegSource {
  jpeg_source_mgr base;
  bool is_past_end;
};

// One per thread, for its buffers. libjpeg's object is created anew for each image: a used one keeps the tables of the
// image before, and would decode a file without tables with those instead of the standard ones.
class JpegDecoder {
 public:
  // Sets libjpeg's callbacks: errors go back to Run's setjmp, warnings are counted, and reads past the end are
  // noted.
  JpegDecoder() {
    cinfo_.err = jpeg_std_error(&error_.base);
    error_.base.error_exit = [](j_common_ptr c) {
      auto* e = reinterpret_cast<JpegError*>(c->err);
      e->status = c->err->msg_code == JERR_OUT_OF_MEMORY ? kOutOfMemory : kCorrupt;
      std::longjmp(e->jump, 1);
    };
    // A negative level is a warning.
    error_.base.emit_message = [](j_common_ptr c, int level) {
      if (level < 0) c->err->num_warnings++;
    };
    error_.base.output_message = [](j_common_ptr) {};
    source_.base.init_source = [](j_decompress_ptr) {};
    source_.base.term_source = [](j_decompress_ptr) {};
    source_.base.resync_to_restart = jpeg_resync_to_restart;
    // The data have ended: libjpeg gets an end-of-image marker, as from its own sources, and the fact is noted.
    source_.base.fill_input_buffer = [](j_decompress_ptr c) -> boolean {
      static const JOCTET kEnd[] = {0xFF, JPEG_EOI};
      auto* s = reinterpret_cast<JpegSource*>(c->src);
      s->is_past_end = true;
      s->base.next_input_byte = kEnd;
      s->base.bytes_in_buffer = 2;
      return TRUE;
    };
    source_.base.skip_input_data = [](j_decompress_ptr c, long n) {
      if (n <= 0) return;
      if (static_cast<size_t>(n) > c->src->bytes_in_buffer) {
        c->src->fill_input_buffer(c);
      } else {
        c->src->next_input_byte += n;
        c->src->bytes_in_buffer -= n;
      }
    };
    // Each scan of a progressive file goes over the whole image, so a file with thousands of empty scans could take
    // hours.
    progress_.progress_monitor = [](j_common_ptr c) {
      if (c->is_decompressor && reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > kMostDecodedScans) {
        reinterpret_cast<JpegError*>(c->err)->status = kTooManyScans;
        std::longjmp(reinterpret_cast<JpegError*>(c->err)->jump, 1);
      }
    };
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Decodes the region of a file. A file that ends early is kTruncated; with info.truncated, as much of it as possible
  // is decoded.
  Status Decode(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                RasterOutput* out) {
    // Everything that may throw is done before setjmp: longjmp must not skip destructors.
    rows_.resize(static_cast<size_t>(kRows) * info.width * 4);
    out->Reserve(/*depth=*/8);
    Status status = Run(data, size, info, options, out);
    jpeg_destroy_decompress(&cinfo_);
    if (status == kTruncated && info.truncated) {  // the data end inside a segment after the first scan
      status = Run(data, LastMarker(data, size), info, options, out);
      jpeg_destroy_decompress(&cinfo_);
    }
    if (rows_.size() > (size_t{1} << 22)) rows_ = {};  // a large image's rows are not kept
    return status;
  }

 private:
  static constexpr int kMostDecodedScans = 500;  // far more than encoders make; kTooManyScans's text has the number

  // The offset of the last marker, or 0. FF 00 is a stuffed byte, FF FF a fill byte, and RST markers don't count.
  static int64_t LastMarker(const uint8_t* data, int64_t size) {
    for (int64_t offset = size - 2; offset >= 0; offset--)
      if (data[offset] == 0xFF && data[offset + 1] != 0 && data[offset + 1] != 0xFF &&
          (data[offset + 1] & 0xF8) != 0xD0)
        return offset;
    return 0;
  }

  // Decodes the region from the first `size` bytes of the file. No object with a destructor may exist in this function
  // or in those it calls, because libjpeg's errors return to its setjmp.
  Status Run(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
             RasterOutput* out) {
    jpeg_decompress_struct* c = &cinfo_;
    error_.status = kCorrupt;
    error_.base.num_warnings = 0;
    source_.is_past_end = false;
    source_.base.next_input_byte = data;
    source_.base.bytes_in_buffer = static_cast<size_t>(size);
    if (setjmp(error_.jump)) return source_.is_past_end && error_.status == kCorrupt ? kTruncated : error_.status;
    jpeg_create_decompress(c);
    c->src = &source_.base;
    c->progress = &progress_;
    if (jpeg_read_header(c, TRUE) != JPEG_HEADER_OK) return kCorrupt;
    // The data end within the headers.
    if (source_.is_past_end || source_.base.bytes_in_buffer == 0) return kTruncated;
    const unsigned scale = ScaleTo(c->image_width, c->image_height, info);
    if (scale == 0) return kSizeMismatch;
    if (c->data_precision != 8) return kUnsupported;

    const bool gray_out = options.type == ImageType::kGray;
    int channels = 3;
    bool is_cmyk = false;
    switch (c->jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_YCbCr:
      case JCS_RGB:
        // The Y plane of YCbCr is GRAY; any other type is made from RGB.
        if (gray_out || (options.type == ImageType::kAny && c->num_components == 1)) {
          c->out_color_space = JCS_GRAYSCALE;
          channels = 1;
        } else {
          c->out_color_space = options.type == ImageType::kBgr ? JCS_EXT_BGR : JCS_EXT_RGB;
        }
        break;
      case JCS_CMYK:
      case JCS_YCCK:
        c->out_color_space = JCS_CMYK;
        is_cmyk = true;
        break;
      default:
        return kUnsupported;
    }
    if ((info.channels == 1) != (c->num_components == 1)) return kSizeMismatch;
    c->dct_method = options.fast_idct ? JDCT_IFAST : JDCT_ISLOW;
    c->do_fancy_upsampling = TRUE;
    c->scale_num = 1;
    c->scale_denom = scale;
    jpeg_start_decompress(c);
    if (c->output_width != static_cast<JDIMENSION>(info.width) ||
        c->output_height != static_cast<JDIMENSION>(info.height))
      return kSizeMismatch;

    const bool has_output_order = !is_cmyk && options.type != ImageType::kYcbcr;
    const bool is_direct = has_output_order && out->direct(/*depth=*/8);
    const int64_t stride = static_cast<int64_t>(info.width) * (is_cmyk ? 4 : channels);
    const int64_t first = out->first_row(), end = out->end_row();
    JSAMPROW rows[kRows];
    while (c->output_scanline < end) {
      // Rows above the region are decoded and dropped, because libjpeg's functions that skip rows and columns change
      // pixels.
      const int64_t y = c->output_scanline;
      const bool is_dropped = y < first;
      int rows_needed = static_cast<int>(std::min<int64_t>(kRows, (is_dropped ? first : end) - y)), rows_read = 0;
      for (int r = 0; r < rows_needed; r++)
        rows[r] = is_direct && !is_dropped ? out->row(y + r) : rows_.data() + r * stride;
      while (rows_read < rows_needed) {
        // libjpeg may return fewer rows than asked for.
        int n = static_cast<int>(jpeg_read_scanlines(c, rows + rows_read, rows_needed - rows_read));
        if (n == 0) return kCorrupt;
        rows_read += n;
      }
      if (is_direct || is_dropped) continue;
      if (is_cmyk) CmykToRgb(rows_.data(), static_cast<int64_t>(rows_needed) * info.width, c->saw_Adobe_marker);
      if (has_output_order)
        out->PutOrdered(y, rows_needed, rows_.data());
      else
        out->Put(y, rows_needed, rows_.data(), /*channels=*/3, /*depth=*/8);
    }
    // As in DALI, a file that ends before its EOI marker is truncated, even if no pixel is missing. For a region that
    // ends above the last row, only the bytes that had to be read for it count.
    if (source_.is_past_end && !info.truncated) return kTruncated;
    return kOk;
  }

  // Converts CMYK (four bytes a pixel) to RGB (three) in place: each ink takes light away, and black from all channels.
  // Adobe's files hold inverted values, which are 255 - ink.
  static void CmykToRgb(uint8_t* p, int64_t pixels, bool inverted) {
    uint8_t* rgb = p;
    const int flip = inverted ? 0 : 255;  // afterwards each value is 255 - ink
    for (int64_t i = 0; i < pixels; i++, p += 4, rgb += 3) {
      const int light = p[3] ^ flip;
      for (int j = 0; j < 3; j++) rgb[j] = LightThrough(255 - (p[j] ^ flip), light);
    }
  }

  jpeg_decompress_struct cinfo_{};
  JpegError error_{};
  JpegSource source_{};
  jpeg_progress_mgr progress_{};
  std::vector<uint8_t> rows_;  // kRows rows that don't go straight to the output, with at most four bytes a pixel
};

}  // namespace

Status DecodeJpegByTurbo(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options,
                         RasterOutput* out) {
  thread_local JpegDecoder decoder;
  return decoder.Decode(data, size, info, options, out);
}

}  // namespace jaxdali
