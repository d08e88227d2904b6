// The strided window on CUDA: one thread per word or element of the output.
#include "ffi/common/strided.h"
#include "ffi/window/window.h"

namespace jaxdali {
namespace {

struct Windows : WindowBatch {
  JAXDALI_HD Status Plan(int i, Strided* from) const {
    WindowArgs a;
    if (Status s = Sample(i, &a); s != kOk) return s;
    from->Clear();
    int64_t stride[8], elements = 1;
    for (int d = a.ndim - 1; d >= 0; d--) {
      stride[d] = elements;
      elements *= a.dims[d];
      from->start += a.start[d] * stride[d];
    }
    for (int d = 0; d < a.ndim; d++) from->Add(a.extent[d], a.step[d] * stride[d]);
    return kOk;
  }
};

}  // namespace

const char* LaunchWindow(const WindowBatch& b, const Samples& samples, void* stream) {
  return LaunchStrided(Windows{b}, samples, stream);
}

}  // namespace jaxdali
