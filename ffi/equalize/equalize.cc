// Binding of histogram equalization.
#include "ffi/equalize/equalize.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks a call, and sets the operands of its batch. `in`, `out` and the attributes are set already.
ffi::Error SetUp(EqualizeBatch* b, F32 limit, I32 first_table, I32 lab) {
  if (b->in.dtype != DType::kU8 || b->out.dtype != DType::kU8 || b->out.ndim != b->in.ndim || b->height_axis < 0 ||
      b->height_axis + 2 > b->in.ndim)
    return ffi::Error::InvalidArgument("equalize: images must be u8, with two axes from height_axis on");
  if (b->tiles_y < 1 || b->tiles_x < 1 || !HasRows(limit, *b, 1) || !HasRows(first_table, *b, 1))
    return ffi::Error::InvalidArgument("equalize: tiles, and a limit and a place for each sample");
  if (lab.element_count() != 0 && lab.element_count() != Lab::kTables)
    return ffi::Error::InvalidArgument("equalize: tables of L*a*b*");
  b->limit = limit.typed_data();
  b->first_table = first_table.typed_data();
  b->lab = lab.element_count() == 0 ? nullptr : lab.typed_data();
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(equalize, jaxdali::SetUp, jaxdali::Equalize, jaxdali::LaunchEqualize,
                      .Arg<jaxdali::F32>()        // clip limits of the histograms [N]
                          .Arg<jaxdali::I32>()    // first table of each sample [N]
                          .Arg<jaxdali::I32>());  // tables of L*a*b*, or empty
