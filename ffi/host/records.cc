#include "ffi/host/records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "ffi/host/copy.h"
#include "ffi/host/tar.h"

namespace jaxdali {
namespace {

constexpr int64_t kSmall = 16384;       // records up to this size are read whole,
constexpr int64_t kAtOnce = 256 << 10;  // and as many of them together
constexpr int kTogether = 8;            // larger ones that a thread takes at once

// Replaces a parser's complaint, which counts only where the bytes are those that were written.
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

RecordBatch::RecordBatch(RecordLayout layout, int n)
    : layout_(std::move(layout)), samples_(n), infos_(static_cast<size_t>(n) * layout_.fields) {}

void RecordBatch::Parse(int i, bool checked, RecordBytes::Window* window) {
  Sample& s = samples_[i];
  RecordBytes bytes(s.place, window);
  s.pieces.reserve(static_cast<size_t>(layout_.fields));
  s.error = ParseRecord(layout_, &bytes, &infos_[static_cast<size_t>(i) * layout_.fields], &s.pieces);
  for (Piece& p : s.pieces) {
    if (s.place.data != nullptr) break;
    const uint8_t* held = p.size <= Piece::kMostKept ? bytes.Held(p.offset, p.size) : nullptr;
    if (held == nullptr) continue;
    std::copy_n(held, p.size, p.bytes.begin());
    p.kept = true;
  }
  if (!checked) CheckIfFramed(layout_, &bytes, &s.error);
  if (!s.error.empty() && bytes.error()) s.error = Why(bytes.error());
}

RecordBatch::~RecordBatch() {
  for (int fd : open_) close(fd);
}

void RecordBatch::ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool) {
  pool->Run(n(), [&](int i) {
    Sample& s = samples_[i];
    s.place.data = reinterpret_cast<const uint8_t*>(records[i].data());
    if (s.place.data == nullptr) s.place.data = reinterpret_cast<const uint8_t*>("");
    s.place.size = static_cast<int64_t>(records[i].size());
    Parse(i, false);
  });
}

void RecordBatch::ScanFiles(const FileTable& table, const int64_t* stamps, const int64_t* index, const int64_t* offsets,
                            const int64_t* sizes, uint8_t* checked, ThreadPool* pool) {
  struct File {
    int fd = -1;
    std::string error;
  };
  std::map<int64_t, File> files;  // each is opened once a batch: so that what changed or went away is seen
  for (int i = 0; i < n(); i++) {
    auto [it, added] = files.try_emplace(index[i]);
    if (!added) continue;
    File& f = it->second;
    do {
      f.fd = open(table.path(index[i]).c_str(), O_RDONLY | O_CLOEXEC);
    } while (f.fd < 0 && errno == EINTR);
    struct stat st;
    if (f.fd < 0 || fstat(f.fd, &st) != 0) {
      f.error = std::strerror(errno);
    } else if (st.st_size != stamps[2 * index[i]] ||
               st.st_mtim.tv_sec * int64_t{1000000000} + st.st_mtim.tv_nsec != stamps[2 * index[i] + 1]) {
      f.error = "the file has changed since the pipeline was built";
    }
    if (f.fd >= 0) open_.push_back(f.fd);
  }
  const bool parsed = layout_.format != RecordFormat::kBytes && layout_.format != RecordFormat::kTarMember;
  const auto small = [&](int i) { return parsed && sizes[i] <= kSmall; };
  std::vector<int> runs;  // where each begins: of small records one behind the other, which are read at once
  int64_t room = 0, bytes = 0;
  for (int i = 0; i < n(); i++) {
    Sample& s = samples_[i];
    const File& f = files.find(index[i])->second;
    s.error = f.error;
    if (s.error.empty() && (offsets[i] < 0 || sizes[i] < 0 || sizes[i] > stamps[2 * index[i]] - offsets[i]))
      s.error = "it lies outside of the file, which has " + std::to_string(stamps[2 * index[i]]) +
                " bytes: the index is of another file, or the file is truncated";
    s.place = {nullptr, f.fd, offsets[i], sizes[i], stamps[2 * index[i]]};
    const bool goes_on = i > 0 && s.error.empty() && small(i) && samples_[i - 1].error.empty() && small(i - 1) &&
                         index[i] == index[i - 1] && offsets[i] == offsets[i - 1] + sizes[i - 1] && bytes < kAtOnce;
    if (!goes_on) {
      runs.push_back(i);
      bytes = 0;
    }
    if (s.error.empty() && small(i)) room += sizes[i], bytes += sizes[i];
  }
  std::vector<int> jobs;  // where each begins in `runs`: large records share a window
  for (int r = 0; r < static_cast<int>(runs.size()); r++)
    if (r == 0 || small(runs[r]) || small(runs[r - 1]) || r - jobs.back() == kTogether) jobs.push_back(r);
  jobs.push_back(static_cast<int>(runs.size()));
  runs.push_back(n());
  arena_.reset(new uint8_t[static_cast<size_t>(std::max<int64_t>(room, 1))]);
  std::vector<uint8_t*> places(samples_.size());
  uint8_t* place = arena_.get();
  for (int i = 0; i < n(); i++) {
    places[i] = place;
    if (samples_[i].error.empty() && small(i)) place += sizes[i];
  }
  pool->Run(static_cast<int>(jobs.size()) - 1, [&](int job) {
    RecordBytes::Window window;
    for (int r = jobs[job]; r < jobs[job + 1]; r++) {
      const int first = runs[r], end = runs[r + 1];
      const RecordPlace all = samples_[first].place;
      const bool together = end - first > 1 && ReadAt(all.fd, all.offset, places[first],
                                                      places[end - 1] - places[first] + sizes[end - 1]) == 0;
      for (int i = first; i < end; i++) {
        Sample& s = samples_[i];
        if (!s.error.empty()) continue;
        if (small(i)) {
          if (int e = together ? 0 : ReadAt(s.place.fd, s.place.offset, places[i], sizes[i])) {
            s.error = Why(e);
            continue;
          }
          s.place.data = places[i];
        }
        Parse(i, checked[i], &window);
        checked[i] = s.error.empty();
      }
    }
  });
}

void RecordBatch::Fill(int field, void* data, int bytes_per_element, const int64_t* starts, const bool* skip,
                       ThreadPool* pool) {
  const auto place_of = [&](int i) { return static_cast<uint8_t*>(data) + starts[i] * bytes_per_element; };
  std::vector<FileRange> ranges;  // what goes from a file to its place as it is
  std::vector<Copied> copies;     // and from memory
  std::vector<int> others;        // records of which something does neither
  for (int i = 0; i < n(); i++) {
    Sample& s = samples_[i];
    if (!s.error.empty() || skip[i]) continue;
    const RecordBytes bytes(s.place);
    bool all = true;
    uint8_t* to = place_of(i);
    for (const Piece& p : s.pieces) {
      if (p.field != field) continue;
      if (const uint8_t* from =
              p.type == ValueType::kInts || s.place.data == nullptr ? nullptr : bytes.Held(p.offset, p.size))
        copies.push_back({from, p.size, to});
      else if (s.Direct(p))
        ranges.push_back({s.place.fd, s.place.offset + p.offset, p.size, to, i});
      else
        all = false;
      to += p.size;
    }
    if (!all) others.push_back(i);
  }
  ForEachPart(&ranges, pool,
              [](FileRange* begin, FileRange* end) { ReadNeighbours(static_cast<int>(begin->file), begin, end); });
  CopyAll(copies, pool);
  for (const FileRange& r : ranges)
    if (r.error) samples_[static_cast<size_t>(r.id)].error = Why(r.error);
  pool->Run(static_cast<int>(others.size()), [&](int k) {
    const int i = others[static_cast<size_t>(k)];
    Sample& s = samples_[i];
    if (s.error.empty()) Convert(i, field, place_of(i), bytes_per_element);
  });
}

void RecordBatch::Convert(int i, int field, uint8_t* to, int bytes_per_element) {
  Sample& s = samples_[i];
  RecordBytes bytes(s.place);
  std::vector<uint8_t> read;
  int64_t room = info(i, field).count;
  for (const Piece& p : s.pieces) {
    if (p.field != field) continue;
    bool good = true;
    if (p.type != ValueType::kInts) {
      if (p.kept)
        std::copy_n(p.bytes.begin(), p.size, to);
      else if (!s.Direct(p))
        good = bytes.Held(p.offset, p.size) != nullptr;  // it has been copied
      to += p.size;
    } else {
      const uint8_t* varints = p.bytes.data();
      if (!p.kept) {
        read.resize(static_cast<size_t>(p.size));
        good = bytes.Copy(p.offset, p.size, read.data());
        varints = read.data();
      }
      // What the file holds now may be another thing than what was counted: it must not have more values.
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
