// The chains that a GPU runs in one kernel: a resize or a warp, and a window of its image. See chain.cu.
#ifndef JAXDALI_FFI_CHAIN_WINDOWED_H_
#define JAXDALI_FFI_CHAIN_WINDOWED_H_

#include "ffi/common/batch.h"
#include "ffi/common/samples.h"
#include "ffi/resize/resize.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window.h"

namespace jaxdali {

struct TileWindow;

// The operands of a kernel B (`maker`) whose images only a window reads. `maker.out` has shapes, but no data. Kernels
// that are templates of their call get this in place of Whole<B> (ffi/window/window_tile.h).
template <class B>
struct Windowed {
  Batch in, out;
  B maker;
  WindowBatch window;

  using Window = TileWindow;
  JAXDALI_HD const B& image() const { return maker; }
};

// They return null or an error message. The status of the window is that of stage 1.
const char* LaunchWindowed(const Windowed<ResizeBatch>& b, const Samples& samples, void* stream);
const char* LaunchWindowed(const Windowed<WarpBatch>& b, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_WINDOWED_H_
