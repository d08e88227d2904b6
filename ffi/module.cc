// The module `_cpu`: the handlers as capsules, and the functions for the host pass, which module_*.cc define. With
// JAXDALI_CUDA it is `_cuda` (and the tests' `_emulated`): the handlers that launch CUDA kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ffi/common/build_info.h"
#include "ffi/common/thread_pool.h"
#include "ffi/module_parts.h"
#include "xla/ffi/api/c_api.h"

#ifdef JAXDALI_CUDA
#include "ffi/common/cuda_version.h"
#include "ffi/common/kernel_list.h"
#include "ffi/common/pinned.h"
extern "C" const char* jaxdali_load_kernels(int device);  // launch.h
#endif

namespace nb = nanobind;

// Every kernel of this module. The CUDA ones have a handler in all modules.
#define JAXDALI_KERNEL_CUDA(name) JAXDALI_EACH(name)
#ifdef JAXDALI_CUDA
#define JAXDALI_KERNEL(name)
#else
#define JAXDALI_KERNEL(name) JAXDALI_EACH(name)
#endif

#define JAXDALI_EACH(name) extern "C" XLA_FFI_Error* jaxdali_##name(XLA_FFI_CallFrame* frame);
#include "ffi/ops.def"
#undef JAXDALI_EACH

// The handlers of this module as capsules, by the names of their FFI targets.
static nb::dict Targets() {
  nb::dict d;
#define JAXDALI_EACH(name) d["jaxdali_" #name] = nb::capsule(reinterpret_cast<void*>(jaxdali_##name));
#include "ffi/ops.def"
#undef JAXDALI_EACH
  return d;
}

#ifdef JAXDALI_CUDA

// Another macro, so that JAXDALI_MODULE is replaced by its value first.
#define JAXDALI_NAMED_MODULE(name, m) NB_MODULE(name, m)
// Defines `_cuda` or `_emulated`: the handlers, and functions for the machine's GPUs.
JAXDALI_NAMED_MODULE(JAXDALI_MODULE, m) {
  m.def("targets", &Targets, "Maps the names of FFI targets to capsules.");
  m.def(
      "build_info",
      [] {
        auto info = jaxdali::CudaBuildInfo();
        info["version"] = JAXDALI_VERSION;
        return info;
      },
      "The version of jaxdali, CUDA version and GPU architectures, by name.");
  m.def("driver_problem", &jaxdali::DriverProblem,
        "Why this machine's driver can't run the kernels. Empty: it can, or there is no driver.");
  m.def(
      "pinned",
      [](int64_t bytes, int device) -> nb::object {
        void* memory = nullptr;
        {
          nb::gil_scoped_release release;
          memory = jaxdali::AllocatePinned(bytes, device);
        }
        if (!memory) return nb::none();
        // The capsule frees the memory with the last array that refers to it.
        struct Pinned {
          void* memory;
          int device;
        };
        nb::capsule owner(new Pinned{memory, device}, [](void* p) noexcept {
          const std::unique_ptr<Pinned> pinned(static_cast<Pinned*>(p));
          nb::gil_scoped_release release;  // what it waits for may need the GIL
          jaxdali::FreePinned(pinned->memory, pinned->device);
        });
        const auto size = static_cast<size_t>(bytes);
        return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1> >(memory, {size}, owner));
      },
      nb::arg("bytes"), nb::arg("device"),
      "Allocates page-locked memory (u8[bytes]), from which GPUs copy by themselves. None: there is no more.");
#ifdef JAXDALI_EMULATED
  m.def(
      "kernels",
      [] {
        std::vector<std::pair<std::string, int64_t> > kernels;
        for (const auto& k : jaxdali::ListedKernels()) kernels.emplace_back(k.name, k.launches);
        return kernels;
      },
      "Names of the listed kernels, and how often each was launched.");
#else
  m.def(
      "load_kernels",
      [](int device) {
        nb::gil_scoped_release release;
        const char* error = jaxdali_load_kernels(device);
        return std::string(error ? error : "");
      },
      nb::arg("device"), "Loads all kernels into a GPU. Returns an error message, or \"\".");
#endif
}

#else

// The kernels that the CUDA module of this version has.
static std::vector<std::string> CudaKernels() {
  return {
#undef JAXDALI_KERNEL
#define JAXDALI_KERNEL(name)
#define JAXDALI_EACH(name) #name,
#include "ffi/ops.def"
#undef JAXDALI_EACH
  };
}

// Defines `_cpu`: the handlers, functions for the host pass, and the thread pools.
NB_MODULE(_cpu, m) {
  // Programs that keep a list of files until Python ends, as a data set of Grain does, would print that it leaked.
  nb::set_leak_warnings(false);
  jaxdali::DefineTables(m);
  jaxdali::DefineImages(m);
  jaxdali::DefineFiles(m);
  jaxdali::DefineRecords(m);
  jaxdali::DefineRandom(m);
  jaxdali::DefineSound(m);
  jaxdali::DefineSetup(m);
  m.def("targets", &Targets, "Maps the names of FFI targets to capsules.");
  m.def("build_info", &jaxdali::BuildInfo, "Compiler, codecs and SIMD level, by name.");
  m.def("cuda_kernels", &CudaKernels, "The names of the kernels that the CUDA module of this version has.");
  m.def(
      "run_on_pool", [] { return reinterpret_cast<uintptr_t>(&jaxdali::RunOnPool); },
      "Address of RunOnPool, for jaxdali_connect in ffi/common/extension.h.");
  m.def("pool_create", &jaxdali::ThreadPool::Create, nb::arg("num_threads"));
  m.def("pool_share", &jaxdali::ThreadPool::Share, nb::arg("num_threads"), nb::call_guard<nb::gil_scoped_release>());
  m.def("pool_destroy", &jaxdali::ThreadPool::Destroy, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>());
  m.def("pool_record", &jaxdali::ThreadPool::Record, nb::arg("on"),
        "Begins or ends recording what the threads of all pools do, for benchmarks.");
  m.def(
      "pool_recorded",
      [] {
        std::vector<std::vector<int64_t> > rows;
        for (const jaxdali::Recorded& r : jaxdali::ThreadPool::TakeRecorded())
          rows.push_back({r.run, r.index, r.thread, r.begin, r.end, r.cpu_begin, r.cpu_end});
        return rows;
      },
      "What was recorded since the last call: for each task, and for each call on a pool (index -1, in the thread that "
      "made it), number of the call, index, thread, begin and end by the monotonic and by the thread's CPU clock in "
      "ns.");
}

#endif  // JAXDALI_CUDA
