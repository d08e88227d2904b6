// The base of all kernels of the JPEG decoder: the operands of a shard (the images of one call), offsets in the working
// memory, and how a CUDA block finds its work.
#ifndef JAXDALI_FFI_CUDA_JPEG_SHARD_H_
#define JAXDALI_FFI_CUDA_JPEG_SHARD_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/hd.h"
#include "ffi/common/launch.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/cuda_jpeg/table.h"

namespace jaxdali::jpeg {

// The first CUDA block of each kernel's slots, in ascending order, followed by their total. The working memory begins
// with these arrays, and with the first image of each group. They repeat numbers of the rows, side by side. Slots are
// (image, scan), (image, component) or images.
enum class Work { kChunks, kSequences, kDc, kIdct, kPixels };
inline constexpr int kWorks = 5;
static_assert(kMaxScans == kMaxComponents, "as many slots of an image");

JAXDALI_HD inline int64_t SlotEntries(int n) { return (kWorks - 1) * (int64_t{kMaxScans} * n + 1) + n + 1; }
JAXDALI_HD inline int64_t DirectoryEntries(int n) { return SlotEntries(n) + kMaxGroups + 1; }
JAXDALI_HD inline int64_t DirectoryUnits(int n) { return (DirectoryEntries(n) * 4 + kPlaceUnit - 1) / kPlaceUnit; }

struct Shard {
  const ImageTable* tables;  // a row for each image
  Samples samples;           // their number `n`, which of them are present, and their status
  uint8_t* workspace;        // the working memory

  // The array at a place, which is counted in units of kPlaceUnit bytes.
  template <class T>
  JAXDALI_HD T* At(uint32_t place) const {
    return reinterpret_cast<T*>(workspace + place * kPlaceUnit);
  }

  // The number of slots of a kernel, the first CUDA block of each, and the number of all CUDA blocks.
  JAXDALI_HD int slots(Work w) const { return w == Work::kPixels ? samples.n : kMaxScans * samples.n; }
  JAXDALI_HD int32_t* Firsts(Work w) const {
    return reinterpret_cast<int32_t*>(workspace) + static_cast<int64_t>(w) * (int64_t{kMaxScans} * samples.n + 1);
  }
  JAXDALI_HD int32_t Total(Work w) const { return Firsts(w)[slots(w)]; }
  // The first image of each group; `n` for groups after the last one. kMaxGroups + 1 entries.
  JAXDALI_HD int32_t* FirstImages() const { return reinterpret_cast<int32_t*>(workspace) + SlotEntries(samples.n); }
  // The first CUDA block of a kernel for a group; those of the group end where the next one's begin. Not for kPixels.
  JAXDALI_HD int32_t GroupFirst(Work w, int group) const { return Firsts(w)[kMaxScans * FirstImages()[group]]; }

  // A phase that finds the slot that CUDA block `index` of kernel `w` works on; `index` must be below Total(w). All
  // threads search, one of them writes the slot, which is in shared memory.
  template <class Block>
  JAXDALI_HD void FindSlot(const Block& block, Work w, int32_t index, int32_t* slot) const {
    const int32_t *first = Firsts(w), n = slots(w);
    block.Phase([&](int thread) {
      for (int32_t i = thread; i < n; i += kThreads)
        if (first[i] <= index && index < first[i + 1]) *slot = i;
    });
  }

  // Whether the image is to be decoded and no kernel has found an error so far. Other blocks may find one at any time,
  // so one thread of a block reads this and shares the answer in shared memory.
  JAXDALI_HD bool Active(int image) const { return Has(image, kOk); }

  // Whether kernels may have written coefficients of a file: it is active, or was until its data were refused.
  JAXDALI_HD bool MayHaveCoefficients(int image) const {
    return tables[image].coding == Coding::kHuffman && (Has(image, kOk) || Has(image, kRefused));
  }

 private:
  // Whether the image has this status, and the kernels decode it. The status is read anew at each call, because other
  // CUDA blocks may change it.
  JAXDALI_HD bool Has(int image, Status expected) const {
#if defined(__CUDA_ARCH__)
    const int32_t status = *static_cast<const volatile int32_t*>(&samples.status[image]);
#else
    const int32_t status = __atomic_load_n(&samples.status[image], __ATOMIC_RELAXED);
#endif
    return samples.present[image] && tables[image].coding != Coding::kNone && status == expected;
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_SHARD_H_
