// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
// clang-format on

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

#include "ffi/decode.h"

namespace jaxdali {

#if defined(D_ARITH_CODING_SUPPORTED)
const bool kJpegArithmetic = true;
#else
const bool kJpegArithmetic = false;
#endif

namespace {

// --- pixels to output ---------------------------------------------------------------------------------------------

template <class T>
struct Full {  // the value that stands for full intensity
  static constexpr double value = static_cast<double>(std::numeric_limits<T>::max());
};
template <>
struct Full<float> {
  static constexpr double value = 1;
};
template <>
struct Full<double> {
  static constexpr double value = 1;
};

// float to IEEE half, round to nearest even; for 0 to 1 only, which is all a decoder makes.
uint16_t HalfBits(float f) {
  uint32_t x = std::bit_cast<uint32_t>(f);
  if (x < 0x38800000u) {  // below 2^-14: subnormal halves are multiples of 2^-24
    float scaled = f * 16777216.0f;
    uint32_t n = static_cast<uint32_t>(scaled);
    float rest = scaled - static_cast<float>(n);
    return static_cast<uint16_t>(n + (rest > 0.5f || (rest == 0.5f && (n & 1))));
  }
  x += 0xFFF + (x >> 13 & 1);
  return static_cast<uint16_t>((x >> 13) - (112u << 10));
}

struct Half {
  uint16_t bits;
};

// A value of the source (uint8 or uint16, full range) in the full range of D.
template <class D, class S>
inline D Scale(S v) {
  if constexpr (std::is_same_v<D, S>) {
    return v;
  } else if constexpr (std::is_same_v<S, uint8_t> && std::is_same_v<D, uint16_t>) {
    return static_cast<uint16_t>(v * 257);
  } else if constexpr (std::is_same_v<S, uint16_t> && std::is_same_v<D, uint8_t>) {
    return static_cast<uint8_t>((v * 255u + 32895u) >> 16);  // = round(v * 255 / 65535), for all v
  } else if constexpr (std::is_same_v<D, Half>) {
    return Half{HalfBits(static_cast<float>(v) / static_cast<float>(Full<S>::value))};
  } else if constexpr (std::is_floating_point_v<D>) {
    return static_cast<D>(v) / static_cast<D>(Full<S>::value);
  } else {
    return static_cast<D>(v * (Full<D>::value / Full<S>::value) + 0.5);
  }
}

inline int Clamp255(float v) { return v < 0 ? 0 : v > 255 ? 255 : static_cast<int>(v + 0.5f); }

// Colour space of one row: src[width, channels] to dst[width, C], C by type. Alpha is dropped.
template <class S>
void ConvertColor(const S* src, int64_t width, int channels, ImageType type, S* dst) {
  const bool gray = channels <= 2;
  const int g = gray ? 0 : 1, b = gray ? 0 : 2;
  switch (type) {
    case ImageType::kAny:
      std::memcpy(dst, src, width * channels * sizeof(S));
      break;
    case ImageType::kRgb:
      for (int64_t x = 0; x < width; x++, src += channels, dst += 3) dst[0] = src[0], dst[1] = src[g], dst[2] = src[b];
      break;
    case ImageType::kBgr:
      for (int64_t x = 0; x < width; x++, src += channels, dst += 3) dst[0] = src[b], dst[1] = src[g], dst[2] = src[0];
      break;
    case ImageType::kGray:
      if (gray) {
        for (int64_t x = 0; x < width; x++, src += channels) dst[x] = src[0];
      } else {  // 0.299, 0.587, 0.114 as multiples of 2^-16
        for (int64_t x = 0; x < width; x++, src += channels)
          dst[x] = static_cast<S>((src[0] * 19595u + src[1] * 38470u + src[2] * 7471u + 0x8000u) >> 16);
      }
      break;
    case ImageType::kYcbcr: {  // ITU-R BT.601, studio range
      constexpr float to8 = static_cast<float>(255 / Full<S>::value);
      auto put = [](float v) {
        if constexpr (sizeof(S) == 1)
          return static_cast<S>(Clamp255(v));
        else
          return static_cast<S>(std::clamp(v, 0.0f, 255.0f) * 257.0f + 0.5f);
      };
      for (int64_t x = 0; x < width; x++, src += channels, dst += 3) {
        float r = src[0] * to8, gr = src[g] * to8, bl = src[b] * to8;
        dst[0] = put(16 + (65.481f * r + 128.553f * gr + 24.966f * bl) / 255);
        dst[1] = put(128 + (-37.797f * r - 74.203f * gr + 112.0f * bl) / 255);
        dst[2] = put(128 + (112.0f * r - 93.786f * gr - 18.214f * bl) / 255);
      }
      break;
    }
  }
}

constexpr int kRows = 16;  // rows handed over at a time: they and their conversion stay in the cache

// Takes the stored raster from the top, some rows at a time, and writes them where the upright image has them.
class Output {
 public:
  Output(const ImageInfo& info, const DecodeOptions& options, DType dtype, void* out)
      : height_(info.height), width_(info.width), type_(options.type), dtype_(dtype), out_(out) {
    channels_ = OutputChannels(info, options.type);
    int64_t h = height_, w = width_, across = Transposes(info, options) ? h : w;
    switch (options.adjust_orientation ? info.orientation : 1) {
      default:
        start_ = 0, step_x_ = 1, step_y_ = across;
        break;
      case 2:
        start_ = w - 1, step_x_ = -1, step_y_ = across;
        break;
      case 3:
        start_ = h * w - 1, step_x_ = -1, step_y_ = -across;
        break;
      case 4:
        start_ = (h - 1) * across, step_x_ = 1, step_y_ = -across;
        break;
      case 5:
        start_ = 0, step_x_ = across, step_y_ = 1;
        break;
      case 6:
        start_ = h - 1, step_x_ = across, step_y_ = -1;
        break;
      case 7:
        start_ = h * w - 1, step_x_ = -across, step_y_ = -1;
        break;
      case 8:
        start_ = (w - 1) * across, step_x_ = -across, step_y_ = 1;
        break;
    }
    upright_ = start_ == 0 && step_x_ == 1;
  }

  // The row itself, when pixels of `depth` bits decoded into it need nothing more than the right channel order.
  bool direct(int depth) const { return upright_ && dtype_ == (depth == 16 ? DType::kU16 : DType::kU8); }
  uint8_t* row(int64_t y) const { return static_cast<uint8_t*>(out_) + y * width_ * channels_ * SizeOf(dtype_); }

  void Reserve(int depth) { scratch_.resize(static_cast<size_t>(kRows) * width_ * channels_ * (depth / 8) + 8); }

  // n <= kRows rows from row y on, n * width pixels of `channels` values of `depth` bits.
  void Put(int64_t y, int n, const void* rows, int channels, int depth) {
    if (depth == 16)
      PutRows<uint16_t>(y, n, static_cast<const uint16_t*>(rows), channels);
    else
      PutRows<uint8_t>(y, n, static_cast<const uint8_t*>(rows), channels);
  }
  // The same for 8-bit pixels whose channels are those of the output already.
  void PutOrdered(int64_t y, int n, const uint8_t* rows) { PlaceRows(y, n, rows); }

 private:
  template <class S>
  void PutRows(int64_t y, int n, const S* rows, int channels) {
    S* converted = reinterpret_cast<S*>(scratch_.data());
    const bool same = direct(8 * sizeof(S));
    if (same) converted = reinterpret_cast<S*>(row(y));
    ConvertColor(rows, n * width_, channels, type_, converted);
    if (!same) PlaceRows(y, n, converted);
  }

  template <class S>
  void PlaceRows(int64_t y, int n, const S* converted) {
    switch (dtype_) {
      case DType::kU8:
        return Place<S, uint8_t>(y, n, converted);
      case DType::kI8:
        return Place<S, int8_t>(y, n, converted);
      case DType::kU16:
        return Place<S, uint16_t>(y, n, converted);
      case DType::kI16:
        return Place<S, int16_t>(y, n, converted);
      case DType::kU32:
        return Place<S, uint32_t>(y, n, converted);
      case DType::kI32:
        return Place<S, int32_t>(y, n, converted);
      case DType::kF16:
        return Place<S, Half>(y, n, converted);
      case DType::kF32:
        return Place<S, float>(y, n, converted);
      case DType::kF64:
        return Place<S, double>(y, n, converted);
      default:
        return;  // DecodeImage has refused it
    }
  }

  template <class S, class D>
  void Place(int64_t y, int n, const S* rows) {
    switch (channels_) {
      case 1:
        return PlaceChannels<S, D, 1>(y, n, rows);
      case 2:
        return PlaceChannels<S, D, 2>(y, n, rows);
      case 3:
        return PlaceChannels<S, D, 3>(y, n, rows);
      default:
        return PlaceChannels<S, D, 4>(y, n, rows);
    }
  }

  template <class S, class D, int C>
  void PlaceChannels(int64_t y, int n, const S* rows) {
    D* out = static_cast<D*>(out_) + (start_ + y * step_y_) * C;
    if (step_x_ == 1) {
      for (int r = 0; r < n; r++, rows += width_ * C) {
        D* to = out + r * step_y_ * C;
        for (int64_t i = 0; i < width_ * C; i++) to[i] = Scale<D>(rows[i]);
      }
    } else if (step_x_ == -1) {
      for (int r = 0; r < n; r++) {
        D* to = out + r * step_y_ * C;
        for (int64_t x = 0; x < width_; x++, to -= C, rows += C)
          for (int c = 0; c < C; c++) to[c] = Scale<D>(rows[c]);
      }
    } else {  // transposed: n neighbours in one row of the output at a time, so that whole cache lines are written
      for (int64_t x = 0; x < width_; x++, rows += C) {
        D* to = out + x * step_x_ * C;
        for (int r = 0; r < n; r++, to += step_y_ * C)
          for (int c = 0; c < C; c++) to[c] = Scale<D>(rows[r * width_ * C + c]);
      }
    }
  }

  int64_t height_, width_;
  ImageType type_;
  DType dtype_;
  void* out_;
  int channels_;
  int64_t start_, step_x_, step_y_;  // in pixels
  bool upright_;
  std::vector<uint8_t> scratch_;
};

// --- JPEG ---------------------------------------------------------------------------------------------------------

struct JpegError {
  jpeg_error_mgr base;  // first: libjpeg knows only this part
  std::jmp_buf jump;
  Status status;
};

struct JpegSource {
  jpeg_source_mgr base;
  bool past_end;
};

// One per thread, used again for each image: libjpeg keeps its small tables.
class JpegDecoder {
 public:
  JpegDecoder() {
    cinfo_.err = jpeg_std_error(&error_.base);
    error_.base.error_exit = [](j_common_ptr c) {
      auto* e = reinterpret_cast<JpegError*>(c->err);
      e->status = c->err->msg_code == JERR_OUT_OF_MEMORY ? kOutOfMemory : kCorrupt;
      std::longjmp(e->jump, 1);
    };
    error_.base.emit_message = [](j_common_ptr c, int level) {
      if (level < 0) c->err->num_warnings++;
    };
    error_.base.output_message = [](j_common_ptr) {};
    if (setjmp(error_.jump)) return;  // only without memory; created_ stays false
    jpeg_create_decompress(&cinfo_);
    source_.base.init_source = [](j_decompress_ptr) {};
    source_.base.term_source = [](j_decompress_ptr) {};
    source_.base.resync_to_restart = jpeg_resync_to_restart;
    source_.base.fill_input_buffer = [](j_decompress_ptr c) -> boolean {
      static const JOCTET kEnd[] = {0xFF, JPEG_EOI};
      auto* s = reinterpret_cast<JpegSource*>(c->src);
      s->past_end = true;
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
    cinfo_.src = &source_.base;
    // Each scan of a progressive file goes over the whole image: thousands of empty ones are a way to waste hours.
    progress_.progress_monitor = [](j_common_ptr c) {
      if (c->is_decompressor && reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > kMaxScans) {
        reinterpret_cast<JpegError*>(c->err)->status = kUnsupported;
        std::longjmp(reinterpret_cast<JpegError*>(c->err)->jump, 1);
      }
    };
    cinfo_.progress = &progress_;
    created_ = true;
  }
  ~JpegDecoder() {
    if (created_) jpeg_destroy_decompress(&cinfo_);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Status Decode(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, Output* out) {
    if (!created_) return kOutOfMemory;
    // Whatever may throw is done before setjmp: longjmp must not skip destructors.
    rows_.resize(static_cast<size_t>(kRows) * info.width * 4);
    out->Reserve(8);
    Status status = Run(data, size, info, options, out);
    jpeg_abort_decompress(&cinfo_);  // gives back the image's memory; keeps the object
    if (rows_.size() > (size_t{1} << 22)) rows_ = {};
    return status;
  }

 private:
  static constexpr int kMaxScans = 500;

  // No object with a destructor lives in this function or below it.
  Status Run(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, Output* out) {
    jpeg_decompress_struct* c = &cinfo_;
    error_.status = kCorrupt;
    error_.base.num_warnings = 0;
    source_.past_end = false;
    source_.base.next_input_byte = data;
    source_.base.bytes_in_buffer = static_cast<size_t>(size);
    if (setjmp(error_.jump)) return source_.past_end && error_.status == kCorrupt ? kTruncated : error_.status;
    if (jpeg_read_header(c, TRUE) != JPEG_HEADER_OK) return kCorrupt;
    if (c->image_width != static_cast<JDIMENSION>(info.width) ||
        c->image_height != static_cast<JDIMENSION>(info.height))
      return kSizeMismatch;
    if (c->data_precision != 8) return kUnsupported;

    const bool gray_out = options.type == ImageType::kGray;
    int channels = 3;
    bool cmyk = false;
    switch (c->jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_YCbCr:
      case JCS_RGB:
        // GRAY of YCbCr is its Y plane; any other type is made from RGB.
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
        cmyk = true;
        break;
      default:
        return kUnsupported;
    }
    if ((info.channels == 1) != (c->num_components == 1)) return kSizeMismatch;
    c->dct_method = options.fast_idct ? JDCT_IFAST : JDCT_ISLOW;
    c->do_fancy_upsampling = TRUE;
    jpeg_start_decompress(c);
    if (c->output_width != c->image_width || c->output_height != c->image_height) return kSizeMismatch;

    const bool ordered = !cmyk && options.type != ImageType::kYcbcr;
    const bool direct = ordered && out->direct(8);
    const int64_t stride = static_cast<int64_t>(info.width) * (cmyk ? 4 : channels);
    JSAMPROW rows[kRows];
    while (c->output_scanline < c->output_height) {
      int64_t y = c->output_scanline;
      int wanted = static_cast<int>(std::min<int64_t>(kRows, info.height - y)), got = 0;
      for (int r = 0; r < wanted; r++) rows[r] = direct ? out->row(y + r) : rows_.data() + r * stride;
      while (got < wanted) {
        int n = static_cast<int>(jpeg_read_scanlines(c, rows + got, wanted - got));
        if (n == 0) return kCorrupt;
        got += n;
      }
      if (direct) continue;
      if (cmyk) CmykToRgb(rows_.data(), static_cast<int64_t>(wanted) * info.width, c->saw_Adobe_marker);
      if (ordered)
        out->PutOrdered(y, wanted, rows_.data());
      else
        out->Put(y, wanted, rows_.data(), 3, 8);
    }
    // As DALI: a file that ends before its EOI marker is truncated, even when no pixel is missing.
    if (source_.past_end) return kTruncated;
    return kOk;
  }

  // In place. Adobe's files hold inverted values. Products as Pillow rounds them.
  static void CmykToRgb(uint8_t* p, int64_t pixels, bool inverted) {
    uint8_t* to = p;
    const int flip = inverted ? 0 : 255;  // afterwards each value is 255 - ink
    for (int64_t i = 0; i < pixels; i++, p += 4, to += 3) {
      int k = p[3] ^ flip;
      for (int j = 0; j < 3; j++) {
        int t = (255 - (p[j] ^ flip)) * k + 128;
        to[j] = static_cast<uint8_t>(k - ((t + (t >> 8)) >> 8));
      }
    }
  }

  jpeg_decompress_struct cinfo_{};
  JpegError error_{};
  JpegSource source_{};
  jpeg_progress_mgr progress_{};
  std::vector<uint8_t> rows_;
  bool created_ = false;
};

Status DecodeJpeg(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, Output* out) {
  thread_local JpegDecoder decoder;
  return decoder.Decode(data, size, info, options, out);
}

// --- PNG ----------------------------------------------------------------------------------------------------------

class PngDecoder {
 public:
  PngDecoder(const uint8_t* data, int64_t size) : at_(data), left_(static_cast<size_t>(size)) {}
  ~PngDecoder() {
    if (png_) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  Status Decode(const ImageInfo& info, const DecodeOptions& options, Output* out) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, [](png_structp, png_const_charp) {});
    if (!png_) return kOutOfMemory;
    info_ = png_create_info_struct(png_);
    if (!info_) return kOutOfMemory;
    Status s = Start(info, options, out);
    if (s != kOk) return s;
    // Interlaced files need the whole raster: it is made here, where no longjmp passes.
    if (direct_ || passes_ == 1) {
      if (!direct_) {
        rows_.resize(static_cast<size_t>(kRows) * stride_);
        out->Reserve(info.depth);
      }
    } else {
      rows_.resize(static_cast<size_t>(info.height) * stride_);
      out->Reserve(info.depth);
    }
    return Read(info, out);
  }

 private:
  static void OnError(png_structp png, png_const_charp) {
    std::longjmp(static_cast<PngDecoder*>(png_get_error_ptr(png))->jump_, 1);
  }
  static void OnRead(png_structp png, png_bytep to, size_t n) {
    auto* d = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (n > d->left_) {
      d->past_end_ = true;
      png_error(png, "end of data");
    }
    std::memcpy(to, d->at_, n);
    d->at_ += n;
    d->left_ -= n;
  }

  Status Start(const ImageInfo& info, const DecodeOptions& options, Output* out) {
    if (setjmp(jump_)) return past_end_ ? kTruncated : kCorrupt;
    png_set_read_fn(png_, this, &OnRead);
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // ParseHeader has its own
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    // Nothing but pixels is wanted. Colour profiles are slow to check, and transparency is to be ignored.
    static const png_byte kSkip[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0tRNS\0zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kSkip, sizeof(kSkip) / 5);
#endif
    png_read_info(png_, info_);
    if (png_get_image_width(png_, info_) != static_cast<png_uint_32>(info.width) ||
        png_get_image_height(png_, info_) != static_cast<png_uint_32>(info.height))
      return kSizeMismatch;
    const int color = png_get_color_type(png_, info_), bits = png_get_bit_depth(png_, info_);
    if (color == PNG_COLOR_TYPE_PALETTE) {
      png_set_palette_to_rgb(png_);
      if (png_get_valid(png_, info_, PNG_INFO_tRNS)) png_set_strip_alpha(png_);
    }
    if (color == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    direct_ = out->direct(info.depth);
    if (direct_) {  // libpng can make the output's channels itself
      switch (options.type) {
        case ImageType::kBgr:
          if (info.channels >= 3) png_set_bgr(png_);
          [[fallthrough]];
        case ImageType::kRgb:
          if (color & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png_);
          if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png_);
          break;
        case ImageType::kGray:
          direct_ = !(color & PNG_COLOR_MASK_COLOR);
          if (direct_ && (color & PNG_COLOR_MASK_ALPHA)) png_set_strip_alpha(png_);
          break;
        case ImageType::kYcbcr:
          direct_ = false;
          break;
        case ImageType::kAny:
          break;
      }
    }
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const int channels = direct_ ? OutputChannels(info, options.type) : info.channels;
    stride_ = static_cast<int64_t>(info.width) * channels * (info.depth / 8);
    return png_get_rowbytes(png_, info_) == static_cast<size_t>(stride_) ? kOk : kSizeMismatch;
  }

  Status Read(const ImageInfo& info, Output* out) {
    if (setjmp(jump_)) return past_end_ ? kTruncated : kCorrupt;
    for (int pass = 0; pass < passes_; pass++) {
      for (int64_t y = 0; y < info.height; y++) {
        int64_t slot = passes_ == 1 ? y % kRows : y;
        png_read_row(png_, direct_ ? out->row(y) : rows_.data() + slot * stride_, nullptr);
        if (!direct_ && passes_ == 1 && (slot == kRows - 1 || y == info.height - 1))
          out->Put(y - slot, static_cast<int>(slot) + 1, rows_.data(), info.channels, info.depth);
      }
    }
    if (!direct_ && passes_ > 1)
      for (int64_t y = 0; y < info.height; y += kRows)
        out->Put(y, static_cast<int>(std::min<int64_t>(kRows, info.height - y)), rows_.data() + y * stride_,
                 info.channels, info.depth);
    return kOk;
  }

  const uint8_t* at_;
  size_t left_;
  std::jmp_buf jump_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  bool past_end_ = false, direct_ = false;
  int passes_ = 1;
  int64_t stride_ = 0;
  std::vector<uint8_t> rows_;
};

// --- raw pixels ---------------------------------------------------------------------------------------------------

Status CopyRaw(const uint8_t* data, int64_t size, const ImageInfo& info, Output* out) {
  const int64_t stride = static_cast<int64_t>(info.width) * info.channels * (info.depth / 8);
  if (size != stride * info.height) return kSizeMismatch;
  out->Reserve(info.depth);
  for (int64_t y = 0; y < info.height; y += kRows)
    out->Put(y, static_cast<int>(std::min<int64_t>(kRows, info.height - y)), data + y * stride, info.channels,
             info.depth);
  return kOk;
}

}  // namespace

Status DecodeImage(const uint8_t* data, int64_t size, const ImageInfo& info, const DecodeOptions& options, DType dtype,
                   void* out, int64_t height, int64_t width, int64_t channels) {
  if (info.status != kOk) return static_cast<Status>(info.status);
  if (dtype == DType::kU64 || dtype == DType::kI64 || dtype == DType::kBool) return kUnsupported;
  if (info.host_decode) return kUnsupported;  // the host pass has replaced those by raw pixels
  if (info.height <= 0 || info.width <= 0 || info.channels < 1 || info.channels > 4 ||
      (info.depth != 8 && info.depth != 16))
    return kInternal;
  const bool transposed = Transposes(info, options);
  if (height != (transposed ? info.width : info.height) || width != (transposed ? info.height : info.width) ||
      channels != OutputChannels(info, options.type))
    return kSizeMismatch;
  try {
    Output output(info, options, dtype, out);
    switch (static_cast<Format>(info.format)) {
      case Format::kJpeg:
        return DecodeJpeg(data, size, info, options, &output);
      case Format::kPng:
        return PngDecoder(data, size).Decode(info, options, &output);
      case Format::kRaw:
        return CopyRaw(data, size, info, &output);
      default:
        return kUnsupported;
    }
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace jaxdali
