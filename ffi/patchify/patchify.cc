// Binding of the patches.
#include "ffi/patchify/patchify.h"

#include <algorithm>

#include "ffi/chain/set_up.h"
#include "ffi/common/kernel.h"

namespace jaxdali {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUpPatchify(PatchifyBatch* b, F32 scale, F32 offset, I32 place) {
  const auto n = b->in.n;
  auto has_columns = [&](const auto& operand, int columns) {
    return static_cast<int64_t>(operand.element_count()) == int64_t{n} * columns;
  };
  constexpr DType kIn[] = {DType::kU8, DType::kI16, DType::kU16, DType::kF16, DType::kBF16, DType::kF32};
  constexpr DType kOut[] = {DType::kU8, DType::kF16, DType::kBF16, DType::kF32};
  if (std::count(std::begin(kIn), std::end(kIn), b->in.dtype) == 0 ||
      std::count(std::begin(kOut), std::end(kOut), b->out.dtype) == 0)
    return ffi::Error::InvalidArgument("patchify: element types");
  if ((b->in.ndim != 3 && b->in.ndim != 4) || b->out.ndim != 2)
    return ffi::Error::InvalidArgument("patchify: rank of the data");
  b->scale = scale.typed_data();
  b->offset = offset.typed_data();
  b->scales = n > 0 ? static_cast<int>(static_cast<int64_t>(scale.element_count()) / n) : 0;
  if (!has_columns(scale, b->scales) || !has_columns(offset, b->scales))
    return ffi::Error::InvalidArgument("patchify: scale and offset must be [N, channels], [N, 1] or [N, 0]");
  const auto columns = place.dimensions();
  const bool has_place = columns.size() == 2 && columns[1] == 3;
  b->place = has_place ? place.typed_data() : nullptr;
  if (!has_columns(place, has_place ? 3 : 0) || (has_place && b->out.offsets))
    return ffi::Error::InvalidArgument("patchify: place must be [N, 3], of a dense output, or [N, 0]");
  if (!has_place && b->out.n != n) return ffi::Error::InvalidArgument("patchify: batch sizes of the data");
  constexpr int kAxes[] = {kPatchFrame, kPatchRow, kPatchColumn, kPatchChannel};
  if (!std::is_permutation(kAxes, kAxes + 4, b->axes) || std::count(b->axes, b->axes + 8, kNoAxis) != 4)
    return ffi::Error::InvalidArgument("patchify: the axes must be a permutation of 0, 1, 2, 3");
  if (b->patch_size[0] < 1 || b->patch_size[1] < 1 || std::count(b->patch_size, b->patch_size + 8, kNoAxis) != 6 ||
      b->merge_size < 1 || b->temporal_patch_size < 1)
    return ffi::Error::InvalidArgument("patchify: patch_size must be two extents; all sizes must be positive");
  constexpr int64_t kMuch = 4 << 20;  // bytes, see SetUpWindow
  b->past_caches = b->out.capacity * SizeOf(b->out.dtype) >= kMuch;
  return ffi::Error::Success();
}

namespace {

// The same without a chain.
ffi::Error SetUp(PatchifyBatch* b, F32 scale, F32 offset, I32 place) {
  if (auto e = SetUpPatchify(b, scale, offset, place); e.failure()) return e;
  return b->place ? ffi::Error::InvalidArgument("patchify: places are for chains") : ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(patchify, jaxdali::SetUp, jaxdali::Patchify, jaxdali::LaunchPatchify,
                      .Arg<jaxdali::F32>()        // scale [N, channels or 1], or [N, 0]
                          .Arg<jaxdali::F32>()    // offset
                          .Arg<jaxdali::I32>());  // place [N, 3], or [N, 0]
