// Maps each byte through a table of its sample: posterize, solarize, invert, and contrast around a value of the image.
#ifndef JAXDALI_FFI_TABLE_TABLE_H_
#define JAXDALI_FFI_TABLE_TABLE_H_

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The operands of the custom call.
struct TableBatch {
  Batch in, out;         // bytes, of equal shape
  const uint8_t* table;  // [n, tables, 256]
  int tables;            // one per channel, which are innermost; or one for all elements

  JAXDALI_HD const uint8_t* Tables(int i) const { return table + static_cast<int64_t>(i) * tables * 256; }
  // kSizeMismatch if input and output of sample i have different sizes, or no whole pixels; otherwise kOk.
  JAXDALI_HD Status Check(int i) const {
    return in.size(i) == out.size(i) && in.size(i) % tables == 0 ? kOk : kSizeMismatch;
  }
};

// The CUDA kernel. Returns null or an error message.
const char* LaunchTable(const TableBatch& batch, const Samples& samples, void* stream);

// The CPU kernel.
inline Status Table(const TableBatch& b, int i) {
  if (Status s = b.Check(i); s != kOk) return s;
  const uint8_t *in = b.in.bytes(i), *table = b.Tables(i);
  uint8_t* out = b.out.bytes(i);
  const int64_t n = b.in.size(i);
  if (b.tables == 1) {
    for (int64_t k = 0; k < n; k++) out[k] = table[in[k]];
  } else if (b.tables == 3) {
    for (int64_t k = 0; k < n; k += 3) {
      out[k] = table[in[k]];
      out[k + 1] = table[256 + in[k + 1]];
      out[k + 2] = table[512 + in[k + 2]];
    }
  } else {
    for (int64_t k = 0; k < n; k += b.tables)
      for (int c = 0; c < b.tables; c++) out[k + c] = table[256 * c + in[k + c]];
  }
  return kOk;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_TABLE_TABLE_H_
