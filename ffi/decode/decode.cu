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

}  // namespace

const char* LaunchDecode(const DecodeBatch& b, const Samples& samples, void* stream) {
  using namespace jpeg;
  const int64_t n = samples.n, slots = 3 * n;  // slots of scans or components
  if (n == 0) return nullptr;
  if (b.workspace_size < DirectoryUnits(samples.n) * kPlaceUnit) return "decode: too little working memory";
  if (b.in.dtype != DType::kU8) return "decode: element type";
  const Shard shard{b.tables, samples, b.workspace};
  const int32_t chunks = Grid(b.in.capacity / kChunkBytes, slots);
  const int32_t sequences = Grid(b.in.capacity * 8 / (512 * kBlockSubsequences), slots);
  const int32_t sums = Grid(b.workspace_size / kDcValues / (64 * (sizeof(int16_t) + 1)), slots);

  Launcher launch(stream);
  launch(Prepare{b, shard, kEnough}, n + kEnough);
  launch(UnstuffCount{{shard, b.in, chunks}}, chunks);
  launch(UnstuffPrefix{{shard, b.in, chunks}}, slots);
  launch(UnstuffWrite{{shard, b.in, chunks}}, chunks);
  launch(SyncBlocks{{{shard, sequences}}, true}, sequences);
  launch(SyncBlocks{{{shard, sequences}}, false}, sequences);
  launch(SyncScans{{{shard, sequences}}}, slots);
  launch(DecodeWrite{{shard, sequences}}, sequences);
  launch(DcSums{shard, sums}, sums);
  launch(DcPrefix{shard}, slots);
  return launch.error() ? launch.error() : LaunchRaster(b, shard, stream);
}

}  // namespace jaxdali
