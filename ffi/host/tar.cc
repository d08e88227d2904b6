// The offsets and sizes of a header's fields are those of POSIX ustar: name 0, 100 bytes; size 124, 12; chksum 148, 8;
// typeflag 156; magic 257; prefix 345, 155. GNU's old sparse format has a flag for a further header at 482, and at 504
// in each of these.
//
// Parts of the file, in order: fields of headers, checks for sparse files, TarReader (headers to members),
// ForEachSample (members to samples), the index that wds2idx writes, and TarSamples.
#include "ffi/host/tar.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "ffi/host/ascii.h"
#include "ffi/host/files.h"

namespace jaxdali {
namespace {

// The largest size or offset: two of them can be added without overflow.
constexpr int64_t kMaxValue = std::numeric_limits<int64_t>::max() / 2;
constexpr char kSparseMessage[] = "is a sparse file, which can't be read: write the archive without --sparse";

// The text of a field, which ends at the first zero or at the field's end.
std::string_view TextField(const uint8_t* p, size_t n) {
  const auto* text = reinterpret_cast<const char*>(p);
  return {text, strnlen(text, n)};
}

// A number in a header: octal digits between spaces, or GNU's base 256, big-endian after a set high bit. -1: it is
// invalid or too large.
int64_t NumberField(const uint8_t* p, int n) {
  int64_t value = 0;
  if (p[0] & 0x80) {
    for (int i = 0; i < n; i++) {
      if (value > kMaxValue >> 8) return -1;
      value = value << 8 | (i ? p[i] : p[i] & 0x7F);
    }
    return value;
  }
  std::string_view text = TextField(p, static_cast<size_t>(n));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  for (const char c : text) {
    if (c < '0' || c > '7') return -1;
    value = value << 3 | (c - '0');  // 12 digits at most, 36 bits
  }
  return value;
}

// Checks the sum of a header's bytes, in which the checksum field counts as spaces. POSIX adds unsigned bytes; some old
// programs added signed ones.
bool HasValidChecksum(const uint8_t* p) {
  int64_t sum = 0, signed_sum = 0;
  for (int i = 0; i < kTarBlock; i++) {
    const uint8_t byte = i >= 148 && i < 156 ? ' ' : p[i];
    sum += byte;
    signed_sum += static_cast<int8_t>(byte);
  }
  const int64_t stored_sum = NumberField(p + 148, 8);
  return stored_sum == sum || stored_sum == signed_sum;
}

// Decimal digits and nothing else. -1: not such a number.
int64_t ParseDecimal(std::string_view text) {
  // 18 digits fit into 63 bits.
  if (text.empty() || text.size() > 18) return -1;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Each extension with the number of its output.
std::vector<std::pair<std::string, int>> ExtensionsWithOutputs(
    const std::vector<std::vector<std::string>>& extensions) {
  std::vector<std::pair<std::string, int>> pairs;
  for (size_t k = 0; k < extensions.size(); k++)
    for (const std::string& e : extensions[k]) pairs.emplace_back(e, static_cast<int>(k));
  return pairs;
}

// Whether the member's own header marks a sparse file. GNU's old form has the type S. GNU tar stores PAX 0.1 and 1.0
// under a name with GNUSparseFile.
bool HasSparseHeader(const uint8_t* p) {
  return p[156] == 'S' || TextField(p, 100).find("GNUSparseFile.") != std::string_view::npos;
}

}  // namespace

// Checks a record that begins with a member's header. Returns an error message, or an empty text.
std::string CheckTarMember(RecordBytes* record) {
  const uint8_t* p = record->Peek(0, kTarBlock);
  if (p == nullptr) return record->error() ? ErrorText(record->error()) : "it is too short for a header";
  if (!HasValidChecksum(p))
    return "no member of the archive begins there: the index is of another file, or the file is damaged";
  if (HasSparseHeader(p)) return std::string("it ") + kSparseMessage;
  const int64_t size = NumberField(p + 124, 12), expected = record->size() - kTarBlock;
  // A header has 11 octal digits, 8 GB. A larger size is in a PAX header or in base 256.
  if (size == expected || expected >= int64_t{1} << 33) return {};
  return "its header says " + std::to_string(size) + " bytes, the index " + std::to_string(expected) +
         ": the index is of another file, the file is damaged, or it is a sparse file";
}

// Whether the member at `offset` is a sparse file. Returns an error message; an empty text if it is none, or if no
// header can be read there.
std::string CheckSparse(int fd, int64_t offset) {
  constexpr int64_t kMaxBlocks = RecordBytes::kWindow / kTarBlock;  // blocks of a PAX header
  uint8_t blocks[2 * kTarBlock];
  const int64_t header = offset >= kTarBlock ? kTarBlock : 0;  // where the member's header goes in `blocks`
  if (offset < 0 || ReadAt(fd, offset - header, blocks, header + kTarBlock) != 0) return {};
  if (!HasValidChecksum(blocks + header)) return {};
  if (HasSparseHeader(blocks + header)) return std::string("it ") + kSparseMessage;
  // PAX 0.0 marks a sparse file only in a PAX header. That ends with a line feed and zeros, as few members do. If the
  // block before the member's header ends this way, search backwards for a header of type x whose data end there.
  int64_t text_end = header;
  while (text_end > 0 && blocks[text_end - 1] == 0) text_end--;
  if (text_end == 0 || blocks[text_end - 1] != '\n') return {};
  for (int64_t n = 1, pax_offset = offset - 2 * kTarBlock; n <= kMaxBlocks && pax_offset >= 0;
       n++, pax_offset -= kTarBlock) {
    if (ReadAt(fd, pax_offset, blocks, kTarBlock) != 0) return {};
    const int64_t size = NumberField(blocks + 124, 12);
    if ((blocks[156] != 'x' && blocks[156] != 'X') || (size + kTarBlock - 1) / kTarBlock != n ||
        !HasValidChecksum(blocks))
      continue;
    RecordBytes::Window window;
    // The PAX header, its n blocks of data, and the member's header.
    RecordBytes bytes({/*data=*/nullptr, fd, pax_offset, /*size=*/(n + 2) * kTarBlock}, &window);
    TarReader reader(&bytes);
    return reader.HasSparsePax() ? std::string("it ") + kSparseMessage : std::string();
  }
  return {};
}

// The same from the blocks before the member's header; only for PAX 0.0. `*needs_more`: there are too few of them.
std::string CheckSparse(std::string_view before, bool* needs_more) {
  *needs_more = false;
  // A PAX header ends with a line feed and zeros, as few members do.
  const std::string_view text = before.substr(0, before.find_last_not_of('\0') + 1);
  if (text.empty() || text.back() != '\n') return {};
  // Search backwards for a header whose data are the n blocks up to the member's header.
  const auto* bytes = reinterpret_cast<const uint8_t*>(before.data());
  for (int64_t n = 1, pax_offset = static_cast<int64_t>(before.size()) - 2 * kTarBlock; pax_offset >= 0;
       n++, pax_offset -= kTarBlock) {
    const uint8_t* p = bytes + pax_offset;
    if ((NumberField(p + 124, 12) + kTarBlock - 1) / kTarBlock != n || !HasValidChecksum(p)) continue;
    if (p[156] != 'x' && p[156] != 'X') return {};  // a member that happens to end this way
    RecordBytes header({p, /*fd=*/-1, /*offset=*/0, /*size=*/(n + 1) * kTarBlock, /*end=*/0});
    return TarReader(&header).HasSparsePax() ? std::string("it ") + kSparseMessage : std::string();
  }
  // No header was found, so the blocks begin within the data of one. The last line of a PAX header begins with its own
  // length; that of another text that ends with a line feed does not.
  const size_t begin = text.find_last_of('\n', text.size() - 2) + 1;  // npos + 1 is 0
  const std::string_view line = text.substr(begin);
  *needs_more =
      ParseDecimal(line.substr(0, std::min(line.find(' '), line.size()))) == static_cast<int64_t>(line.size());
  return {};
}

struct TarReader::Extended {
  std::string name;   // "": that of the member's own header
  int64_t size = -1;  // -1: that of the member's own header
  bool sparse = false;
  std::string sparse_name;  // name of a sparse file, where `name` is that of its storage
};

bool TarReader::Fail(std::string message) {
  error_ = std::move(message);
  return false;
}

// Reads the text of a long name or a PAX header. False: it does not fit; `error_` is set.
bool TarReader::ReadText(int64_t offset, int64_t size, std::string* text) {
  const uint8_t* p = bytes_.Peek(offset, size);
  if (p == nullptr)
    return Fail(" is damaged at " + std::to_string(offset) + ": a header of " + std::to_string(size) +
                " bytes does not fit");
  text->assign(reinterpret_cast<const char*>(p), static_cast<size_t>(size));
  return true;
}

// Reads the facts that a PAX header has of the next member. Its lines are "length keyword=value\n" (POSIX.1-2001, pax),
// and the length includes its own digits and the line feed. False: they can't be parsed; `error_` is set.
bool TarReader::ParsePax(int64_t offset, int64_t size, Extended* extended) {
  std::string text;
  if (!ReadText(offset, size, &text)) return false;
  std::string_view lines = text;
  while (!lines.empty() && lines[0] != '\0') {
    const size_t space = lines.find(' ');
    const int64_t length = space == lines.npos ? -1 : ParseDecimal(lines.substr(0, space));
    if (length <= static_cast<int64_t>(space) || length > static_cast<int64_t>(lines.size()) ||
        lines[static_cast<size_t>(length) - 1] != '\n')
      return Fail(" is damaged at " + std::to_string(offset) + ": a PAX header can't be parsed");
    const std::string_view line = lines.substr(space + 1, static_cast<size_t>(length) - space - 2);
    const size_t equal = std::min(line.find('='), line.size());
    const std::string_view key = line.substr(0, equal), value = line.substr(std::min(equal + 1, line.size()));
    if (key == "path") {
      extended->name = value.substr(0, value.find('\0'));
    } else if (key == "size") {
      extended->size = ParseDecimal(value);
      if (extended->size < 0) return Fail(" is damaged at " + std::to_string(offset) + ": a size can't be parsed");
    } else if (key.substr(0, 11) == "GNU.sparse.") {
      extended->sparse = true;
      if (key == "GNU.sparse.name") extended->sparse_name = value.substr(0, value.find('\0'));
    }
    lines.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

// Whether the PAX header at the start of the bytes marks a sparse file. False also if it can't be read.
bool TarReader::HasSparsePax() {
  const uint8_t* p = bytes_.Peek(0, kTarBlock);
  Extended extended;
  return p != nullptr && ParsePax(kTarBlock, NumberField(p + 124, 12), &extended) && extended.sparse;
}

// Reads headers up to that of the next regular file. False: the end of the archive, or `error_` is set.
bool TarReader::Next(TarMember* member) {
  if (!error_.empty()) return false;
  // Extra headers apply to the first header of another type after them; then `extended` is cleared.
  for (Extended extended;;) {
    const int64_t begin = offset_;
    if (begin >= bytes_.size()) return begin == 0 ? Fail(" is not a tar archive: it is empty") : false;
    const uint8_t* p = bytes_.Peek(begin, kTarBlock);
    if (p == nullptr)
      return Fail(bytes_.error() ? " can't be read: " + ErrorText(bytes_.error())
                                 : " ends within a header: it is truncated");
    // An archive ends with two blocks of zeros. One is enough here, as for GNU tar.
    if (std::all_of(p, p + kTarBlock, [](uint8_t x) { return x == 0; })) return false;
    int64_t size = NumberField(p + 124, 12);
    if (!HasValidChecksum(p) || size < 0)
      return Fail(begin == 0 ? " is not a tar archive, or it is damaged"
                             : " is damaged at " + std::to_string(begin) + ": no member begins there");
    // Typeflag: 0, NUL and 7 are regular files, 1 to 6 links, devices and folders.
    const char type = static_cast<char>(p[156]);
    std::string name(TextField(p, 100));
    // GNU's magic is "ustar " with a space instead of the zero; it has other fields in place of the prefix.
    const std::string_view prefix =
        std::memcmp(p + 257, "ustar", 6) == 0 ? TextField(p + 345, 155) : std::string_view();
    if (!prefix.empty()) name = std::string(prefix) + "/" + name;
    offset_ = begin + kTarBlock;
    if (type == 'S')  // further blocks give the positions of its pieces
      for (bool has_next = p[482]; has_next; offset_ += kTarBlock) {
        p = bytes_.Peek(offset_, kTarBlock);
        if (p == nullptr) return Fail(" ends within a header: it is truncated");
        has_next = p[504];
      }
    // L: long name, K: long name of a link (both GNU's). x: PAX header, X: that of Solaris. g: PAX header for all
    // further members, which is skipped.
    const bool is_header = type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g';
    if (!is_header && extended.size >= 0) size = extended.size;
    if (!is_header && !extended.name.empty()) name = extended.name;
    const bool has_no_data = type >= '1' && type <= '6';  // links, devices, folders: they have no data
    const int64_t data = offset_;
    if (!has_no_data && size > bytes_.size() - data)
      return Fail(": " + name + " at index " + std::to_string(data) + " has " + std::to_string(size) +
                  " bytes, but the file ends before");
    // Data are padded to whole blocks.
    offset_ += has_no_data ? 0 : (size + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (type == 'L') {
      if (!ReadText(data, size, &extended.name)) return false;
      extended.name.resize(strnlen(extended.name.c_str(), extended.name.size()));
    } else if (type == 'x' || type == 'X') {
      if (!ParsePax(data, size, &extended)) return false;
    } else if (!is_header) {
      if (type == 'S' || extended.sparse)
        return Fail(": " + (extended.sparse_name.empty() ? name : extended.sparse_name) + " at index " +
                    std::to_string(begin) + " " + kSparseMessage);
      const bool is_folder =
          type == '\0' && !name.empty() && name.back() == '/';  // how folders were stored before POSIX
      if ((type == '0' || type == '\0' || type == '7') && !is_folder) {
        *member = {std::move(name), data, size};
        return true;
      }
      extended = {};
    }
  }
}

// Calls `begin` before each sample of an archive, and `member` for each of its members. Returns an error message
// without the path, or an empty text.
std::string ForEachSample(const std::string& path, const std::function<void()>& begin,
                          const std::function<void(std::string_view extension, const TarMember&)>& member) {
  const int fd = OpenToRead(path);
  const Closing closing(fd);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return std::string(" can't be read: ") + std::strerror(errno);
  RecordBytes::Window window;
  RecordBytes bytes({/*data=*/nullptr, fd, /*offset=*/0, st.st_size}, &window);
  TarReader reader(&bytes);
  std::string sample_name;  // path of the current sample up to the dot
  bool has_sample = false;
  for (TarMember m; reader.Next(&m);) {
    const std::string_view name = m.name;
    // WebDataset: the key of a sample is the path up to the first dot of the file name, the extension is the rest.
    const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
    if (base == name.size() || name[base] == '.') continue;
    const size_t dot = std::min(name.find('.', base), name.size());
    if (!has_sample || sample_name != name.substr(0, dot)) begin();
    has_sample = true;
    sample_name = name.substr(0, dot);
    member(name.substr(std::min(dot + 1, name.size())), m);
  }
  // A size that is no multiple of the block shows that the archive was cut, even if its last member seems whole.
  if (st.st_size % kTarBlock && (reader.error().empty() || has_sample))
    return " has " + std::to_string(st.st_size) + " bytes, which is not a multiple of 512: it is truncated";
  return reader.error();
}

// Makes an archive's index: a line for each sample, with extension, offset, size and name of each member. Calls
// `progress` with the bytes since its last call.
TarIndex IndexOf(const std::string& path, const std::function<void(int64_t)>& progress) {
  constexpr int64_t kStep = 16 << 20;  // bytes between calls of `progress`
  TarIndex index;
  bool begins_sample = true, has_space = false;
  int64_t reported_end = 0;
  const auto begin = [&] { begins_sample = true; };
  // Appends a member to the line of its sample, and begins the line with the sample's first member.
  const auto member = [&](std::string_view extension, const TarMember& m) {
    if (begins_sample) index.samples++;
    if (!index.text.empty()) index.text += begins_sample ? '\n' : ' ';
    begins_sample = false;
    has_space = has_space || std::any_of(m.name.begin(), m.name.end(), ascii::IsSpace);
    // A word is never empty. No output has the extension ".".
    index.text.append(extension.empty() ? "." : extension).append(1, ' ');
    index.text.append(std::to_string(m.offset)).append(1, ' ');
    index.text.append(std::to_string(m.size)).append(1, ' ').append(m.name);
    const int64_t end = m.offset + m.size;
    if (end - reported_end < kStep) return;
    progress(end - reported_end);
    reported_end = end;
  };
  index.error = ForEachSample(path, begin, member);
  if (index.error.empty() && has_space) index.error = ": names with white space can't be written into an index";
  if (!index.text.empty()) index.text += '\n';
  return index;
}

TarSamples::TarSamples(std::vector<std::vector<std::string>> extensions, bool fold_case, Missing missing,
                       bool keep_names)
    : output_of_extension_(ExtensionsWithOutputs(extensions)),
      fold_case_(fold_case),
      keep_names_(keep_names),
      missing_(missing),
      columns_(extensions.size()),
      other_case_(extensions.size()),
      sample_(extensions.size()),
      has_member_(extensions.size()),
      member_names_(extensions.size()) {}

// Begins the next archive or index, which has about this many samples.
void TarSamples::BeginFile(int64_t samples) {
  lines_ = 0;
  file_begin_ = size();
  for (auto& column : columns_) column.reserve(column.size() + static_cast<size_t>(std::max<int64_t>(samples, 0)));
}

// Forgets the members of the last sample.
void TarSamples::BeginSample() {
  std::fill(sample_.begin(), sample_.end(), Extent{0, 0});
  std::fill(has_member_.begin(), has_member_.end(), false);
  outputs_in_other_case_.clear();
  first_name_.clear();
}

// Whether two extensions are equal apart from upper and lower case.
static bool EqualInAnyCase(std::string_view a, std::string_view b) {
  const auto equal = [](char x, char y) { return ascii::ToLower(x) == ascii::ToLower(y); };
  if (a.size() != b.size() || (!a.empty() && ((a[0] ^ b[0]) & ~0x20) != 0)) return false;  // quickly, for nearly all
  return std::equal(a.begin(), a.end(), b.begin(), equal);
}

// Adds a member to the current sample, if an output has its extension.
void TarSamples::Add(std::string_view extension, int64_t offset, int64_t size, std::string_view name) {
  // An error message names the sample too.
  const bool needs_names = keep_names_ || missing_ == Missing::kError;
  if (needs_names && first_name_.empty()) first_name_ = name;
  if (fold_case_) {
    lower_case_ = extension;
    std::transform(lower_case_.begin(), lower_case_.end(), lower_case_.begin(), ascii::ToLower);
    extension = lower_case_;
  }
  for (const auto& [expected, output] : output_of_extension_) {
    const auto k = static_cast<size_t>(output);
    // Of several members with an extension of one output, the first one is taken.
    if (has_member_[k]) continue;
    if (expected != extension) {
      if (EqualInAnyCase(expected, extension)) outputs_in_other_case_.push_back(k);
      continue;
    }
    has_member_[k] = true;
    // A member's extent begins with its header, which CheckTarMember reads again.
    sample_[k] = {offset - kTarBlock, size + kTarBlock};
    if (needs_names) member_names_[k] = name;
  }
}

// Counts the outputs that lack a member of the current sample, and would have it if extensions matched in any case.
void TarSamples::CountOtherCase() {
  std::sort(outputs_in_other_case_.begin(), outputs_in_other_case_.end());
  const auto end = std::unique(outputs_in_other_case_.begin(), outputs_in_other_case_.end());
  for (auto k = outputs_in_other_case_.begin(); k != end; k++) other_case_[*k] += !has_member_[*k];
  outputs_in_other_case_.clear();
}

// Appends the current sample to the columns, unless it is incomplete and skipped. False: a required member is missing,
// see `error_`.
bool TarSamples::EndSample() {
  if (!outputs_in_other_case_.empty()) CountOtherCase();
  // A sample is complete if each output has a member.
  const auto first_missing = std::find(has_member_.begin(), has_member_.end(), false);
  if (first_missing != has_member_.end() && missing_ == Missing::kSkip) return true;
  if (first_missing != has_member_.end() && missing_ == Missing::kError) {
    error_ = "sample " + (first_name_.empty() ? std::to_string(size() - file_begin_) : first_name_) +
             " has no member for output " + std::to_string(first_missing - has_member_.begin());
    return false;
  }
  for (size_t k = 0; k < columns_.size(); k++) columns_[k].push_back(sample_[k]);
  if (keep_names_) {
    // The name of the first output that has a member; empty if none has.
    const auto first =
        static_cast<size_t>(std::find(has_member_.begin(), has_member_.end(), true) - has_member_.begin());
    if (first < has_member_.size()) names_ += member_names_[first];
    name_ends_.push_back(static_cast<int64_t>(names_.size()));
  }
  return true;
}

// Appends the samples of an archive. Returns an error message without the path, or an empty text.
std::string TarSamples::Scan(const std::string& path) {
  BeginFile(0);  // how many samples it has is unknown
  bool has_sample = false, is_good = true;
  const auto begin = [&] {
    is_good = is_good && (!has_sample || EndSample());
    has_sample = true;
    BeginSample();
  };
  std::string message = ForEachSample(
      path, begin, [&](std::string_view extension, const TarMember& m) { Add(extension, m.offset, m.size, m.name); });
  if (message.empty() && is_good && has_sample) is_good = EndSample();
  return !message.empty() || is_good ? message : ": " + error_;
}

// Appends the samples of an index's lines, each of which has `width` words for each member: extension, offset, size
// and, with a width of 4, name. `offset`: that of the lines in the file. Returns an error message without the path, or
// an empty text.
std::string TarSamples::Parse(std::string_view lines, int width, int64_t offset) {
  constexpr int64_t kBlockSamples = 64;
  const char* p = lines.data();
  const char* const end = p + lines.size();
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; };
  // Most characters are letters, which the first comparison sorts out. It also does so for negative ones, not ASCII.
  const auto ends_word = [&](char c) { return c <= ' ' && c >= 0 && (c == '\n' || is_space(c)); };
  // Words and numbers are parsed by hand, since an index may have millions of lines.
  const auto next_word = [&] {
    while (p < end && is_space(*p)) p++;
    const char* const begin = p;
    while (p < end && !ends_word(*p)) p++;
    return std::string_view(begin, static_cast<size_t>(p - begin));
  };
  // -1: the next word is no number of at most 18 digits.
  const auto next_number = [&]() -> int64_t {
    while (p < end && is_space(*p)) p++;
    const char* const begin = p;
    int64_t x = 0;
    for (; p < end && *p >= '0' && *p <= '9' && p - begin < 18; p++) x = 10 * x + (*p - '0');
    return p == begin || (p < end && !ends_word(*p)) ? -1 : x;
  };
  while (p < end) {
    // Each line of the index is a sample.
    const int64_t samples = size(), line = offset + (p - lines.data());
    lines_++;
    BeginSample();
    for (std::string_view extension; !(extension = next_word()).empty();) {
      const int64_t member_offset = next_number(), bytes = next_number();
      const std::string_view name = width == 4 ? next_word() : std::string_view();
      if (member_offset < 0 || bytes < 0 || (width == 4 && name.empty()))
        return ", line " + std::to_string(lines_ + 1) + ": expected extension, offset, size and name of each member";
      Add(extension, member_offset, bytes, name);
    }
    p += p < end;  // the end of the line
    if (!EndSample()) return ": " + error_;
    if (size() == samples) continue;  // a sample that was skipped
    // A block begins every 64 samples, so that a name is found by parsing 64 lines at most. The first one of a file
    // also tells where the file begins.
    if (samples == file_begin_ || samples - blocks_.back()[0] >= kBlockSamples) blocks_.push_back({samples, line});
  }
  return {};
}

// The name of sample i's member for the first output, or for the next one that has a member. Empty: there is none, or
// no names are kept.
std::string_view TarSamples::name(int64_t i) const {
  if (i < 0 || i >= static_cast<int64_t>(name_ends_.size())) return {};
  const auto begin = static_cast<size_t>(i ? name_ends_[static_cast<size_t>(i) - 1] : 0);
  return std::string_view(names_).substr(begin, static_cast<size_t>(name_ends_[static_cast<size_t>(i)]) - begin);
}

}  // namespace jaxdali
