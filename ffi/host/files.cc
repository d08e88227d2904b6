#include "ffi/host/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

namespace jaxdali {
namespace {

// Linux transfers at most this much in one read().
constexpr int64_t kMostAtOnce = int64_t{1} << 30;

// A file that is open, or the reason why it is not.
struct OpenFile {
  // size: what it must have.
  OpenFile(const std::string& path, int64_t size) {
    do {
      fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
      error = errno;
    else if (st.st_size != size)
      error = kSizeChanged;
  }
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int32_t Read(int64_t offset, uint8_t* data, int64_t size) const {
    for (int64_t done = 0; done < size;) {
      ssize_t got = pread(fd, data + done, static_cast<size_t>(std::min(size - done, kMostAtOnce)), offset + done);
      if (got > 0)
        done += got;
      else if (got == 0)
        return kSizeChanged;
      else if (errno != EINTR)
        return errno;
    }
    return 0;
  }

  int fd;
  int32_t error = 0;
};

int32_t ReadOne(const std::string& path, uint8_t* data, int64_t size) {
  OpenFile file(path, size);
  return file.error != 0 ? file.error : file.Read(0, data, size);
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

void ReadRanges(const FileTable& table, const int64_t* files, const int64_t* offsets, int n, uint8_t* data,
                const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                ThreadPool* pool) {
  constexpr int kMostRanges = 64;            // of a part,
  constexpr int64_t kMostBytes = 256 << 10;  // so that few files keep all threads busy, too
  constexpr int64_t kMostBetween = 512;      // bytes between two ranges that are read with them: cheaper than a call
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return files[a] != files[b] ? files[a] < files[b] : offsets[a] != offsets[b] ? offsets[a] < offsets[b] : a < b;
  });
  std::vector<int> parts;  // where in `order` each begins
  int64_t bytes = 0;
  for (int k = 0; k < n; k++) {
    if (k == 0 || files[order[k]] != files[order[k - 1]] || k - parts.back() == kMostRanges || bytes >= kMostBytes) {
      parts.push_back(k);
      bytes = 0;
    }
    bytes += sizes[order[k]];
  }
  parts.push_back(n);
  pool->Run(static_cast<int>(parts.size()) - 1, [&](int p) {
    int64_t f = files[order[parts[p]]];
    OpenFile file(table.path(f), file_sizes[f]);
    for (int k = parts[p], next; k < parts[p + 1]; k = next) {
      iovec places[2 * kMostRanges];
      uint8_t between[kMostBetween];
      int n = 0;
      int64_t end = offsets[order[k]];
      for (next = k; next < parts[p + 1]; next++) {
        const int i = order[next];
        const int64_t gap = offsets[i] - end;
        if (gap < 0 || gap > kMostBetween) break;
        if (gap > 0) places[n++] = {between, static_cast<size_t>(gap)};
        places[n++] = {data + starts[i], static_cast<size_t>(sizes[i])};
        end = offsets[i] + sizes[i];
      }
      const int64_t begin = offsets[order[k]];
      const bool together = file.error == 0 && next - k > 1 && preadv(file.fd, places, n, begin) == end - begin;
      for (int j = k; j < next; j++) {
        const int i = order[j];
        error[i] = together ? 0 : file.error != 0 ? file.error : file.Read(offsets[i], data + starts[i], sizes[i]);
      }
    }
  });
}

}  // namespace jaxdali
