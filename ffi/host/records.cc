#include "ffi/host/records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace jaxdali {
namespace {

constexpr int64_t kSmall = 16384;  // records up to this size are read at once

uint64_t Little(const uint8_t* p, int bytes) {
  uint64_t x = 0;
  for (int i = 0; i < bytes; i++) x |= uint64_t{p[i]} << 8 * i;
  return x;
}

// Reads exactly n bytes; 0, errno, or kSizeChanged where the file ends before.
int ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n) {
  while (n > 0) {
    const ssize_t got = pread(fd, to, static_cast<size_t>(std::min<int64_t>(n, int64_t{1} << 30)), offset);
    if (got == 0) return kSizeChanged;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    offset += got;
    to += got;
    n -= got;
  }
  return 0;
}

// One field of a protobuf message.
struct WireField {
  uint32_t number = 0;
  int wire = 0;                  // 0: varint, 1: 8 bytes, 2: bytes, 5: 4 bytes
  uint64_t value = 0;            // of a varint
  int64_t offset = 0, size = 0;  // of its contents
};

// The fields of a message that is part of a record.
class Message {
 public:
  Message(RecordBytes* record, int64_t begin, int64_t end) : record_(record), at_(begin), end_(end) {}

  bool Next(WireField* f) {
    if (at_ >= end_ || bad_) return false;
    uint64_t key;
    if (!Varint(&key)) return Fail();
    const uint64_t number = key >> 3;
    if (number == 0 || number >= uint64_t{1} << 29) return Fail();
    f->number = static_cast<uint32_t>(number);
    f->wire = static_cast<int>(key & 7);
    f->offset = at_;
    if (f->wire == 0) {
      if (!Varint(&f->value)) return Fail();
      f->size = at_ - f->offset;
      return true;
    }
    uint64_t size = f->wire == 1 ? 8 : 4;
    if (f->wire == 2) {
      if (!Varint(&size)) return Fail();
      f->offset = at_;
    } else if (f->wire != 1 && f->wire != 5) {
      return Fail();
    }
    if (size > static_cast<uint64_t>(end_ - at_)) return Fail();
    f->size = static_cast<int64_t>(size);
    at_ += f->size;
    return true;
  }

  bool bad() const { return bad_; }

  bool Varint(uint64_t* x) {
    const int64_t n = std::min<int64_t>(end_ - at_, 10);
    const uint8_t* p = n > 0 ? record_->Peek(at_, n) : nullptr;
    if (p == nullptr) return false;
    *x = 0;
    for (int64_t i = 0; i < n; i++) {
      *x |= uint64_t{p[i] & 0x7Fu} << 7 * i;
      if (p[i] < 0x80) {
        at_ += i + 1;
        return true;
      }
    }
    return false;
  }

 private:
  bool Fail() {
    bad_ = true;
    return false;
  }

  RecordBytes* record_;
  int64_t at_, end_;
  bool bad_ = false;
};

constexpr const char* kMalformed = "it is damaged: it can't be parsed";

// The parser of one record.
class Parser {
 public:
  Parser(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces)
      : layout_(layout), record_(*record), info_(info), pieces_(*pieces) {}

  std::string Parse() {
    switch (layout_.format) {
      case RecordFormat::kBytes:
        Add(0, ValueType::kBytes, 0, record_.size(), record_.size());
        return {};
      case RecordFormat::kExample:
        return Example();
      case RecordFormat::kImageRecord:
        return ImageRecord();
      case RecordFormat::kDatum:
        return Datum();
      case RecordFormat::kTensorProtos:
        return TensorProtos();
    }
    return "unknown format";
  }

 private:
  void Add(int field, ValueType type, int64_t offset, int64_t size, int64_t count) {
    info_[field].type = type;
    info_[field].count += count;
    if (size > 0) pieces_.push_back({field, type, offset, size});
  }

  void Clear(int field) {
    info_[field] = {};
    std::erase_if(pieces_, [&](const Piece& p) { return p.field == field; });
  }

  // Floats: one, or a packed list of them.
  bool AddFloats(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 5) return true;  // another type: as an unknown field
    if (f.size % 4) return false;
    Add(field, ValueType::kFloats, f.offset, f.size, f.size / 4);
    return true;
  }

  bool AddInts(int field, const WireField& f) {
    if (f.wire != 2 && f.wire != 0) return true;
    int64_t count = 0, length = 0;
    for (int64_t at = 0; at < f.size;) {
      const int64_t n = std::min(f.size - at, RecordBytes::kWindow);
      const uint8_t* p = record_.Peek(f.offset + at, n);
      if (p == nullptr) return false;
      for (int64_t i = 0; i < n; i++) {
        if (++length > 10) return false;
        if (p[i] < 0x80) count++, length = 0;
      }
      at += n;
    }
    if (length != 0) return false;
    Add(field, ValueType::kInts, f.offset, f.size, count);
    return true;
  }

  // message Example { Features features = 1; }; message Features { map<string, Feature> feature = 1; };
  // message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
  std::string Example() {
    const uint8_t* head = record_.size() >= 16 ? record_.Peek(0, 12) : nullptr;
    if (head == nullptr) return "it is too short for a record";
    const uint64_t length = Little(head, 8);
    if (length != static_cast<uint64_t>(record_.size() - 16))
      return "its header says " + std::to_string(length) + " bytes, the index " + std::to_string(record_.size() - 16) +
             ": the index is of another file, or the file is damaged";
    Message example(&record_, 12, record_.size() - 4);
    for (WireField features; example.Next(&features);) {
      if (features.number != 1 || features.wire != 2) continue;
      Message entries(&record_, features.offset, features.offset + features.size);
      for (WireField entry; entries.Next(&entry);) {
        if (entry.number != 1 || entry.wire != 2) continue;
        if (!Entry(entry)) return kMalformed;
      }
      if (entries.bad()) return kMalformed;
    }
    return example.bad() ? kMalformed : "";
  }

  bool Entry(const WireField& entry) {
    Message parts(&record_, entry.offset, entry.offset + entry.size);
    int64_t key = 0, key_size = 0, value = 0, value_size = 0;
    for (WireField f; parts.Next(&f);) {
      if (f.wire != 2) continue;
      if (f.number == 1) key = f.offset, key_size = f.size;
      if (f.number == 2) value = f.offset, value_size = f.size;
    }
    if (parts.bad()) return false;
    for (int k = 0; k < layout_.fields; k++) {
      const std::string& name = layout_.names[k];
      if (static_cast<int64_t>(name.size()) != key_size || key_size > RecordBytes::kWindow) continue;
      const uint8_t* p = key_size ? record_.Peek(key, key_size) : nullptr;
      if (key_size && (p == nullptr || std::memcmp(p, name.data(), name.size()) != 0)) continue;
      Clear(k);
      if (!Feature(k, value, value + value_size)) return false;
    }
    return true;
  }

  bool Feature(int k, int64_t begin, int64_t end) {
    static constexpr ValueType kTypes[] = {ValueType::kBytes, ValueType::kFloats, ValueType::kInts};
    Message feature(&record_, begin, end);
    bool found = false;  // a list of bytes has one element at most: the first
    for (WireField list; feature.Next(&list);) {
      if (list.number > 3 || list.wire != 2) continue;
      const ValueType type = kTypes[list.number - 1];
      if (info_[k].type != type) Clear(k), found = false;
      info_[k].type = type;
      Message values(&record_, list.offset, list.offset + list.size);
      for (WireField f; values.Next(&f);) {
        if (f.number != 1) continue;
        if (type == ValueType::kBytes) {
          if (f.wire == 2 && !found) Add(k, type, f.offset, f.size, f.size);
          found = found || f.wire == 2;
        } else if (!(type == ValueType::kFloats ? AddFloats(k, f) : AddInts(k, f))) {
          return false;
        }
      }
      if (values.bad()) return false;
    }
    return !feature.bad();
  }

  // RecordIO: parts of a magic word, a word of kind (3 bits) and length (29 bits), and the bytes, filled up to 4. The
  // magic word is left out where a payload is split because it contains it. Payload: u32 number of labels, f32 label,
  // u64[2], that many f32, and the image.
  std::string ImageRecord() {
    constexpr uint32_t kMagic = 0xCED7230A;
    constexpr int64_t kHead = 24;
    std::vector<Piece> parts;
    int64_t total = 0;
    for (int64_t at = 0;;) {
      const uint8_t* p = at + 8 <= record_.size() ? record_.Peek(at, 8) : nullptr;
      if (p == nullptr) return at ? "its last part is missing" : "it is too short for a record";
      if (Little(p, 4) != kMagic) return "no record begins there: the index is of another file, or the file is damaged";
      const auto word = static_cast<uint32_t>(Little(p + 4, 4));
      const int64_t length = word & ((1u << 29) - 1);
      const uint32_t kind = word >> 29;  // 0: whole, 1: first, 2: middle, 3: last part
      if (at == 0 ? kind > 1 : kind < 2 || kind > 3) return kMalformed;
      if (at) parts.push_back({1, ValueType::kBytes, at, 4}), total += 4;  // the magic word itself
      if (length > record_.size() - at - 8)
        return "it ends early: its header says " + std::to_string(length) + " bytes";
      parts.push_back({1, ValueType::kBytes, at + 8, length});
      total += length;
      if (kind == 0 || kind == 3) break;
      at += 8 + (length + 3) / 4 * 4;
    }
    const bool has_head = parts[0].size >= kHead;
    std::array<uint8_t, kHead> head;
    if (!Take(&parts, head.data(), kHead)) return "it is too short for an image record";
    const auto labels = static_cast<int64_t>(Little(head.data(), 4));
    if (labels > (total - kHead) / 4) return "it is too short for its " + std::to_string(labels) + " labels";
    if (labels == 0) {
      if (!has_head) return kMalformed;
      Add(1, ValueType::kFloats, 12, 4, 1);
    } else {
      for (int64_t left = 4 * labels; left > 0;) {
        Piece& p = parts.front();
        const int64_t n = std::min(left, p.size);
        if (n % 4) return kMalformed;
        Add(1, ValueType::kFloats, p.offset, n, n / 4);
        left -= n;
        p.offset += n;
        p.size -= n;
        if (p.size == 0) parts.erase(parts.begin());
      }
    }
    info_[0].type = ValueType::kBytes;
    for (const Piece& p : parts) Add(0, ValueType::kBytes, p.offset, p.size, p.size);
    return {};
  }

  bool Take(std::vector<Piece>* parts, uint8_t* to, int64_t n) {
    while (n > 0 && !parts->empty()) {
      Piece& p = parts->front();
      const int64_t some = std::min(n, p.size);
      const uint8_t* from = some ? record_.Peek(p.offset, some) : nullptr;
      if (some && from == nullptr) return false;
      std::copy(from, from + some, to);
      to += some;
      n -= some;
      p.offset += some;
      p.size -= some;
      if (p.size == 0 && (n > 0 || parts->size() > 1)) parts->erase(parts->begin());
    }
    return n == 0;
  }

  // message Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5; bool encoded = 7; }
  std::string Datum() {
    Message datum(&record_, 0, record_.size());
    bool encoded = true;
    int64_t dims[3] = {0, 0, 0};  // channels, height, width
    for (WireField f; datum.Next(&f);) {
      if (f.wire == 0 && f.number <= 3) dims[f.number - 1] = static_cast<int32_t>(f.value);
      if (f.wire == 2 && f.number == 4) Clear(0), Add(0, ValueType::kBytes, f.offset, f.size, f.size);
      if (f.wire == 0 && f.number == 5) Clear(1), Add(1, ValueType::kInts, f.offset, f.size, 1);
      if (f.wire == 0 && f.number == 7) encoded = f.value != 0;
    }
    if (datum.bad()) return kMalformed;
    if (!encoded) std::copy_n(std::array{dims[1], dims[2], dims[0]}.data(), 3, info_[0].dims);
    return {};
  }

  // message TensorProtos { repeated TensorProto protos = 1; }
  std::string TensorProtos() {
    Message protos(&record_, 0, record_.size());
    int k = 0;
    for (WireField f; protos.Next(&f);) {
      if (f.number != 1 || f.wire != 2) continue;
      if (k < layout_.fields && !Tensor(k, f.offset, f.offset + f.size)) return kMalformed;
      k++;
    }
    if (protos.bad()) return kMalformed;
    if (k < layout_.fields)
      return "it has " + std::to_string(k) + " tensors, " + std::to_string(layout_.fields) + " are to be read";
    return {};
  }

  // message TensorProto { repeated int64 dims = 1; DataType data_type = 2; repeated float float_data = 3;
  // repeated int32 int32_data = 4; bytes byte_data = 5; repeated bytes string_data = 6; repeated int64 int64_data = 10;
  // }
  bool Tensor(int k, int64_t begin, int64_t end) {
    uint64_t type = 1;
    Message head(&record_, begin, end);
    int64_t dims[3] = {0, 0, 0};
    size_t ndim = 0;
    for (WireField f; head.Next(&f);) {
      if (f.wire == 0 && f.number == 2) type = f.value;
      if (f.wire == 0 && f.number == 1 && ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(f.value);
      if (f.wire == 2 && f.number == 1) {  // packed
        Message packed(&record_, f.offset, f.offset + f.size);
        for (uint64_t x; packed.Varint(&x);)
          if (ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(x);
      }
    }
    if (head.bad()) return false;
    Message tensor(&record_, begin, end);
    for (WireField f; tensor.Next(&f);) {
      if (f.number == 3 && type == 1 && !AddFloats(k, f)) return false;
      if (((f.number == 4 && type == 2) || (f.number == 10 && type == 10)) && !AddInts(k, f)) return false;
      if (f.number == 5 && type == 3 && f.wire == 2) Clear(k), Add(k, ValueType::kBytes, f.offset, f.size, f.size);
      if (f.number == 6 && type == 4 && f.wire == 2 && info_[k].type == ValueType::kNone)
        Add(k, ValueType::kBytes, f.offset, f.size, f.size);  // of several texts the first
    }
    if (type == 3 && (ndim == 2 || ndim == 3)) {
      if (ndim == 2) dims[2] = 1;
      std::copy_n(dims, 3, info_[k].dims);
    }
    return true;
  }

  const RecordLayout& layout_;
  RecordBytes& record_;
  FieldInfo* info_;
  std::vector<Piece>& pieces_;
};

// The two checksums of a record of a TFRecord file.
std::string CheckSums(RecordBytes* record) {
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; };
  const uint8_t* p = record->Peek(0, 12);
  if (p == nullptr) return "it is too short for a record";
  if (masked(Crc32c(0, p, 8)) != Little(p + 8, 4)) return "the checksum (CRC) of its length is wrong";
  uint32_t crc = 0;
  const int64_t end = record->size() - 4;
  for (int64_t at = 12; at < end;) {
    const int64_t n = std::min(end - at, RecordBytes::kWindow);
    p = record->Peek(at, n);
    if (p == nullptr) return "it ends early";
    crc = Crc32c(crc, p, n);
    at += n;
  }
  p = record->Peek(end, 4);
  return p != nullptr && masked(crc) == Little(p, 4) ? "" : "its checksum (CRC) is wrong";
}

// Replaces a parser's complaint, which counts only where the bytes are those that were written.
void CheckIfFramed(const RecordLayout& layout, RecordBytes* record, std::string* error) {
  if (layout.format != RecordFormat::kExample || !(error->empty() || *error == kMalformed)) return;
  std::string wrong = CheckSums(record);
  if (!wrong.empty()) *error = wrong;
}

std::string Why(int error) {
  return error == kSizeChanged ? "the file ends before the record does" : std::strerror(error);
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

const uint8_t* RecordBytes::Peek(int64_t at, int64_t n) {
  if (at < 0 || n < 0 || at > size_ || n > size_ - at) return nullptr;
  if (data_ != nullptr || n == 0) return data_ != nullptr ? data_ + at : reinterpret_cast<const uint8_t*>("");
  if (n > kWindow) return nullptr;
  if (at < window_at_ || at + n > window_at_ + window_size_) {
    if (!window_) window_.reset(new uint8_t[kWindow]);
    window_at_ = at;
    window_size_ = std::min(kWindow, size_ - at);
    if (int e = ReadAt(fd_, offset_ + at, window_.get(), window_size_)) {
      error_ = e;
      window_size_ = 0;
      return nullptr;
    }
  }
  return window_.get() + (at - window_at_);
}

bool RecordBytes::Copy(int64_t at, int64_t n, uint8_t* to) {
  if (at < 0 || n < 0 || at > size_ || n > size_ - at) return false;
  if (data_ != nullptr) {
    std::memcpy(to, data_ + at, static_cast<size_t>(n));
    return true;
  }
  if (int e = ReadAt(fd_, offset_ + at, to, n)) {
    error_ = e;
    return false;
  }
  return true;
}

std::string ParseRecord(const RecordLayout& layout, RecordBytes* record, FieldInfo* info, std::vector<Piece>* pieces) {
  return Parser(layout, record, info, pieces).Parse();
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t Crc32cBySse(uint32_t crc, const uint8_t* p, int64_t n) {
  uint64_t x = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    x = _mm_crc32_u64(x, word);
  }
  auto y = static_cast<uint32_t>(x);
  for (; n > 0; n--) y = _mm_crc32_u8(y, *p++);
  return ~y;
}
#endif

uint32_t Crc32c(uint32_t crc, const uint8_t* p, int64_t n) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Crc32cBySse(crc, p, n);
#endif
  static const auto table = [] {
    std::array<uint32_t, 256> t;
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t x = i;
      for (int k = 0; k < 8; k++) x = x >> 1 ^ (x & 1 ? 0x82F63B78u : 0);
      t[i] = x;
    }
    return t;
  }();
  crc = ~crc;
  for (; n > 0; n--) crc = crc >> 8 ^ table[(crc ^ *p++) & 255];
  return ~crc;
}

int64_t ParseIntegers(std::string_view text, int64_t* out, int64_t room, int64_t* bad) {
  int64_t count = 0;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  *bad = -1;
  for (;;) {
    while (p < end && space(*p)) p++;
    if (p == end) return count;
    const char* const start = p;
    int64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9' && p - start < 18; p++) x = 10 * x + (*p - '0');
    if (p == start || (p < end && !space(*p)) || count == room) {
      *bad = start - text.data();
      return count;
    }
    out[count++] = x;
  }
}

RecordBatch::RecordBatch(RecordLayout layout, int n)
    : layout_(std::move(layout)), samples_(n), infos_(static_cast<size_t>(n) * layout_.fields) {}

RecordBatch::~RecordBatch() {
  for (int fd : open_) close(fd);
}

void RecordBatch::ScanMemory(const std::vector<std::string_view>& records, ThreadPool* pool) {
  pool->Run(n(), [&](int i) {
    Sample& s = samples_[i];
    s.bytes = std::make_unique<RecordBytes>(reinterpret_cast<const uint8_t*>(records[i].data()),
                                            static_cast<int64_t>(records[i].size()));
    s.error = ParseRecord(layout_, s.bytes.get(), &infos_[static_cast<size_t>(i) * layout_.fields], &s.pieces);
    CheckIfFramed(layout_, s.bytes.get(), &s.error);
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
  const auto small = [&](int i) {
    return layout_.format != RecordFormat::kBytes && sizes[i] >= 0 && sizes[i] <= kSmall;
  };
  std::vector<int64_t> places(samples_.size());
  int64_t room = 0;
  for (int i = 0; i < n(); i++) {
    places[i] = room;
    if (small(i)) room += sizes[i];
  }
  arena_.reset(new uint8_t[std::max<int64_t>(room, 1)]);
  pool->Run(n(), [&](int i) {
    Sample& s = samples_[i];
    const File& f = files.find(index[i])->second;
    s.error = f.error;
    if (!s.error.empty()) return;
    if (offsets[i] < 0 || sizes[i] < 0 || sizes[i] > stamps[2 * index[i]] - offsets[i]) {
      s.error = "it lies outside of the file, which has " + std::to_string(stamps[2 * index[i]]) +
                " bytes: the index is of another file, or the file is truncated";
      return;
    }
    if (small(i)) {
      uint8_t* place = arena_.get() + places[i];
      if (int e = ReadAt(f.fd, offsets[i], place, sizes[i])) {
        s.error = Why(e);
        return;
      }
      s.bytes = std::make_unique<RecordBytes>(place, sizes[i]);
    } else {
      s.bytes = std::make_unique<RecordBytes>(f.fd, offsets[i], sizes[i]);
    }
    s.error = ParseRecord(layout_, s.bytes.get(), &infos_[static_cast<size_t>(i) * layout_.fields], &s.pieces);
    if (!checked[i]) CheckIfFramed(layout_, s.bytes.get(), &s.error);
    checked[i] = s.error.empty();
    if (!s.error.empty() && s.bytes->error()) s.error = Why(s.bytes->error());
  });
}

void RecordBatch::Fill(int field, void* data, int bytes_per_element, const int64_t* starts, const bool* skip,
                       ThreadPool* pool) {
  pool->Run(n(), [&](int i) {
    Sample& s = samples_[i];
    if (!s.error.empty() || skip[i]) return;
    uint8_t* to = static_cast<uint8_t*>(data) + starts[i] * bytes_per_element;
    std::vector<uint8_t> varints;
    int64_t room = info(i, field).count;
    for (const Piece& p : s.pieces) {
      if (p.field != field) continue;
      bool good;
      if (p.type != ValueType::kInts) {
        good = s.bytes->Copy(p.offset, p.size, to);
        to += p.size;
      } else {
        varints.resize(static_cast<size_t>(p.size));
        good = s.bytes->Copy(p.offset, p.size, varints.data());
        // What the file holds now may be another thing than what was counted: it must not have more values.
        room -= std::count_if(varints.begin(), varints.end(), [](uint8_t b) { return b < 0x80; });
        good = good && room >= 0;
        if (good && bytes_per_element == 8) {
          auto* out = reinterpret_cast<int64_t*>(to);
          CopyInts(varints.data(), p.size, out);
          to = reinterpret_cast<uint8_t*>(out);
        } else if (good) {
          auto* out = reinterpret_cast<int32_t*>(to);
          CopyInts(varints.data(), p.size, out);
          to = reinterpret_cast<uint8_t*>(out);
        }
      }
      if (!good) {
        s.error = s.bytes->error() ? Why(s.bytes->error()) : "the file has changed while it was read";
        return;
      }
    }
  });
}

}  // namespace jaxdali
