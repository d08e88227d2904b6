// Records of containers, and the offsets of samples of different shapes.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/host/files.h"
#include "ffi/host/records.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

// Scans records in memory, one for each part of each sample.
void ScanMemory(RecordBatch& batch, const std::vector<Vector<const uint8_t> >& records, int pool_id) {
  if (records.size() != static_cast<size_t>(batch.n()) * batch.layout().parts)
    throw nb::value_error("scan_memory: number of records");
  std::vector<std::string_view> views;
  views.reserve(records.size());
  for (const auto& r : records) views.emplace_back(reinterpret_cast<const char*>(r.data()), r.size());
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.ScanMemory(views, pool.get());
}

// Scans records that are parts of one array of bytes: record i is the sizes[i] bytes from starts[i] on.
void ScanRows(RecordBatch& batch, const nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>& data,
              Vector<const int64_t> starts, Vector<const int64_t> sizes, int pool_id) {
  const auto n = static_cast<size_t>(batch.n());
  if (starts.size() != n || sizes.size() != n || batch.layout().parts != 1)
    throw nb::value_error("scan_rows: number of records");
  const auto end = static_cast<int64_t>(data.size());
  std::vector<std::string_view> views;
  views.reserve(n);
  for (size_t i = 0; i < n; i++) {
    const int64_t start = starts.data()[i], size = sizes.data()[i];
    if (start < 0 || size < 0 || start > end || size > end - start)
      throw nb::value_error("scan_rows: a record outside the data");
    views.emplace_back(reinterpret_cast<const char*>(data.data()) + start, static_cast<size_t>(size));
  }
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.ScanMemory(views, pool.get());
}

using Rows = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// Scans records in files. stamps: the size and the modification time (ns) of each file; bounds: the first record of
// each file, and their number; index: the record of each sample; extents and checked: of all records, for each part of
// a sample. See RecordBatch::ScanFiles (host/records.h).
void ScanFiles(RecordBatch& batch, const FileTable& table, Vector<const int64_t> stamps, Vector<const int64_t> bounds,
               Vector<const int64_t> index, const std::vector<Rows>& extents,
               const std::vector<Vector<uint8_t> >& checked, int pool_id) {
  const auto parts = static_cast<size_t>(batch.layout().parts), files = static_cast<size_t>(table.size());
  if (index.size() != static_cast<size_t>(batch.n()) || extents.size() != parts || checked.size() != parts ||
      bounds.size() != files + 1 || stamps.size() != 2 * files || bounds.data()[0] != 0 ||
      !std::is_sorted(bounds.data(), bounds.data() + files + 1))
    throw nb::value_error("scan_files: lengths differ");
  const int64_t num_records = bounds.data()[files];
  std::vector<RecordBatch::Extents> part_extents;
  for (size_t k = 0; k < parts; k++) {
    if (static_cast<int64_t>(extents[k].shape(0)) != num_records ||
        static_cast<int64_t>(checked[k].size()) != num_records)
      throw nb::value_error("scan_files: lengths differ");
    part_extents.push_back({extents[k].data(), checked[k].data()});
  }
  for (size_t i = 0; i < index.size(); i++)
    if (index.data()[i] < 0 || index.data()[i] >= num_records)
      throw nb::value_error("scan_files: there is no such record");
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.ScanFiles(table, stamps.data(), bounds.data(), index.data(), part_extents, pool.get());
}

// Writes the FieldInfo of all fields of all parts: types and counts are [records, fields], dims [records, fields, 3].
void Describe(const RecordBatch& batch, nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> types,
              nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> counts,
              nb::ndarray<int64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> dims) {
  const auto n = static_cast<size_t>(batch.n());
  const auto fields = static_cast<size_t>(batch.layout().fields * batch.layout().parts);
  if (types.shape(0) != n || types.shape(1) != fields || counts.shape(0) != n || counts.shape(1) != fields ||
      dims.shape(0) != n || dims.shape(1) != fields || dims.shape(2) != 3)
    throw nb::value_error("describe: shapes");
  for (int i = 0; i < batch.n(); i++)
    for (size_t k = 0; k < fields; k++) {
      const FieldInfo& info = batch.info(i, static_cast<int>(k));
      const size_t field_index = static_cast<size_t>(i) * fields + k;
      types.data()[field_index] = static_cast<int32_t>(info.type);
      counts.data()[field_index] = info.count;
      std::copy_n(info.dims, 3, dims.data() + 3 * field_index);
    }
}

// (record, error) of those that can't be read.
std::vector<std::pair<int, std::string> > Errors(const RecordBatch& batch) {
  std::vector<std::pair<int, std::string> > errors;
  for (int i = 0; i < batch.n(); i++)
    if (!batch.error(i).empty()) errors.emplace_back(i, batch.error(i));
  return errors;
}

// Rows of an array for the whole batch. A RecordBatch may be a part of it, from sample `first` on.
using Shapes = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Writes the shapes of all outputs to rows `first` and on of their arrays. An output of fixed shape has None.
void ShapeOutputs(RecordBatch& batch, const std::vector<std::optional<Shapes> >& shapes, int64_t first) {
  const auto& outputs = batch.layout().outputs;
  if (shapes.size() != outputs.size() || first < 0) throw nb::value_error("shape: outputs");
  std::vector<int64_t*> rows;
  for (size_t k = 0; k < outputs.size(); k++) {
    const RecordOutput& o = outputs[k];
    const bool fixed = o.shape == RecordOutput::Shape::kFixed;
    const size_t ndim = o.ndim();
    if (fixed != !shapes[k].has_value() ||
        (!fixed && (shapes[k]->shape(1) != ndim || first + batch.n() > static_cast<int64_t>(shapes[k]->shape(0)))))
      throw nb::value_error("shape: an output's rows");
    rows.push_back(fixed ? nullptr : shapes[k]->data() + first * static_cast<int64_t>(ndim));
  }
  batch.Shape(rows);
}

// Copies the values of all outputs to their places in `data`, from sample `first` of the whole batch on. An output of
// fixed shape has None for offsets. The data of other outputs are [S, capacity], with offsets in units of kAlignment.
void FillOutputs(RecordBatch& batch, const std::vector<AnyArray>& data,
                 const std::vector<std::optional<Vector<const int32_t> > >& offsets, int64_t first, int pool_id) {
  const auto& outputs = batch.layout().outputs;
  const int64_t n = batch.n();
  if (data.size() != outputs.size() || offsets.size() != outputs.size() || first < 0)
    throw nb::value_error("fill: outputs");
  std::vector<RecordBatch::Target> targets;
  for (size_t k = 0; k < outputs.size(); k++) {
    const RecordOutput& o = outputs[k];
    const int bytes = data[k].dtype().bits / 8;
    const auto elements = static_cast<int64_t>(data[k].size());
    RecordBatch::Target t = {o.field, static_cast<uint8_t*>(data[k].data()), bytes, std::vector<int64_t>(n)};
    if (bytes != o.bytes) throw nb::value_error("fill: another type");
    // Where the samples begin, in elements: those of ragged outputs in their shards' rows, others one after another.
    t.missing = o.missing, t.count = 1, t.shape = o.shape;
    if (offsets[k].has_value()) {
      const auto num_samples = static_cast<int64_t>(offsets[k]->size());
      const auto num_shards = data[k].ndim() == 2 ? static_cast<int64_t>(data[k].shape(0)) : 0;
      if (num_shards < 1 || num_samples % num_shards != 0 || first + n > num_samples)
        throw nb::value_error("fill: rows");
      for (int64_t i = 0; i < n; i++)
        t.starts[static_cast<size_t>(i)] = int64_t{offsets[k]->data()[first + i]} * kAlignment +
                                           (first + i) / (num_samples / num_shards) * (elements / num_shards);
    } else {
      const int64_t size = std::accumulate(o.dims.begin(), o.dims.end(), int64_t{1}, std::multiplies<int64_t>());
      for (int64_t i = 0; i < n; i++) t.starts[static_cast<size_t>(i)] = (first + i) * size;
      if (static_cast<int64_t>(o.missing.size()) == bytes) t.count = size;  // one element stands for all
    }
    std::vector<int64_t> shape(o.ndim());
    for (int i = 0; i < n; i++) {
      if (!batch.error(i).empty()) continue;
      const FieldInfo& info = batch.info(i, o.field);
      // Elements that are written: the substitute of a missing field, bytes in whole elements, or the values.
      const bool is_missing = info.type == ValueType::kNone && !info.IsEmptyList();
      const int64_t count = is_missing ? static_cast<int64_t>(t.missing.size()) / bytes * t.count
                            : o.shape == RecordOutput::Shape::kCount && o.type == ValueType::kBytes
                                ? (info.count + bytes - 1) / bytes
                            : o.shape == RecordOutput::Shape::kStated || o.shape == RecordOutput::Shape::kFixed
                                ? (o.type == ValueType::kBytes ? (info.count + bytes - 1) / bytes : info.count)
                                : o.ShapeFor(info, shape.data());
      const int64_t start = t.starts[static_cast<size_t>(i)];
      if ((info.type != ValueType::kNone && info.type != o.type) || start < 0 || count < 0 || count > elements - start)
        throw nb::value_error("fill: a place outside the buffer");
    }
    targets.push_back(std::move(t));
  }
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  batch.Fill(targets, pool.get());
}

// Computes the offsets of samples of these shapes, packed shard by shard, in blocks of kAlignment elements. Returns the
// number of blocks in the fullest shard, or INT64_MAX if it overflows.
int64_t PlanOffsets(const int64_t* shapes, int64_t n, int ndim, int64_t shards, int32_t* offsets) {
  int64_t most = 0, end = 0;
  for (int64_t i = 0; i < n; i++) {
    if (i % (n / shards) == 0) end = 0;  // the first sample of a shard
    int64_t size = 1;
    for (int k = 0; k < ndim; k++)
      if (__builtin_mul_overflow(size, shapes[i * ndim + k], &size)) return INT64_MAX;
    offsets[i] = static_cast<int32_t>(end);
    if (__builtin_add_overflow(end, size / kAlignment + (size % kAlignment > 0), &end)) return INT64_MAX;
    most = std::max(most, end);
  }
  return most;
}

}  // namespace

// Defines the classes for records, and functions for packed samples. An "__init__" makes its object in the memory that
// `self` points to, as nanobind wants it.
void DefineRecords(nb::module_& m) {
  nb::enum_<RecordOutput::Shape>(m, "RecordShape", "How the shape of an output is determined.")
      .value("COUNT", RecordOutput::Shape::kCount)
      .value("ROWS", RecordOutput::Shape::kRows)
      .value("STATED", RecordOutput::Shape::kStated)
      .value("FIXED", RecordOutput::Shape::kFixed)
      .value("STRING", RecordOutput::Shape::kString)
      .value("STRINGS", RecordOutput::Shape::kStrings)
      .value("PADDED", RecordOutput::Shape::kPadded)
      .value("LENGTHS", RecordOutput::Shape::kLengths);
  nb::class_<RecordLayout>(m, "RecordLayout", "The format of records, and the outputs that are made from them.")
      .def(
          "__init__",
          [](RecordLayout* self, RecordFormat format, std::vector<std::string> names, int fields, int parts,
             std::vector<bool> lists, std::vector<bool> first_strings) {
            const bool has_names = format == RecordFormat::kExample || format == RecordFormat::kMessage;
            if (fields < 0 || parts < 1 || (has_names && (names.size() != static_cast<size_t>(fields) || parts != 1)) ||
                (!lists.empty() && (!has_names || lists.size() != names.size())) ||
                (!first_strings.empty() && (!has_names || first_strings.size() != names.size())))
              throw nb::value_error("RecordLayout: fields");
            new (self)
                RecordLayout{format, std::move(names), fields, parts, {}, std::move(lists), std::move(first_strings)};
          },
          nb::arg("format"), nb::arg("names"), nb::arg("fields"), nb::arg("parts") = 1,
          nb::arg("lists") = std::vector<bool>(), nb::arg("first_strings") = std::vector<bool>())
      .def(
          "add_output",
          [](RecordLayout& self, std::string name, std::string dtype, int field, ValueType type, int bytes,
             RecordOutput::Shape shape, std::vector<int64_t> dims, nb::bytes missing,
             std::optional<std::vector<int64_t> > missing_dims, bool required) {
            using Shape = RecordOutput::Shape;
            // The size of an element must suit the values; lengths are integers of 8 bytes.
            const bool fits = shape == Shape::kLengths     ? bytes == 8 && type != ValueType::kNone
                              : type == ValueType::kBytes  ? bytes > 0
                              : type == ValueType::kFloats ? bytes == 4
                              : type == ValueType::kInts   ? bytes == 4 || bytes == 8
                                                           : false;
            const bool has_unknown = std::count(dims.begin(), dims.end(), -1) == 1;
            const bool good_dims = std::all_of(dims.begin(), dims.end(), [](int64_t n) { return n >= -1; }) &&
                                   (shape == Shape::kRows ? has_unknown
                                    : has_unknown         ? shape == Shape::kStrings
                                                          : true) &&
                                   std::count(dims.begin(), dims.end(), -1) <= 1;
            // A string of one type only; strings and rows of examples.
            const bool good_bytes =
                (shape != Shape::kString && shape != Shape::kStrings) || (type == ValueType::kBytes && bytes == 1);
            const bool good_padding = shape != Shape::kPadded || type != ValueType::kBytes || bytes == 1;
            if (!fits || !good_dims || !good_bytes || !good_padding || field < 0 || field >= self.fields * self.parts)
              throw nb::value_error("RecordLayout: an output");
            RecordOutput output = {std::move(name), std::move(dtype),
                                   field,           type,
                                   bytes,           shape,
                                   std::move(dims), std::string(missing.c_str(), missing.size())};
            output.required = required;
            // The shape of a missing field: by default that of its bytes, or with nothing along the unknown extents.
            if (missing_dims) {
              output.missing_dims = std::move(*missing_dims);
            } else if (shape == Shape::kCount || shape == Shape::kString) {
              output.missing_dims = {static_cast<int64_t>(output.missing.size()) / bytes};
            } else {
              output.missing_dims = output.dims;
              std::replace(output.missing_dims.begin(), output.missing_dims.end(), int64_t{-1}, int64_t{0});
              output.missing_dims.resize(output.ndim());
            }
            // The number of elements must not overflow, without the unknown extent either.
            int64_t size = 1;
            for (const int64_t n : output.dims)
              if (__builtin_mul_overflow(size, std::max<int64_t>(n, 1), &size))
                throw nb::value_error("RecordLayout: an output");
            const auto& shape_of_missing = shape == Shape::kFixed ? output.dims : output.missing_dims;
            size = bytes;
            for (const int64_t n : shape_of_missing)
              if (n < 0 || __builtin_mul_overflow(size, n, &size)) throw nb::value_error("RecordLayout: an output");
            const auto num_missing = static_cast<int64_t>(output.missing.size());
            if (shape_of_missing.size() != output.ndim() ||
                (shape == Shape::kFixed    ? num_missing != 0 && num_missing != bytes && num_missing != size
                 : shape == Shape::kStated ? num_missing != 0
                                           : num_missing != size))
              throw nb::value_error("RecordLayout: the value of a missing field");
            self.outputs.push_back(std::move(output));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("field"), nb::arg("type"), nb::arg("bytes"), nb::arg("shape"),
          nb::arg("dims"), nb::arg("missing"), nb::arg("missing_dims") = nb::none(), nb::arg("required") = false,
          "Adds an output. Call it before making a batch.");
  nb::class_<RecordBatch>(m, "RecordBatch", "The records of a batch: found in containers, parsed, and copied.")
      .def(
          "__init__",
          [](RecordBatch* self, const RecordLayout& layout, int n) {
            if (n < 0) throw nb::value_error("RecordBatch: n");
            new (self) RecordBatch(layout, n);
          },
          nb::arg("layout"), nb::arg("n"), nb::keep_alive<1, 2>())
      .def_prop_ro("n", &RecordBatch::n, "The number of records.")
      .def("scan_memory", &ScanMemory, nb::arg("records"), nb::arg("pool"), "Scans records in memory.")
      .def("scan_rows", &ScanRows, nb::arg("data"), nb::arg("starts"), nb::arg("sizes"), nb::arg("pool"),
           "Scans records that are parts of one array.")
      .def("scan_files", &ScanFiles, nb::arg("table"), nb::arg("stamps"), nb::arg("bounds"), nb::arg("index"),
           nb::arg("extents"), nb::arg("checked"), nb::arg("pool"), "Scans records in files.")
      .def(
          "fail",
          [](RecordBatch& self, int i, std::string error) {
            if (i < 0 || i >= self.n()) throw nb::value_error("fail: there is no such record");
            self.Fail(i, std::move(error));
          },
          nb::arg("i"), nb::arg("why"), "Sets the error of a record.")
      .def("describe", &Describe, nb::arg("types"), nb::arg("counts"), nb::arg("dims"),
           "Writes the types (ValueType), numbers of values, and shapes of each record's fields.")
      .def("errors", &Errors, "Returns (record, error) for those that can't be read.")
      .def("shape", &ShapeOutputs, nb::arg("shapes"), nb::arg("first"),
           "Writes the outputs' shapes to rows from `first` on. Pass None for an output of fixed shape.")
      .def("fill", &FillOutputs, nb::arg("data"), nb::arg("offsets"), nb::arg("first"), nb::arg("pool"),
           "Copies the outputs' values to the places from sample `first` on.");
  m.def(
      "plan_offsets",
      [](nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> shapes, int64_t shards,
         Vector<int32_t> offsets) {
        const auto n = static_cast<int64_t>(shapes.shape(0));
        if (static_cast<int64_t>(offsets.size()) != n || shards < 1 || n % shards != 0)
          throw nb::value_error("plan_offsets: lengths differ");
        return PlanOffsets(shapes.data(), n, static_cast<int>(shapes.shape(1)), shards, offsets.data());
      },
      nb::arg("shapes"), nb::arg("shards"), nb::arg("offsets"),
      "Computes where packed samples begin. Returns the number of blocks in the fullest shard.");
  m.def(
      "sample_of",
      [](const nb::object& array, int64_t start, const std::vector<size_t>& shape) {
        const auto data = nb::cast<nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig> >(array);
        int64_t elements = 1;
        for (const size_t n : shape) elements *= static_cast<int64_t>(n);
        if (start < 0 || start + elements > static_cast<int64_t>(data.size())) {
          throw nb::value_error("sample_of: it is not in the array");
        }
        const auto* first = static_cast<const uint8_t*>(data.data()) + start * data.itemsize();
        return nb::ndarray<>(const_cast<uint8_t*>(first), shape.size(), shape.data(), array, /*strides=*/nullptr,
                             data.dtype(), data.device_type(), data.device_id());
      },
      nb::arg("array"), nb::arg("start"), nb::arg("shape"),
      "Returns a part of a flat array on any device, with another shape, as a DLPack capsule that keeps the array "
      "alive.");
}

}  // namespace jaxdali
