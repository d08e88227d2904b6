// Reads records, archives and indices, for fuzzers. No input may cause an access outside it or the memory for its
// values.
#ifndef JAXDALI_FFI_FUZZ_RECORD_CASES_H_
#define JAXDALI_FFI_FUZZ_RECORD_CASES_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ffi/fuzz/choices.h"
#include "ffi/host/crc32c.h"
#include "ffi/host/index_text.h"
#include "ffi/host/records.h"
#include "ffi/host/riegeli.h"
#include "ffi/host/tar.h"

namespace jaxdali {

inline Data operator+(Data a, const Data& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Appends a little-endian number.
inline void PutFixed(Data* d, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; i++) d->push_back(static_cast<uint8_t>(x >> 8 * i));
}

// Frames a message as in a TFRecord file, with correct checksums, so that mutations get past them.
inline Data FrameRecord(const Data& message) {
  const auto mask = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; };
  Data d;
  PutFixed(&d, message.size(), 8);
  PutFixed(&d, mask(Crc32c(0, d.data(), 8)), 4);
  d = d + message;
  PutFixed(&d, mask(Crc32c(0, message.data(), static_cast<int64_t>(message.size()))), 4);
  return d;
}

// Sets the checksum of a tar header: the sum of its bytes, with spaces in the checksum's field.
inline void CorrectChecksum(uint8_t* header) {
  std::memset(header + 148, ' ', 8);
  int sum = 0;
  for (int64_t i = 0; i < kTarBlock; i++) sum += header[i];
  std::snprintf(reinterpret_cast<char*>(header) + 148, 8, "%06o", static_cast<unsigned>(sum));
}

// Layouts of examples, with outputs of all forms: of features, of strings, and of feature lists.
inline RecordLayout ExampleLayout(RecordFormat format) {
  using Shape = RecordOutput::Shape;
  const auto bytes = ValueType::kBytes;
  const std::string zeros(8, '\0');
  return {format,
          {"image", "label", "box", "absent", "frames", "rows", "texts"},
          7,
          1,
          {{"image", "uint8", 0, bytes, 1, Shape::kString, {}, "jpeg", {4}},
           {"image", "uint8", 0, bytes, 1, Shape::kStrings, {-1}, {}, {0, 0}},
           {"image", "int64", 0, bytes, 8, Shape::kLengths, {}, {}, {0}},
           {"label", "int64", 1, ValueType::kInts, 8, Shape::kCount, {}, zeros, {1}},
           {"box", "float32", 2, ValueType::kFloats, 4, Shape::kRows, {4, -1}, {}, {4, 0}},
           {"absent", "int64", 3, ValueType::kInts, 8, Shape::kFixed, {2, 2}, zeros},
           {"frames", "uint8", 4, bytes, 1, Shape::kPadded, {}, {}, {0, 0, 0}},
           {"frames", "int64", 4, bytes, 8, Shape::kLengths, {}, {}, {0}},
           {"rows", "int32", 5, ValueType::kInts, 4, Shape::kPadded, {}, {}, {0, 0}},
           {"rows", "int64", 5, ValueType::kInts, 8, Shape::kLengths, {}, {}, {0}},
           {"texts", "uint8", 6, bytes, 1, Shape::kStrings, {-1}, {}, {0, 0}}},
          {false, false, false, false, true, true, true}};
}

// The result of reading a record: the error, or all values.
struct Result {
  std::string error;
  std::vector<Data> values;
  std::vector<int64_t> shapes;
  bool operator==(const Result&) const = default;
};

// Fills in the outputs of the batch's one record, each in a block that ends where its shape says. All bytes must be
// written: the block is filled twice, with other bytes in it before.
inline void FillOutputs(RecordBatch* batch, ThreadPool* pool, Result* r) {
  const std::vector<RecordOutput>& outputs = batch->layout().outputs;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t*> rows;
  for (const RecordOutput& output : outputs) shapes.emplace_back(output.ndim());
  for (size_t k = 0; k < outputs.size(); k++)
    rows.push_back(outputs[k].shape == RecordOutput::Shape::kFixed ? nullptr : shapes[k].data());
  batch->Shape(rows);
  for (size_t k = 0; k < outputs.size() && batch->error(0).empty(); k++) {
    const RecordOutput& output = outputs[k];
    if (rows[k] == nullptr) shapes[k] = output.dims;
    int64_t size = output.bytes;
    for (const int64_t extent : shapes[k])
      if (extent < 0 || __builtin_mul_overflow(size, extent, &size)) std::abort();
    if (output.shape == RecordOutput::Shape::kStated && size != batch->info(0, output.field).count) std::abort();
    if (size > (1 << 22)) continue;  // padding may make much of little; it would only take time
    Data values[2];
    for (const uint8_t before : {0, 255}) {
      auto block = Exact<uint8_t>(static_cast<size_t>(size));
      std::memset(block.get(), before, static_cast<size_t>(size));
      const int64_t count = static_cast<int64_t>(output.missing.size()) == output.bytes ? size / output.bytes : 1;
      batch->Fill({{output.field, block.get(), output.bytes, {0}, output.missing, count, output.shape}}, pool);
      values[before & 1].assign(block.get(), block.get() + size);
    }
    if (batch->error(0).empty() && values[0] != values[1]) std::abort();
    r->values.push_back(values[0]);
    r->shapes.insert(r->shapes.end(), shapes[k].begin(), shapes[k].end());
  }
}

// Fills in all values of the batch's one record, and then its outputs.
inline Result FillAll(RecordBatch* batch, ThreadPool* pool) {
  Result r;
  for (int k = 0; k < batch->layout().fields && batch->error(0).empty(); k++) {
    const FieldInfo& info = batch->info(0, k);
    // Reads integers once as 64 and once as 32 bits. The block ends where the values end.
    for (const int bytes :
         info.type == ValueType::kInts ? std::vector{8, 4} : std::vector{info.type == ValueType::kFloats ? 4 : 1}) {
      auto values = Exact<uint8_t>(static_cast<size_t>(info.count) * bytes);
      batch->Fill({{k, values.get(), bytes, {0}}}, pool);
      r.values.emplace_back(values.get(), values.get() + info.count * bytes);
    }
    r.shapes.insert(r.shapes.end(), info.dims, info.dims + 3);
  }
  if (batch->error(0).empty()) FillOutputs(batch, pool, &r);
  r.error = batch->error(0);
  if (!r.error.empty()) r.values.clear(), r.shapes.clear();
  return r;
}

// Reads a record from a heap block of exactly its size.
inline Result ReadFromMemory(const RecordLayout& layout, const Data& data, ThreadPool* pool) {
  auto input = Exact<uint8_t>(data.size());
  std::copy(data.begin(), data.end(), input.get());
  RecordBatch batch(layout, 1);
  batch.ScanMemory({{reinterpret_cast<const char*>(input.get()), data.size()}}, pool);
  return FillAll(&batch, pool);
}

// Reads a record that lies in a file between other bytes.
inline Result ReadFromFile(const RecordLayout& layout, const Data& data, const std::string& path, ThreadPool* pool) {
  constexpr int64_t kBefore = 100, kAfter = 50;
  std::ofstream(path, std::ios::binary) << std::string(kBefore, 'x') << std::string(data.begin(), data.end())
                                        << std::string(kAfter, 'x');
  const FileTable table("", path, {static_cast<int64_t>(path.size())});
  struct stat st;
  if (stat(path.c_str(), &st) != 0) std::abort();
  const int64_t stamps[] = {st.st_size, st.st_mtim.tv_sec * int64_t{1000000000} + st.st_mtim.tv_nsec};
  const int64_t index = 0, extent[] = {kBefore, static_cast<int64_t>(data.size())}, bounds[] = {0, 1};
  uint8_t checked = 0;
  RecordBatch batch(layout, 1);
  batch.ScanFiles(table, stamps, bounds, &index, {{extent, &checked}}, pool);
  return FillAll(&batch, pool);
}

// Parses a list of offsets. The result must be inside the text and the array.
inline void CheckIndex(const Data& text, int64_t room) {
  auto input = Exact<char>(text.size());
  std::copy(text.begin(), text.end(), input.get());
  auto out = Exact<int64_t>(static_cast<size_t>(room));
  int64_t bad;
  const int64_t n = ParseIntegers({input.get(), text.size()}, out.get(), room, &bad);
  if (n > room || bad >= static_cast<int64_t>(text.size())) std::abort();
}

// Reads a table of chunks whole, and in two parts that are cut at a byte, which must give the same.
inline void CheckChunkTable(const Data& data, int64_t max_rows, int64_t cut) {
  auto input = Exact<uint8_t>(data.size());
  std::copy(data.begin(), data.end(), input.get());
  auto rows = Exact<int64_t>(static_cast<size_t>(3 * max_rows)),
       rows_of_parts = Exact<int64_t>(static_cast<size_t>(3 * max_rows));
  int64_t num_used, num_used_second;
  const auto size = static_cast<int64_t>(data.size());
  const int64_t n = ParseChunkTable(input.get(), size, /*is_end=*/true, rows.get(), max_rows, &num_used);
  if (n > max_rows || num_used > size) std::abort();
  int64_t first = ParseChunkTable(input.get(), cut, /*is_end=*/false, rows_of_parts.get(), max_rows, &num_used);
  if (first < 0 && n >= 0) std::abort();
  if (first < 0) return;
  auto remaining = Exact<uint8_t>(static_cast<size_t>(size - num_used));
  std::copy(input.get() + num_used, input.get() + size, remaining.get());
  const int64_t second = ParseChunkTable(remaining.get(), size - num_used, /*is_end=*/true,
                                         rows_of_parts.get() + 3 * first, max_rows - first, &num_used_second);
  if (n >= 0 && (first + second != n || !std::equal(rows.get(), rows.get() + 3 * n, rows_of_parts.get()))) std::abort();
}

// Parses the index of an archive. No extent may begin more than a header before the archive, and no name may be longer
// than the text.
inline void CheckTarIndex(const Data& text, Choices& choose) {
  auto input = Exact<char>(text.size());
  std::copy(text.begin(), text.end(), input.get());
  const bool fold_case = choose.below(2) != 0;
  TarSamples samples({{"jpg", "png"}, {"cls"}}, fold_case, static_cast<TarSamples::Missing>(choose.below(3)),
                     /*keep_names=*/true);
  samples.BeginFile(choose.below(5));
  samples.Parse({input.get(), text.size()}, /*width=*/3 + choose.below(2), /*offset=*/0);
  for (int64_t i = 0; i < samples.size(); i++)
    for (int k = 0; k < samples.outputs(); k++)
      for (const int64_t x : samples.column(k)[static_cast<size_t>(i)])
        if (x < -kTarBlock || samples.name(i).size() > text.size()) std::abort();
}

// The names and places of an archive's members, and the reader's error.
inline std::string ListMembers(const RecordPlace& place, RecordBytes::Window* window) {
  RecordBytes bytes(place, window);
  TarReader reader(&bytes);
  std::string members;
  for (TarMember m; reader.Next(&m);) {
    if (m.offset < 0 || m.size < 0 || m.size > place.size - m.offset) std::abort();
    members += m.name + " " + std::to_string(m.offset) + " " + std::to_string(m.size) + "\n";
  }
  return members + reader.error();
}

// Returns whether an archive could be read. -1: the results from memory and from a file differ.
inline int ReadArchive(const Data& data, const std::string& path) {
  auto input = Exact<uint8_t>(data.size());
  std::copy(data.begin(), data.end(), input.get());
  const auto size = static_cast<int64_t>(data.size());
  const std::string expected = ListMembers({input.get(), /*fd=*/-1, /*offset=*/0, size}, /*window=*/nullptr);
  std::ofstream(path, std::ios::binary) << std::string(data.begin(), data.end());
  RecordBytes::Window window;
  const int fd = open(path.c_str(), O_RDONLY);
  const std::string actual = ListMembers({/*data=*/nullptr, fd, /*offset=*/0, size}, &window);
  close(fd);
  TarSamples samples({{"jpg"}, {"seg.png", "and.a.long.name"}}, /*fold_case=*/true, TarSamples::Missing::kEmpty,
                     /*keep_names=*/true);
  const std::string message = samples.Scan(path);
  for (int64_t i = 0; i < samples.size(); i++)
    if (samples.name(i).find('\0') != std::string_view::npos) std::abort();
  IndexOf(path, [](int64_t) {});
  return actual != expected ? -1 : message.empty();
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_RECORD_CASES_H_
