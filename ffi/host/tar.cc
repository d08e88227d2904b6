#include "ffi/host/tar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <limits>

#include "ffi/host/files.h"

namespace jaxdali {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;  // largest size or offset
constexpr char kSparse[] = "is a sparse file, which can't be read: write the archive without --sparse";

// The text up to the first zero.
std::string_view Text(const uint8_t* p, size_t n) {
  const auto* text = reinterpret_cast<const char*>(p);
  return {text, strnlen(text, n)};
}

// A number in a header: octal digits between spaces, or (GNU) big-endian. -1: it is invalid or too large.
int64_t Number(const uint8_t* p, int n) {
  int64_t x = 0;
  if (p[0] & 0x80) {
    for (int i = 0; i < n; i++) {
      if (x > kMost >> 8) return -1;
      x = x << 8 | (i ? p[i] : p[i] & 0x7F);
    }
    return x;
  }
  std::string_view text = Text(p, static_cast<size_t>(n));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  for (const char c : text) {
    if (c < '0' || c > '7') return -1;
    x = x << 3 | (c - '0');  // 12 digits at most
  }
  return x;
}

// Checks the sum of a header's bytes, in which its own field counts as spaces. Some old programs added signed bytes.
bool SumIsRight(const uint8_t* p) {
  int64_t sum = 0, signed_sum = 0;
  for (int i = 0; i < kTarBlock; i++) {
    const uint8_t x = i >= 148 && i < 156 ? ' ' : p[i];
    sum += x;
    signed_sum += static_cast<int8_t>(x);
  }
  const int64_t written = Number(p + 148, 8);
  return written == sum || written == signed_sum;
}

// Decimal digits and nothing else. -1: not such a number.
int64_t Decimal(std::string_view text) {
  if (text.empty() || text.size() > 18) return -1;
  int64_t x = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    x = 10 * x + (c - '0');
  }
  return x;
}

std::vector<std::pair<std::string, int>> Pairs(const std::vector<std::vector<std::string>>& extensions) {
  std::vector<std::pair<std::string, int>> found;
  for (size_t k = 0; k < extensions.size(); k++)
    for (const std::string& e : extensions[k]) found.emplace_back(e, static_cast<int>(k));
  return found;
}

// Whether the member's own header marks a sparse file: GNU's old form, PAX 0.1 and 1.0.
bool SaysSparse(const uint8_t* p) {
  return p[156] == 'S' || Text(p, 100).find("GNUSparseFile.") != std::string_view::npos;
}

}  // namespace

std::string CheckTarMember(RecordBytes* record) {
  const uint8_t* p = record->Peek(0, kTarBlock);
  if (p == nullptr) return record->error() ? Why(record->error()) : "it is too short for a header";
  if (!SumIsRight(p))
    return "no member of the archive begins there: the index is of another file, or the file is damaged";
  if (SaysSparse(p)) return std::string("it ") + kSparse;
  const int64_t size = Number(p + 124, 12), expected = record->size() - kTarBlock;
  if (size == expected || expected >= int64_t{1} << 33) return {};  // larger sizes are stored elsewhere
  return "its header says " + std::to_string(size) + " bytes, the index " + std::to_string(expected) +
         ": the index is of another file, the file is damaged, or it is a sparse file";
}

std::string CheckSparse(int fd, int64_t offset) {
  constexpr int64_t kMostBlocks = RecordBytes::kWindow / kTarBlock;  // blocks of a PAX header
  uint8_t blocks[2 * kTarBlock];
  const int64_t before = offset >= kTarBlock ? kTarBlock : 0;
  if (offset < 0 || ReadAt(fd, offset - before, blocks, before + kTarBlock) != 0) return {};
  if (!SumIsRight(blocks + before)) return {};
  if (SaysSparse(blocks + before)) return std::string("it ") + kSparse;
  // PAX 0.0 marks a sparse file only in a PAX header. That ends with a line feed and zeros, as few members do.
  int64_t end = before;
  while (end > 0 && blocks[end - 1] == 0) end--;
  if (end == 0 || blocks[end - 1] != '\n') return {};
  for (int64_t n = 1, at = offset - 2 * kTarBlock; n <= kMostBlocks && at >= 0; n++, at -= kTarBlock) {
    if (ReadAt(fd, at, blocks, kTarBlock) != 0) return {};
    const int64_t size = Number(blocks + 124, 12);
    if ((blocks[156] != 'x' && blocks[156] != 'X') || (size + kTarBlock - 1) / kTarBlock != n || !SumIsRight(blocks))
      continue;
    RecordBytes::Window window;
    RecordBytes bytes({nullptr, fd, at, (n + 2) * kTarBlock}, &window);
    TarReader reader(&bytes);
    return reader.PaxSaysSparse() ? std::string("it ") + kSparse : std::string();
  }
  return {};
}

std::string CheckSparse(std::string_view before, bool* more) {
  *more = false;
  const std::string_view text = before.substr(0, before.find_last_not_of('\0') + 1);
  if (text.empty() || text.back() != '\n') return {};
  const auto* bytes = reinterpret_cast<const uint8_t*>(before.data());
  for (int64_t n = 1, at = static_cast<int64_t>(before.size()) - 2 * kTarBlock; at >= 0; n++, at -= kTarBlock) {
    const uint8_t* p = bytes + at;
    if ((Number(p + 124, 12) + kTarBlock - 1) / kTarBlock != n || !SumIsRight(p)) continue;
    if (p[156] != 'x' && p[156] != 'X') return {};  // a member that happens to end this way
    RecordBytes header({p, -1, 0, (n + 1) * kTarBlock, 0});
    return TarReader(&header).PaxSaysSparse() ? std::string("it ") + kSparse : std::string();
  }
  // In another text that ends this way, the last line does not begin with its own length.
  const size_t begin = text.find_last_of('\n', text.size() - 2) + 1;  // npos + 1 is 0
  const std::string_view line = text.substr(begin);
  *more = Decimal(line.substr(0, std::min(line.find(' '), line.size()))) == static_cast<int64_t>(line.size());
  return {};
}

struct TarReader::Extended {
  std::string name;
  int64_t size = -1;
  bool sparse = false;
  std::string sparse_name;  // name of a sparse file, where `name` is that of its storage
};

bool TarReader::Fail(std::string why) {
  error_ = std::move(why);
  return false;
}

bool TarReader::Long(int64_t offset, int64_t size, std::string* text) {
  const uint8_t* p = bytes_.Peek(offset, size);
  if (p == nullptr)
    return Fail(" is damaged at " + std::to_string(offset) + ": a header of " + std::to_string(size) +
                " bytes does not fit");
  text->assign(reinterpret_cast<const char*>(p), static_cast<size_t>(size));
  return true;
}

// Lines "length keyword=value\n". The length includes its own digits.
bool TarReader::Pax(int64_t offset, int64_t size, Extended* extended) {
  std::string all;
  if (!Long(offset, size, &all)) return false;
  std::string_view left = all;
  while (!left.empty() && left[0] != '\0') {
    const size_t space = left.find(' ');
    const int64_t length = space == left.npos ? -1 : Decimal(left.substr(0, space));
    if (length <= static_cast<int64_t>(space) || length > static_cast<int64_t>(left.size()) ||
        left[static_cast<size_t>(length) - 1] != '\n')
      return Fail(" is damaged at " + std::to_string(offset) + ": a PAX header can't be parsed");
    const std::string_view line = left.substr(space + 1, static_cast<size_t>(length) - space - 2);
    const size_t equal = std::min(line.find('='), line.size());
    const std::string_view key = line.substr(0, equal), value = line.substr(std::min(equal + 1, line.size()));
    if (key == "path") {
      extended->name = value.substr(0, value.find('\0'));
    } else if (key == "size") {
      extended->size = Decimal(value);
      if (extended->size < 0) return Fail(" is damaged at " + std::to_string(offset) + ": a size can't be parsed");
    } else if (key.substr(0, 11) == "GNU.sparse.") {
      extended->sparse = true;
      if (key == "GNU.sparse.name") extended->sparse_name = value.substr(0, value.find('\0'));
    }
    left.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

bool TarReader::PaxSaysSparse() {
  const uint8_t* p = bytes_.Peek(0, kTarBlock);
  Extended extended;
  return p != nullptr && Pax(kTarBlock, Number(p + 124, 12), &extended) && extended.sparse;
}

bool TarReader::Next(TarMember* member) {
  if (!error_.empty()) return false;
  for (Extended extended;;) {
    const int64_t begin = at_;
    if (begin >= bytes_.size()) return begin == 0 ? Fail(" is not a tar archive: it is empty") : false;
    const uint8_t* p = bytes_.Peek(begin, kTarBlock);
    if (p == nullptr)
      return Fail(bytes_.error() ? " can't be read: " + Why(bytes_.error()) : " ends within a header: it is truncated");
    if (std::all_of(p, p + kTarBlock, [](uint8_t x) { return x == 0; })) return false;
    int64_t size = Number(p + 124, 12);
    if (!SumIsRight(p) || size < 0)
      return Fail(begin == 0 ? " is not a tar archive, or it is damaged"
                             : " is damaged at " + std::to_string(begin) + ": no member begins there");
    const char type = static_cast<char>(p[156]);
    std::string name(Text(p, 100));
    const std::string_view prefix = std::memcmp(p + 257, "ustar", 6) == 0 ? Text(p + 345, 155) : std::string_view();
    if (!prefix.empty()) name = std::string(prefix) + "/" + name;
    at_ = begin + kTarBlock;
    if (type == 'S')  // further headers give the positions of its pieces
      for (bool more = p[482]; more; at_ += kTarBlock) {
        p = bytes_.Peek(at_, kTarBlock);
        if (p == nullptr) return Fail(" ends within a header: it is truncated");
        more = p[504];
      }
    const bool is_header = type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
    if (!is_header && extended.size >= 0) size = extended.size;
    if (!is_header && !extended.name.empty()) name = extended.name;
    const bool empty = type >= '1' && type <= '6';  // links, devices, folders: they have no data
    const int64_t data = at_;
    if (!empty && size > bytes_.size() - data)
      return Fail(": " + name + " at index " + std::to_string(data) + " has " + std::to_string(size) +
                  " bytes, but the file ends before");
    at_ += empty ? 0 : (size + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (type == 'L') {
      if (!Long(data, size, &extended.name)) return false;
      extended.name.resize(strnlen(extended.name.c_str(), extended.name.size()));
    } else if (type == 'x' || type == 'X') {
      if (!Pax(data, size, &extended)) return false;
    } else if (!is_header) {
      if (type == 'S' || extended.sparse)
        return Fail(": " + (extended.sparse_name.empty() ? name : extended.sparse_name) + " at index " +
                    std::to_string(begin) + " " + kSparse);
      const bool folder = type == '\0' && !name.empty() && name.back() == '/';  // how folders were stored before POSIX
      if ((type == '0' || type == '\0' || type == '7') && !folder) {
        *member = {std::move(name), data, size};
        return true;
      }
      extended = {};
    }
  }
}

std::string ForEachSample(const std::string& path, const std::function<void()>& begin,
                          const std::function<void(std::string_view extension, const TarMember&)>& member) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    return " can't be read: " + why;
  }
  RecordBytes::Window window;
  RecordBytes bytes({nullptr, fd, 0, st.st_size}, &window);
  TarReader reader(&bytes);
  std::string before;
  bool any = false;
  for (TarMember m; reader.Next(&m);) {
    const std::string_view name = m.name;
    const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
    if (base == name.size() || name[base] == '.') continue;
    const size_t dot = std::min(name.find('.', base), name.size());
    if (!any || before != name.substr(0, dot)) begin();
    any = true;
    before = name.substr(0, dot);
    if (dot + 1 < name.size()) member(name.substr(dot + 1), m);
  }
  close(fd);
  if (st.st_size % kTarBlock && (reader.error().empty() || any))
    return " has " + std::to_string(st.st_size) + " bytes, which is not a multiple of 512: it is truncated";
  return reader.error();
}

TarIndex IndexOf(const std::string& path, const std::function<void(int64_t)>& progress) {
  constexpr int64_t kStep = 16 << 20;
  TarIndex index;
  bool ended = true, spaces = false;
  int64_t said = 0;
  const auto begin = [&] { ended = true; };
  const auto member = [&](std::string_view extension, const TarMember& m) {
    if (ended) index.samples++;
    if (!index.text.empty()) index.text += ended ? '\n' : ' ';
    ended = false;
    spaces = spaces || std::any_of(m.name.begin(), m.name.end(), [](unsigned char c) { return std::isspace(c); });
    index.text.append(extension).append(1, ' ').append(std::to_string(m.offset)).append(1, ' ');
    index.text.append(std::to_string(m.size)).append(1, ' ').append(m.name);
    const int64_t end = m.offset + m.size;
    if (end - said < kStep) return;
    progress(end - said);
    said = end;
  };
  index.error = ForEachSample(path, begin, member);
  if (index.error.empty() && spaces) index.error = ": names with white space can't be written into an index";
  if (!index.text.empty()) index.text += '\n';
  return index;
}

TarSamples::TarSamples(std::vector<std::vector<std::string>> extensions, bool fold_case, Missing missing,
                       bool keep_names)
    : wanted_(Pairs(extensions)),
      fold_case_(fold_case),
      keep_names_(keep_names),
      missing_(missing),
      columns_(extensions.size()),
      other_case_(extensions.size()),
      sample_(extensions.size()),
      found_(extensions.size()),
      found_names_(extensions.size()) {}

void TarSamples::BeginFile(int64_t samples) {
  lines_ = 0;
  file_begin_ = size();
  for (auto& column : columns_) column.reserve(column.size() + static_cast<size_t>(std::max<int64_t>(samples, 0)));
}

void TarSamples::BeginSample() {
  std::fill(sample_.begin(), sample_.end(), Extent{0, 0});
  std::fill(found_.begin(), found_.end(), false);
  found_in_other_case_.clear();
  first_name_.clear();
}

static bool EqualInAnyCase(std::string_view a, std::string_view b) {
  const auto equal = [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); };
  if (a.size() != b.size() || (!a.empty() && ((a[0] ^ b[0]) & ~0x20) != 0)) return false;  // quickly, for nearly all
  return std::equal(a.begin(), a.end(), b.begin(), equal);
}

void TarSamples::Add(std::string_view extension, int64_t offset, int64_t size, std::string_view name) {
  const bool names = keep_names_ || missing_ == Missing::kError;
  if (names && first_name_.empty()) first_name_ = name;
  if (fold_case_) {
    folded_ = extension;
    std::transform(folded_.begin(), folded_.end(), folded_.begin(), [](unsigned char c) { return std::tolower(c); });
    extension = folded_;
  }
  for (const auto& [wanted, output] : wanted_) {
    const auto k = static_cast<size_t>(output);
    if (found_[k]) continue;
    if (wanted != extension) {
      if (EqualInAnyCase(wanted, extension)) found_in_other_case_.push_back(k);
      continue;
    }
    found_[k] = true;
    sample_[k] = {offset - kTarBlock, size + kTarBlock};
    if (names) found_names_[k] = name;
  }
}

void TarSamples::CountOtherCase() {
  std::sort(found_in_other_case_.begin(), found_in_other_case_.end());
  const auto end = std::unique(found_in_other_case_.begin(), found_in_other_case_.end());
  for (auto k = found_in_other_case_.begin(); k != end; k++) other_case_[*k] += !found_[*k];
  found_in_other_case_.clear();
}

bool TarSamples::EndSample() {
  if (!found_in_other_case_.empty()) CountOtherCase();
  const auto lacking = std::find(found_.begin(), found_.end(), false);
  if (lacking != found_.end() && missing_ == Missing::kSkip) return true;
  if (lacking != found_.end() && missing_ == Missing::kError) {
    error_ = "sample " + (first_name_.empty() ? std::to_string(size() - file_begin_) : first_name_) +
             " has no member for output " + std::to_string(lacking - found_.begin());
    return false;
  }
  for (size_t k = 0; k < columns_.size(); k++) columns_[k].push_back(sample_[k]);
  if (keep_names_) {
    const auto first = static_cast<size_t>(std::find(found_.begin(), found_.end(), true) - found_.begin());
    if (first < found_.size()) names_ += found_names_[first];
    name_ends_.push_back(static_cast<int64_t>(names_.size()));
  }
  return true;
}

std::string TarSamples::Scan(const std::string& path) {
  BeginFile(0);
  bool open = false, good = true;
  const auto begin = [&] {
    good = good && (!open || EndSample());
    open = true;
    BeginSample();
  };
  std::string why = ForEachSample(
      path, begin, [&](std::string_view extension, const TarMember& m) { Add(extension, m.offset, m.size, m.name); });
  if (why.empty() && good && open) good = EndSample();
  return !why.empty() || good ? why : ": " + error_;
}

std::string TarSamples::Parse(std::string_view lines, int width, int64_t at) {
  constexpr int64_t kBlockSamples = 64;
  const char* p = lines.data();
  const char* const end = p + lines.size();
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; };
  const auto ends = [&](char c) { return c <= ' ' && c >= 0 && (c == '\n' || space(c)); };  // most are letters
  const auto word = [&] {
    while (p < end && space(*p)) p++;
    const char* const begin = p;
    while (p < end && !ends(*p)) p++;
    return std::string_view(begin, static_cast<size_t>(p - begin));
  };
  const auto number = [&]() -> int64_t {
    while (p < end && space(*p)) p++;
    const char* const begin = p;
    int64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9' && p - begin < 18; p++) x = 10 * x + (*p - '0');
    return p == begin || (p < end && !ends(*p)) ? -1 : x;
  };
  while (p < end) {
    const int64_t samples = size(), line = at + (p - lines.data());
    lines_++;
    BeginSample();
    for (std::string_view extension; !(extension = word()).empty();) {
      const int64_t offset = number(), bytes = number();
      const std::string_view name = width == 4 ? word() : std::string_view();
      if (offset < 0 || bytes < 0 || (width == 4 && name.empty()))
        return ", line " + std::to_string(lines_ + 1) + ": expected extension, offset, size and name of each member";
      Add(extension, offset, bytes, name);
    }
    p += p < end;  // the end of the line
    if (!EndSample()) return ": " + error_;
    if (size() == samples) continue;  // a sample that was skipped
    if (samples == file_begin_ || samples - blocks_.back()[0] >= kBlockSamples) blocks_.push_back({samples, line});
  }
  return {};
}

std::string_view TarSamples::name(int64_t i) const {
  if (i < 0 || i >= static_cast<int64_t>(name_ends_.size())) return {};
  const auto begin = static_cast<size_t>(i ? name_ends_[static_cast<size_t>(i) - 1] : 0);
  return std::string_view(names_).substr(begin, static_cast<size_t>(name_ends_[static_cast<size_t>(i)]) - begin);
}

}  // namespace jaxdali
