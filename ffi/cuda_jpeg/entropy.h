// Parallel decoding of entropy-coded data. The bits of a scan are cut into subsequences of equal length, and each
// thread decodes the symbols that begin in its subsequence. It does not know where the first symbol begins, nor in
// which state, so it guesses. Then it decodes again from the state in which the subsequence before ends, until nothing
// changes. Huffman codes synchronise by themselves, mostly after a few dozen symbols. (A. Weissenberger, B. Schmidt,
// "Accelerating JPEG Decompression on GPUs", HiPC 2021.)
//
// The result does not rely on this. The decoding that writes starts from the state from which the blocks of a
// subsequence were counted, and checks that the subsequence before ends in this state. By induction the result is that
// of one thread alone. Data that do not synchronise within kMaxLookups are refused, and so is every error in the data.
#ifndef JAXDALI_FFI_JPEG_ENTROPY_H_
#define JAXDALI_FFI_JPEG_ENTROPY_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/subsequence.h"

namespace jaxdali::jpeg {

static_assert(kBlockSubsequences == kThreads);

// How many look-ups, one after the other, a block may spend on guessing in one launch. This is about 1.5 ms, during
// which other work on the same stream waits. Photos need up to 2,500, pages of text 3,000 to 10,000, and noise of the
// highest quality 15,000. Areas of one colour, whose bits are periodic, can need 25,000 per block, but a CPU decodes
// such images quickly.
inline constexpr int kMaxLookups = 16000;
inline constexpr int kRoundLookups = 4;  // the work between two rounds takes as long as this many look-ups

// Finds the part of the work that belongs to a block, and loads what its threads read all the time.
struct EntropyWork : Shard {
  int32_t grid;  // blocks of the launch

  JAXDALI_HD void Extent(int image, const ScanTable& scan, ScanView* v) const {
    v->words = At<uint32_t>(scan.words);
    v->segment_end = At<uint32_t>(scan.segment_end);
    v->bits = At<ScanExtent>(scan.extent)->bits;
    v->subsequence_bits = static_cast<uint32_t>(tables[image].subsequence_bits);
  }

  template <class T>
  JAXDALI_HD static void CopyWords(int thread, const T* from, int n, T* to) {
    static_assert(sizeof(T) % 4 == 0);
    const auto* a = reinterpret_cast<const uint32_t*>(from);
    auto* b = reinterpret_cast<uint32_t*>(to);
    for (int i = thread; i < n * static_cast<int>(sizeof(T) / 4); i += kThreads) b[i] = a[i];
  }

  template <class Block>
  JAXDALI_HD void Load(const Block& block, int slot, ScanView* v) const {
    const ImageTable& image = tables[slot / kMaxScans];
    block.Phase([&](int thread) {
      CopyWords(thread, &image.scan[slot % kMaxScans], 1, &v->scan);
      CopyWords(thread, At<Lookup>(image.lookup), image.tables, v->lookup);
    });
    block.Phase([&](int thread) {
      if (thread < kMaxMcuBlocks) v->SetTables(thread);
    });
  }
};

struct SyncShared {
  int32_t slot;
  bool runs;
  ScanView view;
  uint16_t state[kThreads + 1];  // state at the start of each subsequence
  uint16_t todo[kThreads];
  Decoding last[kThreads], other[kThreads];
  uint32_t changed, pending;  // subsequences whose start state changed, and those of them that must be decoded
  int32_t longest;            // look-ups in the longest decoding of a round
};

struct SyncWork : EntropyWork {
  // Decodes a block's subsequences until each starts from the state in which the one before ends. Subsequences that
  // must be decoded again are gathered first, so that they fill whole warps. If threads guess wrong for long, the same
  // states recur, so a decoding from an earlier round is reused. `number`: the block's number in the scan. `fresh`: no
  // decoding exists yet. Returns how many look-ups came one after the other, including `before`.
  template <class Block>
  JAXDALI_HD int Settle(const Block& block, SyncShared& s, int32_t number, uint16_t first, bool fresh,
                        int before) const {
    const int32_t base = number * kThreads, left = s.view.subsequences() - base;
    const int n = left < kThreads ? left : kThreads;
    Decoding* last = At<Decoding>(s.view.scan.last) + base;
    Decoding* other = At<Decoding>(s.view.scan.other) + base;
    block.Phase([&](int thread) {
      constexpr Decoding kNone{0xFFFF, 0, 0};  // not a valid state
      if (thread == 0) s.state[0] = first;
      if (thread >= n) return;
      s.last[thread] = fresh ? kNone : last[thread];
      s.other[thread] = fresh ? kNone : other[thread];
      s.state[thread + 1] = s.last[thread].exit;
    });
    int lookups = before;
    for (;;) {
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.changed = s.pending = 0;
        s.longest = 0;
      });
      block.Phase([&](int thread) {
        if (thread >= n || s.state[thread] == s.last[thread].entry) return;
        const Decoding known = s.other[thread];
        s.other[thread] = s.last[thread];
        s.last[thread] = known;
        AtomicAdd(&s.changed, 1);
        if (s.state[thread] != known.entry) s.todo[AtomicAdd(&s.pending, 1)] = static_cast<uint16_t>(thread);
      });
      if (s.changed == 0) break;
      if (lookups >= kMaxLookups) {
        block.Phase([&](int thread) {
          if (thread == 0) AtomicMax(&samples.status[s.slot / kMaxScans], kRefused);
        });
        break;
      }
      block.Phase([&](int thread) {
        if (thread >= static_cast<int>(s.pending)) return;
        const int k = s.todo[thread];
        int32_t own;
        s.last[k] = DecodeSubsequence(s.view, base + k, s.state[k], static_cast<NoOutput*>(nullptr), &own);
        AtomicMax(&s.longest, own);
      });
      lookups += s.longest + kRoundLookups;
      block.Phase([&](int thread) {
        if (thread < n) s.state[thread + 1] = s.last[thread].exit;
      });
    }
    block.Phase([&](int thread) {
      if (thread < n) {
        last[thread] = s.last[thread];
        other[thread] = s.other[thread];
      }
      if (thread == 0 && fresh) At<uint16_t>(s.view.scan.edge)[number] = s.state[n];
    });
    return lookups;
  }
};

// Synchronises the subsequences of each block; in a second launch it starts from the state in which the block before
// ends.
struct SyncBlocks : SyncWork {
  bool fresh;  // the first launch

  static constexpr int kBlocksPerSm = 6;
  using Shared = SyncShared;

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = Total(Work::kSequences);
    for (int32_t index = block.index; index < total; index += grid) {
      FindSlot(block, Work::kSequences, index, &s.slot);
      const int image = s.slot / kMaxScans;
      const ScanTable& scan = tables[image].scan[s.slot % kMaxScans];
      const int32_t number = index - scan.sequence0;
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.runs = Active(image);
        if (!s.runs) return;
        Extent(image, scan, &s.view);
        s.runs = number * kThreads < s.view.subsequences();
        if (s.runs && !fresh)  // the state from the left has changed
          s.runs =
              number > 0 && At<uint16_t>(scan.edge)[number - 1] != At<Decoding>(scan.last)[number * kThreads].entry;
      });
      if (!s.runs) continue;
      Load(block, s.slot, &s.view);
      Settle(block, s, number, fresh || number == 0 ? 0 : At<uint16_t>(scan.edge)[number - 1], fresh, 0);
    }
  }
};

// Synchronises the rest: one block per scan goes through the scan's blocks of subsequences in order. Usually there is
// nothing left to do. Then it counts how many blocks of its segment end before each subsequence.
struct SyncScans : SyncWork {
  struct Shared : SyncShared {
    ScanRows<uint32_t> rows;
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / kMaxScans;
    const ScanTable& scan = tables[image].scan[block.index % kMaxScans];
    block.Phase([&](int thread) {
      if (thread != 0) return;
      s.slot = block.index;
      s.pending = 0;
      s.runs = scan.sequences > 0 && Active(image);
      if (s.runs) Extent(image, scan, &s.view);
    });
    if (!s.runs) return;
    const int32_t all = s.view.subsequences(), n = (all + kThreads - 1) / kThreads;
    Decoding* last = At<Decoding>(scan.last);
    auto fits = [last](int32_t b) { return last[b * kThreads - 1].exit == last[b * kThreads].entry; };
    block.Phase([&](int thread) {
      for (int32_t b = 1 + thread; b < n; b += kThreads)
        if (!fits(b)) AtomicAdd(&s.pending, 1);
    });
    if (s.pending) {
      Load(block, s.slot, &s.view);
      int lookups = 0;
      for (int32_t b = 1; b < n; b++)
        if (!fits(b)) lookups = Settle(block, s, b, last[b * kThreads - 1].exit, false, lookups);
    }
    ScanAll(
        block, s.rows, all, [&](int i) { return last[i].blocks; }, AddCounts{},
        [&](int i, uint32_t before, uint32_t) { last[i].blocks = before & ~kSinceSegment; });
  }
};

// The final decoding of a group, which writes coefficients.
struct DecodeWrite : EntropyWork {
  int32_t group;

  static constexpr int kBlocksPerSm = 5;

  struct Shared {
    int32_t slot;
    bool runs;
    ScanView view;
    BlockPlace places[kMaxMcuBlocks];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t end = GroupFirst(Work::kSequences, group + 1);
    for (int32_t index = GroupFirst(Work::kSequences, group) + block.index; index < end; index += grid) {
      FindSlot(block, Work::kSequences, index, &s.slot);
      const int image = s.slot / kMaxScans;
      const ScanTable& scan = tables[image].scan[s.slot % kMaxScans];
      const int32_t base = (index - scan.sequence0) * kThreads;
      block.Phase([&](int thread) {
        if (thread < scan.mcu_blocks)
          s.places[thread] = BlockPlace::Of(scan, tables[image].component[scan.block[thread].component], scan.block[thread]);
        if (thread != 0) return;
        s.runs = Active(image);
        if (!s.runs) return;
        Extent(image, scan, &s.view);
        s.runs = base < s.view.subsequences();
      });
      if (!s.runs) continue;
      Load(block, s.slot, &s.view);
      block.Phase([&](int thread) {
        const int32_t number = base + thread;
        if (number >= s.view.subsequences()) return;
        const Decoding* last = At<Decoding>(scan.last) + number;
        const uint16_t entry = number ? last[-1].exit : 0;
        bool good = entry == last->entry;
        if (good) {
          Output out{};
          out.scan = &s.view.scan;
          out.places = s.places;
          out.workspace = workspace;
          out.block = last->blocks;
          int32_t lookups;
          DecodeSubsequence(s.view, number, entry, &out, &lookups);
          good = !out.bad;
        }
        if (!good) AtomicMax(&samples.status[image], kRefused);
      });
    }
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_ENTROPY_H_
