#include "ffi/jpeg/table.h"

namespace jaxdali::jpeg {

bool MakeTable(const uint8_t*, int64_t, const ImageInfo&, ImageTable*) { return false; }

int64_t PlanWorkspace(ImageTable*, int, int) { return 0; }

}  // namespace jaxdali::jpeg
