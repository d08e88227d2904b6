// The coefficients of a progressive file in a compact form. Its scans refine one another, so threads can't decode them
// in parallel: the host decodes them, and the kernels do the rest.
//
// For each component the data have an array of CompactBlock, of the blocks that the region needs, in raster order. Then
// comes a u32 for each unit of kIdctBlocks blocks: the place of the first one's values. The values of all blocks
// follow: those of the nonzero coefficients, without DC, the last one in zigzag order first. They take one byte each,
// or two if the block is wide. Written by compact.cc on the host, read by IdctKernel (raster.h).
#ifndef JAXDALI_FFI_CUDA_JPEG_COMPACT_H_
#define JAXDALI_FFI_CUDA_JPEG_COMPACT_H_

#include <cstdint>
#include <memory>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/cuda_jpeg/words.h"
#include "ffi/decode/decode.h"

namespace jaxdali::jpeg {

struct CompactBlock {
  // A mask of the nonzero coefficients in zigzag order, the first one uppermost. The bit for DC says that the block is
  // wide.
  uint32_t present_high, present_low;
  int16_t dc;
  uint16_t values;  // their place, counted from that of the unit's first block

  JAXDALI_HD uint64_t present() const { return uint64_t{present_high} << 32 | present_low; }
};
static_assert(sizeof(CompactBlock) == 12);
inline constexpr uint64_t kWide = uint64_t{1} << 63;
static_assert(kIdctBlocks * 63 * sizeof(int16_t) < 1 << 16, "places of values have 16 bits");

// Bytes of a component's blocks and units.
JAXDALI_HD inline int64_t CompactBytes(const Component& c) {
  return int64_t{c.blocks()} * static_cast<int64_t>(sizeof(CompactBlock)) + c.idct_blocks() * int64_t{4};
}

// Bytes of a block's values. The bit for DC has no value.
JAXDALI_HD inline int ValueBytes(uint64_t present) {
  const int count =
      CountBits(static_cast<uint32_t>((present & ~kWide) >> 32)) + CountBits(static_cast<uint32_t>(present));
  return present & kWide ? 2 * count : count;
}

// The eight coefficients of a column of a block, without DC, two in a word. `present`: the block's mask, see
// CompactBlock. `zigzag`: the indices of the column's coefficients in zigzag order.
JAXDALI_HD inline Words4 ExpandColumn(uint64_t present, const uint8_t* values, const uint8_t* zigzag) {
  const bool wide = present & kWide;
  present &= ~kWide;
  Words4 column{};
  for (int y = 0; y < 8; y++) {
    const int k = zigzag[y];
    // Bit 63 - k stands for coefficient k. kWide, the highest bit, is only a mask here.
    if ((present << k & kWide) == 0) continue;
    // Values are stored from the last one on, so those of later coefficients come first.
    const int offset = ValueBytes(present & ((kWide >> k) - 1));
    const int32_t value = wide ? static_cast<int16_t>(values[2 * offset] | values[2 * offset + 1] << 8)
                               : static_cast<int8_t>(values[offset]);
    column.word[y / 2] |= static_cast<uint32_t>(static_cast<uint16_t>(value)) << 16 * (y % 2);
  }
  return column;
}

// The compact form of one file.
struct Compact {
  std::unique_ptr<uint8_t[]> bytes;
  int64_t size;
};

// Decodes the coefficients of a progressive file that an output of this type needs, and makes the row that goes with
// them. False: it is a file of another kind, libjpeg-turbo must decode it, or the result would have more than
// `max_bytes` bytes.
bool MakeCompact(const uint8_t* data, int64_t size, const ImageInfo& info, ImageType type, int64_t max_bytes,
                 Compact* compact, ImageTable* row);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_COMPACT_H_
