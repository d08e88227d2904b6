// Runs several kernels one after the other, sample by sample. A stage writes its image into a buffer of the thread,
// which stays in the cache, and the next stage reads it there; no batch is stored in between. A stage computes only the
// region of its image that the next one reads: a crop after a resize determines which rows and columns are decoded. All
// values have three axes, except for patches, which the last stage may make. This is for CPUs; windowed.h is for GPUs.
// See Note [The chain] in jaxdali/_plan/passes.py.
#ifndef JAXDALI_FFI_CHAIN_CHAIN_H_
#define JAXDALI_FFI_CHAIN_CHAIN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/decode/decode.h"
#include "ffi/jpeg/strips.h"
#include "ffi/patchify/patchify.h"
#include "ffi/resize/resize.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window.h"

namespace jaxdali {

// A region of a value: ranges of its first two axes, which are the rows and columns of an image. All channels belong to
// it.
struct ImageRegion {
  Range axis[2];
};

// The rows of a region, one after another.
struct Rows {
  std::function<bool(uint8_t*)> next;  // writes the next row; returns false if there is none
  bool gray = false;                   // a row has one channel, to which the three of the region are equal
};

// A kernel as a part of a chain. Throughout, `output` is a region of the stage's image, and `input` the region of the
// image before it that `output` depends on. Regions are packed in memory.
class Stage {
 public:
  virtual ~Stage() = default;
  // Sets `input` to the region of the input that `output` of sample i depends on.
  virtual Status Reads(int i, const ImageRegion& output, ImageRegion* input) const = 0;
  // The region that the stage makes if `needed` is needed. It contains `needed`.
  virtual ImageRegion Makes([[maybe_unused]] int i, const ImageRegion& needed) const { return needed; }
  // Makes `output` at `to` from `input` at `from`.
  virtual Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const = 0;
  // The address of `output` if it lies in memory already, packed, so that Run need not copy it; otherwise null.
  virtual const void* InPlace(int, const ImageRegion& /*output*/) const { return nullptr; }

  // Two neighbouring stages that support it can work row by row, with the same bytes. The first one makes the rows,
  // from the top of the region or, where several threads share it, from strip `first` on. They must be taken before
  // this thread begins another image. Without `next`, the stage makes no rows.
  virtual Rows MakeRows(int, const ImageRegion& /*output*/, const jpeg::Strip* /*first*/ = nullptr) const { return {}; }
  // The strips of a region that threads can make side by side. None: one thread makes all rows.
  virtual std::vector<jpeg::Strip> Cut(int, const ImageRegion& /*output*/) const { return {}; }
  // The second stage takes all rows. False: it can't, or a row was missing; then only Run finds the reason.
  virtual bool RunOnRows(int, const ImageRegion& /*input*/, const Rows&, const ImageRegion& /*output*/,
                         void* /*to*/) const {
    return false;
  }
};

// The first stage of a chain.
class DecodeStage : public Stage {
 public:
  Batch in, out;
  const ImageInfo* info;  // [n]
  DecodeOptions options;

  Status Reads(int i, const ImageRegion& output, ImageRegion* input) const override;
  ImageRegion Makes(int i, const ImageRegion& needed) const override;
  Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const override;
  const void* InPlace(int i, const ImageRegion& output) const override;
  Rows MakeRows(int i, const ImageRegion& output, const jpeg::Strip* first) const override;
  std::vector<jpeg::Strip> Cut(int i, const ImageRegion& output) const override;

 private:
  // Whether the host pass made the pixels of the file, and they are as the output has them.
  bool IsPixels(int i) const;
  // Sets `region` to the info row of the file, with the region that becomes `output`.
  Status InfoOf(int i, const ImageRegion& output, ImageInfo* region) const;
};

// Kernels `resize` and `resample`.
class ResizeStage : public Stage {
 public:
  ResizeBatch batch;

  Status Reads(int i, const ImageRegion& output, ImageRegion* input) const override;
  ImageRegion Makes(int i, const ImageRegion& needed) const override;
  Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const override;
  bool RunOnRows(int i, const ImageRegion& input, const Rows& rows, const ImageRegion& output, void* to) const override;

 private:
  // Describes the resize that makes `output`.
  Status JobOf(int i, const ImageRegion& output, ResizeJob* job, ResizePart* part) const;
  // The same, where only `input` is in memory.
  Status JobOf(int i, const ImageRegion& input, const ImageRegion& output, ResizeJob* job, ResizePart* part) const;
};

class WarpStage : public Stage {
 public:
  WarpBatch batch;

  Status Reads(int i, const ImageRegion& output, ImageRegion* input) const override;
  Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const override;

 private:
  // Describes the warp that makes `output`.
  Status ArgsOf(int i, const ImageRegion& output, WarpArgs* args) const;
};

class WindowStage : public Stage {
 public:
  WindowBatch batch;

  Status Reads(int i, const ImageRegion& output, ImageRegion* input) const override;
  ImageRegion Makes(int i, const ImageRegion& needed) const override;
  Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const override;

 private:
  // Whether the output has the axes of the input: none is dropped, and none is new.
  bool KeepsAxes(int i) const;
  // The window that makes `output`.
  void WindowOf(int i, const ImageRegion& output, int32_t start[3], int32_t extent[3]) const;
};

// The last stage of a chain. Its output is always whole.
class PatchifyStage : public Stage {
 public:
  PatchifyBatch batch;

  Status Reads(int i, const ImageRegion& output, ImageRegion* input) const override;
  Status Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const override;
};

inline constexpr int kMostStages = 16;

struct Chain {
  std::vector<std::unique_ptr<Stage>> stages;
  bool streams = true;  // a stage that makes rows gives them to one that takes rows, without an image in between
  jpeg::Helpers helpers;
  // Time of each stage, summed over all samples, in ticks of some clock. Empty: times are not measured.
  mutable std::vector<std::atomic<int64_t>> ticks;
  std::vector<Batch> values;  // input of the first stage, then the output of each stage; those in between have no data
  // PatchifyBatch::place of the last stage. Then the last value has other samples than the others.
  const int32_t* place = nullptr;

  // Runs sample i, which lies inside the first and the last value. `failed` is the first stage that failed, as if the
  // stages ran one after the other. An exception: if no pixel of a file is needed, damage to it goes unnoticed.
  Status Run(int i, int* failed) const;

 private:
  // Finds the regions of values 0 to n for which the first n stages make their whole output: stage k reads regions[k]
  // and makes regions[k + 1]. `failed`: the stage that can't run.
  Status Plan(int i, int n, ImageRegion* regions, int* failed) const;
  // Runs stages k and k + 1 by rows, for their whole regions or, from `first` on, for one strip. False: they can't.
  bool RunRows(int i, int k, const ImageRegion& input, const jpeg::Strip* first, const ImageRegion& output,
               void* to) const;
  // The same for whole regions, with the strips on all idle threads.
  bool Stream(int i, int k, const ImageRegion* regions, void* to) const;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_CHAIN_H_
