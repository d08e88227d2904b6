// Kernels in a row, sample by sample: what one makes of an image the next one gets from a buffer of the thread, which
// stays in its cache, and no batch lies in between. A stage makes no more of its image than the next one reads: a crop
// behind a resize decides which rows and columns are decoded. For CPUs alone; all values have three axes. See Note [The
// chain] in jaxdali/_plan/passes.py.
#ifndef JAXDALI_FFI_CHAIN_H_
#define JAXDALI_FFI_CHAIN_H_

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

// Of a value: ranges of its first two axes, of an image rows and columns.
struct Part {
  Range axis[2];
};

// Writes the next row of a part. False: there is none to be had.
using Rows = std::function<bool(uint8_t*)>;

// Parts are packed in memory.
class Stage {
 public:
  virtual ~Stage() = default;
  // What sample i's `made` depends on of what comes in.
  virtual Status Reads(int i, const Part& made, Part* read) const = 0;
  // What is made where `wanted` is wanted: not less.
  virtual Part Makes([[maybe_unused]] int i, const Part& wanted) const { return wanted; }
  virtual Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const = 0;
  // Row by row, to the same bytes, where both of two stages can: of one that begins a chain its rows from the top, to
  // be taken before another image is begun in this thread (empty: it makes no rows), or from a strip on that the part
  // is cut into for several threads (empty: for one) ...
  virtual Rows MakeRows(int, const Part& /*made*/, const jpeg::Strip* /*from*/ = nullptr) const { return {}; }
  virtual std::vector<jpeg::Strip> Cut(int, const Part& /*made*/) const { return {}; }
  // ... and the second, which takes all of them. False: it can't, or a row was missing: then only Run tells why.
  virtual bool RunOnRows(int, const Part& /*read*/, const Rows& /*next*/, const Part& /*made*/, void* /*to*/) const {
    return false;
  }
};

// The first of a chain.
class DecodeStage : public Stage {
 public:
  Batch in, out;
  const ImageInfo* info;  // [n]
  DecodeOptions options;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;
  Rows MakeRows(int i, const Part& made, const jpeg::Strip* from) const override;
  std::vector<jpeg::Strip> Cut(int i, const Part& made) const override;

 private:
  // The region that `made` is.
  Status Of(int i, const Part& made, ImageInfo* part) const;
};

class ResizeStage : public Stage {
 public:
  ResizeBatch batch;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;
  bool RunOnRows(int i, const Part& read, const Rows& next, const Part& made, void* to) const override;

 private:
  Status Of(int i, const Part& made, ResizeJob* job, ResizePart* part) const;
  // What is made of what is there.
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
  // The output's axes are the input's: none is dropped, none is new.
  bool KeepsAxes(int i) const;
  // The window that makes a part of the output.
  void Of(int i, const Part& made, int32_t start[3], int32_t extent[3]) const;
};

inline constexpr int kMostStages = 16;

struct Chain {
  std::vector<std::unique_ptr<Stage>> stages;
  bool streams = true;  // a stage that makes rows gives them to one that takes rows, with no image in between
  jpeg::Helpers helpers;
  // Where the stages' times are wanted: each one's sum over all samples, in ticks of some clock. Empty: they are not.
  mutable std::vector<std::atomic<int64_t>> spent;
  std::vector<Batch>
      values;  // what goes into the first stage, and what comes out of each; those in between have no data

  // Sample i, which lies inside the first and the last. `failed`: the stage whose status it is, of several the first,
  // as if they ran one after the other; but damage to a file goes unnoticed where nothing of the image is read.
  Status Run(int i, int* failed) const;

 private:
  // What the first n stages read and make, for all of what comes out of them. `failed`: the stage that can't run.
  Status Plan(int i, int n, Part* parts, int* failed) const;
  // Stages k and k + 1 by rows, between their parts, or the part of one strip; false: they can't.
  bool RunRows(int i, int k, const Part& read, const jpeg::Strip* from, const Part& made, void* to) const;
  bool Stream(int i, int k, const Part* parts, void* to) const;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_H_
