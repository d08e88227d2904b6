// Tables on CUDA, with one thread per 16 bytes of the output.
#include "ffi/common/launch.h"
#include "ffi/common/units.h"
#include "ffi/table/table.h"

namespace jaxdali {
namespace {

struct Tables : TableBatch {
  struct Plan {
    int64_t units;         // of 16 bytes of the output
    Units to;              // the output
    const uint8_t* in;     // the sample's first element
    const uint8_t* table;  // its first table
    Divisor tables;        // their number
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status status = Check(i); status != kOk) return status;
    s->units = s->to.Set(out.bytes(i), out.size(i), out.dtype);
    s->in = in.bytes(i);
    s->table = TableBatch::Tables(i);
    s->tables = Divisor(tables);
    return kOk;
  }
  // The work of a thread: units first, first + kThreads, ... of the output, 16 bytes each.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const uint8_t* const begin = static_cast<const uint8_t*>(in.data);
    const int32_t tables_end = 256 * tables;
    for (int64_t k = first; k < end; k += kThreads) {
      const int64_t i = s.to.First(k);
      int32_t table_start = 256 * static_cast<int32_t>(s.tables.Divide(static_cast<uint64_t>(i)).rest);
      auto look_up = [&](uint32_t v) {  // in the next table: elements of a pixel have different ones
        const uint8_t result = s.table[table_start + static_cast<int32_t>(v)];
        table_start += 256;
        table_start = table_start == tables_end ? 0 : table_start;
        return result;
      };
      uint32_t words[kUnitWords];
      if (s.to.IsWhole<uint8_t>(k) && ReadUnit(s.in + i, begin, begin + in.capacity, words))
        s.to.Write<uint8_t>(k, [&, e = 0]() mutable {
          const uint32_t v = words[e / 4] >> (8 * (e % 4)) & 255;
          e++;
          return look_up(v);
        });
      else
        s.to.WriteInLoop<uint8_t>(k, [&, p = s.in + i]() mutable { return look_up(*p++); });
    }
  }
};

}  // namespace

const char* LaunchTable(const TableBatch& b, const Samples& samples, void* stream) {
  return Launch(Tables{b}, samples, stream);
}

}  // namespace jaxdali
