// The checks of the kernels that may be stages of a chain. Each is defined with the binding of its kernel, which calls
// it as the chain does.
#ifndef JAXDALI_FFI_CHAIN_SET_UP_H_
#define JAXDALI_FFI_CHAIN_SET_UP_H_

#include "ffi/common/kernel.h"

namespace jaxdali {

struct PatchifyBatch;
struct ResampleBatch;
struct ResizeBatch;
struct WarpBatch;
struct WindowBatch;

ffi::Error SetUpPatchify(PatchifyBatch* b, F32 scale, F32 offset, I32 place);
ffi::Error SetUpResample(ResampleBatch* b, F32 roi, I32 filters);
ffi::Error SetUpResize(ResizeBatch* b, F32 roi, I32 filters);
ffi::Error SetUpWarp(WarpBatch* b, F64 map, F32 fill);
ffi::Error SetUpWindow(WindowBatch* b, I32 start, I32 step, I32 extent, F32 fill, F32 scale, F32 offset);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_SET_UP_H_
