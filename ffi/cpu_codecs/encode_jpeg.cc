#include "ffi/cpu_codecs/encode_jpeg.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>

namespace jaxdali {
namespace {

struct Error {
  jpeg_error_mgr base;  // first: libjpeg knows only this part
  std::jmp_buf jump;
  Status status;
};

// libjpeg's own memory destination leaks its buffer if it can't allocate a larger one.
struct Destination {
  jpeg_destination_mgr base;
  EncodedFile* file;
  size_t capacity;
};

void Grow(j_compress_ptr c) {
  auto* d = reinterpret_cast<Destination*>(c->dest);
  const size_t used = d->capacity, wanted = used * 2;
  auto* larger = static_cast<uint8_t*>(std::realloc(d->file->data.get(), wanted));
  if (larger == nullptr) ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
  (void)d->file->data.release();
  d->file->data.reset(larger);
  d->capacity = wanted;
  d->base.next_output_byte = larger + used;
  d->base.free_in_buffer = wanted - used;
}

// No object with a destructor may exist in this function: longjmp skips destructors.
Status Run(jpeg_compress_struct* c, Error* error, Destination* to, const uint8_t* pixels, int64_t height, int64_t width,
           int channels, const EncodeOptions& options) {
  if (setjmp(error->jump)) return error->status;
  jpeg_create_compress(c);
  c->dest = &to->base;
  c->image_width = static_cast<JDIMENSION>(width);
  c->image_height = static_cast<JDIMENSION>(height);
  c->input_components = channels;
  c->in_color_space = channels == 1 ? JCS_GRAYSCALE : options.bgr ? JCS_EXT_BGR : JCS_EXT_RGB;
  jpeg_set_defaults(c);
  jpeg_set_quality(c, options.quality, TRUE);
  if (channels == 3) {
    c->comp_info[0].h_samp_factor = options.factor_h;
    c->comp_info[0].v_samp_factor = options.factor_v;
  }
  jpeg_start_compress(c, TRUE);
  const int64_t stride = width * channels;
  while (c->next_scanline < c->image_height) {
    // libjpeg only reads the pixels, although its types are not const.
    JSAMPROW row = const_cast<uint8_t*>(pixels) + c->next_scanline * stride;
    jpeg_write_scanlines(c, &row, 1);
  }
  jpeg_finish_compress(c);
  return kOk;
}

}  // namespace

Status EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, const EncodeOptions& options,
                  EncodedFile* out) {
  Destination to{};
  to.file = out;
  // Most files are smaller than this, and memory that is never written costs nothing.
  to.capacity = static_cast<size_t>(std::max<int64_t>(height * width * channels / 2, 4096));
  out->data.reset(static_cast<uint8_t*>(std::malloc(to.capacity)));
  if (!out->data) return kOutOfMemory;
  to.base.init_destination = [](j_compress_ptr c) {
    auto* d = reinterpret_cast<Destination*>(c->dest);
    d->base.next_output_byte = d->file->data.get();
    d->base.free_in_buffer = d->capacity;
  };
  to.base.empty_output_buffer = [](j_compress_ptr c) -> boolean {
    Grow(c);
    return TRUE;
  };
  to.base.term_destination = [](j_compress_ptr) {};

  Error error{};
  error.status = kInternal;
  jpeg_compress_struct c{};
  c.err = jpeg_std_error(&error.base);
  error.base.error_exit = [](j_common_ptr c) {
    auto* e = reinterpret_cast<Error*>(c->err);
    e->status = c->err->msg_code == JERR_OUT_OF_MEMORY ? kOutOfMemory : kInternal;
    std::longjmp(e->jump, 1);
  };
  error.base.output_message = [](j_common_ptr) {};
  const Status status = Run(&c, &error, &to, pixels, height, width, channels, options);
  jpeg_destroy_compress(&c);
  if (status == kOk) out->size = to.capacity - to.base.free_in_buffer;
  return status;
}

}  // namespace jaxdali
