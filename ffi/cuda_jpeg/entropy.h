// Decoding entropy-coded data in parallel. The bits of a scan are cut into subsequences of the same length; the thread
// in whose subsequence a symbol begins decodes it. Where the first one begins, and in which state, a thread does not
// know, so it guesses, and decodes again from the state in which the subsequence before leaves, until nothing changes:
// Huffman codes synchronise by themselves, mostly after a few dozen symbols. (A. Weissenberger, B. Schmidt,
// "Accelerating JPEG Decompression on GPUs", HiPC 2021.)
//
// Nothing relies on that they do. The decoding that writes starts from the state `used` that a subsequence's count was
// made from, and demands that the one before leaves in it: by induction the result is that of one thread alone. What
// does not synchronise within kMaxRounds is refused, as is every error in the data.
#ifndef JAXDALI_FFI_JPEG_ENTROPY_H_
#define JAXDALI_FFI_JPEG_ENTROPY_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/subsequence.h"

namespace jaxdali::jpeg {

static_assert(kBlockSubsequences == kThreads);

// A block of subsequences needs as many as it has at most, since each round settles at least one more. (Measured:
// photos need 53, noise of high quality, whose blocks rarely end early, up to 236.) The limit is for scans with many
// such blocks one after the other: until then it is milliseconds, while for a refused image the whole batch is made
// again.
inline constexpr int kMaxRounds = 4 * kThreads;

// Finding the part of the work that is a block's, and loading what its threads read all the time.
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
    const ImageTable& image = tables[slot / 3];
    block.Phase([&](int thread) {
      CopyWords(thread, &image.scan[slot % 3], 1, &v->scan);
      CopyWords(thread, At<Lookup>(image.lookup), image.tables, v->lookup);
    });
  }
};

struct SyncShared {
  int32_t slot;
  bool runs;
  ScanView view;
  uint16_t state[kThreads + 1];  // in which each subsequence is entered
  uint16_t used[kThreads];       // what it was decoded from
  uint16_t next[kThreads];
  uint16_t todo[kThreads];
  uint32_t pending;
};

struct SyncWork : EntropyWork {
  // Decodes a block's subsequences until each starts from the state in which the one before leaves. Those that are to
  // be decoded again are gathered first, so that they fill whole warps. `number`: of the block within the scan;
  // `fresh`: nothing is known of them yet. Returns the number of rounds.
  template <class Block>
  JAXDALI_HD int Settle(const Block& block, SyncShared& s, int32_t number, uint16_t first, bool fresh,
                        int rounds) const {
    const int32_t base = number * kThreads, all = s.view.subsequences();
    const ScanTable& scan = s.view.scan;
    uint16_t *states = At<uint16_t>(scan.state) + base, *used = At<uint16_t>(scan.used) + base;
    uint32_t* counts = At<uint32_t>(scan.count) + base;
    block.Phase([&](int thread) {
      const bool known = !fresh && base + thread < all;
      s.state[thread + 1] = known ? states[thread] : 0;
      s.used[thread] = known ? used[thread] : 0;
      if (thread == 0) s.state[0] = first;
    });
    for (int round = 0;; round++) {
      block.Phase([&](int thread) {
        if (thread == 0) s.pending = 0;
      });
      block.Phase([&](int thread) {
        if (base + thread < all && ((fresh && round == 0) || s.state[thread] != s.used[thread]))
          s.todo[AtomicAdd(&s.pending, 1)] = static_cast<uint16_t>(thread);
      });
      const uint32_t pending = s.pending;
      if (pending == 0) break;
      if (rounds == kMaxRounds) {
        block.Phase([&](int thread) {
          if (thread == 0) AtomicMax(&samples.status[s.slot / 3], kRefused);
        });
        break;
      }
      rounds++;
      block.Phase([&](int thread) {
        if (thread >= static_cast<int>(pending)) return;
        const int k = s.todo[thread];
        const Decoded d = DecodeSubsequence(s.view, base + k, s.state[k], static_cast<NoOutput*>(nullptr));
        counts[k] = d.count;
        s.used[k] = s.state[k];
        s.next[thread] = d.state;
      });
      block.Phase([&](int thread) {
        if (thread < static_cast<int>(pending)) s.state[s.todo[thread] + 1] = s.next[thread];
      });
    }
    block.Phase([&](int thread) {
      if (base + thread < all) {
        states[thread] = s.state[thread + 1];
        used[thread] = s.used[thread];
      }
      if (thread == 0 && fresh)
        At<uint16_t>(scan.edge)[number] = s.state[all - base < kThreads ? all - base : kThreads];
    });
    return rounds;
  }
};

// Synchronises each block of subsequences on its own; in a second launch with the state in which the block before
// leaves.
struct SyncBlocks : SyncWork {
  bool fresh;  // the first launch

  using Shared = SyncShared;

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = Total(Work::kSequences);
    for (int32_t index = block.index; index < total; index += grid) {
      FindSlot(block, Work::kSequences, index, &s.slot);
      const int image = s.slot / 3;
      const ScanTable& scan = tables[image].scan[s.slot % 3];
      const int32_t number = index - scan.sequence0;
      block.Phase([&](int thread) {
        if (thread != 0) return;
        s.runs = Active(image);
        if (!s.runs) return;
        Extent(image, scan, &s.view);
        s.runs = number * kThreads < s.view.subsequences();
        if (s.runs && !fresh)  // something new from the left
          s.runs = number > 0 && At<uint16_t>(scan.edge)[number - 1] != At<uint16_t>(scan.used)[number * kThreads];
      });
      if (!s.runs) continue;
      Load(block, s.slot, &s.view);
      Settle(block, s, number, fresh || number == 0 ? 0 : At<uint16_t>(scan.edge)[number - 1], fresh, 0);
    }
  }
};

// What is left: a block for each scan goes through its blocks of subsequences in order. Mostly there is nothing to do.
struct SyncRest : SyncWork {
  using Shared = SyncShared;

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / 3;
    const ScanTable& scan = tables[image].scan[block.index % 3];
    block.Phase([&](int thread) {
      if (thread != 0) return;
      s.slot = block.index;
      s.pending = 0;
      s.runs = scan.sequences > 0 && Active(image);
      if (s.runs) Extent(image, scan, &s.view);
    });
    if (!s.runs) return;
    const int32_t n = (s.view.subsequences() + kThreads - 1) / kThreads;
    const uint16_t *states = At<uint16_t>(scan.state), *used = At<uint16_t>(scan.used);
    block.Phase([&](int thread) {
      for (int32_t b = 1 + thread; b < n; b += kThreads)
        if (states[b * kThreads - 1] != used[b * kThreads]) s.pending = 1;
    });
    if (!s.pending) return;
    Load(block, s.slot, &s.view);
    for (int32_t b = 1, rounds = 0; b < n; b++)
      if (states[b * kThreads - 1] != used[b * kThreads])
        rounds = Settle(block, s, b, states[b * kThreads - 1], false, rounds);
  }
};

// How many blocks of its segment have ended before each subsequence; a block for each scan.
struct CountPrefix : EntropyWork {
  struct Shared {
    bool runs;
    uint32_t bits;
    ScanRows<uint32_t> rows;
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / 3;
    const ScanTable& scan = tables[image].scan[block.index % 3];
    block.Phase([&](int thread) {
      if (thread != 0) return;
      s.runs = scan.sequences > 0 && Active(image);
      if (s.runs) s.bits = At<ScanExtent>(scan.extent)->bits;
    });
    if (!s.runs) return;
    const uint32_t each = static_cast<uint32_t>(tables[image].subsequence_bits);
    uint32_t* counts = At<uint32_t>(scan.count);
    ScanAll(
        block, s.rows, static_cast<int>((s.bits + each - 1) / each), [&](int i) { return counts[i]; }, AddCounts{},
        [&](int i, uint32_t before, uint32_t) { counts[i] = before & ~kSinceSegment; });
  }
};

// The decoding that counts.
struct DecodeWrite : EntropyWork {
  struct Shared {
    int32_t slot;
    bool runs;
    ScanView view;
    Component component[kMaxComponents];
    uint8_t order[64];
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = Total(Work::kSequences);
    for (int32_t index = block.index; index < total; index += grid) {
      FindSlot(block, Work::kSequences, index, &s.slot);
      const int image = s.slot / 3;
      const ScanTable& scan = tables[image].scan[s.slot % 3];
      const int32_t base = (index - scan.sequence0) * kThreads;
      block.Phase([&](int thread) {
        CopyWords(thread, tables[image].component, kMaxComponents, s.component);
        if (thread < 64) s.order[thread] = ColumnOrder(thread);
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
        const uint16_t entry = number ? At<uint16_t>(scan.state)[number - 1] : 0;
        bool good = entry == At<uint16_t>(scan.used)[number];
        if (good) {
          Output out{};
          out.scan = &s.view.scan;
          out.component = s.component;
          out.order = s.order;
          out.workspace = workspace;
          out.block = At<uint32_t>(scan.count)[number];
          DecodeSubsequence(s.view, number, entry, &out);
          good = !out.bad;
        }
        if (!good) AtomicMax(&samples.status[image], kRefused);
      });
    }
  }
};

// DC values from their differences, a block for each component of an image. Sums are taken modulo 2^16.
struct DcPrefix : Shard {
  struct Shared {
    bool runs;
    ScanRows<uint32_t> rows;
  };
  static constexpr uint32_t kReset = 1u << 31;  // a segment has begun

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const ImageTable& image = tables[block.index / 3];
    const int c = block.index % 3;
    block.Phase([&](int thread) {
      if (thread == 0) s.runs = c < image.components && Active(block.index / 3);
    });
    if (!s.runs) return;
    const Component& component = image.component[c];
    const ScanTable& scan = image.scan[component.scan];
    const int each = scan.components == 1 ? 1 : component.h * component.v;  // blocks of an MCU
    int16_t* dc = At<int16_t>(scan.dc) + component.first_mcu_block;
    auto value = [&](int i) -> int16_t& { return dc[static_cast<int64_t>(i / each) * scan.mcu_blocks + i % each]; };
    ScanAll(
        block, s.rows, scan.needed_mcus * each,
        [&](int i) {
          const bool resets = i % each == 0 && i / each % scan.restart_interval == 0;
          return static_cast<uint16_t>(value(i)) | (resets ? kReset : 0);
        },
        [](uint32_t a, uint32_t b) { return b & kReset ? b : ((a + b) & 0xFFFF) | (a & kReset); },
        [&](int i, uint32_t, uint32_t with) { value(i) = static_cast<int16_t>(with & 0xFFFF); });
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_ENTROPY_H_
