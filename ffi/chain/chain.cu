// A chain of two stages on CUDA: the kernel that resizes or warps images makes only the pixels that the window has, and
// writes them as the window does: mirrored, normalised, in the window's order and type.
#include "ffi/chain/windowed.h"
#include "ffi/resize/resize_kernel.h"
#include "ffi/warp/warp_kernel.h"
#include "ffi/window/window_tile.h"

namespace jaxdali {

// Launches the resize of images [H, W, C] of bytes, of which only the window's pixels are made. Returns null or an
// error message.
const char* LaunchWindowed(const Windowed<ResizeBatch>& b, const Samples& samples, void* stream) {
  const bool is_bytes = b.maker.in.dtype == DType::kU8;
  if (!is_bytes || b.maker.first_axis != 0 || b.maker.num_axes != 2 || !TileWindow::Supports(b.window))
    return "chain: a resize and a window of other kinds";
  switch (b.maker.out.dtype) {
    case DType::kU8:
      return LaunchResizeTiles<uint8_t, uint8_t>(b, samples, stream);
    case DType::kF32:
      return LaunchResizeTiles<uint8_t, float>(b, samples, stream);
    default:
      return "chain: the type of resized images";
  }
}

// Launches the warp of images [H, W, C] of bytes, of which only the window's pixels are made. Returns null or an error
// message.
const char* LaunchWindowed(const Windowed<WarpBatch>& b, const Samples& samples, void* stream) {
  const bool is_bytes = b.maker.in.dtype == DType::kU8 && b.maker.out.dtype == DType::kU8;
  if (!is_bytes || b.maker.first != 0 || b.maker.dims != 2 || !TileWindow::Supports(b.window))
    return "chain: a warp and a window of other kinds";
  return b.maker.linear ? LaunchWarpImages<uint8_t, uint8_t, true>(b, samples, stream)
                        : LaunchWarpImages<uint8_t, uint8_t, false>(b, samples, stream);
}

}  // namespace jaxdali
