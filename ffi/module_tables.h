// Status codes, formats and columns, for Python: each is named once, in C++.
#ifndef JAXDALI_FFI_MODULE_TABLES_H_
#define JAXDALI_FFI_MODULE_TABLES_H_

#include <nanobind/nanobind.h>

namespace jaxdali {

void DefineTables(nanobind::module_& m);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_MODULE_TABLES_H_
