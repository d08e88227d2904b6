// Decoding on CUDA: JPEG with parallel Huffman decoding, and copies of finished pixels.
//
// The host does not know the samples of a batch, so every launch is sized by capacities. Blocks find their work in the
// rows that the host pass made, and return at once if there is none.
#include <algorithm>

#include "ffi/common/launch.h"
#include "ffi/cuda_jpeg/dc.h"
#include "ffi/cuda_jpeg/entropy.h"
#include "ffi/cuda_jpeg/prepare.h"
#include "ffi/cuda_jpeg/raster.h"
#include "ffi/cuda_jpeg/unstuff.h"
#include "ffi/decode/decode.h"

namespace jaxdali {
namespace {

// Enough blocks to fill any GPU. Each may do several parts of the work.
#if defined(JAXDALI_REAL_THREADS) || defined(JAXDALI_PTX)
constexpr int64_t kEnough = 3;
#else
constexpr int64_t kEnough = 4096;
#endif

// The blocks of a launch over `parts` pieces of work of unknown sizes: each of `slots` scans or components may have a
// piece that is not full.
int32_t Grid(int64_t parts, int64_t slots) {
  return static_cast<int32_t>(std::min<int64_t>(parts + slots, int64_t{1} << 30));
}

// Launches kernels one after the other until one fails.
class Launcher {
 public:
  explicit Launcher(void* stream) : stream_(stream) {}

  template <class Kernel>
  void operator()(const Kernel& kernel, int64_t blocks) {
    if (!error_) error_ = LaunchBlocks(kernel, blocks, stream_);
  }
  const char* error() const { return error_; }

 private:
  void* stream_;
  const char* error_ = nullptr;
};

// Decodes a batch. The coefficients of its images are in memory group by group. `groups`: how many groups are decoded,
// at least as many as the host has divided the images into; the last ones may be empty.
const char* LaunchInGroups(const DecodeBatch& b, const Samples& samples, int groups, void* stream) {
  using namespace jpeg;
  const int64_t n = samples.n, slots = kMaxScans * n;  // of scans or components
  if (n == 0) return nullptr;
  if (b.workspace_size < DirectoryUnits(samples.n) * kPlaceUnit) return "decode: too little working memory";
  if (b.in.dtype != DType::kU8) return "decode: element type";
  const Shard shard{b.tables, samples, b.workspace};
  const int32_t chunks = Grid(b.in.capacity / kChunkBytes, slots);
  // A thread decodes 512 bits or more at a time, so a block at least 512 * kBlockSubsequences.
  const int32_t sequences = Grid(b.in.capacity * 8 / (512 * kBlockSubsequences), slots);
  // Of a group. The memory holds the planes of all groups and the coefficients of one: for each block of 8 x 8 samples,
  // 64 bytes in a plane, and 64 coefficients.
  const int64_t blocks = b.workspace_size / (64 * (groups + static_cast<int64_t>(sizeof(int16_t))));
  const int32_t writes = (sequences + groups - 1) / groups * kWriteParts;
  const int32_t sums = Grid(blocks / kDcValues, slots), units = Grid(blocks / kIdctBlocks, slots);

  // The launches in the order of ffi/README.md (Decoding JPEG on GPUs). Numbers of blocks are upper bounds.
  Launcher launch(stream);
  launch(Prepare{b, shard, kEnough, groups}, n + kEnough);
  launch(UnstuffCount{{shard, b.in, chunks}}, chunks);
  launch(UnstuffPrefix{{shard, b.in, chunks}}, slots);
  launch(UnstuffWrite{{shard, b.in, chunks}}, chunks);
  launch(SyncBlocks{{shard, sequences}, /*is_first_launch=*/true}, sequences);
  launch(SyncBlocks{{shard, sequences}, /*is_first_launch=*/false}, sequences);
  launch(SyncScans{{shard, sequences}}, slots);
  for (int32_t g = 0; g < groups; g++) {
    launch(DecodeWrite{{shard, writes}, g}, writes);
    launch(DcSums{shard, sums, g}, sums);
    launch(DcPrefix{shard, g}, slots);
    launch(IdctKernel{shard, b.in, /*luminance_only=*/b.type == ImageType::kGray, /*clears=*/g + 1 < groups, units, g},
           units);
  }
  return launch.error() ? launch.error() : LaunchPixels(b, shard, stream);
}

}  // namespace

const char* LaunchDecode(const DecodeBatch& b, const Samples& samples, void* stream) {
  return LaunchInGroups(b, samples, jpeg::GroupsOf(samples.n, b.workspace_size, b.group_bytes), stream);
}

}  // namespace jaxdali
