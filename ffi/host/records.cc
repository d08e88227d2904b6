#include "ffi/host/records.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

constexpr int64_t kSmall = 16384;       // records up to this size are read whole,
constexpr int64_t kAtOnce = 256 << 10;  // and up to this many bytes of them together
constexpr int kTogether = 8;            // reads, or records in memory, that a thread takes at once

// Checks the checksums or the header. A wrong checksum replaces the parser's error, which is only its consequence.
void CheckIfFramed(const RecordLayout& layout, RecordBytes* record, std::string* error) {
  if (layout.format == RecordFormat::kTarMember && error->empty()) *error = CheckTarMember(record);
  if (layout.format != RecordFormat::kExample || !(error->empty() || *error == kMalformed)) return;
  std::string wrong = CheckSums(record);
  if (!wrong.empty()) *error = wrong;
}

template <class T>
bool CopyInts(const uint8_t* p, int64_t size, T*& to) {
  uint64_t x = 0;
  int shift = 0;
  for (int64_t i = 0; i < size; i++) {
    if (shift < 64) x |= uint64_t{p[i] & 0x7Fu} << shift;
    shift += 7;
    if (p[i] < 0x80) {
      *to++ = static_cast<T>(x);
      x = 0, shift = 0;
    }
  }
  return shift == 0;
}

// Whether the part of a record is missing.
bool Absent(const RecordLayout& layout, int64_t size) { return layout.format == RecordFormat::kTarMember && size == 0; }

int64_t Product(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

// Whether the three extents that a record states give this number of values.
bool Makes(const int64_t* dims, int64_t count) {
  int64_t product = 1;
  for (int k = 0; k < 3; k++) {
    if (dims[k] < 0) return false;
    if (product != 0 && __builtin_mul_overflow(product, dims[k], &product)) return false;
  }
  return product == count;
}

// Why an output can't be made from the field of a record, or an empty text.
std::string WhyNot(const RecordOutput& o, const FieldInfo& f) {
  static constexpr const char* kTypes[] = {"nothing", "bytes", "floats", "integers"};
  if (f.type != ValueType::kNone && f.type != o.type)
    return "its " + o.name + " consists of " + kTypes[static_cast<int>(f.type)] + ", not of " + o.dtype;
  const auto has = [&] { return "its " + o.name + " has " + std::to_string(f.count) + " values, "; };
  const int64_t product = Product(o.dims);
  switch (o.shape) {
    case RecordOutput::Shape::kFixed:
      if (f.count == product || (f.type == ValueType::kNone && !o.missing.empty())) return {};
      return has() + "expected " + std::to_string(product);
    case RecordOutput::Shape::kStated:
      return Makes(f.dims, f.count) ? "" : has() + "which does not match its shape";
    case RecordOutput::Shape::kRows:
      if (product == 0 ? f.count == 0 : f.count % product == 0) return {};
      return has() + "not a multiple of " + std::to_string(product) + " as its shape requires";
    case RecordOutput::Shape::kCount:
      return {};
  }
  return "unknown shape";
}

}  // namespace

std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces) {
  FoundFields found(layout, record, info, pieces);
  switch (layout.format) {
    case RecordFormat::kBytes:
      found.Add(0, ValueType::kBytes, 0, record->size(), record->size());
      return {};
    case RecordFormat::kExample:
      return ParseExample(&found);
    case RecordFormat::kImageRecord:
      return ParseImageRecord(&found);
    case RecordFormat::kDatum:
      return ParseDatum(&found);
    case RecordFormat::kTensorProtos:
      return ParseTensorProtos(&found);
    case RecordFormat::kTarMember:
      if (record->size() < kTarBlock) return "it is too short for a header";
      found.Add(0, ValueType::kBytes, kTarBlock, record->size() - kTarBlock, record->size() - kTarBlock);
      return {};
  }
  return "unknown format";
}

RecordBatch::RecordBatch(const RecordLayout& layout, int n)
    : layout_(layout),
      fields_(layout.fields * layout.parts),
      parts_(static_cast<size_t>(n) * layout.parts),
      infos_(static_cast<size_t>(n) * fields_) {}

RecordBatch::~RecordBatch() {
  for (int fd : open_) {
    close(fd);
    KeepsNoLonger();
  }
}

const std::string& RecordBatch::error(int i) const {
  const size_t first = static_cast<size_t>(i) * layout_.parts;
  for (int k = 0; k < layout_.parts; k++)
    if (!parts_[first + k].error.empty()) return parts_[first + k].error;
  return parts_[first].error;
}

void RecordBatch::Parse(int r, int job, bool checked, RecordBytes::Window* window) {
  Part& s = parts_[static_cast<size_t>(r)];
  RecordBytes bytes(s.place, window);
  std::vector<Piece>& pieces = pieces_[static_cast<size_t>(job)];
  s.job = job;
  s.first = static_cast<int>(pieces.size());
  s.error = ParseRecord(layout_, &bytes, &infos_[static_cast<size_t>(r) * layout_.fields], &pieces);
  s.count = static_cast<int>(pieces.size()) - s.first;
  for (int k = s.first; k < s.first + s.count && s.place.data == nullptr; k++) {
    Piece& p = pieces[static_cast<size_t>(k)];
    const uint8_t* held = p.size <= Piece::kMostKept ? bytes.Held(p.offset, p.size) : nullptr;
    if (held == nullptr) continue;
    std::copy_n(held, p.size, p.bytes.begin());
    p.kept = true;
  }
  if (!checked) CheckIfFramed(layout_, &bytes, &s.error);
  if (!s.error.empty() && bytes.error()) s.error = Why(bytes.error());
}

void RecordBatch::ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool) {
  const int all = static_cast<int>(parts_.size()), jobs = (all + kTogether - 1) / kTogether;
  pieces_.resize(static_cast<size_t>(jobs));
  pool->Run(jobs, [&](int job) {
    for (int r = job * kTogether; r < std::min(all, (job + 1) * kTogether); r++) {
      Part& s = parts_[static_cast<size_t>(r)];
      s.place.data = reinterpret_cast<const uint8_t*>(records[static_cast<size_t>(r)].data());
      if (s.place.data == nullptr) s.place.data = reinterpret_cast<const uint8_t*>("");
      s.place.size = static_cast<int64_t>(records[static_cast<size_t>(r)].size());
      if (!Absent(layout_, s.place.size)) Parse(r, job, false);
    }
  });
}

void RecordBatch::ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* bounds, const int64_t* index,
                            const std::vector<Extents>& parts, ThreadPool* pool) {
  struct File {
    int fd = -1;
    bool is_open = true;
    std::string error;
  };
  const auto open_checked = [&](int64_t number, std::string* error) {
    const int fd = OpenToRead(table.path(number));
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
      *error = std::strerror(errno);
    else if (st.st_size != stamps[2 * number] || ModifiedNanoseconds(st) != stamps[2 * number + 1])
      *error = "the file has changed since the pipeline was built";
    return fd;
  };
  std::map<int64_t, File> files;  // each file is opened once per batch, to notice that it has changed or is gone
  const int all = static_cast<int>(parts_.size());
  const bool is_tar = layout_.format == RecordFormat::kTarMember;
  const bool parsed = layout_.format != RecordFormat::kBytes && !is_tar;
  const auto small = [&](int r) {  // is kept in memory, as is a record whose file does not stay open
    const Part& s = parts_[static_cast<size_t>(r)];
    return s.file >= 0 || (parsed && s.place.size <= kSmall);
  };
  const auto good = [&](int r) { return parts_[static_cast<size_t>(r)].error.empty(); };
  std::vector<int> runs;  // where each run begins: consecutive small records, which are read at once
  std::vector<int> jobs;  // where each begins in `runs`; those of a job share a window and a list of pieces
  int64_t room = 0, bytes = 0, of_job = 0, number = -1;
  const File* file = nullptr;
  for (int r = 0; r < all; r++) {
    Part& s = parts_[static_cast<size_t>(r)];
    const int64_t i = index[r / layout_.parts];
    const int64_t* extent = parts[static_cast<size_t>(r % layout_.parts)].table + 2 * i;
    if (file == nullptr || i < bounds[number] || i >= bounds[number + 1]) {
      number = std::upper_bound(bounds, bounds + table.size(), i) - bounds - 1;
      auto [it, added] = files.try_emplace(number);
      File& f = it->second;
      file = &f;
      if (added) f.fd = open_checked(number, &f.error);
      if (added && f.fd >= 0 && KeepsOpen()) {
        open_.push_back(f.fd);
      } else if (added && f.fd >= 0) {
        close(std::exchange(f.fd, -1));
        f.is_open = false;
      }
    }
    const int64_t end = stamps[2 * number];
    s.place = {nullptr, file->fd, extent[0], extent[1], end};
    if (!file->is_open) s.file = number;
    if (Absent(layout_, s.place.size)) {
      s.place.offset = 0;
    } else if (!file->error.empty()) {
      s.error = file->error;
    } else if (s.place.offset < 0 || s.place.size < 0 || s.place.size > end - s.place.offset) {
      s.error = "it lies outside the file, which has " + std::to_string(end) +
                " bytes: the index is of another file, or the file is truncated";
      if (is_tar && file->is_open)  // an index may state the size of the file that was archived
        if (std::string why = CheckSparse(file->fd, s.place.offset); !why.empty()) s.error = std::move(why);
    }
    const Part* before = r > 0 && good(r) && small(r) && good(r - 1) && small(r - 1) ? &s - 1 : nullptr;
    const bool goes_on = before != nullptr && s.file < 0 && s.place.fd == before->place.fd &&
                         s.place.offset == before->place.offset + before->place.size && bytes < kAtOnce;
    if (!goes_on) {
      const int k = static_cast<int>(runs.size());
      if (k == 0 || k - jobs.back() == kTogether || of_job >= kAtOnce) jobs.push_back(k), of_job = 0;
      runs.push_back(r);
      bytes = 0;
    }
    if (good(r) && small(r)) room += s.place.size, bytes += s.place.size, of_job += s.place.size;
  }
  jobs.push_back(static_cast<int>(runs.size()));
  runs.push_back(all);
  pieces_.resize(jobs.size() - 1);
  arena_.reset(new uint8_t[static_cast<size_t>(std::max<int64_t>(room, 1))]);
  std::vector<uint8_t*> places(parts_.size());
  uint8_t* place = arena_.get();
  for (int r = 0; r < all; r++) {
    places[static_cast<size_t>(r)] = place;
    if (good(r) && small(r)) place += parts_[static_cast<size_t>(r)].place.size;
  }
  pool->Run(static_cast<int>(jobs.size()) - 1, [&](int job) {
    RecordBytes::Window window;
    const size_t records = static_cast<size_t>(runs[jobs[job + 1]] - runs[jobs[job]]);
    pieces_[static_cast<size_t>(job)].reserve(records * static_cast<size_t>(layout_.fields));
    for (int k = jobs[job]; k < jobs[job + 1]; k++) {
      const int first = runs[k], last = runs[k + 1] - 1;
      const RecordPlace begin = parts_[static_cast<size_t>(first)].place, end = parts_[static_cast<size_t>(last)].place;
      const bool together =
          last > first && ReadAt(begin.fd, begin.offset, places[first], end.offset + end.size - begin.offset) == 0;
      for (int r = first; r <= last; r++) {
        Part& s = parts_[static_cast<size_t>(r)];
        if (!s.error.empty() || Absent(layout_, s.place.size)) continue;
        // Belongs to the whole list: other threads and batches may write it for the same record.
        uint8_t* const checked = parts[static_cast<size_t>(r % layout_.parts)].checked + index[r / layout_.parts];
        const bool was_checked = __atomic_load_n(checked, __ATOMIC_RELAXED);
        if (is_tar && !was_checked && s.file < 0) s.error = CheckSparse(s.place.fd, s.place.offset);
        if (!s.error.empty()) continue;
        if (small(r)) {
          const int fd = s.file >= 0 ? open_checked(s.file, &s.error) : s.place.fd;
          if (is_tar && !was_checked && s.file >= 0 && s.error.empty()) s.error = CheckSparse(fd, s.place.offset);
          if (s.error.empty() && !together)
            if (int e = ReadAt(fd, s.place.offset, places[r], s.place.size)) s.error = Why(e);
          if (s.file >= 0 && fd >= 0) close(fd);
          if (!s.error.empty()) continue;
          s.place.data = places[r];
        }
        Parse(r, job, was_checked, &window);
        __atomic_store_n(checked, static_cast<uint8_t>(s.error.empty()), __ATOMIC_RELAXED);
      }
    }
  });
}

void RecordBatch::Shape(const std::vector<int64_t*>& shapes) {
  for (int i = 0; i < n(); i++) {
    for (size_t k = 0; k < shapes.size() && error(i).empty(); k++) {
      const RecordOutput& o = layout_.outputs[k];
      std::string why = WhyNot(o, info(i, o.field));
      if (!why.empty()) Fail(i, std::move(why));
    }
    const bool good = error(i).empty();
    for (size_t k = 0; k < shapes.size(); k++) {
      const RecordOutput& o = layout_.outputs[k];
      const FieldInfo& f = info(i, o.field);
      const int64_t count = f.type == ValueType::kNone    ? static_cast<int64_t>(o.missing.size()) / o.bytes
                            : o.type == ValueType::kBytes ? f.count / o.bytes
                                                          : f.count;
      if (o.shape == RecordOutput::Shape::kFixed) continue;
      const size_t ndim = o.shape == RecordOutput::Shape::kStated ? 3 : 1 + o.dims.size();
      int64_t* row = shapes[k] + static_cast<int64_t>(ndim) * i;
      if (!good)
        std::fill_n(row, ndim, 0);
      else if (o.shape == RecordOutput::Shape::kStated)
        std::copy_n(f.dims, 3, row);
      else
        row[0] = count / std::max<int64_t>(Product(o.dims), 1), std::copy(o.dims.begin(), o.dims.end(), row + 1);
    }
  }
}

void RecordBatch::Fill(const std::vector<Target>& targets, ThreadPool* pool) {
  std::vector<FileRange> ranges;  // pieces that go from a file to their places unchanged
  std::vector<Copied> copies;     // pieces that go from memory to theirs
  struct Other {
    int part, field;
    uint8_t* to;
    int bytes;
  };
  std::vector<Other> others;  // fields with pieces that need conversion
  ranges.reserve(parts_.size());
  copies.reserve(parts_.size());
  for (int i = 0; i < n(); i++) {
    if (!error(i).empty()) continue;
    for (const Target& t : targets) {
      const int r = i * layout_.parts + t.field / layout_.fields, field = t.field % layout_.fields;
      const Part& s = parts_[static_cast<size_t>(r)];
      uint8_t* to = t.data + t.starts[static_cast<size_t>(i)] * t.bytes;
      if (info(i, t.field).type == ValueType::kNone) {
        for (int64_t c = 0; c < t.count; c++) to = std::copy(t.missing.begin(), t.missing.end(), to);
        continue;
      }
      uint8_t* const begin = to;
      bool all = true;
      for (const Piece& p : PiecesOf(s)) {
        if (p.field != field) continue;
        const bool held = s.place.data != nullptr && p.type != ValueType::kInts;
        if (held && p.offset >= 0 && p.offset <= s.place.size - p.size)
          copies.push_back({s.place.data + p.offset, p.size, to});
        else if (s.Direct(p))
          ranges.push_back({s.place.fd, s.place.offset + p.offset, p.size, to, r});
        else
          all = false;
        to += p.size;
      }
      if (!all) others.push_back({r, field, begin, t.bytes});
    }
  }
  ForEachPart(&ranges, pool,
              [](FileRange* begin, FileRange* end) { ReadNeighbours(static_cast<int>(begin->file), begin, end); });
  CopyAll(copies, pool);
  for (const FileRange& r : ranges)
    if (r.error) parts_[static_cast<size_t>(r.id)].error = Why(r.error);
  std::vector<size_t> jobs;  // all fields of one part are in one job, because they share its error
  for (size_t k = 0; k < others.size(); k++)
    if (k == 0 || (k - jobs.back() >= kTogether && others[k].part != others[k - 1].part)) jobs.push_back(k);
  jobs.push_back(others.size());
  pool->Run(static_cast<int>(jobs.size()) - 1, [&](int job) {
    for (size_t k = jobs[static_cast<size_t>(job)]; k < jobs[static_cast<size_t>(job) + 1]; k++)
      Convert(others[k].part, others[k].field, others[k].to, others[k].bytes);
  });
}

void RecordBatch::Convert(int r, int field, uint8_t* to, int bytes_per_element) {
  Part& s = parts_[static_cast<size_t>(r)];
  if (!s.error.empty()) return;
  RecordBytes bytes(s.place);
  std::vector<uint8_t> read;
  int64_t room = infos_[static_cast<size_t>(r) * layout_.fields + field].count;
  for (const Piece& p : PiecesOf(s)) {
    if (p.field != field) continue;
    bool good = true;
    if (p.type != ValueType::kInts) {
      if (p.kept)
        std::copy_n(p.bytes.begin(), p.size, to);
      else if (!s.Direct(p))
        good = bytes.Held(p.offset, p.size) != nullptr;  // copied before
      to += p.size;
    } else {
      const uint8_t* varints = p.bytes.data();
      if (!p.kept) {
        read.resize(static_cast<size_t>(p.size));
        good = bytes.Copy(p.offset, p.size, read.data());
        varints = read.data();
      }
      // The file may have changed since its values were counted: it must not have more of them.
      room -= std::count_if(varints, varints + p.size, [](uint8_t b) { return b < 0x80; });
      good = good && room >= 0;
      if (good && bytes_per_element == 8) {
        auto* out = reinterpret_cast<int64_t*>(to);
        CopyInts(varints, p.size, out);
        to = reinterpret_cast<uint8_t*>(out);
      } else if (good) {
        auto* out = reinterpret_cast<int32_t*>(to);
        CopyInts(varints, p.size, out);
        to = reinterpret_cast<uint8_t*>(out);
      }
    }
    if (!good) {
      s.error = bytes.error() ? Why(bytes.error()) : "the file has changed while it was read";
      return;
    }
  }
}

}  // namespace jaxdali
