// The only nanobind file, compiled into `_cpu`: the handlers as capsules, and what the host pass needs from C++; and,
// with JAXDALI_CUDA, into `_cuda` (and the tests' `_emulated`): the handlers that launch CUDA kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/build_info.h"
#include "ffi/common/status.h"
#include "ffi/common/thread_pool.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/decode/decode.h"
#include "ffi/host/crc32c.h"
#include "ffi/host/files.h"
#include "ffi/host/highway_hash.h"
#include "ffi/host/index_text.h"
#include "ffi/host/philox.h"
#include "ffi/host/records.h"
#include "ffi/host/riegeli.h"
#include "ffi/host/shuffle.h"
#include "ffi/host/tar.h"
#include "ffi/module_tables.h"
#include "xla/ffi/api/c_api.h"

#ifdef JAXDALI_CUDA
#include "ffi/common/cuda_version.h"
#include "ffi/common/kernel_list.h"
extern "C" const char* jaxdali_load_kernels(int device);  // launch.h
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
#ifdef JAXDALI_EMULATED
  m.def(
      "kernels",
      [] {
        std::vector<std::pair<std::string, int64_t> > kernels;
        for (const auto& k : jaxdali::ListedKernels()) kernels.emplace_back(k.name, k.launches);
        return kernels;
      },
      "The listed kernels' names, and how often each was launched");
#else
  m.def(
      "load_kernels",
      [](int device) {
        nb::gil_scoped_release release;
        const char* problem = jaxdali_load_kernels(device);
        return std::string(problem ? problem : "");
      },
      nb::arg("device"), "Loads all kernels into a GPU; returns what went wrong");
#endif
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

using Rows = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A packed batch of encoded images, all shards: what jaxdali._core.ragged.Packed has.
struct EncodedBatch {
  const uint8_t* bytes;
  const int32_t* offsets;
  const int64_t* sizes;
  int64_t n, per_shard, capacity;

  EncodedBatch(const nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig>& data, const Vector<const int32_t>& starts,
               const Vector<const int64_t>& lengths)
      : bytes(data.data()), offsets(starts.data()), sizes(lengths.data()), n(static_cast<int64_t>(starts.shape(0))) {
    const auto shards = static_cast<int64_t>(data.shape(0));
    capacity = static_cast<int64_t>(data.shape(1));
    if (shards == 0 || n % shards != 0 || static_cast<int64_t>(lengths.shape(0)) != n)
      throw nb::value_error("encoded images: lengths of the operands differ");
    per_shard = n / shards;
    for (int64_t i = 0; i < n; i++) {
      const int64_t start = offsets[i] * jaxdali::kAlignment;
      if (start < 0 || sizes[i] < 0 || start + sizes[i] > capacity)
        throw nb::value_error("encoded images: a sample outside the buffer");
    }
  }

  const uint8_t* operator[](int64_t i) const {
    return bytes + i / per_shard * capacity + offsets[i] * jaxdali::kAlignment;
  }
};

jaxdali::ImageInfo* Info(const Rows& info, int64_t n) {
  if (static_cast<int64_t>(info.shape(0)) != n || info.shape(1) != jaxdali::kInfoColumns)
    throw nb::value_error("info must be i32[N, INFO_COLUMNS]");
  return reinterpret_cast<jaxdali::ImageInfo*>(info.data());
}

jaxdali::jpeg::ImageTable* Tables(const Rows& tables) {
  if (tables.shape(1) != jaxdali::jpeg::kTableWords) throw nb::value_error("tables must be i32[N, TABLE_WORDS]");
  return reinterpret_cast<jaxdali::jpeg::ImageTable*>(tables.data());
}

void ParseHeaders(nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig> data, Vector<const int32_t> offsets,
                  Vector<const int64_t> sizes, Rows info) {
  const EncodedBatch batch(data, offsets, sizes);
  jaxdali::ImageInfo* out = Info(info, batch.n);
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < batch.n; i++) out[i] = jaxdali::ParseHeader(batch[i], batch.sizes[i]);
}

void MakeJpegTables(nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig> data, Vector<const int32_t> offsets,
                    Vector<const int64_t> sizes, Rows info, Vector<const bool> usable, Rows tables, int pool_id) {
  const EncodedBatch batch(data, offsets, sizes);
  const jaxdali::ImageInfo* rows = Info(info, batch.n);
  jaxdali::jpeg::ImageTable* out = Tables(tables);
  if (static_cast<int64_t>(usable.shape(0)) != batch.n || static_cast<int64_t>(tables.shape(0)) != batch.n)
    throw nb::value_error("make_jpeg_tables: lengths of the operands differ");
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  pool->Run(static_cast<int>(batch.n), [&](int i) {
    const bool jpeg = usable.data()[i] && rows[i].format == static_cast<int32_t>(jaxdali::Format::kJpeg);
    if (!jpeg || !jaxdali::jpeg::MakeTable(batch[i], batch.sizes[i], rows[i], &out[i])) out[i].kind = 0;
  });
}

int64_t PlanJpegWorkspace(Rows tables, int64_t shards, int subsequence_bits) {
  jaxdali::jpeg::ImageTable* rows = Tables(tables);
  const auto n = static_cast<int64_t>(tables.shape(0));
  if (shards <= 0 || n % shards != 0) throw nb::value_error("plan_jpeg_workspace: number of shards");
  int64_t most = 0;
  for (int64_t s = 0; s < shards; s++)
    most = std::max(
        most, jaxdali::jpeg::PlanWorkspace(rows + s * (n / shards), static_cast<int>(n / shards), subsequence_bits));
  return most;
}

using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

jaxdali::DType TypeOf(const AnyArray& a) {
  using jaxdali::DType;
  const auto [code, bits] = std::pair(a.dtype().code, a.dtype().bits);
  const int wide = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && wide > 0)
    return std::array{DType::kF16, DType::kF32, DType::kF64}[wide - 1];
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt))
    return std::array{DType::kU8, DType::kU16, DType::kU32, DType::kU64}[wide];
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int))
    return std::array{DType::kI8, DType::kI16, DType::kI32, DType::kI64}[wide];
  throw nb::type_error("unknown element type");
}

std::vector<int> DecodeImages(const std::vector<Vector<const uint8_t> >& data, Rows info,
                              const std::vector<AnyArray>& out, int output_type, bool adjust_orientation,
                              bool fast_idct, int pool_id) {
  const auto n = static_cast<int64_t>(data.size());
  const jaxdali::ImageInfo* rows = Info(info, n);
  if (out.size() != data.size()) throw nb::value_error("decode_images: lengths of the operands differ");
  const jaxdali::DecodeOptions options{static_cast<jaxdali::ImageType>(output_type), adjust_orientation, fast_idct};
  std::vector<jaxdali::DType> dtypes;
  for (const AnyArray& a : out) {
    if (a.ndim() != 3) throw nb::value_error("decode_images: results must be [H, W, C]");
    dtypes.push_back(TypeOf(a));
  }
  std::vector<int> status(data.size());
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  pool->Run(static_cast<int>(n), [&](int i) {
    const AnyArray& a = out[i];
    status[i] = jaxdali::DecodeImage(data[i].data(), static_cast<int64_t>(data[i].size()), rows[i], options, dtypes[i],
                                     a.data(), static_cast<int64_t>(a.shape(0)), static_cast<int64_t>(a.shape(1)),
                                     static_cast<int64_t>(a.shape(2)));
  });
  return status;
}

using jaxdali::RecordBatch;

void ScanMemory(RecordBatch& batch, const std::vector<Vector<const uint8_t> >& records, int pool_id) {
  if (static_cast<int>(records.size()) != batch.n()) throw nb::value_error("scan_memory: number of records");
  std::vector<std::string_view> views;
  for (const auto& r : records) views.emplace_back(reinterpret_cast<const char*>(r.data()), r.size());
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.ScanMemory(views, pool.get());
}

void ScanFiles(RecordBatch& batch, const jaxdali::FileTable& table, Vector<const int64_t> stamps,
               Vector<const int64_t> index, Vector<const int64_t> offsets, Vector<const int64_t> sizes,
               Vector<uint8_t> checked, int pool_id) {
  const auto n = static_cast<size_t>(batch.n());
  if (index.size() != n || offsets.size() != n || sizes.size() != n || checked.size() != n ||
      static_cast<int64_t>(stamps.size()) != 2 * table.size())
    throw nb::value_error("scan_files: lengths differ");
  for (size_t i = 0; i < n; i++)
    if (index.data()[i] < 0 || index.data()[i] >= table.size()) throw nb::value_error("scan_files: no such file");
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.ScanFiles(table, stamps.data(), index.data(), offsets.data(), sizes.data(), checked.data(), pool.get());
}

void Describe(const RecordBatch& batch, nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> types,
              nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> counts,
              nb::ndarray<int64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> dims) {
  const auto n = static_cast<size_t>(batch.n()), fields = static_cast<size_t>(batch.fields());
  if (types.shape(0) != n || types.shape(1) != fields || counts.shape(0) != n || counts.shape(1) != fields ||
      dims.shape(0) != n || dims.shape(1) != fields || dims.shape(2) != 3)
    throw nb::value_error("describe: shapes");
  for (int i = 0; i < batch.n(); i++)
    for (int k = 0; k < batch.fields(); k++) {
      const jaxdali::FieldInfo& info = batch.info(i, k);
      const size_t at = static_cast<size_t>(i) * fields + static_cast<size_t>(k);
      types.data()[at] = static_cast<int32_t>(info.type);
      counts.data()[at] = info.count;
      std::copy_n(info.dims, 3, dims.data() + 3 * at);
    }
}

std::vector<std::pair<int, std::string> > Errors(const RecordBatch& batch) {
  std::vector<std::pair<int, std::string> > found;
  for (int i = 0; i < batch.n(); i++)
    if (!batch.error(i).empty()) found.emplace_back(i, batch.error(i));
  return found;
}

void FillField(RecordBatch& batch, int field, AnyArray data, Vector<const int64_t> starts, Vector<const bool> skip,
               int pool_id) {
  const auto n = static_cast<size_t>(batch.n());
  if (field < 0 || field >= batch.fields() || starts.size() != n || skip.size() != n)
    throw nb::value_error("fill: lengths differ");
  const int bytes = data.dtype().bits / 8;
  for (int i = 0; i < batch.n(); i++) {
    if (skip.data()[i] || !batch.error(i).empty()) continue;
    const jaxdali::FieldInfo& info = batch.info(i, field);
    using jaxdali::ValueType;
    const bool fits = info.type == ValueType::kNone     ? true
                      : info.type == ValueType::kBytes  ? bytes == 1
                      : info.type == ValueType::kFloats ? bytes == 4
                                                        : bytes == 4 || bytes == 8;
    if (!fits) throw nb::value_error("fill: another type");
    if (starts.data()[i] < 0 || info.count > static_cast<int64_t>(data.size()) - starts.data()[i])
      throw nb::value_error("fill: a place outside the buffer");
  }
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.Fill(field, data.data(), bytes, starts.data(), skip.data(), pool.get());
}

using jaxdali::TarSamples;

// A view, as long as its owner lives and is not changed.
nb::ndarray<nb::numpy, const int64_t, nb::shape<-1, 2>, nb::c_contig> Extents(
    const std::vector<TarSamples::Extent>& x) {
  const size_t shape[] = {x.size(), 2};
  return {x.empty() ? nullptr : x[0].data(), 2, shape, nb::handle()};
}

}  // namespace

NB_MODULE(_cpu, m) {
  jaxdali::DefineTables(m);
  m.def("targets", &Targets, "FFI target names to capsules");
  m.def("build_info", &jaxdali::BuildInfo, "compiler, codecs and SIMD level, by name");
  m.def("parse_headers", &ParseHeaders, nb::arg("data"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("info"),
        "Headers of a packed batch of encoded images (u8[S, capacity], i32[N] in units of kAlignment, i64[N]) into "
        "info i32[N, columns]");
  m.attr("INFO_COLUMNS") = jaxdali::kInfoColumns;
  m.def("make_jpeg_tables", &MakeJpegTables, nb::arg("data"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("info"),
        nb::arg("usable"), nb::arg("tables"), nb::arg("pool"),
        "What GPU kernels know of each image (i32[N, TABLE_WORDS]); the first word is 0 where they can't decode it");
  m.def("plan_jpeg_workspace", &PlanJpegWorkspace, nb::arg("tables"), nb::arg("shards"),
        nb::arg("subsequence_bits") = 0,
        "Gives each image its part of its shard's working memory; the bytes that the largest needs. How many bits a "
        "thread decodes at a time is chosen by the amount of data, unless given");
  m.attr("TABLE_WORDS") = jaxdali::jpeg::kTableWords;
  m.def("decode_images", &DecodeImages, nb::arg("data"), nb::arg("info"), nb::arg("out"), nb::arg("output_type"),
        nb::arg("adjust_orientation"), nb::arg("fast_idct"), nb::arg("pool"),
        "Decodes images into arrays [H, W, C] on a thread pool; the status of each");
  m.attr("EXTENSION_VERSION") = jaxdali::kExtensionVersion;
  m.def(
      "run_on_pool", [] { return reinterpret_cast<uintptr_t>(&jaxdali::RunOnPool); },
      "address of RunOnPool, for jaxdali_connect of ffi/common/extension.h");
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
      "file_heads",
      [](const jaxdali::FileTable& table, Vector<const int64_t> index,
         nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> heads, Vector<int64_t> sizes,
         Vector<int32_t> error, int pool_id) {
        const size_t n = index.size();
        if (heads.shape(0) != n || sizes.size() != n || error.size() != n) throw nb::value_error("lengths differ");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::FileHeads(table, index.data(), static_cast<int>(n), heads.data(), static_cast<int64_t>(heads.shape(1)),
                           sizes.data(), error.data(), pool.get());
      },
      "the first bytes of each file, its size, and errno");
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
  nb::class_<jaxdali::RecordBatch>(m, "RecordBatch",
                                   "The records of a batch: found in containers, taken apart, copied.")
      .def(
          "__init__",
          [](jaxdali::RecordBatch* self, jaxdali::RecordFormat format, std::vector<std::string> names, int fields,
             int n) {
            if (fields < 0 || n < 0 ||
                (format == jaxdali::RecordFormat::kExample && names.size() != static_cast<size_t>(fields)))
              throw nb::value_error("RecordBatch: fields");
            new (self) jaxdali::RecordBatch({format, std::move(names), fields}, n);
          },
          nb::arg("format"), nb::arg("names"), nb::arg("fields"), nb::arg("n"))
      .def("scan_memory", &ScanMemory, nb::arg("records"), nb::arg("pool"), "Looks at records that lie in memory")
      .def("scan_files", &ScanFiles, nb::arg("table"), nb::arg("stamps"), nb::arg("index"), nb::arg("offsets"),
           nb::arg("sizes"), nb::arg("checked"), nb::arg("pool"), "Looks at records that lie in files")
      .def("describe", &Describe, nb::arg("types"), nb::arg("counts"), nb::arg("dims"),
           "Types (ValueType), number of values, and shapes, of each record's fields")
      .def("errors", &Errors, "(record, why) of those that can't be read")
      .def("fill", &FillField, nb::arg("field"), nb::arg("data"), nb::arg("starts"), nb::arg("skip"), nb::arg("pool"),
           "Copies a field's values, each record's to its place");
  m.def(
      "crc32c",
      [](nb::bytes data) {
        return jaxdali::Crc32c(0, reinterpret_cast<const uint8_t*>(data.c_str()), static_cast<int64_t>(data.size()));
      },
      "CRC-32C (Castagnoli)");
  m.def(
      "highway_hash",
      [](Vector<const uint8_t> data, const jaxdali::HashKey& key) {
        jaxdali::HighwayHash hash(key);
        hash.Append(data.data(), static_cast<int64_t>(data.size()));
        return hash.Finish();
      },
      nb::arg("data"), nb::arg("key") = jaxdali::kRiegeliKey, "HighwayHash of 64 bits; without a key: by Riegeli's");
  m.def(
      "check_chunks",
      [](nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> heads, Vector<const int64_t> head_sizes,
         Vector<const uint8_t> data, Vector<const int64_t> starts, Vector<const int64_t> sizes, Vector<int32_t> error,
         int pool_id) {
        const size_t n = heads.shape(0);
        if (head_sizes.size() != n || starts.size() != n || sizes.size() != n || error.size() != n)
          throw nb::value_error("lengths differ");
        for (size_t i = 0; i < n; i++)
          if (head_sizes.data()[i] < jaxdali::kChunkHeader ||
              head_sizes.data()[i] > static_cast<int64_t>(heads.shape(1)) || starts.data()[i] < 0 ||
              sizes.data()[i] < 0 || starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
            throw nb::value_error("a chunk lies outside the buffer");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::CheckChunks(heads.data(), static_cast<int64_t>(heads.shape(1)), head_sizes.data(), static_cast<int>(n),
                             data.data(), starts.data(), sizes.data(), error.data(), pool.get());
      },
      "Checks the checksums of Riegeli's chunks of one record: 1: of the header, 2: it is another chunk, 3: of the "
      "data");
  m.def(
      "parse_integers",
      [](nb::bytes text, Vector<int64_t> out) {
        int64_t bad;
        const int64_t n =
            jaxdali::ParseIntegers({text.c_str(), text.size()}, out.data(), static_cast<int64_t>(out.size()), &bad);
        return std::pair(n, bad);
      },
      nb::arg("text"), nb::arg("out"), "How many numbers a text has, and the offset of what is none, or -1");
  nb::class_<TarSamples>(m, "TarSamples", "The samples of WebDataset archives: where each output's member is.")
      .def(nb::init<std::vector<std::vector<std::string> >, bool, TarSamples::Missing, bool>(), nb::arg("extensions"),
           nb::arg("fold_case"), nb::arg("missing"), nb::arg("keep_names"))
      .def("begin_file", &TarSamples::BeginFile, nb::arg("samples"), "The next file begins, with so many samples")
      .def(
          "scan", [](TarSamples& self, nb::bytes path) { return self.Scan({path.c_str(), path.size()}); },
          nb::arg("path"), "Goes through an archive; what is wrong with it, to be put behind its path")
      .def(
          "parse",
          [](TarSamples& self, nb::bytes lines, int width, int64_t at) {
            return self.Parse({lines.c_str(), lines.size()}, width, at);
          },
          nb::arg("lines"), nb::arg("width"), nb::arg("at"), "Lines of an index; what is wrong with them")
      .def("__len__", &TarSamples::size)
      .def_prop_ro("lines", &TarSamples::lines, "of this file's index")
      .def(
          "name",
          [](const TarSamples& self, int64_t i) {
            const std::string_view name = self.name(i);
            return nb::bytes(name.data(), name.size());
          },
          nb::arg("i"), "of a sample's first member, where names are kept")
      .def(
          "column",
          [](const TarSamples& self, int output) {
            if (output < 0 || output >= self.outputs()) throw nb::value_error("TarSamples: no such output");
            return Extents(self.column(output));
          },
          nb::arg("output"), nb::rv_policy::reference_internal, "offset and size of an output's members, i64[n, 2]")
      .def(
          "blocks", [](const TarSamples& self) { return Extents(self.blocks()); }, nb::rv_policy::reference_internal,
          "(first sample, offset of its line in the index) of parts of the list, i64[blocks, 2]");
  m.def(
      "tar_index",
      [](nb::bytes path, nb::callable progress) {
        const jaxdali::TarIndex index = jaxdali::IndexOf({path.c_str(), path.size()}, [&](int64_t n) { progress(n); });
        return nb::make_tuple(nb::bytes(index.text.data(), index.text.size()), index.samples, index.error);
      },
      nb::arg("path"), nb::arg("progress"), "The lines of an archive's index, how many they are, and what is wrong");
  m.def(
      "read_ranges",
      [](const jaxdali::FileTable& table, Vector<const int64_t> files, Vector<const int64_t> offsets,
         Vector<uint8_t> data, Vector<const int64_t> starts, Vector<const int64_t> sizes,
         Vector<const int64_t> file_sizes, Vector<int32_t> error, int pool_id) {
        size_t n = files.size();
        if (offsets.size() != n || starts.size() != n || sizes.size() != n || error.size() != n ||
            static_cast<int64_t>(file_sizes.size()) != table.size())
          throw nb::value_error("lengths differ");
        for (size_t i = 0; i < n; i++) {
          if (files.data()[i] < 0 || files.data()[i] >= table.size() || offsets.data()[i] < 0)
            throw nb::value_error("there is no such range");
          if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
            throw nb::value_error("a range's place lies outside the buffer");
        }
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        jaxdali::ReadRanges(table, files.data(), offsets.data(), static_cast<int>(n), data.data(), starts.data(),
                            sizes.data(), file_sizes.data(), error.data(), pool.get());
      },
      "the bytes of ranges of files, each at its place in a buffer");
  m.def(
      "shuffle_epochs",
      [](Vector<int64_t> order, uint64_t seed, int64_t first, int64_t last) {
        if (order.size() >> 32) throw nb::value_error("shuffle_epochs: 2^32 entries and more");
        nb::gil_scoped_release release;
        jaxdali::ShuffleEpochs(order.data(), static_cast<int64_t>(order.size()), seed, first, last);
      },
      nb::arg("order"), nb::arg("seed"), nb::arg("first"), nb::arg("last"),
      "Shuffles a list in its place, once for each of the epochs first .. last, as DALI does");
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
