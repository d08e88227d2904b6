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
#include "ffi/common/words.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"

namespace jaxdali::jpeg {

static_assert(kBlockSubsequences == kThreads);

// A block of subsequences needs as many as it has at most, since each round settles at least one more. (Measured:
// photos need 53, noise of high quality, whose blocks rarely end early, up to 236.) The limit is for scans with many
// such blocks one after the other: until then it is milliseconds, while for a refused image the whole batch is made
// again.
inline constexpr int kMaxRounds = 4 * kThreads;

// A scan as the threads of a block see it, in shared memory: divergent reads are fast there.
struct ScanView {
  ScanTable scan;
  Lookup lookup[kMaxTables];
  const uint32_t* words;
  const uint32_t* segment_end;
  uint32_t bits, subsequence_bits;

  JAXDALI_HD int32_t subsequences() const {
    return static_cast<int32_t>((bits + subsequence_bits - 1) / subsequence_bits);
  }
};

// The state in which a subsequence is entered: how far the last symbol of the one before reaches into it (0 to 30), the
// zigzag index of the next coefficient (0 to 63), the block's index within the period of the MCU's tables (0 to 9).
JAXDALI_HD inline uint16_t PackState(uint32_t overhang, int index, int block) {
  return static_cast<uint16_t>(overhang | static_cast<uint32_t>(index) << 5 | static_cast<uint32_t>(block) << 11);
}

// Two words of the data at a time. Words past the end are zeros.
class BitReader {
 public:
  JAXDALI_HD BitReader(const uint32_t* words, uint32_t bits)
      : words_(words), count_((bits + 31) >> 5), tail_(bits & 31), at_(0xFFFFFFF0u), first_(0), second_(0) {}

  JAXDALI_HD uint32_t Peek(uint32_t bit) {
    const uint32_t i = bit >> 5;
    if (i != at_) {
      first_ = i == at_ + 1 ? second_ : Load(i);
      second_ = Load(i + 1);
      at_ = i;
    }
    return FunnelLeft(first_, second_, bit & 31);
  }

 private:
  JAXDALI_HD uint32_t Load(uint32_t i) const {
    if (i >= count_) return 0;
    const uint32_t word = BigEndian(ReadWord(reinterpret_cast<const uint8_t*>(words_ + i)));
    return i == count_ - 1 && tail_ ? word & ~(0xFFFFFFFFu >> tail_) : word;  // what comes after was never written
  }

  const uint32_t* words_;
  uint32_t count_, tail_, at_, first_, second_;
};

// The first segment that ends after `bit`; `n`: none.
JAXDALI_HD inline int32_t FindSegment(const uint32_t* segment_end, int32_t n, uint32_t bit) {
  int32_t low = 0, high = n;
  while (low < high) {
    const int32_t middle = (low + high) >> 1;
    if (segment_end[middle] > bit)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

struct Decoded {
  uint16_t state;  // in which the subsequence is left
  uint32_t count;  // blocks that ended in it; with kSinceSegment: after the last beginning of a segment in it
};
inline constexpr uint32_t kSinceSegment = 1u << 31;

struct AddCounts {
  JAXDALI_HD uint32_t operator()(uint32_t a, uint32_t b) const {
    return b & kSinceSegment ? b : ((a & ~kSinceSegment) + b) | (a & kSinceSegment);
  }
};

// Where decoded values go: nowhere, when it is only about the state.
struct NoOutput {
  static constexpr bool kWrites = false;
};

// Into the arrays of coefficients and DC values.
struct Output {
  static constexpr bool kWrites = true;
  const ScanTable* scan;
  const Component* component;  // of the image
  const uint8_t* order;        // where in a block the coefficients of the zigzag order are
  uint8_t* workspace;
  uint32_t block, limit;  // the block within the segment, and how many of it the region needs
  bool bad;

  // The block's place: of the MCU, within it, of its DC value.
  int32_t mcu_x, mcu_y, part;
  int16_t* dc;
  int16_t* coefficients;  // null: the region does not need the block

  JAXDALI_HD void EnterSegment(int32_t segment) {
    const int32_t first = segment * scan->restart_interval, left = scan->needed_mcus - first;
    const int32_t mcus = left < scan->restart_interval ? left : scan->restart_interval;
    limit = mcus > 0 ? static_cast<uint32_t>(mcus * scan->mcu_blocks) : 0;
    if (block >= limit) return;
    const int32_t mcu = first + static_cast<int32_t>(block) / scan->mcu_blocks;
    part = static_cast<int32_t>(block) % scan->mcu_blocks;
    mcu_x = mcu % scan->mcu_columns;
    mcu_y = mcu / scan->mcu_columns;
    dc = reinterpret_cast<int16_t*>(workspace + scan->dc * kPlaceUnit) + int64_t{first} * scan->mcu_blocks + block;
    Locate();
  }

  JAXDALI_HD void NextBlock() {
    if (++block >= limit) return;
    dc++;
    if (++part == scan->mcu_blocks) {
      part = 0;
      if (++mcu_x == scan->mcu_columns) mcu_x = 0, mcu_y++;
    }
    Locate();
  }

 private:
  JAXDALI_HD void Locate() {
    const McuBlock& b = scan->block[part];
    const Component& c = component[b.component];
    const bool alone = scan->components == 1;
    const int32_t x = mcu_x * (alone ? 1 : c.h) + b.dx - c.x0, y = mcu_y * (alone ? 1 : c.v) + b.dy - c.y0;
    const bool needed = x >= 0 && x < c.x1 - c.x0 && y >= 0 && y < c.y1 - c.y0;
    coefficients = needed ? reinterpret_cast<int16_t*>(workspace + c.coefficients * kPlaceUnit) +
                                (static_cast<int64_t>(y) * c.columns() + x) * 64
                          : nullptr;
  }
};

// Decodes the symbols that begin in a subsequence.
template <class Out>
JAXDALI_HD Decoded DecodeSubsequence(const ScanView& v, int32_t number, uint16_t entry, Out* out) {
  const ScanTable& scan = v.scan;
  const uint32_t start = static_cast<uint32_t>(number) * v.subsequence_bits, stop = start + v.subsequence_bits;
  const uint32_t end = stop < v.bits ? stop : v.bits;
  uint32_t at = start + (entry & 31), count = 0, since = 0;
  int index = entry >> 5 & 63, part = entry >> 11;  // of the coefficient in the block, of the block in the period
  if (part >= scan.period) part = 0;
  // Not to be searched for at the beginning: the first segment may be empty.
  int32_t segment = scan.segments == 1 || number == 0 ? 0 : FindSegment(v.segment_end, scan.segments, at);
  if (segment >= scan.segments || at >= end) return {PackState(at > stop ? at - stop : 0, index, part), 0};
  uint32_t segment_end = v.segment_end[segment];
  if constexpr (Out::kWrites) out->EnterSegment(segment);
  BitReader reader(v.words, v.bits);
  McuBlock now = scan.block[part];
  while (at < end) {
    bool idle = false;
    if constexpr (Out::kWrites) idle = out->block >= out->limit;
    if (idle) {
      at = segment_end;  // padding, or what nothing asks for
    } else {
      const uint32_t window = reader.Peek(at);
      const uint32_t symbol = v.lookup[index ? now.ac : now.dc].Read(window);
      const uint32_t length = symbol ? symbol & 31 : 1;
      const int advance = symbol ? static_cast<int>(symbol >> 9) : 65;
      if (at + length > segment_end) {
        at = segment_end;  // a symbol never straddles segments: this is padding
      } else {
        if constexpr (Out::kWrites) {
          const int size = static_cast<int>(symbol >> 5 & 15), place = index + advance - 1;
          const uint32_t magnitude = size ? (window << (length - size)) >> (32 - size) : 0;
          // Coefficients past the last one, which libjpeg drops without a word, are refused as well.
          if (symbol == 0 || (place > 63 && advance != kEndOfBlock))
            out->bad = true;
          else if (index == 0)
            *out->dc = static_cast<int16_t>(Extend(magnitude, size));
          else if (size && out->coefficients)
            out->coefficients[out->order[place]] = static_cast<int16_t>(Extend(magnitude, size));
        }
        at += length;
        index += advance;
        if (index >= 64) {
          // With no such code, or coefficients past the last one, the guess was wrong: "here an MCU begins" is the
          // next guess, which synchronises soonest.
          part = (index > 64 && index < kEndOfBlock) || part + 1 == scan.period ? 0 : part + 1;
          index = 0;
          now = scan.block[part];
          count++;
          if constexpr (Out::kWrites) out->NextBlock();
        }
      }
    }
    if (at >= segment_end) {  // the next segment starts afresh
      if constexpr (Out::kWrites) {
        if (out->block < out->limit) out->bad = true;  // it ended early
        out->block = 0;
      }
      index = part = 0;
      count = 0;
      since = kSinceSegment;
      if (++segment >= scan.segments) return {PackState(0, 0, 0), since};
      segment_end = v.segment_end[segment];
      if (segment_end <= at) {  // an empty one, of what may be millions
        if constexpr (Out::kWrites) out->bad = true;
        segment = FindSegment(v.segment_end, scan.segments, at);
        if (segment >= scan.segments) return {PackState(0, 0, 0), since};
        segment_end = v.segment_end[segment];
      }
      if constexpr (Out::kWrites) out->EnterSegment(segment);
      now = scan.block[0];
    }
  }
  return {PackState(at > stop ? at - stop : 0, index, part), count | since};
}

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
