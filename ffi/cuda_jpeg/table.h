// Descriptions of JPEG files for CUDA kernels. The host pass parses the markers and makes an ImageTable from them, a
// row of fixed size without pointers. The entropy-coded bytes stay in the packed input. MakeTable makes a row,
// PlanWorkspace assigns memory and CUDA blocks to the rows of a shard (the images of one call).
//
// Offsets of arrays in the working memory are in units of kPlaceUnit bytes, so that they fit into 32 bits.
#ifndef JAXDALI_FFI_CUDA_JPEG_TABLE_H_
#define JAXDALI_FFI_CUDA_JPEG_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ffi/common/hd.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/jpeg/header.h"
#include "ffi/jpeg/upsampling.h"

namespace jaxdali::jpeg {

inline constexpr int kMaxComponents = 4, kMaxScans = 4, kMaxTables = 6, kMaxMcuBlocks = 10;
inline constexpr int64_t kPlaceUnit = 64;

// Work of one CUDA block in each kernel.
inline constexpr int kLoadBytes = 16;                    // bytes that a thread unstuffs
inline constexpr int kChunkBytes = 4096;                 // unstuffing: bytes of a file, from multiples of kLoadBytes on
inline constexpr int kBlockSubsequences = 256;           // entropy decoding
inline constexpr int kWriteParts = 2;                    // of a subsequence; the last decoding has a thread for each
inline constexpr int kDcValues = 2048;                   // DC sums: blocks of a scan
inline constexpr int kIdctBlocks = 128;                  // inverse DCT: blocks of one component
inline constexpr int kGroupWidth = 8, kGroupHeight = 2;  // size in pixels of a thread's group
inline constexpr int kTileWidth = 128, kTileHeight = 32;  // size in pixels of a block's tile

// Images are decoded in groups, one after the other, whose coefficients share memory: as much as stays in the L2 cache
// of a large GPU. So few of them are written to its memory and read again.
inline constexpr int32_t kGroupBytes = 40 << 20;  // the coefficients of 70 photos of 500x375
inline constexpr int kMaxGroups = 64;

// The number of groups of n images: one for each `group_bytes` of `bytes`. The host passes the bytes of all
// coefficients. A launch depends on capacities only, so it passes the size of the working memory, which is at least
// that of the host's plan; the last groups that are launched may be empty.
inline int GroupsOf(int n, int64_t bytes, int32_t group_bytes) {
  const int64_t groups = std::min<int64_t>({(bytes + group_bytes - 1) / group_bytes, n, kMaxGroups});
  return static_cast<int>(std::max<int64_t>(groups, 1));
}

// The form of an image's coefficients: none (the kernels skip it), entropy-coded, or compact (compact.h).
enum class Coding : int32_t { kNone, kHuffman, kCompact };

struct Component {
  int32_t h, v;                // sampling factors
  int32_t expand_x, expand_y;  // pixels of the image per sample
  Upsampling upsampling;
  int32_t width, height;    // true size in samples
  int32_t scan;             // the scan that holds it
  int32_t first_mcu_block;  // its first block in an MCU of that scan
  // Blocks that the region needs, [x0, x1) x [y0, y1). Only these have coefficients and samples, in raster order: the
  // plane's rows are 8 * (x1 - x0) samples long, and its first sample is (8 * x0, 8 * y0) of the component.
  int32_t x0, y0, x1, y1;
  uint32_t coefficients;   // offset: i16[blocks, 64], each block in zigzag order, without DC
  uint32_t compact;        // place in the data, see compact.h; then the coefficients have no place in the memory
  uint32_t plane;          // offset: u8[rows, 8 * (x1 - x0)]
  int32_t idct0;           // first CUDA block of the shard's inverse DCT for this component
  uint16_t quantizer[64];  // natural order

  JAXDALI_HD int32_t columns() const { return x1 - x0; }
  JAXDALI_HD int32_t blocks() const { return (x1 - x0) * (y1 - y0); }
  JAXDALI_HD int32_t idct_blocks() const { return (blocks() + kIdctBlocks - 1) / kIdctBlocks; }
};

// The end of a scan's data, which the kernels find.
inline constexpr uint32_t kNoMarker = 0xFFFFFFFFu;
struct ScanExtent {
  uint32_t marker;  // offset in the file of the first marker other than RST; kNoMarker: none
  uint32_t bits;    // bits of data, without stuffing and markers
};

// A decoding of a subsequence where only the state counts: the states at its beginning and end (see subsequence.h), and
// the number of blocks that end in it. Then the state at the beginning of its last part, and the number of blocks that
// end before that.
struct alignas(16) Decoding {
  uint16_t entry, exit;
  uint32_t blocks;
  uint32_t middle, middle_blocks;
};
static_assert(kWriteParts == 1 || kWriteParts == 2);

// One block of an MCU, in the order of the scan.
struct McuBlock {
  uint8_t component;
  uint8_t dx, dy;  // place among the component's blocks in the MCU
  uint8_t dc, ac;  // numbers of the image's Huffman tables
};

struct ScanTable {
  int32_t components;  // 0: there is no such scan
  int32_t mcu_blocks;  // blocks of an MCU
  int32_t period;      // of the tables' order in an MCU; divides mcu_blocks
  int32_t mcu_columns;
  int32_t mcus;
  int32_t needed_mcus;       // MCUs from the first one on that the region needs
  int32_t restart_interval;  // MCUs in a segment
  int32_t segments;
  int32_t begin, end;            // entropy-coded bytes in the file; they end earlier at a marker other than RST
  int32_t is_last;               // 1: the last scan of the file, so the marker must be EOI
  int32_t chunk0, chunks;        // first CUDA block of the shard's unstuffing for this scan, and how many
  int32_t sequence0, sequences;  // the same for entropy decoding
  int32_t dc0, dc_blocks;        // the same for the DC sums
  // Offsets.
  uint32_t words;        // u32[(end - begin) / 4 rounded up]: the bytes without stuffing and markers
  uint32_t segment_end;  // u32[segments]: the bit at which each segment ends
  uint32_t chunk_kept;   // u32[chunks]: data bytes before each chunk
  uint32_t chunk_marks;  // u32[chunks]: RST markers before each chunk
  uint32_t extent;       // struct ScanExtent
  // Decoding[sequences * kBlockSubsequences]: the last one of each subsequence, and an earlier one from another state.
  uint32_t last, earlier;
  uint32_t edge;       // u16[sequences]: the state after each CUDA block's subsequences
  uint32_t dc;         // i16[needed_mcus * mcu_blocks]: DC values in the scan's order
  uint32_t dc_before;  // u64[DcWords, dc_blocks]: sums to be added, see dc.h
  McuBlock block[kMaxMcuBlocks];
  uint8_t unused[2];

  JAXDALI_HD int32_t dc_values() const { return needed_mcus * mcu_blocks; }

  // Index of the DC value of a component's block (x, y). In a scan of one component, MCUs are single blocks in raster
  // order.
  JAXDALI_HD int32_t DcIndex(const Component& c, int32_t x, int32_t y) const {
    if (components == 1) return y * mcu_columns + x;
    return (y / c.v * mcu_columns + x / c.h) * mcu_blocks + c.first_mcu_block + y % c.v * c.h + x % c.h;
  }
};

struct ImageTable {
  Coding coding;  // kNone: the kernels do nothing
  int32_t width, height;
  int32_t region_y, region_x, region_h, region_w;  // region of the stored raster
  int32_t components;                              // 1, 3 or 4
  ColorTransform color;
  int32_t scans, tables;
  int8_t follower[kMaxTables];  // the table for the codes after a table's: the same for AC; -1: it varies
  uint8_t unused[2];
  int32_t pixel0;         // first CUDA block of the shard's pixel kernel for this image
  uint32_t lookup;        // offset: Lookup[tables]
  uint32_t place, units;  // its part of the working memory, without coefficients
  int32_t group;          // ascends
  // Equal in all rows of a shard.
  int32_t subsequence_bits;
  uint32_t coefficients, coefficient_units;  // offset and size of the coefficients of the largest group
  Component component[kMaxComponents];
  ScanTable scan[kMaxScans];
  HuffmanTable table[kMaxTables];

  // Number of tiles: per row, and in total.
  JAXDALI_HD int32_t tile_columns() const { return (region_x % kGroupWidth + region_w + kTileWidth - 1) / kTileWidth; }
  JAXDALI_HD int32_t tile_rows() const { return (region_y % kGroupHeight + region_h + kTileHeight - 1) / kTileHeight; }
  JAXDALI_HD int32_t pixel_blocks() const { return coding == Coding::kNone ? 0 : tile_columns() * tile_rows(); }
};
static_assert(std::is_trivially_copyable_v<ImageTable> && sizeof(ImageTable) % 4 == 0 && alignof(ImageTable) == 4);
inline constexpr int kTableWords = sizeof(ImageTable) / 4;

// Sets the fields that don't depend on the coding: the frame of a file, and the region of `info`. False: the kernels
// don't support it.
bool SetFrame(const Header& header, const ImageInfo& info, ImageTable* row);

// Makes the row of a JPEG file, with the region of `info`. False: the kernels don't support the file.
bool MakeTable(const uint8_t* data, int64_t size, const ImageInfo& info, ImageTable* row);

// Assigns an offset to each array of a shard's images, and a group to each image. Returns how much working memory they
// need. `subsequence_bits` 0: chosen by the size of the data. `groups` 0: chosen so that with this memory, or more, at
// least as many are launched with the same `group_bytes`.
int64_t PlanWorkspace(ImageTable* rows, int n, int subsequence_bits = 0, int groups = 0,
                      int32_t group_bytes = kGroupBytes);

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_TABLE_H_
