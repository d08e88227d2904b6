// Reading of files: paths (FileTable), whole files and ranges, checksums of containers, and indices of tar archives.
// The functions are defined in ffi/host; here are checks of their arguments, and their Python names and docstrings.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/host/copy.h"
#include "ffi/host/crc32c.h"
#include "ffi/host/files.h"
#include "ffi/host/highway_hash.h"
#include "ffi/host/index_text.h"
#include "ffi/host/riegeli.h"
#include "ffi/host/tar.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

// Throws if a number names no file of the table.
void CheckFiles(const FileTable& table, const Vector<const int64_t>& index) {
  for (size_t i = 0; i < index.size(); i++)
    if (index.data()[i] < 0 || index.data()[i] >= table.size()) throw nb::value_error("there is no such file");
}

// A view that is valid as long as its owner exists and does not change.
nb::ndarray<nb::numpy, const int64_t, nb::shape<-1, 2>, nb::c_contig> Extents(
    const std::vector<TarSamples::Extent>& x) {
  const size_t shape[] = {x.size(), 2};
  return {x.empty() ? nullptr : x[0].data(), /*ndim=*/2, shape, /*owner=*/nb::handle()};
}

// ReadRanges or ReadBlocked: table, files, offsets, n, data, starts, sizes, sizes of the files, errors, pool.
using ReadParts = void(const FileTable&, const int64_t*, const int64_t*, int, uint8_t*, const int64_t*, const int64_t*,
                       const int64_t*, int32_t*, ThreadPool*);

// (index, error) of each part that failed.
std::vector<std::pair<int, int32_t> > Failed(const std::vector<int32_t>& error) {
  std::vector<std::pair<int, int32_t> > failed;
  for (size_t i = 0; i < error.size(); i++)
    if (error[i] != 0) failed.emplace_back(static_cast<int>(i), error[i]);
  return failed;
}

// Reads the parts. Returns (index, error) of those that failed.
template <ReadParts* read>
std::vector<std::pair<int, int32_t> > Read(const FileTable& table, Vector<const int64_t> files,
                                           Vector<const int64_t> offsets, Vector<uint8_t> data,
                                           Vector<const int64_t> starts, Vector<const int64_t> sizes,
                                           Vector<const int64_t> file_sizes, int pool_id) {
  size_t n = files.size();
  if (offsets.size() != n || starts.size() != n || sizes.size() != n ||
      static_cast<int64_t>(file_sizes.size()) != table.size())
    throw nb::value_error("lengths differ");
  CheckFiles(table, files);
  for (size_t i = 0; i < n; i++) {
    if (offsets.data()[i] < 0) throw nb::value_error("there is no such range");
    if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
        starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
      throw nb::value_error("a range's place lies outside the buffer");
  }
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  std::vector<int32_t> error(n);
  read(table, files.data(), offsets.data(), static_cast<int>(n), data.data(), starts.data(), sizes.data(),
       file_sizes.data(), error.data(), pool.get());
  return Failed(error);
}

// Nonnegative integers of any type.
using Column = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// x[index[i]] for each i. Values beyond 63 bits become negative, and are refused where they are used.
std::vector<int64_t> Taken(const Column& x, const Vector<const int64_t>& index) {
  const int bytes = x.dtype().bits / 8;
  const auto kind = static_cast<nb::dlpack::dtype_code>(x.dtype().code);
  if ((kind != nb::dlpack::dtype_code::UInt && kind != nb::dlpack::dtype_code::Int) || bytes > 8)
    throw nb::type_error("a column of whole numbers was expected");
  std::vector<int64_t> values(index.size());
  const auto* data = static_cast<const uint8_t*>(x.data());
  for (size_t i = 0; i < index.size(); i++) {
    const int64_t k = index.data()[i];
    if (k < 0 || k >= static_cast<int64_t>(x.size())) throw nb::value_error("there is no such range");
    uint64_t number = 0;
    std::memcpy(&number, data + k * bytes, static_cast<size_t>(bytes));
    values[i] = static_cast<int64_t>(number);
  }
  return values;
}

// Like `Read`, for ranges index[i] of a list, into a packed batch: the ranges are its samples from `first` on. A row of
// `data` is a shard's buffer, and `offsets` of all samples count units of kAlignment in it. file, start, size: the
// columns of the list, one number for each range.
template <ReadParts* read>
std::vector<std::pair<int, int32_t> > ReadPacked(const FileTable& table, const Column& file, const Column& start,
                                                 const Column& size, Vector<const int64_t> index,
                                                 nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> data,
                                                 Vector<const int32_t> offsets, int64_t first,
                                                 Vector<const int64_t> file_sizes, int pool_id) {
  const auto n = static_cast<int64_t>(index.size()), num_samples = static_cast<int64_t>(offsets.size());
  const auto num_shards = static_cast<int64_t>(data.shape(0)), capacity = static_cast<int64_t>(data.size());
  if (num_shards < 1 || num_samples % num_shards != 0 || first < 0 || first + n > num_samples ||
      static_cast<int64_t>(file_sizes.size()) != table.size())
    throw nb::value_error("lengths differ");
  const std::vector<int64_t> files = Taken(file, index), begins = Taken(start, index), sizes = Taken(size, index);
  std::vector<int64_t> places(index.size());
  for (int64_t i = 0; i < n; i++) {
    const auto k = static_cast<size_t>(i);
    // The shard's row, and the sample's place in it.
    places[k] = int64_t{offsets.data()[first + i]} * kAlignment +
                (first + i) / (num_samples / num_shards) * (capacity / num_shards);
    if (files[k] < 0 || files[k] >= table.size()) throw nb::value_error("there is no such file");
    if (begins[k] < 0) throw nb::value_error("there is no such range");
    if (places[k] < 0 || sizes[k] < 0 || places[k] > capacity - sizes[k])
      throw nb::value_error("a range's place lies outside the buffer");
  }
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  std::vector<int32_t> error(index.size());
  read(table, files.data(), begins.data(), static_cast<int>(n), data.data(), places.data(), sizes.data(),
       file_sizes.data(), error.data(), pool.get());
  return Failed(error);
}

}  // namespace

// Defines the functions and classes for files. An "__init__" makes its object in the memory that `self` points to, as
// nanobind wants it.
void DefineFiles(nb::module_& m) {
  nb::class_<FileTable>(m, "FileTable", "The paths of a data set. Integers name the files of a batch.")
      .def(
          "__init__",
          [](FileTable* self, nb::bytes root, nb::bytes names, Vector<const int64_t> ends) {
            new (self) FileTable(std::string(root.c_str(), root.size()), std::string(names.c_str(), names.size()),
                                 std::vector<int64_t>(ends.data(), ends.data() + ends.size()));
          },
          nb::arg("root"), nb::arg("names"), nb::arg("ends"))
      .def("__len__", &FileTable::size);
  nb::class_<OpenFiles>(m, "OpenFiles", "Files of a batch between file_sizes and read_files.").def(nb::init<>());
  m.def(
      "file_sizes",
      [](const FileTable& table, Vector<const int64_t> index, Vector<int64_t> sizes, Vector<int32_t> error,
         OpenFiles& opened, int pool_id) {
        if (sizes.size() != index.size() || error.size() != index.size()) throw nb::value_error("lengths differ");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        FileSizes(table, index.data(), static_cast<int>(index.size()), sizes.data(), error.data(), &opened, pool.get());
      },
      "Gets the size and errno of each file.");
  m.def(
      "file_heads",
      [](const FileTable& table, Vector<const int64_t> index,
         nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> heads, Vector<int64_t> sizes,
         Vector<int32_t> error, int pool_id) {
        const size_t n = index.size();
        if (heads.shape(0) != n || sizes.size() != n || error.size() != n) throw nb::value_error("lengths differ");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        FileHeads(table, index.data(), static_cast<int>(n), heads.data(), static_cast<int64_t>(heads.shape(1)),
                  sizes.data(), error.data(), pool.get());
      },
      "Reads the first bytes of each file, and gets its size and errno.");
  m.def(
      "read_files",
      [](const FileTable& table, Vector<const int64_t> index, Vector<uint8_t> data, Vector<const int64_t> starts,
         Vector<const int64_t> sizes, Vector<int32_t> error, OpenFiles& opened, int pool_id) {
        const size_t n = index.size();
        if (starts.size() != n || sizes.size() != n || error.size() != n) throw nb::value_error("lengths differ");
        CheckFiles(table, index);
        for (size_t i = 0; i < n; i++)
          if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
            throw nb::value_error("a file's place lies outside the buffer");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        ReadFiles(table, index.data(), static_cast<int>(n), data.data(), starts.data(), sizes.data(), error.data(),
                  &opened, pool.get());
      },
      "Reads each file to its place in a buffer.");
  m.def(
      "crc32c",
      [](nb::bytes data) {
        return Crc32c(/*crc=*/0, reinterpret_cast<const uint8_t*>(data.c_str()), static_cast<int64_t>(data.size()));
      },
      "CRC-32C (Castagnoli)");
  m.def(
      "highway_hash",
      [](Vector<const uint8_t> data, const HashKey& key) {
        HighwayHash hash(key);
        hash.Append(data.data(), static_cast<int64_t>(data.size()));
        return hash.Finish();
      },
      nb::arg("data"), nb::arg("key") = kRiegeliKey, "HighwayHash of 64 bits. The default key is Riegeli's.");
  nb::class_<HighwayHash>(m, "HighwayHash", "Hashes bytes that are given in parts, with Riegeli's key.")
      .def("__init__", [](HighwayHash* self) { new (self) HighwayHash(kRiegeliKey); })
      .def(
          "append",
          [](HighwayHash& self, Vector<const uint8_t> data) {
            self.Append(data.data(), static_cast<int64_t>(data.size()));
          },
          nb::arg("data"))
      .def("finish", &HighwayHash::Finish, "Returns the hash. Call it once.");
  m.def(
      "check_chunks",
      [](nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> heads, Vector<const int64_t> head_sizes,
         Vector<const uint8_t> data, Vector<const int64_t> starts, Vector<const int64_t> sizes, Vector<int32_t> error,
         int pool_id) {
        const size_t n = heads.shape(0);
        if (head_sizes.size() != n || starts.size() != n || sizes.size() != n || error.size() != n)
          throw nb::value_error("lengths differ");
        for (size_t i = 0; i < n; i++)
          if (head_sizes.data()[i] < kChunkHeader || head_sizes.data()[i] > static_cast<int64_t>(heads.shape(1)) ||
              starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
            throw nb::value_error("a chunk lies outside the buffer");
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        CheckChunks(heads.data(), static_cast<int64_t>(heads.shape(1)), head_sizes.data(), static_cast<int>(n),
                    data.data(), starts.data(), sizes.data(), error.data(), pool.get());
      },
      "Checks the checksums of Riegeli's chunks with one record each. Sets the ChunkError of each that has none yet.");
  m.def(
      "parse_integers",
      [](nb::bytes text, Vector<int64_t> out) {
        int64_t bad;
        const int64_t n =
            ParseIntegers({text.c_str(), text.size()}, out.data(), static_cast<int64_t>(out.size()), &bad);
        return std::pair(n, bad);
      },
      nb::arg("text"), nb::arg("out"),
      "Returns the number of integers in a text, and the offset of the first text that is not one, or -1.");
  nb::class_<TarSamples>(m, "TarSamples",
                         "The samples of WebDataset archives, with the position of each output's member.")
      .def(nb::init<std::vector<std::vector<std::string> >, bool, TarSamples::Missing, bool>(), nb::arg("extensions"),
           nb::arg("fold_case"), nb::arg("missing"), nb::arg("keep_names"))
      .def("begin_file", &TarSamples::BeginFile, nb::arg("samples"),
           "Begins the next file, which has about this many samples.")
      .def(
          "scan",
          [](TarSamples& self, nb::bytes path) {
            const std::string archive(path.c_str(), path.size());
            nb::gil_scoped_release release;
            return self.Scan(archive);
          },
          nb::arg("path"), "Adds the samples of an archive. Returns an error message without the path, or \"\".")
      .def(
          "parse",
          [](TarSamples& self, nb::bytes lines, int width, int64_t at) {
            const std::string_view text(lines.c_str(), lines.size());
            nb::gil_scoped_release release;
            return self.Parse(text, width, at);
          },
          nb::arg("lines"), nb::arg("width"), nb::arg("at"),
          "Adds the samples of an index's lines. Returns an error message without the path, or \"\".")
      .def("__len__", &TarSamples::size)
      .def_prop_ro("lines", &TarSamples::lines, "Lines of this file's index.")
      .def(
          "name",
          [](const TarSamples& self, int64_t i) {
            const std::string_view name = self.name(i);
            return nb::bytes(name.data(), name.size());
          },
          nb::arg("i"), "Name of a sample's first member, if names are kept.")
      .def(
          "column",
          [](const TarSamples& self, int output) {
            if (output < 0 || output >= self.outputs()) throw nb::value_error("TarSamples: no such output");
            return Extents(self.column(output));
          },
          nb::arg("output"), nb::rv_policy::reference_internal, "Offset and size of an output's members, i64[n, 2].")
      .def(
          "other_case",
          [](const TarSamples& self, int output) {
            if (output < 0 || output >= self.outputs()) throw nb::value_error("TarSamples: no such output");
            return self.other_case(output);
          },
          nb::arg("output"),
          "Number of samples that lack an output's member, and would have it if extensions matched in any case.")
      .def(
          "blocks", [](const TarSamples& self) { return Extents(self.blocks()); }, nb::rv_policy::reference_internal,
          "(first sample, offset of its line in the index) for parts of the list, i64[blocks, 2].");
  m.def(
      "tar_index",
      [](nb::bytes path, nb::callable progress) {
        const std::string archive(path.c_str(), path.size());
        TarIndex index;
        {
          nb::gil_scoped_release release;
          index = IndexOf(archive, [&](int64_t n) {
            nb::gil_scoped_acquire acquire;
            progress(n);
          });
        }
        return nb::make_tuple(nb::bytes(index.text.data(), index.text.size()), index.samples, index.error);
      },
      nb::arg("path"), nb::arg("progress"),
      "Returns the lines of an archive's index, the number of samples, and an error message or \"\".");
  m.def(
      "tar_sparse",
      [](nb::bytes before) {
        bool more = false;
        const std::string error = CheckSparse({before.c_str(), before.size()}, &more);
        return nb::make_tuple(error, more);
      },
      nb::arg("before"),
      "Given the bytes of an archive before a member's header: returns why the member can't be read if PAX 0.0 marks "
      "it as a sparse file, or \"\"; and whether more bytes are needed to know.");
  m.def("read_ranges", &Read<ReadRanges>,
        "Reads ranges of files, each to its place in a buffer. Returns (range, error) for those that can't be read.");
  m.def("read_packed_ranges", &ReadPacked<ReadRanges>,
        "The same for ranges of a list and the places of packed samples.");
  m.def("read_packed_blocked", &ReadPacked<ReadBlocked>, "The same for logical positions in Riegeli's files.");
  m.def("read_blocked", &Read<ReadBlocked>, "The same for logical positions in Riegeli's files.");
  m.def(
      "read_files_behind",
      [](const FileTable& table, Vector<const int64_t> index, nb::bytes head, Vector<uint8_t> data,
         Vector<const int64_t> starts, Vector<const int64_t> sizes, Vector<int32_t> error, int pool_id) {
        const size_t n = index.size();
        if (starts.size() != n || sizes.size() != n || error.size() != n) throw nb::value_error("lengths differ");
        CheckFiles(table, index);
        for (size_t i = 0; i < n; i++)
          if (starts.data()[i] < 0 || sizes.data()[i] < 0 ||
              starts.data()[i] > static_cast<int64_t>(data.size()) - sizes.data()[i])
            throw nb::value_error("a file's place lies outside the buffer");
        const std::string before(head.c_str(), head.size());
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        ReadFilesBehind(table, index.data(), static_cast<int>(n), before, data.data(), starts.data(), sizes.data(),
                        error.data(), pool.get());
      },
      "Reads what follows the same first bytes in each file, each to its place in a buffer.");
  m.def(
      "copy_parts",
      [](const std::vector<Vector<const uint8_t> >& buffers, Vector<const int64_t> buffer_index,
         Vector<const int64_t> offsets, Vector<uint8_t> data, Vector<const int64_t> starts, Vector<const int64_t> sizes,
         int pool_id) {
        const size_t n = buffer_index.size();
        if (offsets.size() != n || starts.size() != n || sizes.size() != n) throw nb::value_error("lengths differ");
        std::vector<ByteCopy> parts;
        parts.reserve(n);
        for (size_t i = 0; i < n; i++) {
          const int64_t b = buffer_index.data()[i], from = offsets.data()[i], to = starts.data()[i],
                        size = sizes.data()[i];
          if (b < 0 || b >= static_cast<int64_t>(buffers.size()) || size < 0 || from < 0 || to < 0 ||
              from > static_cast<int64_t>(buffers[static_cast<size_t>(b)].size()) - size ||
              to > static_cast<int64_t>(data.size()) - size)
            throw nb::value_error("a part lies outside of its buffer");
          parts.push_back({buffers[static_cast<size_t>(b)].data() + from, size, data.data() + to});
        }
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        CopyBytes(parts, pool.get());
      },
      "Copies parts of buffers, each to its place in another buffer.");
  m.def(
      "parse_chunk_table",
      [](Vector<const uint8_t> data, bool end,
         nb::ndarray<int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu> rows) {
        int64_t used;
        const int64_t n = ParseChunkTable(data.data(), static_cast<int64_t>(data.size()), end, rows.data(),
                                          static_cast<int64_t>(rows.shape(0)), &used);
        return std::pair(n, used);
      },
      nb::arg("data"), nb::arg("end"), nb::arg("rows"),
      "Parses a Riegeli file's table of chunks. Returns the number of entries, or -1 if it is damaged, and the bytes "
      "used.");
}

}  // namespace jaxdali
