// Scans and fills the records of a batch. RecordBatch::ScanFiles is the long part: it groups small neighbouring records
// into runs, each read by one call, and runs into jobs for the pool's threads.
#include "ffi/host/records.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "ffi/common/system.h"
#include "ffi/host/copy.h"
#include "ffi/host/tar.h"

namespace jaxdali {
namespace {

constexpr int64_t kSmall = 16384;            // records up to this size are read whole,
constexpr int64_t kMaxRunBytes = 256 << 10;  // and up to this many bytes of them in one run
constexpr int kItemsPerJob = 8;              // runs, records in memory, or conversions that a thread takes at once

// Checks what frames a record: the header of a tar member, the checksums of TFRecord. A wrong checksum replaces the
// parser's error, which is only its consequence.
void CheckFraming(const RecordLayout& layout, RecordBytes* record, std::string* error) {
  if (layout.format == RecordFormat::kTarMember && error->empty()) *error = CheckTarMember(record);
  if (layout.format != RecordFormat::kExample || !(error->empty() || *error == kMalformed)) return;
  std::string checksum_error = CheckSums(record);
  if (!checksum_error.empty()) *error = checksum_error;
}

// Decodes protobuf varints: groups of 7 bits, the lowest first, with the high bit set in all bytes but the last. Bits
// beyond the 64th are dropped, as protobuf does. The last byte must end a varint.
template <class T>
void CopyInts(const uint8_t* p, int64_t size, T* to) {
  for (const uint8_t* const end = p + size; p < end;) {
    uint64_t value = *p & 0x7Fu;
    for (int shift = 7; *p >= 0x80 && p + 1 < end; shift += 7) {
      p++;
      if (shift < 64) value |= uint64_t{*p & 0x7Fu} << shift;
    }
    p++;
    *to++ = static_cast<T>(value);
  }
}

// Whether this part of a record is missing: a tar sample without that member has an extent of zeros.
bool IsMissing(const RecordLayout& layout, int64_t size) {
  return layout.format == RecordFormat::kTarMember && size == 0;
}

// The number of elements of a shape.
int64_t Product(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

// Whether the product of the three extents that a record states is `count`. It must not overflow.
bool DimsMatch(const int64_t* dims, int64_t count) {
  int64_t product = 1;
  for (int k = 0; k < 3; k++) {
    if (dims[k] < 0) return false;
    if (product != 0 && __builtin_mul_overflow(product, dims[k], &product)) return false;
  }
  return product == count;
}

// Whether the values of an output are strings of examples, of which each is an element of its shape.
bool HasStrings(const RecordOutput& output) {
  using Shape = RecordOutput::Shape;
  return output.type == ValueType::kBytes &&
         (output.shape == Shape::kString || output.shape == Shape::kStrings || output.shape == Shape::kPadded);
}

// The reason why an output can't be made from the field of a record, or an empty text. is_list: it is a feature list.
std::string Mismatch(const RecordOutput& output, const FieldInfo& field, bool is_list) {
  static constexpr const char* kTypes[] = {"nothing", "bytes", "floats", "integers"};
  using Shape = RecordOutput::Shape;
  if (field.different) return "its " + output.name + " has values of different types";
  if (field.type != ValueType::kNone && field.type != output.type)
    return "its " + output.name + " consists of " + kTypes[static_cast<int>(field.type)] + ", not of " + output.dtype;
  if (field.type == ValueType::kNone && !field.IsEmptyList()) {
    if (field.elsewhere)
      return "its " + output.name + (is_list ? " is a feature of the example" : " is a feature list") +
             ": pass it in " + (is_list ? "features" : "sequence_features");
    if (output.required) return "it has no " + output.name + ", for which there is no default";
    // A record may state the shape of an image that it lacks.
    if (output.shape != Shape::kStated && (output.shape != Shape::kFixed || !output.missing.empty())) return {};
  }
  const bool has_strings = HasStrings(output);
  const int64_t count = has_strings ? field.strings : field.count;
  const auto count_text = [&] { return "its " + output.name + " has " + std::to_string(count) + " values, "; };
  // The unknown extent is -1.
  const int64_t product = std::abs(Product(output.dims));
  const bool is_fixed = std::find(output.dims.begin(), output.dims.end(), -1) == output.dims.end();
  switch (output.shape) {
    case Shape::kFixed:
    case Shape::kRows:
    case Shape::kStrings:
      // Each step has the values of one row, which is what follows the first extent.
      if (is_list && field.steps > 0 && (field.shortest_step != product || field.longest_step != product))
        return "a step of its " + output.name + " has " +
               std::to_string(field.shortest_step != product ? field.shortest_step : field.longest_step) +
               " values, expected " + std::to_string(product);
      if (is_fixed) return count == product ? "" : count_text() + "expected " + std::to_string(product);
      if (product == 0 ? count == 0 : count % product == 0) return {};
      return count_text() + "not a multiple of " + std::to_string(product) + " as its shape requires";
    // The three extents that the record states.
    case Shape::kStated:
      return DimsMatch(field.dims, field.count) ? "" : count_text() + "which does not match its shape";
    case Shape::kString:
      return count == 1 ? "" : count_text() + "expected 1";
    case Shape::kCount:
    case Shape::kPadded:
    case Shape::kLengths:
      return {};
  }
  return "unknown shape";
}

}  // namespace

// The number of axes of an output.
size_t RecordOutput::ndim() const {
  switch (shape) {
    case Shape::kFixed:
    case Shape::kRows:
      return dims.size();
    case Shape::kStated:
      return 3;
    case Shape::kStrings:
      return dims.size() + 1;
    case Shape::kPadded:
      return type == ValueType::kBytes ? 3 : 2;
    case Shape::kCount:
    case Shape::kString:
    case Shape::kLengths:
      return 1;
  }
  return 0;
}

// Writes the shape of an output, and returns the number of its elements; -1: too many. See record_parser.h.
int64_t RecordOutput::ShapeFor(const FieldInfo& field, int64_t* row) const {
  // Padding may make much of little: ten million empty strings beside a large one. So there is a limit.
  constexpr int64_t kMostPadded = int64_t{1} << 30;  // bytes
  const bool is_padded = shape == Shape::kStrings || shape == Shape::kPadded;
  const int64_t count = type == ValueType::kBytes && is_padded ? field.strings : field.count;
  if (field.type == ValueType::kNone && !field.IsEmptyList() && shape != Shape::kFixed && shape != Shape::kStated) {
    std::copy(missing_dims.begin(), missing_dims.end(), row);
    return Product(missing_dims);
  }
  switch (shape) {
    case Shape::kFixed:
    case Shape::kRows:
    case Shape::kStrings: {
      const int64_t product = std::max<int64_t>(std::abs(Product(dims)), 1);
      for (size_t k = 0; k < dims.size(); k++) row[k] = dims[k] < 0 ? count / product : dims[k];
      if (shape == Shape::kStrings) row[dims.size()] = field.longest;
      break;
    }
    case Shape::kStated:
      std::copy_n(field.dims, 3, row);
      break;
    case Shape::kCount:
      row[0] = type == ValueType::kBytes ? count / bytes : count;
      break;
    case Shape::kString:
      row[0] = field.count;
      break;
    case Shape::kPadded:
      row[0] = field.steps, row[1] = field.longest_step;
      if (type == ValueType::kBytes) row[2] = field.longest;
      break;
    case Shape::kLengths:
      row[0] = field.NumRows();
      break;
  }
  int64_t size = 1;
  for (size_t k = 0; k < ndim(); k++)
    if (__builtin_mul_overflow(size, row[k], &size)) return -1;
  return is_padded && size > kMostPadded / bytes ? -1 : size;
}

// Finds the fields of one stored part of a record. Returns an error message, or an empty text.
std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces) {
  FieldCollector fields(layout, record, info, pieces);
  switch (layout.format) {
    case RecordFormat::kBytes:
      fields.Add(/*field=*/0, ValueType::kBytes, /*offset=*/0, record->size(), /*count=*/record->size());
      return {};
    case RecordFormat::kExample:
      return ParseExample(&fields);
    case RecordFormat::kImageRecord:
      return ParseImageRecord(&fields);
    case RecordFormat::kDatum:
      return ParseDatum(&fields);
    case RecordFormat::kMessage:
      return ParseMessage(&fields);
    case RecordFormat::kTensorProtos:
      return ParseTensorProtos(&fields);
    case RecordFormat::kTarMember:
      if (record->size() < kTarBlock) return "it is too short for a header";
      // The data behind the header.
      fields.Add(/*field=*/0, ValueType::kBytes, /*offset=*/kTarBlock, record->size() - kTarBlock,
                 /*count=*/record->size() - kTarBlock);
      return {};
  }
  return "unknown format";
}

// Tells where the pieces of a field go: one after another, or each string or row to its own place.
class RecordBatch::Cursor {
 public:
  // begin: the place of the field's first value.
  Cursor(uint8_t* begin, const FieldInfo& field, const Target& target)
      : begin_(begin), to_(begin), field_(field), target_(target) {}

  // The place of the next piece.
  uint8_t* Next(const Piece& p) {
    using Shape = RecordOutput::Shape;
    const bool is_new_step = target_.shape == Shape::kPadded && p.step != step_;
    if (is_new_step) step_ = p.step, to_ = begin_ + p.step * field_.StepSize() * target_.bytes;
    uint8_t* const to = to_;
    if (p.type == ValueType::kBytes && (target_.shape == Shape::kPadded || target_.shape == Shape::kStrings))
      to_ += field_.longest;
    else
      to_ += p.type == ValueType::kInts ? p.count * target_.bytes : p.size;
    return to;
  }

 private:
  uint8_t *const begin_, *to_;
  const FieldInfo& field_;
  const Target& target_;
  int64_t step_ = -1;
};

RecordBatch::RecordBatch(const RecordLayout& layout, int n)
    : layout_(layout),
      fields_(layout.fields * layout.parts),
      parts_(static_cast<size_t>(n) * layout.parts),
      infos_(static_cast<size_t>(n) * fields_) {}

RecordBatch::~RecordBatch() {
  for (int fd : open_) {
    close(fd);
    ReleaseOpenFile();
  }
}

// The error of a record's first part that has one; an empty text if none has.
const std::string& RecordBatch::error(int i) const {
  const size_t first = static_cast<size_t>(i) * layout_.parts;
  for (int k = 0; k < layout_.parts; k++)
    if (!parts_[first + k].error.empty()) return parts_[first + k].error;
  return parts_[first].error;
}

// Parses stored part r, whose place is known. Its pieces are appended to pieces_[job]; an error is kept in the part.
// is_checked: an earlier batch has checked its framing (CheckFraming). window: for a record in a file, or null.
void RecordBatch::Parse(int r, int job, bool is_checked, RecordBytes::Window* window) {
  StoredPart& part = parts_[static_cast<size_t>(r)];
  RecordBytes bytes(part.place, window);
  std::vector<Piece>& pieces = pieces_[static_cast<size_t>(job)];
  part.job = job;
  part.first = static_cast<int>(pieces.size());
  part.error = ParseRecord(layout_, &bytes, &infos_[static_cast<size_t>(r) * layout_.fields], &pieces);
  part.count = static_cast<int>(pieces.size()) - part.first;
  // The window holds the head of the record, and often small values too. They are kept now, which saves a read in Fill.
  for (int k = part.first; k < part.first + part.count && part.place.data == nullptr; k++) {
    Piece& p = pieces[static_cast<size_t>(k)];
    const uint8_t* values = p.size <= Piece::kMostKept ? bytes.PeekLoaded(p.offset, p.size) : nullptr;
    if (values == nullptr) continue;
    std::copy_n(values, p.size, p.bytes.begin());
    p.kept = true;
  }
  if (!is_checked) CheckFraming(layout_, &bytes, &part.error);
  if (!part.error.empty() && bytes.error()) part.error = ErrorText(bytes.error());
}

// Parses records that are in memory: part k of record i is records[i * layout.parts + k].
void RecordBatch::ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool) {
  const int num_parts = static_cast<int>(parts_.size()), jobs = (num_parts + kItemsPerJob - 1) / kItemsPerJob;
  pieces_.resize(static_cast<size_t>(jobs));  // threads append to lists of their own
  // A job takes kItemsPerJob parts.
  pool->Run(jobs, [&](int job) {
    for (int part_number = job * kItemsPerJob; part_number < std::min(num_parts, (job + 1) * kItemsPerJob);
         part_number++) {
      const auto k = static_cast<size_t>(part_number);
      StoredPart& part = parts_[k];
      part.place.data = reinterpret_cast<const uint8_t*>(records[k].data());
      // A null pointer would mean a record in a file.
      if (part.place.data == nullptr) part.place.data = reinterpret_cast<const uint8_t*>("");
      part.place.size = static_cast<int64_t>(records[k].size());
      if (!IsMissing(layout_, part.place.size)) Parse(part_number, job, /*is_checked=*/false);
    }
  });
}

// Scans record index[i] of a list as record i of the batch. `bounds`: the first record of each file. `stamps`: size and
// modification time of each file. `parts`: for each part, the extents of all records. First it plans all reads, file by
// file; then the pool's threads read small records and parse all of them.
void RecordBatch::ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* bounds, const int64_t* index,
                            const std::vector<Extents>& parts, ThreadPool* pool) {
  struct File {
    int fd = -1;
    bool is_open = true;  // it stays open for the batch
    std::string error;
  };
  // Opens a file, whose size and modification time must be those of its two stamps. Returns its descriptor, or -1;
  // either way there may be an error.
  const auto open_checked = [&](int64_t file_number, std::string* error) {
    const int fd = OpenToRead(table.path(file_number));
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
      *error = std::strerror(errno);
    else if (st.st_size != stamps[2 * file_number] || ModifiedNanoseconds(st) != stamps[2 * file_number + 1])
      *error = "the file has changed since the pipeline was built";
    return fd;
  };
  std::map<int64_t, File> files;  // each file is opened once per batch, to notice that it has changed or is gone
  const int num_parts = static_cast<int>(parts_.size());
  const bool is_tar = layout_.format == RecordFormat::kTarMember;
  const bool parsed = layout_.format != RecordFormat::kBytes && !is_tar;
  // Such a record is kept in memory. So is one whose file does not stay open, because Fill could not read it again.
  const auto is_small = [&](int r) {
    const StoredPart& part = parts_[static_cast<size_t>(r)];
    return part.file >= 0 || (parsed && part.place.size <= kSmall);
  };
  const auto has_no_error = [&](int r) { return parts_[static_cast<size_t>(r)].error.empty(); };
  // Plans the reads: each part gets its place, and small neighbours are joined to runs.
  std::vector<int> runs;  // first part of each run: consecutive small records, which are read at once
  std::vector<int> jobs;  // index in `runs` of the first run of each job; its runs share a window and a list of pieces
  int64_t arena_size = 0, run_bytes = 0, job_bytes = 0;  // of all small parts, those of the last run, of the last job
  int64_t file_number = -1;                              // of `file`, which holds the last record
  const File* file = nullptr;
  for (int r = 0; r < num_parts; r++) {
    StoredPart& part = parts_[static_cast<size_t>(r)];
    const int64_t i = index[r / layout_.parts];  // the record's number in the list
    const int64_t* extent = parts[static_cast<size_t>(r % layout_.parts)].table + 2 * i;
    // `extent` is its offset and size. Neighbouring records are usually in the same file, so the search for it is
    // rarely needed.
    if (file == nullptr || i < bounds[file_number] || i >= bounds[file_number + 1]) {
      file_number = std::upper_bound(bounds, bounds + table.size(), i) - bounds - 1;
      auto [it, added] = files.try_emplace(file_number);
      File& opened = it->second;
      file = &opened;
      if (added) opened.fd = open_checked(file_number, &opened.error);
      if (added && opened.fd >= 0 && ReserveOpenFile()) {
        open_.push_back(opened.fd);
      } else if (added && opened.fd >= 0) {
        // The process keeps enough files open already. Each record of this file opens it again.
        close(std::exchange(opened.fd, -1));
        opened.is_open = false;
      }
    }
    const int64_t end = stamps[2 * file_number];
    part.place = {/*data=*/nullptr, file->fd, /*offset=*/extent[0], /*size=*/extent[1], end};
    if (!file->is_open) part.file = file_number;
    if (IsMissing(layout_, part.place.size)) {
      part.place.offset = 0;
    } else if (!file->error.empty()) {
      part.error = file->error;
    } else if (part.place.offset < 0 || part.place.size < 0 || part.place.size > end - part.place.offset) {
      part.error = "it lies outside the file, which has " + std::to_string(end) +
                   " bytes: the index is of another file, or the file is truncated";
      if (is_tar && file->is_open)  // an index may state the size of the file that was archived
        if (std::string message = CheckSparse(file->fd, part.place.offset); !message.empty())
          part.error = std::move(message);
    }
    // The part before it, if both are read whole.
    const StoredPart* previous =
        r > 0 && has_no_error(r) && is_small(r) && has_no_error(r - 1) && is_small(r - 1) ? &part - 1 : nullptr;
    const bool continues_run = previous != nullptr && part.file < 0 && part.place.fd == previous->place.fd &&
                               part.place.offset == previous->place.offset + previous->place.size &&
                               run_bytes < kMaxRunBytes;
    if (!continues_run) {
      const int k = static_cast<int>(runs.size());
      if (k == 0 || k - jobs.back() == kItemsPerJob || job_bytes >= kMaxRunBytes) jobs.push_back(k), job_bytes = 0;
      runs.push_back(r);
      run_bytes = 0;
    }
    if (has_no_error(r) && is_small(r))
      arena_size += part.place.size, run_bytes += part.place.size, job_bytes += part.place.size;
  }
  jobs.push_back(static_cast<int>(runs.size()));
  runs.push_back(num_parts);
  pieces_.resize(jobs.size() - 1);
  // The plan is complete. Each small part gets a destination in one allocation, in the order of the parts, so that a
  // run is contiguous there, too.
  arena_.reset(new uint8_t[static_cast<size_t>(std::max<int64_t>(arena_size, 1))]);
  std::vector<uint8_t*> destinations(parts_.size());
  uint8_t* destination = arena_.get();
  for (int r = 0; r < num_parts; r++) {
    destinations[static_cast<size_t>(r)] = destination;
    if (has_no_error(r) && is_small(r)) destination += parts_[static_cast<size_t>(r)].place.size;
  }
  // A job reads its runs one after another, and parses their records.
  pool->Run(static_cast<int>(jobs.size()) - 1, [&](int job) {
    // Shared by the job's records: the end of one often has the head of the next.
    RecordBytes::Window window;
    const size_t records = static_cast<size_t>(runs[jobs[job + 1]] - runs[jobs[job]]);
    pieces_[static_cast<size_t>(job)].reserve(records * static_cast<size_t>(layout_.fields));
    for (int k = jobs[job]; k < jobs[job + 1]; k++) {
      const int first = runs[k], last = runs[k + 1] - 1;
      const RecordPlace first_place = parts_[static_cast<size_t>(first)].place,
                        last_place = parts_[static_cast<size_t>(last)].place;
      // One call reads the whole run. If it fails, its records are read one by one, so that only the bad ones get the
      // error.
      const bool is_run_read = last > first && ReadAt(first_place.fd, first_place.offset, destinations[first],
                                                      last_place.offset + last_place.size - first_place.offset) == 0;
      for (int r = first; r <= last; r++) {
        StoredPart& part = parts_[static_cast<size_t>(r)];
        if (!part.error.empty() || IsMissing(layout_, part.place.size)) continue;
        // Belongs to the whole list: other threads and batches may write it for the same record.
        uint8_t* const checked = parts[static_cast<size_t>(r % layout_.parts)].checked + index[r / layout_.parts];
        const bool is_checked = __atomic_load_n(checked, __ATOMIC_RELAXED);
        // A sparse member looks like a regular one from here on, so its headers are checked first.
        if (is_tar && !is_checked && part.file < 0) part.error = CheckSparse(part.place.fd, part.place.offset);
        if (!part.error.empty()) continue;
        if (is_small(r)) {
          const int fd = part.file >= 0 ? open_checked(part.file, &part.error) : part.place.fd;
          const Closing closing(part.file >= 0 ? fd : -1);
          if (is_tar && !is_checked && part.file >= 0 && part.error.empty())
            part.error = CheckSparse(fd, part.place.offset);
          if (part.error.empty() && !is_run_read)
            if (int e = ReadAt(fd, part.place.offset, destinations[r], part.place.size)) part.error = ErrorText(e);
          if (!part.error.empty()) continue;
          part.place.data = destinations[r];
        }
        Parse(r, job, is_checked, &window);
        // A record with an error is checked again the next time, which gives the same error.
        __atomic_store_n(checked, static_cast<uint8_t>(part.error.empty()), __ATOMIC_RELAXED);
      }
    }
  });
}

// Writes the shapes of all records in output k to shapes[k], [n, ndim], unless the output has a fixed shape. A record
// that does not fit an output gets an error, and zeros.
void RecordBatch::Shape(const std::vector<int64_t*>& shapes) {
  std::vector<int64_t> row;
  for (int i = 0; i < n(); i++) {
    for (size_t k = 0; k < shapes.size() && error(i).empty(); k++) {
      const RecordOutput& output = layout_.outputs[k];
      std::string message = Mismatch(output, info(i, output.field), layout_.is_list(output.field));
      if (message.empty() && shapes[k] != nullptr) {
        row.resize(output.ndim());
        if (output.ShapeFor(info(i, output.field), row.data()) < 0)
          message = "its " + output.name + " is too large: " + std::to_string(row[0]) +
                    " rows, padded to the longest, would have more than 1 GiB";
      }
      if (!message.empty()) Fail(i, std::move(message));
    }
    // All outputs of a record with an error become empty, also those that are good.
    for (size_t k = 0; k < shapes.size(); k++) {
      const RecordOutput& output = layout_.outputs[k];
      if (shapes[k] == nullptr) continue;
      int64_t* const destination = shapes[k] + static_cast<int64_t>(output.ndim()) * i;
      if (error(i).empty())
        output.ShapeFor(info(i, output.field), destination);
      else
        std::fill_n(destination, output.ndim(), 0);
    }
  }
}

// Copies the values of all fields to their outputs: first bytes and floats, from files and from memory, then those that
// need a conversion.
void RecordBatch::Fill(const std::vector<Target>& targets, ThreadPool* pool) {
  std::vector<FileRange> ranges;  // pieces that go from a file to their places unchanged
  std::vector<ByteCopy> copies;   // pieces that go from memory to theirs
  struct Conversion {
    int i;  // the record
    const Target* target;
    uint8_t* to;
  };
  std::vector<Conversion> conversions;  // fields with pieces that need conversion
  ranges.reserve(parts_.size());
  copies.reserve(parts_.size());
  for (int i = 0; i < n(); i++) {
    if (!error(i).empty()) continue;
    for (const Target& target : targets) {
      const FieldInfo& field_info = info(i, target.field);
      const StoredPart& part = PartOf(i, target.field);
      uint8_t* const begin = target.data + target.starts[static_cast<size_t>(i)] * target.bytes;
      // A record without the field gets the default value.
      if (field_info.type == ValueType::kNone && !field_info.IsEmptyList()) {
        uint8_t* to = begin;
        for (int64_t c = 0; c < target.count; c++) to = std::copy(target.missing.begin(), target.missing.end(), to);
        continue;
      }
      if (target.shape == RecordOutput::Shape::kLengths) {
        FillLengths(i, target.field, reinterpret_cast<int64_t*>(begin));
        continue;
      }
      // Rows that are padded may consist of several pieces, or of none.
      if (target.shape == RecordOutput::Shape::kPadded)
        std::memset(begin, 0, static_cast<size_t>(field_info.PaddedSize()) * static_cast<size_t>(target.bytes));
      bool is_complete = true;
      Cursor cursor(begin, field_info, target);
      for (const Piece& p : PiecesOf(part)) {
        if (p.field != target.field % layout_.fields) continue;
        uint8_t* const to = cursor.Next(p);
        if (target.shape == RecordOutput::Shape::kStrings)
          std::memset(to + p.size, 0, static_cast<size_t>(field_info.longest - p.size));
        const bool is_in_memory = part.place.data != nullptr && p.type != ValueType::kInts;
        if (is_in_memory && p.offset >= 0 && p.offset <= part.place.size - p.size)
          copies.push_back({part.place.data + p.offset, p.size, to});
        else if (part.IsCopied(p))
          ranges.push_back(
              {part.place.fd, part.place.offset + p.offset, p.size, to, static_cast<int>(&part - parts_.data())});
        else
          is_complete = false;
      }
      if (!is_complete) conversions.push_back({i, &target, begin});
    }
  }
  // Here FileRange::file is a descriptor, not a number in a table.
  ForEachPart(&ranges, pool,
              [](FileRange* begin, FileRange* end) { ReadNeighbours(static_cast<int>(begin->file), begin, end); });
  CopyBytes(copies, pool);
  for (const FileRange& r : ranges)
    if (r.error) parts_[static_cast<size_t>(r.id)].error = ErrorText(r.error);
  std::vector<size_t> jobs;  // all fields of one record are in one job, because those of one part share its error
  for (size_t k = 0; k < conversions.size(); k++)
    // A job ends between two records.
    if (k == 0 || (k - jobs.back() >= kItemsPerJob && conversions[k].i != conversions[k - 1].i)) jobs.push_back(k);
  jobs.push_back(conversions.size());
  // The conversions, in the pool's threads.
  pool->Run(static_cast<int>(jobs.size()) - 1, [&](int job) {
    for (size_t k = jobs[static_cast<size_t>(job)]; k < jobs[static_cast<size_t>(job) + 1]; k++)
      Convert(conversions[k].i, *conversions[k].target, conversions[k].to);
  });
}

// Writes the number of bytes of each string of a field, or the number of values of each step of a feature list.
void RecordBatch::FillLengths(int i, int field, int64_t* to) {
  const FieldInfo& field_info = info(i, field);
  const bool has_strings = field_info.type == ValueType::kBytes;
  std::fill_n(to, field_info.NumRows(), 0);
  int64_t string = 0;
  for (const Piece& p : PiecesOf(PartOf(i, field)))
    if (p.field == field % layout_.fields) to[has_strings ? string++ : p.step] += p.count;
}

// Copies those pieces of a field of record i that Fill could not copy: varints become integers of 4 or 8 bytes, and
// kept bytes are copied.
void RecordBatch::Convert(int i, const Target& target, uint8_t* begin) {
  StoredPart& part = PartOf(i, target.field);
  if (!part.error.empty()) return;
  RecordBytes bytes(part.place);
  std::vector<uint8_t> buffer;
  Cursor cursor(begin, info(i, target.field), target);
  for (const Piece& p : PiecesOf(part)) {
    if (p.field != target.field % layout_.fields) continue;
    uint8_t* const to = cursor.Next(p);
    bool is_good = true;
    if (p.type != ValueType::kInts) {
      if (p.kept)
        std::copy_n(p.bytes.begin(), p.size, to);
      else if (!part.IsCopied(p))
        is_good = bytes.PeekLoaded(p.offset, p.size) != nullptr;  // Fill copied it from memory
    } else {
      const uint8_t* varints = p.kept ? p.bytes.data() : bytes.PeekLoaded(p.offset, p.size);
      if (varints == nullptr) {
        buffer.resize(static_cast<size_t>(p.size));
        is_good = bytes.Copy(p.offset, p.size, buffer.data());
        varints = buffer.data();
      }
      // The file may have changed since its values were counted. More of them would overrun the output.
      is_good = is_good && std::count_if(varints, varints + p.size, [](uint8_t b) { return b < 0x80; }) == p.count;
      is_good = is_good && varints[p.size - 1] < 0x80;
      if (is_good && target.bytes == 8)
        CopyInts(varints, p.size, reinterpret_cast<int64_t*>(to));
      else if (is_good)
        CopyInts(varints, p.size, reinterpret_cast<int32_t*>(to));
    }
    if (!is_good) {
      part.error = bytes.error() ? ErrorText(bytes.error()) : "the file has changed while it was read";
      return;
    }
  }
}

}  // namespace jaxdali
