// Binding of JPEG compression and decompression.
#include "ffi/jpeg_distortion/jpeg_distortion.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(JpegDistortionBatch* b, I32 tables, I32 first_unit) {
  if (b->in.dtype != DType::kU8 || b->out.dtype != DType::kU8 || b->in.ndim < 3 || b->in.ndim > 4 ||
      b->out.ndim != b->in.ndim)
    return ffi::Error::InvalidArgument("jpeg_distortion: images must be u8, HWC or FHWC");
  if (!HasRows(tables, *b, 128) || !HasRows(first_unit, *b, 1))
    return ffi::Error::InvalidArgument("jpeg_distortion: tables [N, 2, 64], and a place for each sample");
  b->tables = tables.typed_data();
  b->first_unit = first_unit.typed_data();
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(jpeg_distortion, jaxdali::SetUp, jaxdali::JpegDistortion, jaxdali::LaunchJpegDistortion,
                      .Arg<jaxdali::I32>()        // quantizers [N, 2, 64]
                          .Arg<jaxdali::I32>());  // first unit of each sample [N]
