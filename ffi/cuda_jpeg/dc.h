// DC values from their differences, which entropy decoding wrote in the scan's order (T.81, F.1.1.5.1). They are sums
// modulo 2^16 that start again in each segment, separately for each component. DcSums: each block of threads sums up
// kDcValues of them in place. DcPrefix: another launch adds up the blocks' sums. ReadDc: a reader of a value adds the
// sum before its block.
#ifndef JAXDALI_FFI_CUDA_JPEG_DC_H_
#define JAXDALI_FFI_CUDA_JPEG_DC_H_

#include <cstdint>

#include "ffi/common/block.h"
#include "ffi/cuda_jpeg/shard.h"

namespace jaxdali::jpeg {

static_assert(kDcValues == kScanned);

// A word holds the sums of three components, 16 bits each and 5 bits apart, which keeps carries from the next one. The
// fourth component, if there is one, has a word of its own. kDcReset: a segment began, so sums before it don't count.
inline constexpr uint64_t kDcReset = uint64_t{1} << 63,
                          kDcLanes = 0xFFFF | uint64_t{0xFFFF} << 21 | uint64_t{0xFFFF} << 42;

// Adds the sums of two neighbouring ranges, of which `b` is the later one. This operation is associative.
struct AddDc {
  JAXDALI_HD uint64_t operator()(uint64_t a, uint64_t b) const {
    return b & kDcReset ? b : ((a + b) & kDcLanes) | (a & kDcReset);
  }
};
// The number of words for all components of an image, the number of a component's word, its lowest bit there, and its
// sum.
JAXDALI_HD constexpr int DcWords(int components) { return (components + 2) / 3; }
JAXDALI_HD inline int DcWord(int component) { return component / 3; }
JAXDALI_HD inline int DcShift(int component) { return 21 * (component % 3); }
JAXDALI_HD inline int16_t DcOf(uint64_t sums, int component) {
  return static_cast<int16_t>(sums >> DcShift(component));
}

// Turns the differences of a group's images into sums, in place, as if each kDcValues of them began with 0. Stores the
// total of each such range for DcPrefix.
struct DcSums : Shard {
  int32_t grid;   // blocks of the launch
  int32_t group;  // number of the images' group that is decoded, see kGroupBytes

  struct Shared {
    int32_t slot;  // image * kMaxScans + scan
    int words;     // 0: the image is skipped
    ScanRows<uint64_t> rows;
  };

  // One CUDA block: every `grid`th range of the group's values. It goes over a range once for each word of sums.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int32_t end = GroupFirst(Work::kDc, group + 1);
    for (int32_t index = GroupFirst(Work::kDc, group) + block.index; index < end; index += grid) {
      FindSlot(block, Work::kDc, index, &s.slot);
      block.Phase([&](int thread) {
        const int image = s.slot / kMaxScans;
        if (thread == 0) s.words = Active(image) ? DcWords(tables[image].components) : 0;
      });
      const ScanTable& scan = tables[s.slot / kMaxScans].scan[s.slot % kMaxScans];
      // The range's number in the scan, its first value, and how many values the scan has from there on.
      const int32_t number = index - scan.dc0, first = number * kDcValues, values_left = scan.dc_values() - first;
      const int32_t segment = scan.restart_interval * scan.mcu_blocks;  // values of a segment
      int16_t* dc = At<int16_t>(scan.dc) + first;
      auto component = [&](int i) { return scan.block[(first + i) % scan.mcu_blocks].component; };
      for (int word = 0; word < s.words; word++) {
        ScanAll(
            block, s.rows, values_left < kDcValues ? values_left : kDcValues,
            [&](int i) {
              const int c = component(i);
              const uint64_t value = DcWord(c) == word ? uint64_t{static_cast<uint16_t>(dc[i])} << DcShift(c) : 0;
              return (first + i) % segment == 0 ? value | kDcReset : value;
            },
            AddDc{},
            [&](int i, uint64_t, uint64_t inclusive_sum) {
              if (const int c = component(i); DcWord(c) == word) dc[i] = DcOf(inclusive_sum, c);
            });
        block.Phase([&](int thread) {
          if (thread == 0) At<uint64_t>(scan.dc_before)[word * scan.dc_blocks + number] = s.rows.carry;
        });
      }
    }
  }
};

// Replaces the total of each range of kDcValues values by the sum before the range. One block of threads per scan.
struct DcPrefix : Shard {
  int32_t group;  // number of the images' group that is decoded, see kGroupBytes

  struct Shared {
    int words;
    ScanRows<uint64_t> rows;
  };

  // One CUDA block: one scan. A scan of a single range needs no sums before it.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    const int image = block.index / kMaxScans;
    const ScanTable& scan = tables[image].scan[block.index % kMaxScans];
    block.Phase([&](int thread) {
      if (thread != 0) return;
      const bool is_active = tables[image].group == group && scan.dc_blocks > 1 && Active(image);
      s.words = is_active ? DcWords(tables[image].components) : 0;
    });
    for (int word = 0; word < s.words; word++) {
      uint64_t* sums = At<uint64_t>(scan.dc_before) + word * scan.dc_blocks;
      ScanAll(
          block, s.rows, scan.dc_blocks, [&](int i) { return sums[i]; }, AddDc{},
          [&](int i, uint64_t exclusive_sum, uint64_t) { sums[i] = exclusive_sum; });
    }
  }
};

// DC value number `i` of a scan, which is one of this component: its sum, plus the sum before its range.
JAXDALI_HD inline int16_t ReadDc(const Shard& shard, const ScanTable& scan, int component, int32_t i) {
  const int16_t value = shard.At<const int16_t>(scan.dc)[i];
  // The number of the value's range, and how many values a segment has.
  const int32_t number = i / kDcValues, segment = scan.restart_interval * scan.mcu_blocks;
  if (i / segment * segment >= number * kDcValues) return value;  // the segment begins in the value's own range
  const uint64_t* sums = shard.At<const uint64_t>(scan.dc_before) + DcWord(component) * scan.dc_blocks;
  return static_cast<int16_t>(value + DcOf(sums[number], component));
}

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_CUDA_JPEG_DC_H_
