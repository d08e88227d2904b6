// Binding of the linear map of channels.
#include "ffi/color/color.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(ColorBatch* b, F32 matrix) {
  const auto dims = matrix.dimensions();
  if (dims.size() != 3 || dims[0] != b->out.n || dims[1] < 1 || dims[1] > kMaxColors || dims[2] < 2 ||
      dims[2] > kMaxColors + 1)
    return ffi::Error::InvalidArgument("color: the matrix must be [N, channels of the output, of the input + 1]");
  b->matrix = matrix.typed_data();
  b->out_channels = static_cast<int>(dims[1]);
  b->in_channels = static_cast<int>(dims[2]) - 1;  // the last column is the offset
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(color, jaxdali::SetUp, jaxdali::Color, jaxdali::LaunchColor,
                      .Arg<jaxdali::F32>());  // matrix [N, output channels, input channels + 1]
