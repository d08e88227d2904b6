// The only nanobind file, compiled into `_cpu`: the handlers as capsules, and what the host pass needs from C++; and,
// with JAXDALI_CUDA, into `_cuda` (and the tests' `_emulated`): the handlers that launch CUDA kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/build_info.h"
#include "ffi/common/files.h"
#include "ffi/common/philox.h"
#include "ffi/common/status.h"
#include "ffi/common/thread_pool.h"
#include "ffi/image_header.h"
#include "xla/ffi/api/c_api.h"

#ifdef JAXDALI_CUDA
#include "ffi/common/cuda_version.h"
#endif

namespace nb = nanobind;

// Every kernel of this module: the CUDA ones have a handler in all modules.
#define JAXDALI_KERNEL_CUDA(name) JAXDALI_EACH(name)
#ifdef JAXDALI_CUDA
#define JAXDALI_KERNEL(name)
#else
#define JAXDALI_KERNEL(name) JAXDALI_EACH(name)
#endif

#define JAXDALI_EACH(name) extern "C" XLA_FFI_Error* jaxdali_##name(XLA_FFI_CallFrame* frame);
#include "ffi/ops.def"
#undef JAXDALI_EACH

static nb::dict Targets() {
  nb::dict d;
#define JAXDALI_EACH(name) d["jaxdali_" #name] = nb::capsule(reinterpret_cast<void*>(jaxdali_##name));
#include "ffi/ops.def"
#undef JAXDALI_EACH
  return d;
}

#ifdef JAXDALI_CUDA

#define JAXDALI_NAMED_MODULE(name, m) NB_MODULE(name, m)
JAXDALI_NAMED_MODULE(JAXDALI_MODULE, m) {
  m.def("targets", &Targets, "FFI target names to capsules");
  m.def("build_info", &jaxdali::CudaBuildInfo, "CUDA version and GPU architectures, by name");
  m.def("driver_problem", &jaxdali::DriverProblem,
        "why this machine's driver can't run the kernels; empty: it can, or there is none");
}

#else

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The pool of an id, or an exception: only called while the GIL is held.
static std::shared_ptr<jaxdali::ThreadPool> Pool(int id) {
  auto pool = jaxdali::ThreadPool::Get(id);
  if (!pool) throw nb::value_error("unknown thread pool");
  return pool;
}

namespace {

void ParseHeaders(nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig> data,
                  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig> offsets,
                  nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig> sizes,
                  nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig> info) {
  const int64_t n = static_cast<int64_t>(offsets.shape(0)), shards = static_cast<int64_t>(data.shape(0));
  const int64_t capacity = static_cast<int64_t>(data.shape(1));
  if (shards == 0 || n % shards != 0 || static_cast<int64_t>(sizes.shape(0)) != n ||
      static_cast<int64_t>(info.shape(0)) != n || info.shape(1) != jaxdali::kInfoColumns)
    throw nb::value_error("parse_headers: lengths of the operands differ");
  for (int64_t i = 0; i < n; i++) {
    int64_t start = offsets.data()[i] * jaxdali::kAlignment;
    if (start < 0 || sizes.data()[i] < 0 || start + sizes.data()[i] > capacity)
      throw nb::value_error("parse_headers: a sample outside the buffer");
  }
  const uint8_t* bytes = data.data();
  auto* out = reinterpret_cast<jaxdali::ImageInfo*>(info.data());
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < n; i++)
    out[i] = jaxdali::ParseHeader(bytes + i / (n / shards) * capacity + offsets.data()[i] * jaxdali::kAlignment,
                                  sizes.data()[i]);
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.def("targets", &Targets, "FFI target names to capsules");
  m.def(
      "status_table",
      [] {
        nb::dict d;
#define JAXDALI_STATUS_ROW(name, code, text) d[nb::int_(code)] = text;
        JAXDALI_STATUS_TABLE(JAXDALI_STATUS_ROW)
#undef JAXDALI_STATUS_ROW
        return d;
      },
      "status codes to texts");
  m.def("build_info", &jaxdali::BuildInfo, "compiler, codecs and SIMD level, by name");
  m.def("parse_headers", &ParseHeaders, nb::arg("data"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("info"),
        "Headers of a packed batch of encoded images (u8[S, capacity], i32[N] in units of kAlignment, i64[N]) into "
        "info i32[N, columns]");
  m.attr("INFO_COLUMNS") = jaxdali::kInfoColumns;
  m.def("pool_create", &jaxdali::ThreadPool::Create, nb::arg("num_threads"));
  m.def("pool_destroy", &jaxdali::ThreadPool::Destroy, nb::arg("id"), nb::call_guard<nb::gil_scoped_release>());

  nb::class_<jaxdali::FileTable>(m, "FileTable", "Paths, so that a batch of files is named by integers.")
      .def(
          "__init__",
          [](jaxdali::FileTable* self, nb::bytes root, nb::bytes names, Vector<const int64_t> ends) {
            new (self)
                jaxdali::FileTable(std::string(root.c_str(), root.size()), std::string(names.c_str(), names.size()),
                                   std::vector<int64_t>(ends.data(), ends.data() + ends.size()));
          },
          nb::arg("root"), nb::arg("names"), nb::arg("ends"))
      .def("__len__", &jaxdali::FileTable::size);
  m.def(
      "file_sizes",
      [](const jaxdali::FileTable& table, Vector<const int64_t> index, Vector<int64_t> sizes, Vector<int32_t> error,
         int pool_id) {
        if (sizes.size() != index.size() || error.size() != index.size()) throw nb::value_error("lengths differ");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::FileSizes(table, index.data(), static_cast<int>(index.size()), sizes.data(), error.data(), pool.get());
      },
      "bytes and errno of each file");
  m.def(
      "read_files",
      [](const jaxdali::FileTable& table, Vector<const int64_t> index, Vector<uint8_t> data,
         Vector<const int64_t> starts, Vector<const int64_t> sizes, Vector<int32_t> error, int pool_id) {
        size_t n = index.size();
        if (starts.size() != n || sizes.size() != n || error.size() != n) throw nb::value_error("lengths differ");
        for (size_t i = 0; i < n; i++)
          if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] + sizes.data()[i] > static_cast<int64_t>(data.size()))
            throw nb::value_error("a file's place lies outside the buffer");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::ReadFiles(table, index.data(), static_cast<int>(n), data.data(), starts.data(), sizes.data(),
                           error.data(), pool.get());
      },
      "the files' bytes, each at its place in a buffer");
  m.def(
      "philox",
      [](Vector<const uint32_t> counter, uint64_t key) {
        if (counter.size() != 4) throw nb::value_error("a counter is 4 words");
        const uint32_t* c = counter.data();
        jaxdali::Philox4 r = jaxdali::Philox({c[0], c[1], c[2], c[3]}, key);
        return nb::make_tuple(r[0], r[1], r[2], r[3]);
      },
      "one block of Philox4x32-10");
  m.def("stream_key", &jaxdali::StreamKey, nb::arg("seed"), nb::arg("stream"));
  m.def(
      "random_fill",
      [](uint64_t key, int distribution, Vector<const int64_t> epoch, Vector<const int64_t> position,
         Vector<const int64_t> starts, Vector<const int64_t> sizes, Vector<double> out, int pool_id) {
        size_t n = sizes.size();
        if (epoch.size() != n || position.size() != n || starts.size() != n) throw nb::value_error("lengths differ");
        for (size_t i = 0; i < n; i++)
          if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] + sizes.data()[i] > static_cast<int64_t>(out.size()))
            throw nb::value_error("a sample's place lies outside the buffer");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::Fill(key, static_cast<jaxdali::Distribution>(distribution), epoch.data(), position.data(),
                      starts.data(), sizes.data(), static_cast<int>(n), out.data(), pool.get());
      },
      "random doubles of each sample, each sample's at its place in a buffer");
}

#endif  // JAXDALI_CUDA
