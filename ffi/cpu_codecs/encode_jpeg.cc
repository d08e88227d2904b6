// Encoding by libjpeg's C interface. It reports errors by longjmp, so the work is done in Run, without destructors.
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

// Doubles the buffer, of which all bytes are used.
void Grow(j_compress_ptr c) {
  auto* destination = reinterpret_cast<Destination*>(c->dest);
  const size_t old_capacity = destination->capacity, new_capacity = old_capacity * 2;
  auto* larger = static_cast<uint8_t*>(std::realloc(destination->file->data.get(), new_capacity));
  if (larger == nullptr) ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
  // realloc has freed the old buffer.
  (void)destination->file->data.release();
  destination->file->data.reset(larger);
  destination->capacity = new_capacity;
  destination->base.next_output_byte = larger + old_capacity;
  destination->base.free_in_buffer = new_capacity - old_capacity;
}

// Compresses pixels [height, width, channels]. Returns kOk, or the status of libjpeg's error. No object with a
// destructor may exist in this function: longjmp skips destructors.
Status Run(jpeg_compress_struct* c, Error* error, Destination* destination, const uint8_t* pixels, int64_t height,
           int64_t width, int channels, const EncodeOptions& options) {
  // An error of libjpeg returns here, by longjmp.
  if (setjmp(error->jump)) return error->status;
  jpeg_create_compress(c);
  c->dest = &destination->base;
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
    jpeg_write_scanlines(c, &row, /*num_lines=*/1);
  }
  jpeg_finish_compress(c);
  return kOk;
}

}  // namespace

Status EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, const EncodeOptions& options,
                  EncodedFile* out) {
  Destination destination{};
  destination.file = out;
  // Most files are smaller than this, and memory that is never written costs nothing.
  destination.capacity = static_cast<size_t>(std::max<int64_t>(height * width * channels / 2, 4096));
  out->data.reset(static_cast<uint8_t*>(std::malloc(destination.capacity)));
  if (!out->data) return kOutOfMemory;
  destination.base.init_destination = [](j_compress_ptr c) {
    auto* destination = reinterpret_cast<Destination*>(c->dest);
    destination->base.next_output_byte = destination->file->data.get();
    destination->base.free_in_buffer = destination->capacity;
  };
  destination.base.empty_output_buffer = [](j_compress_ptr c) -> boolean {
    Grow(c);
    return TRUE;
  };
  destination.base.term_destination = [](j_compress_ptr) {};

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
  const Status status = Run(&c, &error, &destination, pixels, height, width, channels, options);
  jpeg_destroy_compress(&c);
  if (status == kOk) out->size = destination.capacity - destination.base.free_in_buffer;
  return status;
}

}  // namespace jaxdali
