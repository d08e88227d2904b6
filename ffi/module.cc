// The only nanobind file: the handlers as capsules, and what the host pass needs from C++.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ffi/common/status.h"
#include "ffi/common/thread_pool.h"
#include "xla/ffi/api/c_api.h"

namespace nb = nanobind;

#define JAXDALI_KERNEL(name) extern "C" XLA_FFI_Error* jaxdali_##name(XLA_FFI_CallFrame* frame);
#include "ffi/ops.def"
#undef JAXDALI_KERNEL

NB_MODULE(_cpu, m) {
  m.def("targets", [] {
    nb::dict d;
#define JAXDALI_KERNEL(name) d["jaxdali_" #name] = nb::capsule(reinterpret_cast<void*>(jaxdali_##name));
#include "ffi/ops.def"
#undef JAXDALI_KERNEL
    return d;
  }, "FFI target names to capsules");
  m.def("status_table", [] {
    nb::dict d;
#define JAXDALI_STATUS_ROW(name, code, text) d[nb::int_(code)] = text;
    JAXDALI_STATUS_TABLE(JAXDALI_STATUS_ROW)
#undef JAXDALI_STATUS_ROW
    return d;
  }, "status codes to texts");
  m.def("pool_create", &jaxdali::ThreadPool::Create, nb::arg("num_threads"));
  m.def("pool_destroy", &jaxdali::ThreadPool::Destroy, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>());
}
