// Removes stuffed zeros and markers from entropy-coded data, in chunks (T.81, B.1.1.5). Three launches: UnstuffCount
// for each chunk, UnstuffPrefix over the chunks of a scan, UnstuffWrite for each chunk.
//
// The meaning of a byte depends only on its two neighbours. It is data if it is not FF and does not follow FF, or if it
// is FF and 00 follows. A scan ends at the first marker other than RST; after the file's last scan this must be EOI.
// Segments end where restart markers were. FF FF 00 counts as a marker and is therefore refused: FF before data is not
// a fill byte, and libjpeg-turbo, which decodes such an MCU twice, mixes the results.
#ifndef JAXDALI_FFI_CUDA_JPEG_UNSTUFF_H_
#define JAXDALI_FFI_CUDA_JPEG_UNSTUFF_H_

#include <cstdint>

#include "ffi/common/batch.h"
#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/cuda_jpeg/words.h"

namespace jaxdali::jpeg {

static_assert(kChunkBytes == kThreads * kLoadBytes && kLoadBytes == 16);

// Bit i: byte i of a word is 0.
JAXDALI_HD inline uint32_t ZeroBytes(uint32_t word) {
  // A byte is 0 if neither its lower seven bits, which the addition carries into the highest one, nor that bit are set.
  const uint32_t high = ~(((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word | 0x7F7F7F7F);  // the highest bit of each such byte
  // The multiplication gathers bits 0, 8, 16 and 24 in the highest byte.
  return (high >> 7) * 0x01020408 >> 24 & 15;
}

// Sixteen bytes of a scan and their kinds. Bit i stands for byte i.
struct Sixteen {
  Words4 bytes;
  uint32_t data;     // bytes that are kept
  uint32_t restart;  // the code of a restart marker
  uint32_t marker;   // the code of another marker

  // Number of data bytes; the upper half counts restart markers.
  JAXDALI_HD uint32_t Counts() const { return static_cast<uint32_t>(CountBits(data) | CountBits(restart) << 16); }

  JAXDALI_HD uint32_t byte(int i) const { return bytes.word[i >> 2] >> (8 * (i & 3)) & 255; }

  // Loads the bytes at `offset`, a multiple of 16. Only [begin, end) count, and the byte at `begin` never counts as
  // following FF.
  JAXDALI_HD static Sixteen Load(const uint8_t* file, int32_t begin, int32_t end, int32_t offset) {
    Sixteen s;
    if (offset + kLoadBytes <= end) {
      s.bytes = Load4(file + offset);
    } else {
      s.bytes = {};
      for (int i = 0; i < kLoadBytes; i++)
        if (offset + i < end) s.bytes.word[i >> 2] |= static_cast<uint32_t>(file[offset + i]) << (8 * (i & 3));
    }
    // Masks of the bytes FF, 00 and D0 to D7.
    uint32_t ff = 0, zero = 0, rst = 0;
    for (int i = 0; i < 4; i++) {
      const uint32_t word = s.bytes.word[i];
      ff |= ZeroBytes(~word) << (4 * i);
      zero |= ZeroBytes(word) << (4 * i);
      rst |= ZeroBytes((word & 0xF8F8F8F8) ^ 0xD0D0D0D0) << (4 * i);
    }
    uint32_t in_range = 0xFFFF;
    if (begin > offset) in_range &= begin - offset < kLoadBytes ? 0xFFFFu << (begin - offset) : 0;
    if (end < offset + kLoadBytes) in_range &= end > offset ? 0xFFFFu >> (offset + kLoadBytes - end) : 0;
    ff &= in_range;
    zero &= in_range;
    const uint32_t follows_ff = offset > begin && offset <= end && file[offset - 1] == 0xFF;
    const uint32_t zero_after = offset + kLoadBytes < end && file[offset + kLoadBytes] == 0;
    const uint32_t after_ff = (ff << 1 | follows_ff) & in_range;
    // FF that 00 follows is data; that 00 is not.
    const uint32_t stuffed = ff & (zero >> 1 | zero_after << (kLoadBytes - 1));
    s.data = (in_range & ~ff & ~after_ff) | (stuffed & ~after_ff);
    s.restart = after_ff & rst;
    s.marker = after_ff & ((~zero & ~ff & ~rst) | stuffed);
    return s;
  }

  // Keeps only the bytes before `end`. The sixteen bytes begin at `offset`.
  JAXDALI_HD void Cut(int32_t offset, uint32_t end) {
    const uint32_t start = static_cast<uint32_t>(offset);
    const uint32_t mask = end >= start + kLoadBytes ? 0xFFFF : end > start ? (1u << (end - start)) - 1 : 0;
    data &= mask;
    restart &= mask;
  }
};

struct UnstuffWork : Shard {
  Batch in;
  int32_t grid;  // blocks of the launch

  // The chunk that a block works on.
  struct Chunk {
    int32_t slot;  // image * kMaxScans + scan
    bool is_active;
    const uint8_t* file;
    const ScanTable* scan;
    ScanExtent* extent;
    int32_t number;  // in the scan
    int32_t offset;  // in the file

    // The place in the file of the sixteen bytes of a thread, and these bytes.
    JAXDALI_HD int32_t Place(int thread) const { return offset + thread * kLoadBytes; }
    JAXDALI_HD Sixteen Load(int thread) const { return Sixteen::Load(file, scan->begin, scan->end, Place(thread)); }
  };

  // Two phases that describe chunk number `index` of the shard.
  template <class Block>
  JAXDALI_HD void FindChunk(const Block& block, int32_t index, Chunk* c) const {
    FindSlot(block, Work::kChunks, index, &c->slot);
    block.Phase([&](int thread) {
      if (thread != 0) return;
      const int image = c->slot / kMaxScans;
      c->is_active = Active(image);
      c->file = in.sample<const uint8_t>(image);
      c->scan = &tables[image].scan[c->slot % kMaxScans];
      c->extent = At<ScanExtent>(c->scan->extent);
      c->number = index - c->scan->chunk0;
      c->offset = (c->scan->begin & ~(kLoadBytes - 1)) + c->number * kChunkBytes;
    });
  }
};

// Counts a chunk's data bytes and restart markers, and finds the first other marker.
struct UnstuffCount : UnstuffWork {
  struct Shared {
    Chunk chunk;
    uint32_t marker;         // offset in the file of the chunk's first marker other than RST; kNoMarker: none
    uint32_t row[kThreads];  // counts as of Counts(); before that the bits of the kinds
  };

  // One CUDA block: every `grid`th chunk. A thread classifies sixteen bytes. Then only bytes before the marker count.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = Total(Work::kChunks);
    for (int32_t index = block.index; index < total; index += grid) {
      FindChunk(block, index, &s.chunk);
      if (!s.chunk.is_active) continue;
      block.Phase([&](int thread) {
        if (thread == 0) s.marker = kNoMarker;
      });
      block.Phase([&](int thread) {
        const Sixteen bytes = s.chunk.Load(thread);
        s.row[thread] = bytes.data | bytes.restart << 16;
        if (bytes.marker) AtomicMin(&s.marker, static_cast<uint32_t>(s.chunk.Place(thread) + LowestBit(bytes.marker)));
      });
      block.Phase([&](int thread) {
        Sixteen bytes;
        bytes.data = s.row[thread] & 0xFFFF;
        bytes.restart = s.row[thread] >> 16;
        bytes.Cut(s.chunk.Place(thread), s.marker);
        s.row[thread] = bytes.Counts();
      });
      ScanBlock(block, s.row, [](uint32_t a, uint32_t b) { return a + b; });
      block.Phase([&](int thread) {
        if (thread != 0) return;
        At<uint32_t>(s.chunk.scan->chunk_kept)[s.chunk.number] = s.row[kThreads - 1] & 0xFFFF;
        At<uint32_t>(s.chunk.scan->chunk_marks)[s.chunk.number] = s.row[kThreads - 1] >> 16;
        if (s.marker != kNoMarker) AtomicMin(&s.chunk.extent->marker, s.marker);
      });
    }
  }
};

// Turns the counts of a scan's chunks into the sums before each, and checks the scan's end; one block per scan.
struct UnstuffPrefix : UnstuffWork {
  struct Shared {
    bool is_active;
    ScanRows<uint64_t> rows;  // counts of data bytes and, in the upper half, restart markers
  };

  // One CUDA block: one scan. Chunks after the marker that ends the scan count as empty.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / kMaxScans;
    const ScanTable& scan = tables[image].scan[block.index % kMaxScans];
    block.Phase([&](int thread) {
      if (thread == 0) s.is_active = scan.chunks > 0 && Active(image);
    });
    if (!s.is_active) return;
    ScanExtent* extent = At<ScanExtent>(scan.extent);
    uint32_t* kept = At<uint32_t>(scan.chunk_kept);
    uint32_t* marks = At<uint32_t>(scan.chunk_marks);
    const uint32_t marker = extent->marker, first_offset = static_cast<uint32_t>(scan.begin & ~(kLoadBytes - 1));
    ScanAll(
        block, s.rows, scan.chunks,
        [&](int i) {
          const bool is_before_marker = first_offset + static_cast<uint32_t>(i) * kChunkBytes < marker;
          return is_before_marker ? static_cast<uint64_t>(marks[i]) << 32 | kept[i] : 0;
        },
        [](uint64_t a, uint64_t b) { return a + b; },
        [&](int i, uint64_t exclusive_sum, uint64_t) {
          kept[i] = static_cast<uint32_t>(exclusive_sum);
          marks[i] = static_cast<uint32_t>(exclusive_sum >> 32);
        });
    block.Phase([&](int thread) {
      if (thread != 0) return;
      const uint32_t bits = static_cast<uint32_t>(s.rows.carry) * 8;
      extent->bits = bits;
      At<uint32_t>(scan.segment_end)[scan.segments - 1] = bits;
      // A scan has data, and a restart marker between each two segments.
      bool is_good = bits > 0 && s.rows.carry >> 32 == static_cast<uint64_t>(scan.segments - 1);
      // Without EOI (D9) the file may be truncated. The CPU's decoder finds out.
      if (scan.is_last)
        is_good =
            is_good && marker < static_cast<uint32_t>(scan.end) && in.sample<const uint8_t>(image)[marker] == 0xD9;
      if (!is_good) AtomicMax(&samples.status[image], kRefused);
    });
  }
};

// Copies data bytes to their places, and notes where segments end.
struct UnstuffWrite : UnstuffWork {
  struct Shared {
    Chunk chunk;
    uint32_t row[kThreads];               // counts of data bytes and, in the upper half, restart markers
    uint32_t words[kChunkBytes / 4 + 1];  // the chunk's data, aligned as in the words of the result
  };

  // One CUDA block: every `grid`th chunk. Threads count their data bytes, so each knows where its bytes begin among the
  // chunk's. They copy them to shared memory, and from there the block stores words.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t total = Total(Work::kChunks);
    for (int32_t index = block.index; index < total; index += grid) {
      FindChunk(block, index, &s.chunk);
      if (!s.chunk.is_active) continue;
      const ScanTable& scan = *s.chunk.scan;
      const uint32_t marker = s.chunk.extent->marker, bytes_before = At<uint32_t>(scan.chunk_kept)[s.chunk.number];
      block.Phase([&](int thread) {
        Sixteen bytes = s.chunk.Load(thread);
        bytes.Cut(s.chunk.Place(thread), marker);
        s.row[thread] = bytes.Counts();
      });
      ScanBlock(block, s.row, [](uint32_t a, uint32_t b) { return a + b; });
      uint8_t* staged = reinterpret_cast<uint8_t*>(s.words);
      block.Phase([&](int thread) {
        Sixteen bytes = s.chunk.Load(thread);
        bytes.Cut(s.chunk.Place(thread), marker);
        const uint32_t counts_before = thread ? s.row[thread - 1] : 0;
        // The first word of the result may begin with up to three bytes of the chunk before.
        uint32_t staged_size = (bytes_before & 3) + (counts_before & 0xFFFF);
        uint32_t restart_number = At<uint32_t>(scan.chunk_marks)[s.chunk.number] + (counts_before >> 16);
        for (int i = 0; i < kLoadBytes; i++) {
          if (bytes.data >> i & 1) staged[staged_size++] = static_cast<uint8_t>(bytes.byte(i));
          if (bytes.restart >> i & 1) {
            if (restart_number < static_cast<uint32_t>(scan.segments - 1))
              At<uint32_t>(scan.segment_end)[restart_number] = ((bytes_before & ~3u) + staged_size) * 8;
            // RST0 to RST7 must come in turn.
            if ((bytes.byte(i) & 7) != (restart_number & 7))
              AtomicMax(&samples.status[s.chunk.slot / kMaxScans], kRefused);
            restart_number++;
          }
        }
      });
      // Words of the result that two chunks share are written byte by byte.
      block.Phase([&](int thread) {
        const int begin = static_cast<int>(bytes_before & 3),
                  end = begin + static_cast<int>(s.row[kThreads - 1] & 0xFFFF);
        uint32_t* to = At<uint32_t>(scan.words) + (bytes_before >> 2);
        for (int w = thread; 4 * w < end; w += kThreads) {
          if (4 * w >= begin && 4 * w + 4 <= end) {
            to[w] = s.words[w];
          } else {
            for (int i = 4 * w; i < 4 * w + 4; i++)
              if (i >= begin && i < end) reinterpret_cast<uint8_t*>(to)[i] = staged[i];
          }
        }
      });
    }
  }
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_UNSTUFF_H_
