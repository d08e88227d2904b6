// Tar archives as WebDataset has them: their members, and which of them make a sample. Nothing in a file is trusted.
#ifndef JAXDALI_FFI_HOST_TAR_H_
#define JAXDALI_FFI_HOST_TAR_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/host/record_bytes.h"

namespace jaxdali {

inline constexpr int64_t kTarBlock = 512;  // bytes of a header; what is behind begins at a multiple of them

// What is wrong with the header that a record begins with, which must be that of a file as long as the rest; or an
// empty text.
std::string CheckTarMember(RecordBytes* record);

// What is wrong with a member whose header is at this offset of an open file, if it is a sparse one, whose bytes are
// not those of the file that was archived; or an empty text. Its PAX header is looked for before it: an index need not
// say.
std::string CheckSparse(int fd, int64_t offset);

// The same of an archive that is no file here, for PAX 0.0, which only a PAX header says. before: bytes of the archive
// up to the member's header, whole blocks. more: they begin within a PAX header, and more of them must be looked at.
std::string CheckSparse(std::string_view before, bool* more);

// A regular file in an archive, and where its bytes are.
struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;
};

// Goes through an archive: ustar, GNU's long names, PAX headers. What is no regular file is left out; a sparse file is
// an error, as nothing else would say that it is missing.
class TarReader {
 public:
  // bytes: of the archive, from its begin on.
  explicit TarReader(RecordBytes* bytes) : bytes_(*bytes) {}

  // The next member; false: there is none, or `error`.
  bool Next(TarMember* member);
  const std::string& error() const { return error_; }
  bool PaxSaysSparse();  // of the PAX header that the bytes begin with

 private:
  struct Extended;  // what headers of their own say of the next member
  bool Fail(std::string why);
  bool Long(int64_t offset, int64_t size, std::string* text);
  bool Pax(int64_t offset, int64_t size, Extended* extended);

  RecordBytes& bytes_;
  int64_t at_ = 0;
  std::string error_;
};

// Goes through the archive of this path. Members one after another whose names are equal up to the first dot of the
// file's name are a sample: `begin` is called before each; `member` with the extension, which is the rest of the name
// and is not empty. Hidden files are left out. Returns why the archive can't be read, or an empty text.
std::string ForEachSample(const std::string& path, const std::function<void()>& begin,
                          const std::function<void(std::string_view extension, const TarMember&)>& member);

// The lines of an archive's index, as DALI's wds2idx writes them (v1.2) behind the first.
struct TarIndex {
  std::string text, error;
  int64_t samples = 0;
};

// progress: is told of bytes that were gone through.
TarIndex IndexOf(const std::string& path, const std::function<void(int64_t)>& progress);

// The samples of archives: for each output the first member that has one of its extensions.
class TarSamples {
 public:
  enum class Missing : int32_t { kEmpty, kSkip, kError };  // what becomes of a sample that lacks an output's member
  using Extent = std::array<int64_t, 2>;  // offset and size, with the member's header; zeros where it is missing

  // extensions[k]: of output k. fold_case: they are lower-case, and match others. keep_names: see `name`.
  TarSamples(std::vector<std::vector<std::string>> extensions, bool fold_case, Missing missing, bool keep_names);

  // Each returns why it can't be read, to be put behind the path, or an empty text; the samples of files are one after
  // another.
  std::string Scan(const std::string& path);

  // Lines of an index, whole ones: extension, offset, size and, with a width of 4, name of each member of a sample.
  // at: of the text, in the file.
  std::string Parse(std::string_view lines, int width, int64_t at);

  // The next file begins, with about so many samples.
  void BeginFile(int64_t samples);

  int64_t size() const { return static_cast<int64_t>(columns_.empty() ? 0 : columns_[0].size()); }
  int outputs() const { return static_cast<int>(columns_.size()); }
  int64_t lines() const { return lines_; }  // of this file's index
  const std::vector<Extent>& column(int output) const { return columns_[static_cast<size_t>(output)]; }

  // Of the first output's member that is there. Names are kept of samples that are read where they lie: those of an
  // index are found again in its `blocks`, (first sample, offset of its line), at least one for each file.
  std::string_view name(int64_t i) const;
  const std::vector<Extent>& blocks() const { return blocks_; }

 private:
  void BeginSample();
  void Add(std::string_view extension, int64_t offset, int64_t size, std::string_view name);
  bool EndSample();  // false: a member is missing that must not be; `error_`

  const std::vector<std::pair<std::string, int>> wanted_;  // extension, output
  const bool fold_case_, keep_names_;
  const Missing missing_;
  std::vector<std::vector<Extent>> columns_;
  std::vector<Extent> blocks_;
  std::string names_, error_;
  std::vector<int64_t> name_ends_;
  int64_t lines_ = 0, file_begin_ = 0;
  // The present sample.
  std::vector<Extent> sample_;
  std::vector<bool> found_;
  std::vector<std::string> found_names_;
  std::string first_name_, folded_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_TAR_H_
