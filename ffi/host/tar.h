// Tar archives in WebDataset's form: their members, and which of these make a sample. Nothing in a file is trusted.
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

inline constexpr int64_t kTarBlock = 512;  // bytes of a header; data begin at multiples of this

// Checks the header at the start of a record. It must be that of a file as long as the rest. Returns an error message,
// or an empty text.
std::string CheckTarMember(RecordBytes* record);

// Checks whether the member whose header is at this offset of an open file is a sparse one, whose bytes are not those
// of the archived file. Returns an error message, or an empty text. It searches for the PAX header before the member,
// because an index need not tell.
std::string CheckSparse(int fd, int64_t offset);

// The same for an archive that is not an open file, and only for PAX 0.0, which only a PAX header marks. before: whole
// blocks of the archive up to the member's header. more: they begin within a PAX header, so pass more of them.
std::string CheckSparse(std::string_view before, bool* more);

// A regular file in an archive, and where its bytes are.
struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;
};

// Reads the members of an archive: ustar, GNU's long names, PAX headers. It skips everything but regular files. A
// sparse file is an error, because otherwise it would be missing silently.
class TarReader {
 public:
  // bytes: the whole archive.
  explicit TarReader(RecordBytes* bytes) : bytes_(*bytes) {}

  // Reads the next member. False: the end, or `error` is set.
  bool Next(TarMember* member);
  const std::string& error() const { return error_; }
  bool PaxSaysSparse();  // in the PAX header at the start of the bytes

 private:
  struct Extended;  // what extra headers say about the next member
  bool Fail(std::string why);
  bool Long(int64_t offset, int64_t size, std::string* text);
  bool Pax(int64_t offset, int64_t size, Extended* extended);

  RecordBytes& bytes_;
  int64_t at_ = 0;
  std::string error_;
};

// Reads the samples of an archive. Consecutive members whose names are equal up to the first dot of the file name are a
// sample. Calls `begin` before each sample, and `member` with the extension, which is the rest of the name and is not
// empty. Skips hidden files. Returns an error message, or an empty text.
std::string ForEachSample(const std::string& path, const std::function<void()>& begin,
                          const std::function<void(std::string_view extension, const TarMember&)>& member);

// The lines of an archive's index after the first one, as DALI's wds2idx writes them (v1.2).
struct TarIndex {
  std::string text, error;
  int64_t samples = 0;
};

// progress: called with the number of bytes read.
TarIndex IndexOf(const std::string& path, const std::function<void(int64_t)>& progress);

// The samples of archives. Each output has the first member with one of its extensions.
class TarSamples {
 public:
  enum class Missing : int32_t { kEmpty, kSkip, kError };  // what to do with an incomplete sample
  using Extent = std::array<int64_t, 2>;  // offset and size, including the header; zeros if it is missing

  // extensions[k]: of output k. fold_case: they are lower-case and match upper-case ones. keep_names: see `name`.
  TarSamples(std::vector<std::vector<std::string>> extensions, bool fold_case, Missing missing, bool keep_names);

  // Scan and Parse append samples; those of several files are one after another. They return an error message without
  // the path, or an empty text.
  std::string Scan(const std::string& path);

  // Parses whole lines of an index: extension, offset, size and, with a width of 4, name of each member of a sample.
  // at: offset of the lines in the file.
  std::string Parse(std::string_view lines, int width, int64_t at);

  // Begins the next file, which has about this many samples.
  void BeginFile(int64_t samples);

  int64_t size() const { return static_cast<int64_t>(columns_.empty() ? 0 : columns_[0].size()); }
  int outputs() const { return static_cast<int>(columns_.size()); }
  int64_t lines() const { return lines_; }  // in the index of this file
  const std::vector<Extent>& column(int output) const { return columns_[static_cast<size_t>(output)]; }

  // Samples that lack the output's member, and would have it if extensions matched in any case.
  int64_t other_case(int output) const { return other_case_[static_cast<size_t>(output)]; }

  // Name of the member of the first output that has one. Names are only kept for archives that are scanned. Those of an
  // index are read again from it, starting from its `blocks`, (first sample, offset of its line), of which each file
  // has at least one.
  std::string_view name(int64_t i) const;
  const std::vector<Extent>& blocks() const { return blocks_; }

 private:
  void BeginSample();
  void Add(std::string_view extension, int64_t offset, int64_t size, std::string_view name);
  void CountOtherCase();
  bool EndSample();  // false: a required member is missing, see `error_`

  const std::vector<std::pair<std::string, int>> wanted_;  // extension, output
  const bool fold_case_, keep_names_;
  const Missing missing_;
  std::vector<std::vector<Extent>> columns_;
  std::vector<Extent> blocks_;
  std::string names_, error_;
  std::vector<int64_t> name_ends_, other_case_;
  int64_t lines_ = 0, file_begin_ = 0;
  // The current sample.
  std::vector<Extent> sample_;
  std::vector<bool> found_;
  std::vector<size_t> found_in_other_case_;  // outputs
  std::vector<std::string> found_names_;
  std::string first_name_, folded_;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_TAR_H_
