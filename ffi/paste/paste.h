// Canvases onto which regions of images are pasted, one over the other.
#ifndef JAXDALI_FFI_PASTE_PASTE_H_
#define JAXDALI_FFI_PASTE_PASTE_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// A region, from a sample's row of operands. Its extents fit into both images.
struct PasteRegion {
  int32_t source;  // sample of the input; negative: no region
  int32_t in_y, in_x, height, width, out_y, out_x;
};

// The operands of the custom call. The input has `out.n` samples, or a multiple of that.
struct PasteBatch {
  Batch in, out;               // [frames, H, W, C]
  const PasteRegion* regions;  // [n, most], later ones above earlier ones
  int most, first;             // number of regions; the axis H
  JAXDALI_ATTRIBUTES(first);

  struct Sample {
    int64_t frames, height, width, channels;
  };

  JAXDALI_HD Sample Shape(const Batch& b, int i) const {
    Sample s{1, b.dim(i, first), b.dim(i, first + 1), b.dim(i, first + 2)};
    for (int d = 0; d < first; d++) s.frames *= b.dim(i, d);
    return s;
  }

  // Checks the regions of sample i. kOutOfBounds: one does not lie inside both images. kInternal: a source does not
  // exist, or has other numbers of frames or channels than the canvas. Otherwise kOk.
  JAXDALI_NOINLINE JAXDALI_HD Status Check(int i) const {
    const Sample to = Shape(out, i);
    for (int k = 0; k < most; k++) {
      const PasteRegion& r = regions[static_cast<int64_t>(i) * most + k];
      if (r.source < 0) continue;
      if (r.source >= in.n || !in.valid(r.source)) return kInternal;
      const Sample from = Shape(in, r.source);
      if (from.channels != to.channels || from.frames != to.frames) return kInternal;
      if (r.in_y < 0 || r.in_x < 0 || r.out_y < 0 || r.out_x < 0 || r.height < 0 || r.width < 0 ||
          int64_t{r.in_y} + r.height > from.height || int64_t{r.in_x} + r.width > from.width ||
          int64_t{r.out_y} + r.height > to.height || int64_t{r.out_x} + r.width > to.width)
        return kOutOfBounds;
    }
    return kOk;
  }
};

// The CPU kernel.
Status Paste(const PasteBatch& batch, int i);

// The CUDA kernel. Returns null or an error message.
const char* LaunchPaste(const PasteBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_PASTE_PASTE_H_
