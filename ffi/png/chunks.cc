// A chunk is a length of 4 bytes (big-endian), a type of four letters, data, and a CRC-32 of type and data.
#include "ffi/png/chunks.h"

#include <cstring>

#if defined(JAXDALI_LIBDEFLATE)
#include <libdeflate.h>
#endif

namespace jaxdali::png {

#if defined(JAXDALI_LIBDEFLATE)

namespace {

// libpng refuses most chunks of 8,000,000 bytes or more. Large chunks are left to it.
constexpr int64_t kMaxChunk = 4000000;

uint32_t U32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 8 |
         p[3];
}

struct Chunk {
  const uint8_t* type;
  const uint8_t* data;
  int64_t size;

  bool Is(const char* name) const { return std::memcmp(type, name, 4) == 0; }
  // Whether the checksum is right. libpng would only warn for an ancillary chunk, so those are not checked.
  bool IsWhole() const { return libdeflate_crc32(0, type, static_cast<size_t>(size) + 4) == U32(data + size); }
  // Four letters (5.4). A capital as the first one marks a critical chunk, which decoders must understand. The third
  // one is a capital in all versions of PNG so far, and newer versions of libpng refuse others.
  bool IsNamed() const {
    for (int i = 0; i < 4; i++)
      if ((type[i] | 32) < 'a' || (type[i] | 32) > 'z') return false;
    return !(type[2] & 32);
  }
  bool IsAncillary() const { return type[0] & 32; }
};

// Reads IHDR (11.2.2). False: the file is damaged, or of a kind that is left to libpng.
bool ReadHeader(const Chunk& c, File* file) {
  if (!c.Is("IHDR") || c.size != 13 || !c.IsWhole()) return false;
  file->width = U32(c.data);
  file->height = U32(c.data + 4);
  // Bit depth, colour type, compression method, filter method, interlace method.
  file->bits = c.data[8];
  file->color = c.data[9];
  file->interlaced = c.data[12] == 1;
  // ParseHeader has checked the rest.
  return file->width > 0 && file->height > 0 && c.data[10] == 0 && c.data[11] == 0 && c.data[12] <= 1;
}

// Reads PLTE (11.2.3). False: the palette is not valid.
bool ReadPalette(const Chunk& c, File* file) {
  // At most 256 entries of three bytes. Gray images must not have a palette.
  if (c.size == 0 || c.size > 768 || c.size % 3 != 0 || file->color == kGray || file->color == kGrayAlpha ||
      !c.IsWhole())
    return false;
  for (int64_t i = 0; i < c.size / 3; i++) std::memcpy(file->palette[i], c.data + 3 * i, 3);
  return true;
}

}  // namespace

// Reads the chunks up to the end of the image data. False: the file is left to libpng.
bool ReadChunks(const uint8_t* data, int64_t size, File* file) {
  bool has_header = false, has_palette = false;
  file->idat.clear();
  file->idat_size = 0;
  std::memset(file->palette, 0, sizeof file->palette);
  // 8 bytes of signature. Each chunk has 12 bytes besides its data.
  for (int64_t offset = 8; offset + 12 <= size;) {
    const Chunk c{/*type=*/data + offset + 4, /*data=*/data + offset + 8, /*size=*/U32(data + offset)};
    if (c.size > kMaxChunk || c.size > size - offset - 12 || !c.IsNamed()) return false;
    if (!has_header) {
      if (!ReadHeader(c, file)) return false;
      has_header = true;
    } else if (c.Is("IDAT")) {
      if (!c.IsWhole()) return false;
      file->idat.push_back({c.data, c.size});
      file->idat_size += c.size;
    } else if (!file->idat.empty()) {
      break;  // as in libpng, the rest is not read
    } else if (c.Is("PLTE")) {
      if (has_palette || !ReadPalette(c, file)) return false;
      has_palette = true;
    } else if (!c.IsAncillary()) {
      return false;
    }
    offset += 12 + c.size;
  }
  return !file->idat.empty() && (has_palette || file->color != kPalette);
}

#else

bool ReadChunks(const uint8_t*, int64_t, File*) { return false; }

#endif

}  // namespace jaxdali::png
