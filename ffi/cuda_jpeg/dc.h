// DC values from their differences, which entropy decoding wrote in the scan's order. They are sums modulo 2^16 that
// start again in each segment, separately for each component. Each block of threads sums up kDcValues of them in place,
// another launch adds up the blocks' sums, and whoever reads a value adds the sum before its block.
#ifndef JAXDALI_FFI_JPEG_DC_H_
#define JAXDALI_FFI_JPEG_DC_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/shard.h"

namespace jaxdali::jpeg {

static_assert(kDcValues == kScanned);

// The sums of three components, 16 bits each and 5 bits apart. kDcReset: a segment began, so nothing before counts.
inline constexpr uint64_t kDcReset = uint64_t{1} << 63,
                          kDcLanes = 0xFFFF | uint64_t{0xFFFF} << 21 | uint64_t{0xFFFF} << 42;

struct AddDc {
  JAXDALI_HD uint64_t operator()(uint64_t a, uint64_t b) const {
    return b & kDcReset ? b : ((a + b) & kDcLanes) | (a & kDcReset);
  }
};
JAXDALI_HD inline int16_t DcOf(uint64_t sums, int component) { return static_cast<int16_t>(sums >> (21 * component)); }

struct DcSums : Shard {
  int32_t grid;  // blocks of the launch
  int32_t group;

  struct Shared {
    int32_t slot;
    bool runs;
    ScanRows<uint64_t> rows;
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t end = GroupFirst(Work::kDc, group + 1);
    for (int32_t index = GroupFirst(Work::kDc, group) + block.index; index < end; index += grid) {
      FindSlot(block, Work::kDc, index, &s.slot);
      block.Phase([&](int thread) {
        if (thread == 0) s.runs = Active(s.slot / 3);
      });
      if (!s.runs) continue;
      const ScanTable& scan = tables[s.slot / 3].scan[s.slot % 3];
      const int32_t number = index - scan.dc0, first = number * kDcValues, left = scan.dc_values() - first;
      const int32_t segment = scan.restart_interval * scan.mcu_blocks;
      int16_t* dc = At<int16_t>(scan.dc) + first;
      auto component = [&](int i) { return scan.block[(first + i) % scan.mcu_blocks].component; };
      ScanAll(
          block, s.rows, left < kDcValues ? left : kDcValues,
          [&](int i) {
            const uint64_t value = static_cast<uint64_t>(static_cast<uint16_t>(dc[i])) << (21 * component(i));
            return (first + i) % segment == 0 ? value | kDcReset : value;
          },
          AddDc{}, [&](int i, uint64_t, uint64_t with) { dc[i] = DcOf(with, component(i)); });
      block.Phase([&](int thread) {
        if (thread == 0) At<uint64_t>(scan.dc_before)[number] = s.rows.carry;
      });
    }
  }
};

// The sum before each block. One block of threads per scan.
struct DcPrefix : Shard {
  int32_t group;

  struct Shared {
    bool runs;
    ScanRows<uint64_t> rows;
  };

  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const ScanTable& scan = tables[block.index / 3].scan[block.index % 3];
    block.Phase([&](int thread) {
      if (thread == 0) s.runs = tables[block.index / 3].group == group && scan.dc_blocks > 1 && Active(block.index / 3);
    });
    if (!s.runs) return;
    uint64_t* sums = At<uint64_t>(scan.dc_before);
    ScanAll(
        block, s.rows, scan.dc_blocks, [&](int i) { return sums[i]; }, AddDc{},
        [&](int i, uint64_t before, uint64_t) { sums[i] = before; });
  }
};

// Value number `i` of a scan, of this component.
JAXDALI_HD inline int16_t ReadDc(const Shard& shard, const ScanTable& scan, int component, int32_t i) {
  const int16_t value = shard.At<const int16_t>(scan.dc)[i];
  const int32_t number = i / kDcValues, segment = scan.restart_interval * scan.mcu_blocks;
  if (i / segment * segment >= number * kDcValues) return value;  // the segment begins in the value's own block
  return static_cast<int16_t>(value + DcOf(shard.At<const uint64_t>(scan.dc_before)[number], component));
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_DC_H_
