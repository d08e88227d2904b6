// Resizing with the numbers of Pillow, TensorFlow, JAX and torchvision, for CPUs. Calls have the operands of `resize`,
// with another convention. Weights are computed in double precision: images of Pillow and bytes of torchvision are
// reproduced to the bit, all others to the rounding of float32.
#ifndef JAXDALI_FFI_RESAMPLE_RESAMPLE_H_
#define JAXDALI_FFI_RESAMPLE_RESAMPLE_H_

#include <functional>
#include <string>
#include <tuple>

#include "ffi/resize/resize.h"

namespace jaxdali {

// SourceOf, ResizeSome and ResizeRows (resize.h) for all conventions but DALI's.
Status ResampleSourceOf(const ResizeJob& job, ResizePart* part);
Status ResampleSome(const ResizeJob& job, const ResizePart& part);
bool ResampleRows(const ResizeJob& job, const ResizePart& part, const std::function<bool(uint8_t*)>& next, bool gray);

// The types that a convention supports. Pillow's images keep their type.
inline bool ResampleTypes(Convention convention, DType in, DType out) {
  if (convention == Convention::kPillow) return in == out && (in == DType::kU8 || in == DType::kF32);
  return (convention == Convention::kTensorFlow || convention == Convention::kTorchvision) && ResizeTypes(in, out);
}

// The operands of the custom call.
struct ResampleBatch : ResizeBatch {
  static std::string AttributeNames() { return std::string(ResizeBatch::AttributeNames()) + ", convention"; }
  auto Attributes() { return std::tuple_cat(ResizeBatch::Attributes(), std::tie(convention)); }
};

// The CPU kernel.
Status Resample(const ResizeBatch& batch, int i);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_RESAMPLE_RESAMPLE_H_
