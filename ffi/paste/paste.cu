// The canvases on CUDA. One thread per element looks for the topmost region that contains it.
#include "ffi/common/launch.h"
#include "ffi/common/words.h"
#include "ffi/paste/paste.h"

namespace jaxdali {
namespace {

struct PasteCanvas : PasteBatch {
  struct Plan {
    int64_t units;  // elements
    int i;
    Sample shape;
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->units = out.size(i);
    s->i = i;
    s->shape = Shape(out, i);
    return Check(i);
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const Sample& to = s.shape;
    const int64_t start = out.start(s.i);
    for (int64_t k = first; k < end; k += kThreads) {
      const Quotient pixel = Divide(k, to.channels), row = Divide(pixel.quotient, to.width);
      const Quotient frame = Divide(row.quotient, to.height);
      double value = 0;
      for (int j = most - 1; j >= 0; j--) {
        const PasteRegion& r = regions[static_cast<int64_t>(s.i) * most + j];
        const int64_t y = frame.rest - r.out_y, x = row.rest - r.out_x;
        if (r.source < 0 || y < 0 || y >= r.height || x < 0 || x >= r.width) continue;
        const Sample from = Shape(in, r.source);
        const int64_t at =
            ((frame.quotient * from.height + r.in_y + y) * from.width + r.in_x + x) * to.channels + pixel.rest;
        value = LoadElement<double>(in.dtype, in.data, in.start(r.source) + at);
        break;
      }
      StoreElement(out.dtype, out.data, start + k, value);
    }
  }
};

}  // namespace

const char* LaunchPaste(const PasteBatch& b, const Samples& samples, void* stream) {
  return Launch(PasteCanvas{b}, samples, stream);
}

}  // namespace jaxdali
