// Reading whole files, many at once, without the GIL.
#ifndef JAXDALI_FFI_COMMON_FILES_H_
#define JAXDALI_FFI_COMMON_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

// The paths of a data set, kept on this side so that a batch is named by integers.
class FileTable {
 public:
  // names: all paths one after another, the i-th ends at ends[i]. A path that is not absolute is relative to `root`.
  FileTable(std::string root, std::string names, std::vector<int64_t> ends);
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string path(int64_t i) const;

 private:
  std::string root_, names_;
  std::vector<int64_t> ends_;
};

inline constexpr int32_t kSizeChanged = -1;

// sizes[i]: bytes of file index[i], 0 when it can't be read; error[i]: 0 or errno.
void FileSizes(const FileTable& table, const int64_t* index, int n, int64_t* sizes, int32_t* error, ThreadPool* pool);

// Reads file index[i] to data + starts[i]; error[i]: 0, errno, or kSizeChanged when the file has not sizes[i] bytes any
// more. Samples whose error is set already are skipped.
void ReadFiles(const FileTable& table, const int64_t* index, int n, uint8_t* data, const int64_t* starts,
               const int64_t* sizes, int32_t* error, ThreadPool* pool);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_FILES_H_
