// Binding of tables.
#include "ffi/table/table.h"

#include "ffi/common/kernel.h"

namespace jaxdali {
namespace {

// Checks the operands and attributes of a call, and sets the members of its batch; `in` and `out` are set already.
ffi::Error SetUp(TableBatch* b, ffi::Buffer<ffi::U8> table) {
  const auto dims = table.dimensions();
  if (dims.size() != 3 || dims[0] != b->out.n || dims[1] < 1 || dims[2] != 256)
    return ffi::Error::InvalidArgument("table: the tables must be [N, tables, 256]");
  if (SizeOf(b->in.dtype) != 1 || SizeOf(b->out.dtype) != 1)
    return ffi::Error::InvalidArgument("table: the elements must be bytes");
  b->table = table.typed_data();
  b->tables = static_cast<int>(dims[1]);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxdali

JAXDALI_DEFINE_KERNEL(table, jaxdali::SetUp, jaxdali::Table, jaxdali::LaunchTable,
                      .Arg<xla::ffi::Buffer<xla::ffi::U8>>());  // tables [N, 1 or channels, 256]
