#include "ffi/host/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace jaxdali {
namespace {

// Linux transfers at most this much in one read().
constexpr int64_t kMostAtOnce = int64_t{1} << 30;

int32_t ReadOne(const std::string& path, uint8_t* data, int64_t size) {
  int fd;
  do {
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno;
  int32_t error = 0;
  struct stat st;
  if (fstat(fd, &st) != 0)
    error = errno;
  else if (st.st_size != size)
    error = kSizeChanged;
  for (int64_t done = 0; error == 0 && done < size;) {
    ssize_t got = read(fd, data + done, static_cast<size_t>(std::min(size - done, kMostAtOnce)));
    if (got > 0)
      done += got;
    else if (got == 0)
      error = kSizeChanged;
    else if (errno != EINTR)
      error = errno;
  }
  close(fd);
  return error;
}

}  // namespace

FileTable::FileTable(std::string root, std::string names, std::vector<int64_t> ends)
    : root_(std::move(root)), names_(std::move(names)), ends_(std::move(ends)) {
  if (!root_.empty() && root_.back() != '/') root_ += '/';
}

std::string FileTable::path(int64_t i) const {
  if (i < 0 || i >= size()) return {};
  int64_t begin = i == 0 ? 0 : ends_[i - 1];
  std::string name = names_.substr(begin, ends_[i] - begin);
  return !name.empty() && name[0] == '/' ? name : root_ + name;
}

void FileSizes(const FileTable& table, const int64_t* index, int n, int64_t* sizes, int32_t* error, ThreadPool* pool) {
  pool->Run(n, [&](int i) {
    struct stat st;
    sizes[i] = 0;
    error[i] = 0;
    if (stat(table.path(index[i]).c_str(), &st) != 0)
      error[i] = errno;
    else if (S_ISDIR(st.st_mode))
      error[i] = EISDIR;
    else if (!S_ISREG(st.st_mode))
      error[i] = EINVAL;  // a pipe or device has no size, and reading it may never end
    else
      sizes[i] = st.st_size;
  });
}

void ReadFiles(const FileTable& table, const int64_t* index, int n, uint8_t* data, const int64_t* starts,
               const int64_t* sizes, int32_t* error, ThreadPool* pool) {
  std::vector<int64_t> cost(sizes, sizes + n);
  pool->Run(
      n,
      [&](int i) {
        if (error[i] == 0) error[i] = ReadOne(table.path(index[i]), data + starts[i], sizes[i]);
      },
      LargestFirst(cost));
}

}  // namespace jaxdali
