// Runs several kernels one after the other, sample by sample. A stage writes its image into a buffer of the thread,
// which stays in the cache, and the next stage reads it there; no batch is stored in between. A stage computes only the
// part of its image that the next one reads: a crop after a resize determines which rows and columns are decoded. All
// values have three axes. This is for CPUs; windowed.h has what GPUs run. See Note [The chain] in
// jaxdali/_plan/passes.py.
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
#include "ffi/resize/resize.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window.h"

namespace jaxdali {

// Ranges of the first two axes of a value; these are the rows and columns of an image.
struct Part {
  Range axis[2];
};

// The rows of a part.
struct Rows {
  std::function<bool(uint8_t*)> next;  // writes the next row; returns false if there is none
  bool gray = false;                   // a row has one channel, to which the three of the part are equal
};

// Parts are packed in memory.
class Stage {
 public:
  virtual ~Stage() = default;
  // The part of the input that `made` of sample i depends on.
  virtual Status Reads(int i, const Part& made, Part* read) const = 0;
  // The part that the stage makes if `wanted` is needed. It contains `wanted`.
  virtual Part Makes([[maybe_unused]] int i, const Part& wanted) const { return wanted; }
  virtual Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const = 0;
  // Where `made` lies in memory already, packed, so that Run need not copy it; null: nowhere.
  virtual const void* InPlace(int, const Part& /*made*/) const { return nullptr; }
  // Row by row, with the same bytes, if two neighbouring stages support it. The first stage of a chain makes the rows,
  // from the top or, where several threads share the part, from strip `from` on. They must be taken before this thread
  // begins another image. Without `next`: the stage makes no rows; without strips: one thread makes them all.
  virtual Rows MakeRows(int, const Part& /*made*/, const jpeg::Strip* /*from*/ = nullptr) const { return {}; }
  virtual std::vector<jpeg::Strip> Cut(int, const Part& /*made*/) const { return {}; }
  // The second stage takes all rows. False: it can't, or a row was missing; then only Run finds the reason.
  virtual bool RunOnRows(int, const Part& /*read*/, const Rows&, const Part& /*made*/, void* /*to*/) const {
    return false;
  }
};

// The first stage of a chain.
class DecodeStage : public Stage {
 public:
  Batch in, out;
  const ImageInfo* info;  // [n]
  DecodeOptions options;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;
  const void* InPlace(int i, const Part& made) const override;
  Rows MakeRows(int i, const Part& made, const jpeg::Strip* from) const override;
  std::vector<jpeg::Strip> Cut(int i, const Part& made) const override;

 private:
  // Whether the file is pixels as the output has them, made by the host pass.
  bool IsPixels(int i) const;
  // The region of the file that gives `made`.
  Status Of(int i, const Part& made, ImageInfo* part) const;
};

class ResizeStage : public Stage {
 public:
  ResizeBatch batch;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;
  bool RunOnRows(int i, const Part& read, const Rows& rows, const Part& made, void* to) const override;

 private:
  Status Of(int i, const Part& made, ResizeJob* job, ResizePart* part) const;
  // Makes `made` from `read`.
  Status Of(int i, const Part& read, const Part& made, ResizeJob* job, ResizePart* part) const;
};

class WarpStage : public Stage {
 public:
  WarpBatch batch;

  Status Reads(int i, const Part& made, Part* read) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;

 private:
  Status Of(int i, const Part& made, WarpArgs* args) const;
};

class WindowStage : public Stage {
 public:
  WindowBatch batch;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;

 private:
  // Whether the output has the axes of the input: none is dropped, and none is new.
  bool KeepsAxes(int i) const;
  // The window that gives a part of the output.
  void Of(int i, const Part& made, int32_t start[3], int32_t extent[3]) const;
};

inline constexpr int kMostStages = 16;

struct Chain {
  std::vector<std::unique_ptr<Stage>> stages;
  bool streams = true;  // a stage that makes rows gives them to one that takes rows, without an image in between
  jpeg::Helpers helpers;
  // Time of each stage, summed over all samples, in ticks of some clock. Empty: times are not measured.
  mutable std::vector<std::atomic<int64_t>> spent;
  std::vector<Batch> values;  // input of the first stage, then the output of each stage; those in between have no data

  // Runs sample i, which lies inside the first and the last value. `failed` is the first stage that failed, as if the
  // stages ran one after the other. An exception: if no pixel of a file is needed, damage to it goes unnoticed.
  Status Run(int i, int* failed) const;

 private:
  // The parts that the first n stages read and make for their whole output. `failed`: the stage that can't run.
  Status Plan(int i, int n, Part* parts, int* failed) const;
  // Runs stages k and k + 1 by rows, for their whole parts or for one strip. False: they can't.
  bool RunRows(int i, int k, const Part& read, const jpeg::Strip* from, const Part& made, void* to) const;
  bool Stream(int i, int k, const Part* parts, void* to) const;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_CHAIN_H_
