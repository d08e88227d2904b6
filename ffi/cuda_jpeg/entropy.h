// Parallel decoding of entropy-coded data. The bits of a scan are cut into subsequences of equal length, and each
// thread decodes the symbols that begin in its subsequence. It does not know where the first symbol begins, nor in
// which state, so it guesses. Then it decodes again from the state in which the subsequence before ends, until nothing
// changes. Huffman codes synchronise by themselves, mostly after a few dozen symbols. (A. Weissenberger, B. Schmidt,
// "Accelerating JPEG Decompression on GPUs", HiPC 2021.) In order: SyncBlocks within blocks of threads, SyncScans
// across them, DecodeWrite. The decoding of one subsequence is in subsequence.h.
//
// The result does not rely on this. The decoding that writes starts from the state from which the blocks of a
// subsequence were counted, or from that in the middle of the same count, and checks that the subsequence before ends
// in the former. By induction the result is that of one thread alone. Data that do not synchronise within kMaxLookups
// are refused, and so is every error in the data.
#ifndef JAXDALI_FFI_CUDA_JPEG_ENTROPY_H_
#define JAXDALI_FFI_CUDA_JPEG_ENTROPY_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/subsequence.h"

namespace jaxdali::jpeg {

static_assert(kBlockSubsequences == kThreads);

// The largest number of look-ups, one after the other, that a block may spend on guessing in one launch, during which
// other work on the same stream waits. Photos need up to 2,500, pages of text 3,000 to 10,000, and noise of the highest
// quality 15,000. Areas of one colour, whose bits are periodic, can need 25,000 per block, but a CPU decodes such
// images quickly.
inline constexpr int kMaxLookups = 16000;
inline constexpr int kRoundLookups = 4;  // the work between two rounds takes as long as this many look-ups

// Finds the part of the work that belongs to a block, and copies to shared memory what its threads read all the time.
struct EntropyWork : Shard {
  int32_t grid;  // blocks of the launch

  // Sets the places and sizes of a scan's data.
  JAXDALI_HD void Extent(int image, const ScanTable& scan, ScanView* v) const {
    v->words = At<uint32_t>(scan.words);
    v->segment_end = At<uint32_t>(scan.segment_end);
    v->bits = At<ScanExtent>(scan.extent)->bits;
    v->subsequence_bits = static_cast<uint32_t>(tables[image].subsequence_bits);
  }

  // Copy n objects to shared memory, with all threads: in words of 4 bytes, and look-up tables in words of 16 bytes.
  template <class T>
  JAXDALI_HD static void CopyWords(int thread, const T* from, int n, T* to) {
    static_assert(sizeof(T) % 4 == 0);
    const auto* a = reinterpret_cast<const uint32_t*>(from);
    auto* b = reinterpret_cast<uint32_t*>(to);
    for (int i = thread; i < n * static_cast<int>(sizeof(T) / 4); i += kThreads) b[i] = a[i];
  }
  JAXDALI_HD static void CopyLookups(int thread, const Lookup* from, int n, Lookup* to) {
    const auto* a = reinterpret_cast<const uint8_t*>(from);
    auto* b = reinterpret_cast<uint8_t*>(to);
    for (int i = 16 * thread; i < n * static_cast<int>(sizeof(Lookup)); i += 16 * kThreads) Store4(b + i, Load4(a + i));
  }

  // Copies the scan of a slot and the image's look-up tables to shared memory, in two phases.
  template <class Block>
  JAXDALI_HD void Load(const Block& block, int slot, ScanView* v) const {
    const ImageTable& image = tables[slot / kMaxScans];
    block.Phase([&](int thread) {
      CopyWords(thread, &image.scan[slot % kMaxScans], /*n=*/1, &v->scan);
      CopyLookups(thread, At<Lookup>(image.lookup), image.tables, v->lookup);
    });
    block.Phase([&](int thread) {
      if (thread < kMaxMcuBlocks) v->SetTables(thread);
    });
  }
};

// The number of subsequences that a block may leave to SyncScans; 0: none. All blocks of a scan together leave few.
JAXDALI_HD inline uint32_t MaxLeftOver(const ScanTable& scan) {
  constexpr int32_t kMaxOfScan = 128, kMaxOfBlock = 32, kMaxSequences = 16;
  if (scan.sequences > kMaxSequences) return 0;
  return static_cast<uint32_t>(kMaxOfScan / scan.sequences < kMaxOfBlock ? kMaxOfScan / scan.sequences : kMaxOfBlock);
}

// Makes the subsequences of each block start from the state in which the one before ends. The first of a block starts
// from a guess; in a second launch it starts from the state in which the block before ends.
//
// Blocks of a short scan leave a few subsequences that need many rounds to SyncScans, and the second launch does
// nothing. The other threads would wait for these few, and blocks that could run for these threads.
struct SyncBlocks : EntropyWork {
  bool is_first_launch;

  static constexpr int kBlocksPerSm = 6;
  static constexpr int kFullRounds = 4;  // at least so many before anything is left

  struct Shared {
    int32_t slot;  // image * kMaxScans + scan
    bool is_active;
    ScanView view;
    uint16_t state[kThreads + 1];  // state at the start of each subsequence
    uint16_t todo[kThreads];       // numbers of the subsequences that must be decoded
    Decoding last[kThreads];       // the others stay in global memory, which leaves more of the L1 cache for the data
    uint32_t changed, pending;     // subsequences whose start state changed, and those of them that must be decoded
    uint32_t left_over;            // that many may stay pending
    int32_t longest;               // look-ups in the longest decoding of a round
  };

  // One CUDA block: every `grid`th sequence, which is kThreads subsequences of a scan.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    for (int32_t index = block.index; index < Total(Work::kSequences); index += grid) {
      FindSlot(block, Work::kSequences, index, &s.slot);
      const int image = s.slot / kMaxScans;
      const ScanTable& scan = tables[image].scan[s.slot % kMaxScans];
      const int32_t number = index - scan.sequence0;
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.is_active = Active(image);
        if (!s.is_active) return;
        Extent(image, scan, &s.view);
        // The scan may have fewer subsequences than were planned from its bytes with stuffing.
        s.is_active = number * kThreads < s.view.subsequences();
        s.left_over = s.is_active ? MaxLeftOver(scan) : 0;
        // In the second launch, a block goes on only if the block before ends in another state than the one from which
        // this block began, and if SyncScans does not do the rest.
        if (s.is_active && !is_first_launch)
          s.is_active = s.left_over == 0 && number > 0 &&
                        At<uint16_t>(scan.edge)[number - 1] != At<Decoding>(scan.last)[number * kThreads].entry;
      });
      if (!s.is_active) continue;
      Load(block, s.slot, &s.view);
      Settle(block, s, number, is_first_launch || number == 0 ? 0 : At<uint16_t>(scan.edge)[number - 1]);
    }
  }

 private:
  // Decodes the block's subsequences until each starts from the state in which the one before ends, or few are left,
  // and stores the decodings. Those that must be decoded again are gathered first, so that they fill whole warps. If
  // threads guess wrong for long, the same states recur, so a decoding from an earlier round is reused. `number`: the
  // block's number in the scan. `first`: the state from which it starts.
  template <class Block>
  JAXDALI_HD void Settle(const Block& block, Shared& s, int32_t number, uint16_t first) const {
    // One thread for each subsequence of the block.
    const int32_t base = number * kThreads, subsequences_left = s.view.subsequences() - base;
    const int n = subsequences_left < kThreads ? subsequences_left : kThreads;
    block.Phase([&](int thread) {
      constexpr Decoding kNone{/*entry=*/0xFFFF, 0, 0, 0, 0};  // no state has this value
      if (thread == 0) s.state[0] = first;
      if (thread >= n) return;
      s.last[thread] = is_first_launch ? kNone : At<Decoding>(s.view.scan.last)[base + thread];
      if (is_first_launch) At<Decoding>(s.view.scan.earlier)[base + thread] = kNone;
      s.state[thread + 1] = s.last[thread].exit;
    });
    for (int lookups = 0, round = 0;; round++) {
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.changed = s.pending = 0;
        s.longest = 0;
      });
      block.Phase([&](int thread) {
        if (thread >= n || s.state[thread] == s.last[thread].entry) return;
        Decoding& earlier = At<Decoding>(s.view.scan.earlier)[base + thread];
        // The earlier decoding may start from this state: then it is reused.
        const Decoding reused = earlier;
        earlier = s.last[thread];
        s.last[thread] = reused;
        AtomicAdd(&s.changed, 1);
        if (s.state[thread] != reused.entry) s.todo[AtomicAdd(&s.pending, 1)] = static_cast<uint16_t>(thread);
      });
      // Done: no start state has changed, or so few are pending that SyncScans does them.
      if (s.changed == 0 || (round >= kFullRounds && s.pending <= s.left_over)) break;
      if (lookups >= kMaxLookups) {
        block.Phase([&](int thread) {
          if (thread == 0) AtomicMax(&samples.status[s.slot / kMaxScans], kRefused);
        });
        break;
      }
      block.Phase([&](int thread) {
        if (thread >= static_cast<int>(s.pending)) return;
        const int k = s.todo[thread];
        AtomicMax(&s.longest, DecodeSubsequence<NoOutput>(s.view, base + k, s.state[k], &s.last[k]));
      });
      // Threads work side by side, so a round takes as long as its longest decoding.
      lookups += s.longest + kRoundLookups;
      block.Phase([&](int thread) {
        if (thread < n) s.state[thread + 1] = s.last[thread].exit;
      });
    }
    block.Phase([&](int thread) {
      if (thread == 0 && is_first_launch) At<uint16_t>(s.view.scan.edge)[number] = s.state[n];
      if (thread >= n) return;
      Decoding& last = At<Decoding>(s.view.scan.last)[base + thread];
      Decoding& earlier = At<Decoding>(s.view.scan.earlier)[base + thread];
      const bool is_left = s.state[thread] != s.last[thread].entry;  // then `earlier` is the newer one
      last = is_left ? earlier : s.last[thread];
      if (is_left) earlier = s.last[thread];
    });
  }
};

// Synchronises the rest, with one block per scan. A subsequence whose end state changed makes the next one follow, so
// there is a list of those to be decoded. Then it counts how many blocks of its segment end before each subsequence.
struct SyncScans : EntropyWork {
  static constexpr int kBlocksPerSm = 4;
  static constexpr int kListed = 1024;

  struct List {
    uint32_t count;
    int32_t longest;  // look-ups of the thread that needed most
    uint32_t subsequence[kListed];
    uint16_t entry[kListed];  // the state in which the one before ends

    JAXDALI_HD void Add(uint32_t number, uint16_t state) {
      const uint32_t i = AtomicAdd(&count, 1);
      subsequence[i] = number;
      entry[i] = state;
    }
  };
  struct Shared {
    int32_t slot;  // image * kMaxScans + scan
    bool is_active;
    ScanView view;
    List list[2];  // of this round and of the next one, which change places
    ScanRows<uint32_t> rows;
  };

  // One CUDA block: one scan. Lists subsequences and settles them, as many at a time as the list holds.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / kMaxScans;
    const ScanTable& scan = tables[image].scan[block.index % kMaxScans];
    block.Phase([&](int thread) {
      if (thread != 0) return;
      s.slot = block.index;
      s.list[0].count = 0;
      s.is_active = scan.sequences > 0 && Active(image);
      if (s.is_active) Extent(image, scan, &s.view);
    });
    if (!s.is_active) return;
    const int32_t n = s.view.subsequences();
    Decoding* last = At<Decoding>(scan.last);
    bool loaded = false;
    int lookups = 0;
    for (int32_t num_checked = 0; num_checked < n && lookups < kMaxLookups;) {
      uint32_t num_listed;
      // A subsequence is listed if it was decoded from another state than the one in which its predecessor ends.
      do {  // lists as many as fit
        block.Phase([&](int thread) {
          const int32_t k = num_checked + thread;
          if (k > 0 && k < n && last[k].entry != last[k - 1].exit)
            s.list[0].Add(static_cast<uint32_t>(k), last[k - 1].exit);
        });
        num_checked += kThreads;
        num_listed = s.list[0].count;
        block.Phase([](int) {});  // all threads have read the count
      } while (num_checked < n && num_listed <= kListed - kThreads);
      if (num_listed == 0) break;
      if (!loaded) Load(block, s.slot, &s.view);
      loaded = true;
      lookups = Settle(block, s, num_checked < n ? num_checked : n, lookups);
    }
    if (lookups >= kMaxLookups) {
      block.Phase([&](int thread) {
        if (thread == 0) AtomicMax(&samples.status[image], kRefused);
      });
      return;
    }
    // Each subsequence's count of blocks becomes the number of blocks of its segment before it.
    ScanAll(
        block, s.rows, n, [&](int i) { return last[i].blocks; }, AddCounts{},
        [&](int i, uint32_t before, uint32_t) { last[i].blocks = before & ~kSinceSegment; });
  }

 private:
  // Decodes the listed subsequences, and those that follow from them, until the list has none below `end`. Returns how
  // many look-ups came one after the other, including `lookups`.
  template <class Block>
  JAXDALI_HD int Settle(const Block& block, Shared& s, int32_t end, int lookups) const {
    Decoding *last = At<Decoding>(s.view.scan.last), *earlier = At<Decoding>(s.view.scan.earlier);
    for (int round = 0;; round++) {
      List &current = s.list[round % 2], &next = s.list[(round + 1) % 2];
      block.Phase([&](int thread) {
        if (thread != 0) return;
        next.count = 0;
        current.longest = 0;
      });
      const int count = static_cast<int>(current.count);
      if (count == 0 || lookups >= kMaxLookups) break;
      block.Phase([&](int thread) {
        int32_t num_lookups = 0;
        // A warp takes few of them, because its threads wait for the slowest one.
        for (int i = thread % 32 * (kThreads / 32) + thread / 32; i < count; i += kThreads) {
          const uint32_t k = current.subsequence[i];
          const uint16_t entry = current.entry[i];
          const Decoding previous = last[k];
          Decoding decoding = earlier[k];  // here, so that both are read at the same time
          if (previous.entry == entry) continue;
          if (decoding.entry != entry)
            num_lookups += DecodeSubsequence<NoOutputAlone>(s.view, static_cast<int32_t>(k), entry, &decoding);
          last[k] = decoding;
          earlier[k] = previous;
          if (decoding.exit != previous.exit && static_cast<int32_t>(k) + 1 < end) next.Add(k + 1, decoding.exit);
        }
        AtomicMax(&current.longest, num_lookups);
      });
      lookups += current.longest + kRoundLookups;
    }
    block.Phase([](int) {});  // all threads have read the lists
    return lookups;
  }
};

// The final decoding of a group, which writes coefficients. Each thread decodes a part of a subsequence: guesses need
// long subsequences, but here there are more threads to be had.
struct DecodeWrite : EntropyWork {
  int32_t group;  // number of the images' group that is decoded, see kGroupBytes

  static constexpr int kBlocksPerSm = 5;

  struct Shared {
    int32_t slot;  // image * kMaxScans + scan
    bool is_active;
    ScanView view;
    BlockPlace places[kMaxMcuBlocks];
  };

  // One CUDA block: every `grid`th piece of the group's work, which is kThreads parts of subsequences of a scan.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t first = GroupFirst(Work::kSequences, group) * kWriteParts;
    for (int32_t piece = first + block.index; piece < GroupFirst(Work::kSequences, group + 1) * kWriteParts;
         piece += grid) {
      FindSlot(block, Work::kSequences, piece / kWriteParts, &s.slot);
      const int image = s.slot / kMaxScans;
      const ScanTable& scan = tables[image].scan[s.slot % kMaxScans];
      const int32_t base = (piece - scan.sequence0 * kWriteParts) * kThreads;  // the first part
      block.Phase([&](int thread) {
        if (thread < scan.mcu_blocks)
          s.places[thread] =
              BlockPlace::Of(scan, tables[image].component[scan.block[thread].component], scan.block[thread]);
        if (thread != 0) return;
        s.is_active = Active(image);
        if (!s.is_active) return;
        Extent(image, scan, &s.view);
        s.is_active = base < s.view.subsequences() * kWriteParts;
      });
      if (!s.is_active) continue;
      Load(block, s.slot, &s.view);
      block.Phase([&](int thread) {
        const int32_t number = (base + thread) / kWriteParts, part = (base + thread) % kWriteParts;
        if (number >= s.view.subsequences()) return;
        const Decoding* last = At<Decoding>(scan.last) + number;
        // The induction's step: the subsequence before ends in the state from which this one's blocks were counted.
        const uint16_t entry = number ? last[-1].exit : 0;
        bool is_good = entry == last->entry;
        if (is_good) {
          Output out{};
          out.scan = &s.view.scan;
          out.places = s.places;
          out.workspace = workspace;
          out.block = last->blocks;
          // The second part begins in the middle, after the blocks that end before it.
          if (part > 0) out.block = AddCounts{}(out.block, last->middle_blocks) & ~kSinceSegment;
          int32_t lookups = 0;
          DecodePart(s.view, base + thread, part > 0 ? static_cast<uint16_t>(last->middle) : entry, &out, &lookups);
          is_good = !out.has_error;
        }
        if (!is_good) AtomicMax(&samples.status[image], kRefused);
      });
    }
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_ENTROPY_H_
