// Reading by pread and preadv, which need no shared file position, so that several threads can read one file. A batch
// reads its files in the pool's threads, the largest first.
#include "ffi/host/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace jaxdali {
namespace {

// Larger reads are split: Linux transfers at most 2 GB - 4 KB in one call.
constexpr int64_t kMaxReadBytes = int64_t{1} << 30;

// An open file, or the error that prevented opening it.
struct OpenFile {
  // size: the file must have this size.
  OpenFile(const std::string& path, int64_t size) : fd(OpenToRead(path)) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
      error = errno;
    else if (st.st_size != size)
      error = kSizeChanged;
  }

  const int fd;
  const Closing closing{fd};
  int32_t error = 0;
};

// Reads a file that should have `size` bytes. It asks for one byte more, which shows that the file has grown. Returns
// 0, errno, or kSizeChanged.
int32_t ReadWhole(int fd, uint8_t* to, int64_t size) {
  // preadv reads to both buffers with one call. A byte in the second one means that the file has grown.
  uint8_t extra;
  const iovec buffers[] = {{to, static_cast<size_t>(size)}, {&extra, 1}};
  const ssize_t num_read = preadv(fd, buffers, 2, 0);
  if (num_read == size) return 0;
  if (num_read > size) return kSizeChanged;
  if (int32_t e = ReadAt(fd, 0, to, size)) return e;  // interrupted, or too large for one read
  return ReadAt(fd, size, &extra, 1) == kSizeChanged ? 0 : kSizeChanged;
}

}  // namespace

// Reads exactly n bytes. Returns 0, errno, or kSizeChanged if the file ends before.
int32_t ReadAt(int fd, int64_t offset, uint8_t* to, int64_t n) {
  while (n > 0) {
    const ssize_t num_read = pread(fd, to, static_cast<size_t>(std::min(n, kMaxReadBytes)), offset);
    // 0 is the end of the file.
    if (num_read == 0) return kSizeChanged;
    if (num_read < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    offset += num_read;
    to += num_read;
    n -= num_read;
  }
  return 0;
}

// Sorts ranges by file and offset, and divides them into parts of one file each. The pool's threads call `read` for
// each part.
void ForEachPart(std::vector<FileRange>* ranges, ThreadPool* pool,
                 const std::function<void(FileRange* begin, FileRange* end)>& read) {
  constexpr size_t kMaxRanges = 64;         // of a part
  constexpr int64_t kMaxBytes = 256 << 10;  // so that few files still keep all threads busy
  const auto is_before = [](const FileRange& a, const FileRange& b) {
    return a.file != b.file ? a.file < b.file : a.offset != b.offset ? a.offset < b.offset : a.id < b.id;
  };
  std::vector<FileRange>& r = *ranges;
  // Batches in the order of a list are sorted already.
  if (!std::is_sorted(r.begin(), r.end(), is_before)) std::sort(r.begin(), r.end(), is_before);
  std::vector<size_t> parts;  // where each part begins
  int64_t bytes = 0;
  for (size_t k = 0; k < r.size(); k++) {
    if (k == 0 || r[k].file != r[k - 1].file || k - parts.back() == kMaxRanges || bytes >= kMaxBytes) {
      parts.push_back(k);
      bytes = 0;
    }
    bytes += r[k].size;
  }
  parts.push_back(r.size());
  pool->Run(static_cast<int>(parts.size()) - 1, [&](int p) { read(r.data() + parts[p], r.data() + parts[p + 1]); });
}

// Reads sorted ranges of an open file, and sets their errors. One call reads as many as lie close together.
void ReadNeighbours(int fd, FileRange* begin, FileRange* end) {
  constexpr int64_t kMaxGap = 4096;  // reading these bytes between ranges costs less than a call
  constexpr int kMaxBuffers = 128;
  // The bytes of all gaps go to the same place, which nobody reads.
  uint8_t gap_bytes[kMaxGap];
  for (FileRange *first = begin, *next; first < end; first = next) {
    iovec buffers[kMaxBuffers];
    int n = 0;
    int64_t end_offset = first->offset;
    // Two buffers for each range: the gap before it, and its destination.
    for (next = first; next < end && n + 2 <= kMaxBuffers; next++) {
      const int64_t gap = next->offset - end_offset;
      if (gap < 0 || gap > kMaxGap) break;
      if (gap > 0) buffers[n++] = {gap_bytes, static_cast<size_t>(gap)};
      buffers[n++] = {next->to, static_cast<size_t>(next->size)};
      end_offset = next->offset + next->size;
    }
    // If the one call reads too little, each range is read alone, so that only the bad ones get an error.
    const bool is_read = next - first > 1 && preadv(fd, buffers, n, first->offset) == end_offset - first->offset;
    for (FileRange* r = first; r < next; r++) r->error = is_read ? 0 : ReadAt(fd, r->offset, r->to, r->size);
  }
}

FileTable::FileTable(std::string root, std::string names, std::vector<int64_t> ends)
    : root_(std::move(root)), names_(std::move(names)), ends_(std::move(ends)) {
  if (!root_.empty() && root_.back() != '/') root_ += '/';
}

// The path of file i; "" if there is no such file.
std::string FileTable::path(int64_t i) const {
  if (i < 0 || i >= size()) return {};
  // Names are stored one after another, without separators.
  int64_t begin = i == 0 ? 0 : ends_[i - 1];
  std::string name = names_.substr(begin, ends_[i] - begin);
  return !name.empty() && name[0] == '/' ? name : root_ + name;
}

// Returns a descriptor, or -1 and errno.
int OpenToRead(const std::string& path) {
  int fd;
  do {
    // O_NONBLOCK: opening a pipe would otherwise wait for a writer. It has no effect on regular files.
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

Closing::~Closing() {
  if (fd_ >= 0) close(fd_);
}

namespace {
// Files that batches of this process keep open.
std::atomic<int> g_kept_open{0};
}  // namespace

// Reserves one more file that stays open. False: too many are open.
bool ReserveOpenFile() {
  // Increment first, so that two threads can't both take the last place.
  // 256: a process may usually have 1024 open files.
  if (g_kept_open.fetch_add(1) < 256) return true;
  g_kept_open--;
  return false;
}

void ReleaseOpenFile() { g_kept_open--; }

// Keeps the descriptor of file i, for which ReserveOpenFile was called. -1: it could not be opened.
void OpenFiles::Keep(int i, int fd) {
  if (fd < 0) ReleaseOpenFile();
  descriptors_[static_cast<size_t>(i)] = fd;
}

// The descriptor of file i, which the caller then closes. -1: it is not open.
int OpenFiles::Take(int i) {
  if (static_cast<size_t>(i) >= descriptors_.size()) return -1;
  const int fd = std::exchange(descriptors_[static_cast<size_t>(i)], -1);
  if (fd >= 0) ReleaseOpenFile();
  return fd;
}

OpenFiles::~OpenFiles() { CloseAll(); }

void OpenFiles::CloseAll() {
  for (int i = 0; i < static_cast<int>(descriptors_.size()); i++)
    if (int fd = Take(i); fd >= 0) close(fd);
}

// Gets the sizes of the files index[0] to index[n - 1], in bytes; 0 with an errno in error[i] for one that can't be
// read. Some files stay open, in `opened`, for ReadFiles.
void FileSizes(const FileTable& table, const int64_t* index, int n, int64_t* sizes, int32_t* error, OpenFiles* opened,
               ThreadPool* pool) {
  opened->CloseAll();                                       // those of an earlier call
  opened->descriptors_.assign(static_cast<size_t>(n), -1);  // -1: not open
  // The size of file index[i], which stays open if fewer than the limit are.
  pool->Run(n, [&](int i) {
    const std::string path = table.path(index[i]);
    struct stat st;
    sizes[i] = 0;
    error[i] = 0;
    int fd = -1;
    // A file that stays open is opened once instead of twice. fstat and stat give the same.
    if (ReserveOpenFile()) {
      fd = OpenToRead(path);
      opened->Keep(i, fd);
    }
    if ((fd >= 0 ? fstat(fd, &st) : stat(path.c_str(), &st)) != 0)
      error[i] = errno;
    else if (S_ISDIR(st.st_mode))
      error[i] = EISDIR;
    else if (!S_ISREG(st.st_mode))
      error[i] = EINVAL;  // a pipe or device has no size, and reading it may never end
    else
      sizes[i] = st.st_size;
  });
}

// Gets sizes and errors like FileSizes, and the first `head` bytes of each file, filled up with zeros.
void FileHeads(const FileTable& table, const int64_t* index, int n, uint8_t* heads, int64_t head, int64_t* sizes,
               int32_t* error, ThreadPool* pool) {
  pool->Run(n, [&](int i) {
    sizes[i] = 0;
    error[i] = 0;
    uint8_t* const bytes = heads + i * head;
    std::fill(bytes, bytes + head, uint8_t{0});
    const int fd = OpenToRead(table.path(index[i]));
    const Closing closing(fd);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
      error[i] = errno;
    else if (!S_ISREG(st.st_mode))
      error[i] = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (int32_t e = ReadAt(fd, 0, bytes, std::min<int64_t>(head, st.st_size)))
      error[i] = e;
    else
      sizes[i] = st.st_size;
  });
}

// Reads file index[i] to data + starts[i], the largest files first, unless error[i] is set already. A file of another
// size than sizes[i] gets the error kSizeChanged.
void ReadFiles(const FileTable& table, const int64_t* index, int n, uint8_t* data, const int64_t* starts,
               const int64_t* sizes, int32_t* error, OpenFiles* opened, ThreadPool* pool) {
  std::vector<int64_t> cost(sizes, sizes + n);
  auto read_file = [&](int i) {
    OpenFile file(table.path(index[i]), sizes[i]);
    error[i] = file.error != 0 ? file.error : ReadAt(file.fd, 0, data + starts[i], sizes[i]);
  };
  pool->Run(
      n,
      [&](int i) {
        const int fd = opened->Take(i);
        const Closing closing(fd);
        if (error[i] != 0) return;
        if (fd >= 0)
          error[i] = ReadWhole(fd, data + starts[i], sizes[i]);
        else
          read_file(i);
      },
      LargestFirst(cost));
  // EMFILE, ENFILE: there were no descriptors left.
  for (int i = 0; i < n; i++)  // all other files of the batch are closed now
    if (error[i] == EMFILE || error[i] == ENFILE) read_file(i);
}

// Reads sizes[i] bytes of file index[i] that follow the bytes `head`, to data + starts[i]. A file that begins
// differently or has another size gets the error kOtherHead.
void ReadFilesBehind(const FileTable& table, const int64_t* index, int n, const std::string& head, uint8_t* data,
                     const int64_t* starts, const int64_t* sizes, int32_t* error, ThreadPool* pool) {
  const auto head_size = static_cast<int64_t>(head.size());
  std::vector<int64_t> cost(sizes, sizes + n);
  pool->Run(
      n,
      [&](int i) {
        OpenFile file(table.path(index[i]), head_size + sizes[i]);
        if (file.error != 0) {
          error[i] = file.error == kSizeChanged ? kOtherHead : file.error;
          return;
        }
        std::string actual_head(head.size(), '\0');
        const iovec buffers[] = {{actual_head.data(), head.size()}, {data + starts[i], static_cast<size_t>(sizes[i])}};
        const ssize_t num_read = preadv(file.fd, buffers, 2, 0);
        error[i] = 0;
        if (num_read != head_size + sizes[i]) {  // interrupted, or too large for one read
          error[i] = ReadAt(file.fd, 0, reinterpret_cast<uint8_t*>(actual_head.data()), head_size);
          if (error[i] == 0) error[i] = ReadAt(file.fd, head_size, data + starts[i], sizes[i]);
        }
        if (error[i] == kSizeChanged || (error[i] == 0 && actual_head != head)) error[i] = kOtherHead;
      },
      LargestFirst(cost));
}

// Reads ranges of many files, and sets their errors. `file_sizes`: the size that each file of the table must have.
void ReadRanges(const FileTable& table, std::vector<FileRange>* ranges, const int64_t* file_sizes, ThreadPool* pool) {
  // Threads share an open file. The last part of a file closes it, so that few files are open at once.
  struct SharedFile {
    std::once_flag once;
    std::optional<OpenFile> open_file;
    std::atomic<int> ranges_left{0};
  };
  // std::map, whose elements stay where they are: threads hold references to them.
  std::map<int64_t, SharedFile> files;
  for (const FileRange& r : *ranges) files[r.file].ranges_left++;
  // Each part has ranges of one file. The first thread that gets one opens it.
  ForEachPart(ranges, pool, [&](FileRange* begin, FileRange* end) {
    SharedFile& shared_file = files.find(begin->file)->second;
    std::call_once(shared_file.once,
                   [&] { shared_file.open_file.emplace(table.path(begin->file), file_sizes[begin->file]); });
    if (shared_file.open_file->error == 0)
      ReadNeighbours(shared_file.open_file->fd, begin, end);
    else
      for (FileRange* r = begin; r < end; r++) r->error = shared_file.open_file->error;
    if ((shared_file.ranges_left -= static_cast<int>(end - begin)) == 0) shared_file.open_file.reset();
  });
}

// Reads sizes[i] bytes at offsets[i] of file files[i] to data + starts[i], and sets error[i].
void ReadRanges(const FileTable& table, const int64_t* files, const int64_t* offsets, int n, uint8_t* data,
                const int64_t* starts, const int64_t* sizes, const int64_t* file_sizes, int32_t* error,
                ThreadPool* pool) {
  std::vector<FileRange> ranges;
  ranges.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; i++) {
    error[i] = offsets[i] > file_sizes[files[i]] - sizes[i] ? kSizeChanged : 0;
    if (error[i] == 0) ranges.push_back({files[i], offsets[i], sizes[i], data + starts[i], i});
  }
  ReadRanges(table, &ranges, file_sizes, pool);
  for (const FileRange& r : ranges) error[r.id] = r.error;
}

}  // namespace jaxdali
