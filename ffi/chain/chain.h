// Kernels in a row, sample by sample: what one makes of an image the next one gets from a buffer of the thread, which
// stays in its cache, and no batch lies in between. A stage makes no more of its image than the next one reads: a crop
// behind a resize decides which rows and columns are decoded. For CPUs alone; all values have three axes.
#ifndef JAXDALI_FFI_CHAIN_H_
#define JAXDALI_FFI_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/decode/decode.h"
#include "ffi/resize/resize.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window.h"

namespace jaxdali {

// Of a value: ranges of its first two axes, of an image rows and columns.
struct Part {
  Range axis[2];
};

// Parts are packed in memory.
class Stage {
 public:
  virtual ~Stage() = default;
  // What sample i's `made` depends on of what comes in.
  virtual Status Reads(int i, const Part& made, Part* read) const = 0;
  // What is made where `wanted` is wanted: not less.
  virtual Part Makes([[maybe_unused]] int i, const Part& wanted) const { return wanted; }
  virtual Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const = 0;
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
};

class ResizeStage : public Stage {
 public:
  ResizeBatch batch;

  Status Reads(int i, const Part& made, Part* read) const override;
  Part Makes(int i, const Part& wanted) const override;
  Status Run(int i, const Part& read, const void* from, const Part& made, void* to) const override;

 private:
  Status Of(int i, const Part& made, ResizeJob* job, ResizePart* part) const;
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
  std::vector<Batch>
      values;  // what goes into the first stage, and what comes out of each; those in between have no data

  // Sample i, which lies inside the first and the last. `failed`: the stage whose status it is, of several the first,
  // as if they ran one after the other; but damage to a file goes unnoticed where nothing of the image is read.
  Status Run(int i, int* failed) const;

 private:
  // What the first n stages read and make, for all of what comes out of them. `failed`: the stage that can't run.
  Status Plan(int i, int n, Part* parts, int* failed) const;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_CHAIN_H_
