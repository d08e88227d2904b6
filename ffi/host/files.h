// Reads files and ranges of files, many at once, without the GIL.
#ifndef JAXDALI_FFI_HOST_FILES_H_
#define JAXDALI_FFI_HOST_FILES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

// The paths of a data set. They are stored here so that Python names the files of a batch by integers.
class FileTable {
 public:
  // names: all paths, one after another; the i-th ends at ends[i]. A relative path is relative to `root`.
  FileTable(std::string root, std::string names, std::vector<int64_t> ends);
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string path(int64_t i) const;  // "": there is no such file

 private:
  std::string root_, names_;   // the folder, with a slash; the names of all files, one after another
  std::vector<int64_t> ends_;  // where each name ends in names_
};

// Returns a descriptor, or -1 and errno. Does not wait for a pipe.
int OpenToRead(const std::string& path);

// Closes a descriptor, or nothing if it is -1, at the end of its scope.
class Closing {
 public:
  explicit Closing(int fd) : fd_(fd) {}
  ~Closing();
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  const int fd_;
};

// Reserves one more file that stays open for a batch. False: too many are open. All batches of the process together
// keep at most 256, since a process may usually have 1024. Call ReleaseOpenFile once for each true.
bool ReserveOpenFile();
void ReleaseOpenFile();

// Errors beside errno, which is positive.
inline constexpr int32_t kSizeChanged = -1;
inline constexpr int32_t kOtherHead = -2;

// Reads exactly n bytes. Returns 0, errno, or kSizeChanged if the file ends before.
int32_t ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n);

// A range of a file, and its destination. error: 0, errno, or kSizeChanged.
struct FileRange {
  int64_t file, offset, size;
  uint8_t* to;
  int id;
  int32_t error = 0;
};

// Sorts ranges by file and offset, and divides them into parts of one file each. The pool's threads call `read` for
// each part.
void ForEachPart(std::vector<FileRange>* ranges, ThreadPool* pool,
                 const std::function<void(FileRange* begin, FileRange* end)>& read);

// Reads sorted ranges of an open file. One call reads ranges that lie close together, and the bytes between them.
void ReadNeighbours(int fd, FileRange* begin, FileRange* end);

// The files of a batch between `FileSizes` and `ReadFiles`. Some stay open, so that they are opened only once.
class OpenFiles {
 public:
  OpenFiles() = default;
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

 private:
  friend void FileSizes(const FileTable&, const int64_t*, int, int64_t*, int32_t*, OpenFiles*, ThreadPool*);
  friend void ReadFiles(const FileTable&, const int64_t*, int, uint8_t*, const int64_t*, const int64_t*, int32_t*,
                        OpenFiles*, ThreadPool*);
  void CloseAll();
  void Keep(int i, int fd);  // -1: was not opened
  int Take(int i);           // -1: not open

  std::vector<int> descriptors_;  // by the file's number in the batch; -1: not open
};

// sizes[i]: bytes of file index[i], 0 if it can't be read. error[i]: 0 or errno.
void FileSizes(const FileTable& table, const int64_t* index, int n, int64_t* sizes, int32_t* error, OpenFiles* opened,
               ThreadPool* pool);

// The same, and also reads the first `head` bytes of each file to heads + i*head, with zeros after the end of a shorter
// file.
void FileHeads(const FileTable& table, const int64_t* index, int n, uint8_t* heads, int64_t head, int64_t* sizes,
               int32_t* error, ThreadPool* pool);

// Reads file index[i] to data + starts[i]. error[i]: 0, errno, or kSizeChanged if the file does not have sizes[i]
// bytes. Samples whose error is already set are skipped. opened: from `FileSizes` of the same files, or empty.
void ReadFiles(const FileTable& table, const int64_t* index, int n, uint8_t* data, const int64_t* starts,
               const int64_t* sizes, int32_t* error, OpenFiles* opened, ThreadPool* pool);

// Reads files that begin with the bytes `head`, followed by sizes[i] bytes, which go to data + starts[i]. error[i]: 0,
// errno, or kOtherHead if a file begins differently or has another size.
void ReadFilesBehind(const FileTable& table, const int64_t* index, int n, const std::string& head, uint8_t* data,
                     const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool);

// Reads sizes[i] bytes at offsets[i] of file files[i] to data + starts[i]. file_sizes[f]: the size of file f when its
// list was made. error[i] as above; kSizeChanged also if a range lies outside its file. No file stays open: data sets
// have more files than a process may open.
void ReadRanges(const FileTable& table, const int64_t* files, const int64_t* offsets, int n, uint8_t* data,
                const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                ThreadPool* pool);

// The same for ranges that are already collected. It sorts them and sets their errors.
void ReadRanges(const FileTable& table, std::vector<FileRange>* ranges, const int64_t* file_sizes, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_FILES_H_
