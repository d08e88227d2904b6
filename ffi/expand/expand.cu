// Broadcasting on CUDA, with one thread per 16 bytes of the output.
#include "ffi/common/strided.h"
#include "ffi/expand/expand.h"

namespace jaxdali {
namespace {

struct Expansions : ExpandBatch {
  // Describes sample i as a strided copy: along an axis that is repeated, the stride is 0.
  JAXDALI_HD Status Find(int i, Strided* from) const {
    ExpandArgs a;
    if (Status s = Sample(i, &a); s != kOk) return s;
    from->Clear();
    int64_t stride[8], elements = 1;
    for (int d = a.ndim - 1; d >= 0; d--) {
      stride[d] = a.dims[d] == a.shape[d] ? elements : 0;
      elements *= a.dims[d];
    }
    for (int d = 0; d < a.ndim; d++) from->Add(a.shape[d], stride[d]);
    return kOk;
  }
};

}  // namespace

const char* LaunchExpand(const ExpandBatch& b, const Samples& samples, void* stream) {
  return LaunchStrided(Expansions{b}, samples, stream);
}

}  // namespace jaxdali
