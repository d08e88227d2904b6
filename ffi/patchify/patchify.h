// Images and videos cut into patches, the tokens of vision-language models: each patch becomes a row of numbers, scaled
// by channel, in a chosen order of its frames, rows, columns and channels.
#ifndef JAXDALI_FFI_PATCHIFY_PATCHIFY_H_
#define JAXDALI_FFI_PATCHIFY_PATCHIFY_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/convert.h"
#include "ffi/common/hd.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"

namespace jaxdali {

// The axes of a patch, in the numbers of PatchifyBatch::axes.
enum PatchAxis { kPatchFrame, kPatchRow, kPatchColumn, kPatchChannel };

// One sample.
struct PatchifyArgs {
  int64_t frames, height, width, channels;  // of the input; an image is one frame
  int64_t times, rows, columns;             // of patches
  int64_t extent[4];                        // of a patch, by PatchAxis
  int64_t stride[4];                        // elements of a patch from one index of an axis to the next
  int64_t size;                             // elements of a patch
  int64_t tokens, written;                  // patches; rows of the output that are written, the rest of them with zeros
  int64_t merge;                            // a block has merge x merge patches, whose tokens follow one another
  uint8_t* out;                             // the first token
  const float *scale, *offset;
  int scales;  // how many; the last one is used for all further channels

  JAXDALI_HD float Scale(int64_t channel) const { return scale[channel < scales ? channel : scales - 1]; }
  JAXDALI_HD float Offset(int64_t channel) const { return offset[channel < scales ? channel : scales - 1]; }
};

// The operands of the custom call. Without `place`, sample i of the output has the tokens of sample i of the input.
struct PatchifyBatch {
  Batch in, out;                // [H, W, C] or [F, H, W, C]; [tokens or more, elements of a patch]
  const float *scale, *offset;  // [n, scales], or none: elements become scale * element + offset
  int scales;
  // [n, 3], or null: the sample of the output, which is dense, the first token in it, and the token up to which zeros
  // follow the image's own tokens. On the CPU in a chain.
  const int32_t* place;
  int patch_size[8], merge_size, temporal_patch_size;  // patch_size: height and width
  int axes[8];                                         // the order in a patch: a permutation of PatchAxis
  bool past_caches;                                    // as in WindowBatch
  JAXDALI_ATTRIBUTES(patch_size, merge_size, temporal_patch_size, axes);

  // Whether elements are only copied.
  JAXDALI_HD bool moves() const { return in.dtype == out.dtype && scales == 0; }

  // Describes sample i, of which the caller has checked that it lies inside both buffers. kInternal: the image is no
  // whole number of blocks, or the output has other rows, too few of them, or no such place.
  JAXDALI_NOINLINE JAXDALI_HD Status Sample(int i, PatchifyArgs* a) const {
    const int first = in.ndim - 3;  // the axis of the rows
    a->frames = first > 0 ? in.dim(i, 0) : 1;
    a->height = in.dim(i, first);
    a->width = in.dim(i, first + 1);
    a->channels = in.dim(i, first + 2);
    a->extent[kPatchFrame] = temporal_patch_size;
    a->extent[kPatchRow] = patch_size[0];
    a->extent[kPatchColumn] = patch_size[1];
    a->extent[kPatchChannel] = a->channels;
    a->size = 1;
    for (int k = 3; k >= 0; k--) {
      const int64_t n = a->extent[axes[k]];
      a->stride[axes[k]] = a->size;
      if (n > 0 && a->size > kMost / n) return kInternal;
      a->size *= n;
    }
    a->merge = merge_size;
    const int64_t block_height = a->merge * patch_size[0], block_width = a->merge * patch_size[1];
    if (a->size != out.dim(i, 1) || a->height % block_height != 0 || a->width % block_width != 0) return kInternal;
    a->times = (a->frames + temporal_patch_size - 1) / temporal_patch_size;
    a->rows = a->height / patch_size[0];
    a->columns = a->width / patch_size[1];
    int64_t first_token = 0, end = out.dim(i, 0), sample = i;
    if (place) {
      const int32_t* const p = place + int64_t{3} * i;
      if (p[0] < 0 || p[0] >= out.n || p[1] < 0 || p[2] < p[1] || p[2] > end) return kInternal;
      sample = p[0], first_token = p[1], end = p[2];
    }
    a->written = end - first_token;
    const int64_t of_frame = a->rows * a->columns;
    if (of_frame > 0 && a->times > a->written / of_frame) return kInternal;
    a->tokens = a->times * of_frame;
    a->out = out.bytes(static_cast<int>(sample)) + first_token * a->size * SizeOf(out.dtype);
    a->scale = scale + static_cast<int64_t>(i) * scales;
    a->offset = offset + static_cast<int64_t>(i) * scales;
    a->scales = scales;
    return kOk;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 40;  // elements of a patch
};

// The CPU kernel: sample i of the batch.
Status Patchify(const PatchifyBatch& batch, int i);
// The same with the input at `in`.
Status PatchifyImage(const PatchifyBatch& batch, int i, const void* in);

// The CUDA kernel. Returns null or an error message.
const char* LaunchPatchify(const PatchifyBatch& batch, const Samples& samples, void* stream);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_PATCHIFY_PATCHIFY_H_
