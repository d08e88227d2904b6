// The host's part of progressive files: BaselineDecoder decodes the coefficients, which are then packed.
#include "ffi/cuda_jpeg/compact.h"

#include <cstring>
#include <new>

#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/jpeg/baseline.h"

namespace jaxdali::jpeg {
namespace {

// Writes the nonzero values with kBytes bytes each. Returns the upper bits, above a byte, of all values plus 128: 0 if
// all are within -128 .. 127.
template <int kBytes>
uint32_t WriteValues(const int16_t* block, uint64_t present, uint8_t* to) {
  uint32_t bits = 0;
  for (; present; present &= present - 1, to += kBytes) {
    // The lowest bit of the mask stands for the last coefficient in zigzag order.
    const int value = block[kPairOrder.place[63 - __builtin_ctzll(present)]];
    // -128 .. 127 becomes 0 .. 255; all other values have a bit above these eight.
    bits |= static_cast<uint32_t>(value + 128);
    for (int i = 0; i < kBytes; i++) to[i] = static_cast<uint8_t>(value >> 8 * i);
  }
  return bits & ~255u;
}

// Writes a component's blocks and units (compact.h) to `head` and their values to `values`, both in `bytes`. Returns
// the end of the values, or null if there would be more than `max_bytes` bytes.
uint8_t* WriteComponent(const StoredPlane& plane, const Component& c, int64_t max_bytes, uint8_t* bytes, uint8_t* head,
                        uint8_t* values) {
  uint8_t *block = head, *unit = head + int64_t{c.blocks()} * static_cast<int64_t>(sizeof(CompactBlock));
  uint32_t unit_offset = 0;
  int blocks_left = 0;  // of the unit
  for (int y = c.y0; y < c.y1; y++) {
    for (int64_t number = plane.Number(y, c.x0), end = plane.Number(y, c.x1); number < end; number++) {
      const auto offset = static_cast<uint32_t>(values - bytes);
      if (blocks_left-- == 0) {  // a unit begins: its entry is the place of the first block's values
        if (offset > max_bytes) return nullptr;
        std::memcpy(unit, &offset, sizeof offset);
        unit += sizeof offset;
        unit_offset = offset;
        blocks_left = kIdctBlocks - 1;
      }
      uint64_t present = plane.present[number];
      const int16_t* coefficients = plane.Block(number);
      // First as single bytes. If a value does not fit, all values of the block get two bytes.
      if (WriteValues<1>(coefficients, present, values)) {
        WriteValues<2>(coefficients, present, values);
        present |= kWide;
      }
      const CompactBlock compact{static_cast<uint32_t>(present >> 32), static_cast<uint32_t>(present), coefficients[0],
                                 static_cast<uint16_t>(offset - unit_offset)};
      std::memcpy(block, &compact, sizeof compact);
      block += sizeof compact;
      values += ValueBytes(present);
    }
  }
  return values;
}

// MakeCompact, apart from running out of memory. The heads (blocks and units) of all components come first, then the
// values of all. Their sizes are known before the values are written, so one allocation is enough.
bool Make(const uint8_t* data, int64_t size, const ImageInfo& info, ImageType type, int64_t max_bytes, Compact* compact,
          ImageTable* row) {
  BaselineDecoder& decoder = JpegDecoderOfThread();
  // Gray needs no chroma, unless it is made from RGB.
  const bool is_gray = type == ImageType::kGray && decoder.Start(data, size, PixelFormat::kGray);
  if (!is_gray && !decoder.Start(data, size, PixelFormat::kRgb)) return false;
  if (!decoder.progressive() || !SetFrame(decoder.header(), info, row) || !decoder.DecodeCoefficients()) return false;
  row->coding = Coding::kCompact;
  const int components = is_gray ? 1 : row->components;
  int64_t head_size = 0;
  for (int c = 0; c < components; c++) {
    row->component[c].compact = static_cast<uint32_t>(head_size);
    head_size += CompactBytes(row->component[c]);
  }
  if (head_size > max_bytes) return false;
  int64_t num_value_bytes = 0;
  for (int c = 0; c < components; c++) {
    const Component& component = row->component[c];
    const StoredPlane& plane = decoder.stored(c);
    for (int y = component.y0; y < component.y1; y++)
      for (int64_t number = plane.Number(y, component.x0); number < plane.Number(y, component.x1); number++)
        num_value_bytes += ValueBytes(plane.present[number]);
  }
  compact->bytes.reset(new uint8_t[static_cast<size_t>(head_size + 2 * num_value_bytes)]);  // all blocks may be wide
  uint8_t *const bytes = compact->bytes.get(), *end = bytes + head_size;
  for (int c = 0; c < components && end; c++)
    end =
        WriteComponent(decoder.stored(c), row->component[c], max_bytes, bytes, bytes + row->component[c].compact, end);
  compact->size = end ? end - bytes : 0;
  return end && compact->size <= max_bytes;
}

}  // namespace

bool MakeCompact(const uint8_t* data, int64_t size, const ImageInfo& info, ImageType type, int64_t max_bytes,
                 Compact* compact, ImageTable* row) {
  *row = {};
  try {
    if (Make(data, size, info, type, max_bytes, compact, row)) return true;
  } catch (const std::bad_alloc&) {  // decoding on the host may take less
  }
  *row = {};
  return false;
}

}  // namespace jaxdali::jpeg
