// The first kernel: it checks the operands, writes the directory of the work, builds look-up tables, and clears the
// coefficients of a group.
#ifndef JAXDALI_FFI_CUDA_JPEG_PREPARE_H_
#define JAXDALI_FFI_CUDA_JPEG_PREPARE_H_

#include <cstdint>

#include "ffi/common/launch.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/words.h"
#include "ffi/decode/decode.h"

namespace jaxdali::jpeg {

// Writes the status of each sample; one block per sample. The other blocks clear the coefficients of the first group,
// because only nonzero ones are written later; IdctKernel clears those of the groups after it.
struct Prepare {
  DecodeBatch batch;
  Shard shard;
  int32_t clearing;  // number of blocks that clear
  int32_t groups;    // that are launched

  struct Shared {
    bool is_active;
  };

  // CUDA block i < n prepares sample i; the blocks after these n clear coefficients.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int i = block.index;
    if (i >= shard.samples.n) return Clear(block, i - shard.samples.n);
    const ImageTable& row = batch.tables[i];
    block.Phase([&](int thread) {
      if (thread == 0) {
        const Status status = shard.samples.present[i] ? Check(i) : kOk;
        shard.samples.status[i] = status;
        s.is_active = status == kOk && shard.samples.present[i] && row.coding == Coding::kHuffman;
      }
      // Other warps write the directory at the same time: a thread for each kind of work, and one for each group.
      if (thread >= 32 && thread < 32 + kWorks) ListSlots(i, static_cast<Work>(thread - 32));
      if (thread >= 64 && thread <= 64 + kMaxGroups) ListGroup(i, thread - 64);
    });
    if (!s.is_active) return;
    block.Phase([&](int thread) {
      if (thread < row.scans) *shard.At<ScanExtent>(row.scan[thread].extent) = {/*marker=*/kNoMarker, /*bits=*/0};
    });
    BuildLookups(block, row, shard.At<Lookup>(row.lookup));
  }

 private:
  // Checks all operands of a sample, since they are data that a kernel must not trust. Returns the sample's status:
  // kOk, the error that the host found, kInternal for operands that don't fit together, kSizeMismatch, or kRefused.
  JAXDALI_HD Status Check(int i) const {
    const ImageInfo& info = batch.info[i];
    if (info.status != kOk) return static_cast<Status>(info.status);
    if (!batch.in.valid(i) || !batch.out.valid(i) || !IsDecodable(info)) return kInternal;
    const Batch& out = batch.out;
    if (!OutputFits(info, batch.type, batch.adjust_orientation, out.dim(i, 0), out.dim(i, 1), out.dim(i, 2)))
      return kSizeMismatch;
    if (info.format == static_cast<int32_t>(Format::kPixels))
      return batch.in.size(i) == out.size(i) * SizeOf(out.dtype) ? kOk : kSizeMismatch;
    if (!Fits(info, batch.tables[i], batch.in.size(i))) return kInternal;
    // Bytes are read sixteen at a time. XLA's buffers are aligned, but samples inside them need not be.
    return reinterpret_cast<uintptr_t>(batch.in.bytes(i)) % kLoadBytes == 0 ? kOk : kRefused;
  }

  // Whether the row describes this sample, and its arrays lie in the working memory.
  JAXDALI_HD bool Fits(const ImageInfo& info, const ImageTable& row, int64_t size) const {
    const int64_t units = batch.workspace_size / kPlaceUnit;
    const Format format = row.coding == Coding::kCompact ? Format::kCompact : Format::kJpeg;
    if (info.format != static_cast<int32_t>(format) || row.coding == Coding::kNone || info.height != row.height ||
        info.width != row.width || info.region_y != row.region_y || info.region_x != row.region_x ||
        info.region_h != row.region_h || info.region_w != row.region_w)
      return false;
    // The row is data, too: nothing that it says may lead outside of the working memory or the file.
    if (row.group < 0 || row.group >= groups) return false;
    if (int64_t{row.place} + row.units > units || int64_t{row.coefficients} + row.coefficient_units > units)
      return false;
    for (int s = 0; s < row.scans; s++)
      if (row.scan[s].begin < 0 || row.scan[s].begin >= row.scan[s].end || row.scan[s].end > size) return false;
    return true;
  }

  // Writes the first CUDA block of each slot of image i to the directory, and after the last image the total.
  JAXDALI_HD void ListSlots(int i, Work work) const {
    const ImageTable& row = batch.tables[i];
    int32_t* first = shard.Firsts(work);
    if (work == Work::kPixels) {
      first[i] = row.pixel0;
      if (i == shard.samples.n - 1) first[i + 1] = row.pixel0 + row.pixel_blocks();
      return;
    }
    // Components and scans are both at most four, so one loop serves all kinds of work.
    int32_t next = 0;
    for (int k = 0; k < kMaxScans; k++) {
      const ScanTable& scan = row.scan[k];
      const Component& component = row.component[k];
      const int32_t start = work == Work::kChunks      ? scan.chunk0
                            : work == Work::kSequences ? scan.sequence0
                            : work == Work::kDc        ? scan.dc0
                                                       : component.idct0;
      first[kMaxScans * i + k] = start;
      next = start + (work == Work::kChunks      ? scan.chunks
                      : work == Work::kSequences ? scan.sequences
                      : work == Work::kDc        ? scan.dc_blocks
                                                 : component.idct_blocks());
    }
    if (i == shard.samples.n - 1) first[kMaxScans * (i + 1)] = next;
  }

  // Writes the first image of group number `g` if it is this one, or if the group is empty and comes after the last
  // one.
  JAXDALI_HD void ListGroup(int i, int g) const {
    const int previous_group = i == 0 ? -1 : batch.tables[i - 1].group, group = batch.tables[i].group;
    if (previous_group < g && g <= group) shard.FirstImages()[g] = i;
    if (g > group && i == shard.samples.n - 1) shard.FirstImages()[g] = i + 1;
  }

  // Clears the memory of coefficients, 16 bytes a thread at a time, as block number `number` of those that clear. The
  // place of the memory is in each row; the first one's is taken.
  template <class Block>
  JAXDALI_HD void Clear(const Block& block, int number) const {
    const ImageTable& first = *batch.tables;
    const int64_t begin = first.coefficients * kPlaceUnit, end = begin + first.coefficient_units * kPlaceUnit;
    if (end > batch.workspace_size) return;
    block.Phase([&](int thread) {
      const int64_t stride = int64_t{clearing} * kThreads * 16;
      for (int64_t offset = begin + (int64_t{number} * kThreads + thread) * 16; offset < end; offset += stride)
        Store4(shard.workspace + offset, {});
    });
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_PREPARE_H_
