// Tables on CUDA, with one thread per byte.
#include "ffi/common/launch.h"
#include "ffi/table/table.h"

namespace jaxdali {
namespace {

struct Tables : TableBatch {
  struct Plan {
    int64_t units;  // elements
    const uint8_t* in;
    uint8_t* out;
    const uint8_t* table;
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->units = in.size(i);
    s->in = in.bytes(i);
    s->out = out.bytes(i);
    s->table = TableBatch::Tables(i);
    return Check(i);
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t k = first; k < end; k += kThreads) s.out[k] = s.table[256 * (k % tables) + s.in[k]];
  }
};

}  // namespace

const char* LaunchTable(const TableBatch& b, const Samples& samples, void* stream) {
  return Launch(Tables{b}, samples, stream);
}

}  // namespace jaxdali
