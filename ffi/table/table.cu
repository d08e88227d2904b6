// Tables on CUDA: one thread per byte.
#include "ffi/common/launch.h"
#include "ffi/table/table.h"

namespace jaxdali {
namespace {

struct Tables : TableBatch {
  struct Shared {
    int64_t size;
    const uint8_t* in;
    uint8_t* out;
    const uint8_t* table;
  };

  JAXDALI_HD Status Prepare(int i, Shared* s) const {
    s->size = in.size(i);
    s->in = in.bytes(i);
    s->out = out.bytes(i);
    s->table = TableBatch::Tables(i);
    return Check(i);
  }
  JAXDALI_HD void Share(int, Shared*) const {}
  JAXDALI_HD void Work(const Shared& s, int64_t first, int64_t step) const {
    for (int64_t k = first; k < s.size; k += step) s.out[k] = s.table[256 * (k % tables) + s.in[k]];
  }
};

}  // namespace

const char* LaunchTable(const TableBatch& b, const Samples& samples, void* stream) {
  return Launch(Tables{b}, samples, stream);
}

}  // namespace jaxdali
