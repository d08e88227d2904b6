// Tar archives in WebDataset's form: their members, and how consecutive members make a sample. Nothing in a file is
// trusted.
//
// Formats: POSIX ustar, pax (POSIX.1-2001), GNU's long names and sizes, and the headers from before POSIX. Sparse files
// are refused in all their forms (GNU's old form, PAX 0.0, 0.1 and 1.0), because their bytes in the archive are not
// those of the file. TarSamples finds the samples, by a scan of the archive (ForEachSample) or from an index of it
// (Parse).
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

inline constexpr int64_t kTarBlock = 512;  // bytes of a header; data begin at multiples of this, and are padded to it

// Checks the header at the start of a record. It must be that of a file as long as the rest. Returns an error message,
// or an empty text.
std::string CheckTarMember(RecordBytes* record);

// Checks whether the member whose header is at this offset of an open file is a sparse one, whose bytes in the archive
// are not those of the file. Returns an error message, or an empty text. It also searches for the PAX header before the
// member, because an index does not say that there is one.
std::string CheckSparse(int fd, int64_t offset);

// The same for an archive that is not an open file, and only for PAX 0.0, which only a PAX header marks. before: whole
// blocks of the archive up to the member's header. *needs_more: they begin within a PAX header, so pass more of them.
std::string CheckSparse(std::string_view before, bool* needs_more);

// A regular file in an archive, and the place of its bytes.
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
  bool HasSparsePax();  // whether the PAX header at the start of the bytes marks a sparse file

 private:
  struct Extended;  // facts about the next member from the extra headers before it
  bool Fail(std::string message);
  // Reads the text of a long name, or the lines of a PAX header. False: it does not fit; `error_` is set.
  bool ReadText(int64_t offset, int64_t size, std::string* text);
  bool ParsePax(int64_t offset, int64_t size, Extended* extended);

  RecordBytes& bytes_;
  int64_t offset_ = 0;  // of the next header
  std::string error_;
};

// Reads the samples of an archive. Consecutive members whose names are equal up to the first dot of the file name are a
// sample. Calls `begin` before each sample, and `member` with the extension, which is the rest of the name, empty for a
// file without one. Skips hidden files. Returns an error message, or an empty text.
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
  enum class Missing : int32_t { kEmpty, kSkip, kError };  // how an incomplete sample is handled
  using Extent = std::array<int64_t, 2>;  // offset and size, including the header; zeros if it is missing

  // extensions[k]: of output k. fold_case: they are lower-case and match upper-case ones. keep_names: see `name`.
  TarSamples(std::vector<std::vector<std::string>> extensions, bool fold_case, Missing missing, bool keep_names);

  // Scan and Parse append samples; those of several files are one after another. They return an error message without
  // the path, or an empty text.
  std::string Scan(const std::string& path);

  // Parses whole lines of an index: extension, offset, size and, with a width of 4, name of each member of a sample.
  // offset: that of the lines in the file.
  std::string Parse(std::string_view lines, int width, int64_t offset);

  // Begins the next file, which has about this many samples.
  void BeginFile(int64_t samples);

  int64_t size() const { return static_cast<int64_t>(columns_.empty() ? 0 : columns_[0].size()); }
  int outputs() const { return static_cast<int>(columns_.size()); }
  int64_t lines() const { return lines_; }  // in the index of this file
  const std::vector<Extent>& column(int output) const { return columns_[static_cast<size_t>(output)]; }

  // The number of samples that lack the output's member, and would have it if extensions matched in any case.
  int64_t other_case(int output) const { return other_case_[static_cast<size_t>(output)]; }

  // The name of the first output's member, or of the next output's that has one. Names are only kept for archives that
  // are scanned. Those of an index are read again from it, starting from its `blocks`, (first sample, offset of its
  // line), of which each file has at least one.
  std::string_view name(int64_t i) const;
  const std::vector<Extent>& blocks() const { return blocks_; }

 private:
  void BeginSample();
  void Add(std::string_view extension, int64_t offset, int64_t size, std::string_view name);
  void CountOtherCase();
  bool EndSample();  // false: a required member is missing, see `error_`

  const std::vector<std::pair<std::string, int>> output_of_extension_;  // an output may have several extensions
  const bool fold_case_, keep_names_;
  const Missing missing_;
  std::vector<std::vector<Extent>> columns_;     // by output: a member of each sample
  std::vector<Extent> blocks_;                   // of an index: the first sample and the offset of its line
  std::string names_, error_;                    // names of all samples, one after another
  std::vector<int64_t> name_ends_, other_case_;  // where each name ends in names_; by output, how often a case differs
  int64_t lines_ = 0, file_begin_ = 0;           // in this file's index; number of its first sample
  // The current sample. Vectors have an entry for each output.
  std::vector<Extent> sample_;
  std::vector<bool> has_member_;
  std::vector<size_t> outputs_in_other_case_;  // outputs whose extension occurs in another case, with repetitions
  std::vector<std::string> member_names_;
  std::string first_name_, lower_case_;  // of the sample's first member; buffer for an extension
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_TAR_H_
