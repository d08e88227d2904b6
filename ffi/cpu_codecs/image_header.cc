// A parser for each format, which reads the fields of its header at fixed offsets: JPEG (ITU-T T.81, B.2), PNG (ISO/IEC
// 15948), BMP, TIFF 6.0 and BigTIFF, WebP (RFC 9649), PNM, JPEG 2000 (ISO/IEC 15444-1, Annex I), GIF89a, and the brands
// of AVIF and HEIC (ISO/IEC 23008-12). ParseHeader, at the end, chooses by the first bytes. Orientation is EXIF's tag
// 0x112.
#include "ffi/cpu_codecs/image_header.h"

#include <algorithm>
#include <cstring>

#include "ffi/decode/decode.h"

namespace jaxdali {
namespace {

// Bytes with checked access: reading past the end gives 0 and sets `past_end`.
struct Bytes {
  const uint8_t* data;
  int64_t size;
  bool big_endian = true;
  bool past_end = false;

  bool Has(int64_t offset, int64_t n) const { return offset >= 0 && n >= 0 && offset <= size && n <= size - offset; }
  // Missing bytes are 0, so parsers check past_end once, after several fields.
  uint32_t u8(int64_t offset) {
    if (!Has(offset, 1)) {
      past_end = true;
      return 0;
    }
    return data[offset];
  }
  uint32_t u16(int64_t offset) {
    uint32_t a = u8(offset), b = u8(offset + 1);
    return big_endian ? a << 8 | b : b << 8 | a;
  }
  uint32_t u32(int64_t offset) {
    uint32_t a = u16(offset), b = u16(offset + 2);
    return big_endian ? a << 16 | b : b << 16 | a;
  }
  uint64_t u64(int64_t offset) {
    uint64_t a = u32(offset), b = u32(offset + 4);
    return big_endian ? a << 32 | b : b << 32 | a;
  }
  bool Matches(int64_t offset, const char* text, int n) const {
    return Has(offset, n) && std::memcmp(data + offset, text, n) == 0;
  }
};

void Fail(ImageInfo* h, Status s) { h->status = s; }

// Sets the size, the channels and the bits of a value. A size that is empty or too large sets the status.
void SetSize(ImageInfo* h, int64_t height, int64_t width, int channels, int depth) {
  h->channels = channels;
  h->depth = depth;
  if (height <= 0 || width <= 0) return Fail(h, kCorrupt);
  h->height = static_cast<int32_t>(std::min(height, kMaxElements));
  h->width = static_cast<int32_t>(std::min(width, kMaxElements));
  // Divided by the channels, because the product of three 32-bit numbers may not fit into 64 bits.
  if (height > kMaxElements || width > kMaxElements || height * width > kMaxElements / channels)
    return Fail(h, kTooLarge);
}

// Reads the orientation in an EXIF block (which is a TIFF structure: a byte order, the offset of a directory, and its
// entries of 12 bytes), if it has a valid one. Returns whether it has. Damaged metadata never make an image
// undecodable.
bool ReadOrientation(const uint8_t* data, int64_t size, ImageInfo* h) {
  Bytes b{data, size};
  if (b.Matches(0, "II*\0", 4))
    b.big_endian = false;
  else if (!b.Matches(0, "MM\0*", 4))
    return false;
  int64_t ifd = b.u32(4);
  int entries = b.u16(ifd);
  for (int i = 0; i < entries && !b.past_end; i++) {
    int64_t entry = ifd + 2 + 12 * static_cast<int64_t>(i);
    if (b.u16(entry) != 0x112) continue;
    uint32_t type = b.u16(entry + 2);  // 3: 16 bits, 4: 32 bits
    uint32_t value = type == 3 ? b.u16(entry + 8) : type == 4 ? b.u32(entry + 8) : 0;
    if (b.past_end || value < 1 || value > 8) return false;
    h->orientation = static_cast<int32_t>(value);
    return true;
  }
  return false;
}

// Goes through the segments up to the first scan: the frame gives the size, an EXIF segment the orientation.
void ParseJpeg(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kJpeg);
  bool has_frame = false, has_orientation = false;
  int64_t offset = 2;
  for (;;) {
    // As in libjpeg, everything before the next FF is skipped, and so are fill bytes.
    while (b.Has(offset, 1) && b.data[offset] != 0xFF) offset++;
    while (b.Has(offset, 1) && b.data[offset] == 0xFF) offset++;
    if (!b.Has(offset, 1)) break;
    int marker = b.data[offset++];
    if (marker == 0 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // no segment follows
    if (marker == 0xD9 || marker == 0xDA) {                                             // EOI, SOS
      if (!has_frame) Fail(h, kCorrupt);
      return;
    }
    if (marker == 0xF7 && !has_frame) {  // the frame of JPEG-LS (ITU-T T.87)
      h->format = static_cast<int32_t>(Format::kUnknown);
      return Fail(h, kUnknownFormat);
    }
    int64_t length = b.u16(offset);
    if (b.past_end) break;
    if (length < 2) {
      if (!has_frame) Fail(h, kCorrupt);
      return;
    }
    int64_t end = offset + length;
    if (marker == 0xE1 && !has_orientation && b.Matches(offset + 2, "Exif\0", 5) && end <= b.size && length >= 8) {
      has_orientation =
          ReadOrientation(b.data + offset + 8, end - offset - 8, h);  // the first segment that has one counts
    } else if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC && !has_frame) {
      // A frame header, SOF0 to SOF15: C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
      // After the length: precision, height, width, number of components.
      if (!b.Has(offset, 8)) break;
      int precision = b.u8(offset + 2), components = b.u8(offset + 7);
      if (components != 1 && components != 3 && components != 4) return Fail(h, components ? kUnsupported : kCorrupt);
      if (b.u16(offset + 3) == 0) return Fail(h, kUnsupported);  // a DNL marker after the scan has the height
      SetSize(h, b.u16(offset + 3), b.u16(offset + 5), components == 1 ? 1 : 3, std::max(precision, 8));
      if (h->status != kOk) return;
      // SOF9 and above are arithmetic. Sequential and progressive are SOF0-2 and 9, 10; others are lossless (3, 11) or
      // hierarchical (5-7, 13-15).
      bool arithmetic = marker >= 0xC9, sequential_or_progressive = (marker & 3) != 3 && (marker & 7) < 5;
      h->host_decode = precision != 8 || !sequential_or_progressive || (arithmetic && !kJpegArithmetic);
      int64_t pixels = static_cast<int64_t>(h->height) * h->width;
      if (!arithmetic && pixels >= kLargePixels && pixels / kJpegPixelsPerByte > b.size) return Fail(h, kTooLarge);
      has_frame = true;
    }
    offset = end;
  }
  // The data end here. If there is a frame, the decoder finds out what is missing.
  if (!has_frame) Fail(h, kTruncated);
}

// Reads IHDR, then goes through the chunks for the orientation in eXIf.
void ParsePng(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kPng);
  h->host_decode = !kPng;
  // Signature, length of IHDR, IHDR, 13 bytes of it, its checksum.
  if (!b.Has(0, 33)) return Fail(h, kTruncated);
  if (b.u32(8) != 13 || !b.Matches(12, "IHDR", 4)) return Fail(h, kCorrupt);
  // IHDR: width, height, bit depth, colour type.
  int64_t width = b.u32(16), height = b.u32(20);
  int bits = b.u8(24), color = b.u8(25), samples;
  switch (color) {  // gray, RGB, palette, gray and alpha, RGB and alpha
    case 0:
      samples = 1, h->channels = 1;
      break;
    case 2:
      samples = 3, h->channels = 3;
      break;
    case 3:
      samples = 1, h->channels = 3, h->palette = kHasPalette;
      break;
    case 4:
      samples = 2, h->channels = 2;
      break;
    case 6:
      samples = 4, h->channels = 4;
      break;
    default:
      return Fail(h, kCorrupt);
  }
  // The combinations that ISO/IEC 15948, 11.2.2, allows.
  if ((bits != 1 && bits != 2 && bits != 4 && bits != 8 && bits != 16) || (bits < 8 && color != 0 && color != 3) ||
      (bits == 16 && color == 3))
    return Fail(h, kCorrupt);
  SetSize(h, height, width, h->channels, bits == 16 ? 16 : 8);
  if (h->status != kOk) return;
  // A large image whose data can't expand to its size: each row of samples is at least so many bytes before
  // compression.
  if (height * width >= kLargePixels && height * ((width * samples * bits + 7) / 8) / kDeflateExpansion > b.size)
    return Fail(h, kTooLarge);
  // eXIf may come before or after the image data. Skipping a chunk touches one cache line.
  for (int64_t offset = 33; b.Has(offset, 8);) {
    int64_t length = b.u32(offset);
    if (b.Matches(offset + 4, "eXIf", 4) && b.Has(offset + 8, length) &&
        ReadOrientation(b.data + offset + 8, length, h))
      return;
    if (b.Matches(offset + 4, "IEND", 4)) return;
    offset += 12 + length;
  }
}

// Reads the header, and the palette, which may be gray.
void ParseBmp(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kBmp);
  b.big_endian = false;
  // At 14 the size of the following header: 12 is OS/2's, 40 and more are Windows' versions. Both have width, height
  // and bits per pixel; Windows' also has the compression (at 30) and the number of colours (at 46).
  int64_t header = b.u32(14), width, height, palette_entry = 4, colors = 0;
  int bits, channels = 3;
  if (header == 12) {
    width = b.u16(18), height = b.u16(20), bits = b.u16(24), palette_entry = 3;
  } else if (header >= 40) {
    width = static_cast<int32_t>(b.u32(18)), height = static_cast<int32_t>(b.u32(22)), bits = b.u16(28),
    colors = b.u32(46);
    if (height < 0) height = -height;  // stored top-down
    uint32_t compression = b.u32(30);
    // Bit fields (3, 6) with a mask for alpha.
    if (bits == 32 && (compression == 3 || compression == 6) && header >= 56 && b.u32(66) != 0) channels = 4;
  } else {
    return Fail(h, b.past_end ? kTruncated : kCorrupt);
  }
  if (bits <= 8) {
    h->palette = kHasPalette;
    // A palette that holds only grays makes a gray image.
    if (colors <= 0 || colors > 256) colors = int64_t{1} << std::min(bits, 8);
    bool is_gray = true;
    for (int64_t i = 0; i < colors && is_gray; i++) {
      int64_t entry = 14 + header + i * palette_entry;
      is_gray = b.u8(entry) == b.u8(entry + 1) && b.u8(entry) == b.u8(entry + 2);
    }
    if (is_gray) channels = 1;
  }
  if (b.past_end) return Fail(h, kTruncated);
  SetSize(h, height, width, channels, /*depth=*/8);
}

// Reads the tags of the first directory.
void ParseTiff(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kTiff);
  b.big_endian = b.data[0] == 'M';
  bool is_big = b.u16(2) == 43;  // BigTIFF: 64-bit offsets
  int64_t ifd = is_big ? static_cast<int64_t>(b.u64(8)) : b.u32(4);
  if (!b.Has(ifd, 8)) return Fail(h, kTruncated);
  int64_t entries = is_big ? static_cast<int64_t>(b.u64(ifd)) : b.u16(ifd);
  if (entries < 0 || entries > 65535) return Fail(h, kCorrupt);
  int64_t width = 0, height = 0, bits = 1, samples = 1, photometric = -1, sample_format = 1;
  for (int64_t i = 0; i < entries; i++) {
    // An entry has 12 bytes, or 20: tag, type, number of values, and the value or its offset.
    int64_t entry = ifd + (is_big ? 8 + 20 * i : 2 + 12 * i);
    int64_t inline_offset = entry + (is_big ? 12 : 8);
    if (!b.Has(entry, is_big ? 20 : 12)) return Fail(h, kTruncated);
    int tag = b.u16(entry), type = b.u16(entry + 2);
    // SHORT, LONG and BigTIFF's LONG8.
    if (type != 3 && type != 4 && type != 16) continue;
    int64_t count = is_big ? static_cast<int64_t>(b.u64(entry + 4)) : b.u32(entry + 4);
    int bytes = type == 3 ? 2 : type == 4 ? 4 : 8;
    // The value stands in the entry if it fits, otherwise at an offset.
    int64_t value_offset = inline_offset;
    if (count < 0 || count > (is_big ? 8 : 4) / bytes)
      value_offset = is_big ? static_cast<int64_t>(b.u64(inline_offset)) : b.u32(inline_offset);
    // Width, height, bits per sample, photometric interpretation, orientation, samples per pixel, sample format.
    if (tag != 256 && tag != 257 && tag != 258 && tag != 262 && tag != 274 && tag != 277 && tag != 339) continue;
    if (!b.Has(value_offset, bytes)) return Fail(h, kTruncated);
    int64_t value = type == 3   ? b.u16(value_offset)
                    : type == 4 ? b.u32(value_offset)
                                : static_cast<int64_t>(b.u64(value_offset));
    switch (tag) {
      case 256:
        width = value;
        break;
      case 257:
        height = value;
        break;
      case 258:
        bits = value;
        break;
      case 262:
        photometric = value;
        break;
      case 274:
        if (value >= 1 && value <= 8) h->orientation = static_cast<int32_t>(value);
        // Where the value is in the file, so that the host pass can hide it from readers.
        if (type == 3 && value_offset <= kMaxElements) h->orientation_at = static_cast<int32_t>(value_offset);
        break;
      case 277:
        samples = value;
        break;
      case 339:
        sample_format = value;
        break;
    }
  }
  if (samples < 0 || samples > 65535) return Fail(h, kCorrupt);  // the tag has 16 bits
  // Photometric 2 is RGB, 3 a palette, 5 and above CMYK, YCbCr, CIELab. The samples of gray and RGB are the channels.
  const bool is_colour = photometric == 3 || photometric >= 5;
  const int channels = is_colour ? 3 : static_cast<int>(std::max<int64_t>(samples, photometric == 2 ? 3 : 1));
  if (photometric == 3) h->palette = kHasPalette;
  // Unsigned samples of up to 16 bits, or floats (3). Others are signed, complex or wider.
  const bool is_float = sample_format == 3 && bits == 32 && !is_colour;
  if (!is_float && (sample_format != 1 || bits > 16)) return Fail(h, kUnsupported);
  SetSize(h, height, width, channels, static_cast<int>(std::max<int64_t>(bits, 8)));
}

// Reads the first chunk: VP8 (lossy), VP8L (lossless), or VP8X (extended), whose EXIF chunk is searched for.
void ParseWebp(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kWebp);
  b.big_endian = false;
  if (!b.Has(0, 30)) return Fail(h, kTruncated);
  // The byte of flags of a VP8X chunk: 02 animation, 08 EXIF, 10 alpha.
  const bool animated = b.Matches(12, "VP8X", 4) && b.u8(20) & 0x02;
  h->host_decode = !kWebp || animated;  // Pillow gives the first frame of an animation
  // A lossy key frame: 14 bits each of width and height after the start code.
  if (b.Matches(12, "VP8 ", 4)) {
    SetSize(h, b.u16(28) & 0x3FFF, b.u16(26) & 0x3FFF, /*channels=*/3, /*depth=*/8);
  } else if (b.Matches(12, "VP8L", 4)) {
    // Lossless: width - 1, height - 1, alpha, packed into 32 bits.
    uint32_t v = b.u32(21);
    SetSize(h, (v >> 14 & 0x3FFF) + 1, (v & 0x3FFF) + 1, v >> 28 & 1 ? 4 : 3, /*depth=*/8);
  } else if (b.Matches(12, "VP8X", 4)) {
    int flags = b.u8(20);
    // Width - 1 and height - 1 as 24 bits.
    int64_t width = 1 + (b.u16(24) | b.u8(26) << 16), height = 1 + (b.u16(27) | b.u8(29) << 16);
    SetSize(h, height, width, flags & 0x10 ? 4 : 3, /*depth=*/8);
    if (h->status != kOk || !(flags & 0x08)) return;
    for (int64_t offset = 30; b.Has(offset, 8);) {
      int64_t length = b.u32(offset + 4);
      if (b.Matches(offset, "EXIF", 4) && b.Has(offset + 8, length)) {
        int64_t skip = b.Matches(offset + 8, "Exif\0\0", 6) && length >= 6 ? 6 : 0;
        if (ReadOrientation(b.data + offset + 8 + skip, length - skip, h)) return;
      }
      offset += 8 + length + (length & 1);
    }
  } else {
    Fail(h, kCorrupt);
  }
}

// Reads width, height and the largest value, as decimal numbers after white space and comments.
void ParsePnm(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kPnm);
  // P1 to P6: bitmap, graymap, pixmap, as text or binary. Bitmaps (1, 4) have no largest value. Comments go from # to
  // the end of the line.
  int kind = b.data[1] - '0', fields = kind == 1 || kind == 4 ? 2 : 3;
  int64_t offset = 2, value[3] = {0, 0, 1};
  for (int i = 0; i < fields; i++) {
    for (;;) {
      uint32_t c = b.u8(offset);
      if (b.past_end) return Fail(h, kTruncated);
      if (c == '#') {
        while (b.Has(offset, 1) && b.data[offset] != '\n' && b.data[offset] != '\r') offset++;
      } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
        offset++;
      } else {
        break;
      }
    }
    int digits = 0;
    for (; b.Has(offset, 1) && b.data[offset] >= '0' && b.data[offset] <= '9'; offset++, digits++) {
      value[i] = digits == 0 ? b.data[offset] - '0' : value[i] * 10 + b.data[offset] - '0';
      if (value[i] > kMaxElements) return Fail(h, kTooLarge);
    }
    if (digits == 0) return Fail(h, kCorrupt);
  }
  if (value[2] < 1 || value[2] > 65535) return Fail(h, kCorrupt);
  SetSize(h, value[1], value[0], kind == 3 || kind == 6 ? 3 : 1, value[2] > 255 ? 16 : 8);
}

// The SIZ marker segment of a JPEG 2000 codestream that begins at `offset`.
void ParseCodestream(Bytes b, int64_t offset, ImageInfo* h) {
  if (!b.Has(offset, 45)) return Fail(h, kTruncated);
  if (b.u32(offset) != 0xFF4FFF51) return Fail(h, kCorrupt);
  // SIZ: the size of the reference grid less the image's offset on it. At 40 the number of components, at 42 the bits
  // of the first one less 1, with the highest bit set if it is signed.
  int64_t width = static_cast<int64_t>(b.u32(offset + 8)) - b.u32(offset + 16),
          height = static_cast<int64_t>(b.u32(offset + 12)) - b.u32(offset + 20);
  int components = b.u16(offset + 40), bits = (b.u8(offset + 42) & 0x7F) + 1;
  if (components == 0) return Fail(h, kCorrupt);
  if (bits > 16 || b.u8(offset + 42) & 0x80) return Fail(h, kUnsupported);
  // ParseJpeg2000 has set the channels if the file has a palette.
  int channels = h->channels ? h->channels : std::min(components, 4);
  SetSize(h, height, width, channels, std::max(bits, 8));
}

// A codestream, or a file of boxes that contains one.
void ParseJpeg2000(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kJpeg2000);
  if (b.u32(0) == 0xFF4FFF51) return ParseCodestream(b, 0, h);
  int64_t offset = 0;
  // Boxes: length of 32 bits, type, and a length of 64 bits if the first one is 1.
  while (b.Has(offset, 8)) {
    uint64_t length = b.u32(offset);
    int64_t header = 8;
    if (length == 1) length = b.u64(offset + 8), header = 16;
    if (b.Matches(offset + 4, "jp2c", 4)) return ParseCodestream(b, offset + header, h);
    if (b.Matches(offset + 4, "pclr", 4)) h->channels = 3;
    if (b.Matches(offset + 4, "jp2h", 4)) {  // a box that contains boxes: it may hold a palette
      offset += header;
      continue;
    }
    if (length < static_cast<uint64_t>(header) || length > static_cast<uint64_t>(b.size - offset)) break;
    offset += static_cast<int64_t>(length);
  }
  Fail(h, kTruncated);
}

// The size is that of the screen, or of the first frame if it reaches further, as in Pillow. The image has alpha if the
// first frame has a transparent colour.
void ParseGif(Bytes b, ImageInfo* h) {
  h->format = static_cast<int32_t>(Format::kGif);
  b.big_endian = false;
  // The screen has its width at 6, its height at 8 and its flags at 10. A frame (2C) has left, top, width, height,
  // flags. Bytes of a colour table, by the flags of the screen or the frame.
  auto table_bytes = [](uint32_t flags) { return flags & 0x80 ? int64_t{3} << ((flags & 7) + 1) : 0; };
  int64_t offset = 13 + table_bytes(b.u8(10));
  int channels = 3;
  while (b.u8(offset) == 0x21) {  // extensions
    // A graphic control extension; its lowest flag is a transparent colour.
    if (b.u8(offset + 1) == 0xF9 && b.u8(offset + 2) >= 4) channels = b.u8(offset + 3) & 1 ? 4 : 3;
    // An extension's data are blocks that begin with their length; an empty one ends it.
    for (offset += 2; b.u8(offset) != 0;) offset += 1 + b.u8(offset);
    offset++;
  }
  const bool has_frame = b.u8(offset) == 0x2C;
  if (table_bytes(b.u8(10)) || table_bytes(b.u8(offset + 9))) h->palette = kHasPalette;
  const int64_t right = int64_t{b.u16(offset + 1)} + b.u16(offset + 5),
                bottom = int64_t{b.u16(offset + 3)} + b.u16(offset + 7);
  if (b.past_end) return Fail(h, kTruncated);
  if (!has_frame) return Fail(h, kCorrupt);
  SetSize(h, std::max<int64_t>(b.u16(8), bottom), std::max<int64_t>(b.u16(6), right), channels, /*depth=*/8);
}

// Files of the family of MP4 (ISO/IEC 14496-12). Their brands say what they hold; mif1 and msf1 only say that they hold
// images, which are HEIC's unless another brand says more.
void RecognizeMedia(Bytes b, ImageInfo* h) {
  Format format = Format::kUnknown;
  const int64_t end = std::min<int64_t>({b.u32(0), b.size, 256});
  // The major brand at 8, its version at 12, then the compatible brands.
  for (int64_t offset = 8; offset + 4 <= end; offset += offset == 8 ? 8 : 4) {
    if (b.Matches(offset, "avif", 4) || b.Matches(offset, "avis", 4)) format = Format::kAvif;
    for (const char* brand : {"heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1"})
      if (b.Matches(offset, brand, 4) && format == Format::kUnknown) format = Format::kHeic;
  }
  h->format = static_cast<int32_t>(format);
  if (format == Format::kUnknown) Fail(h, kUnknownFormat);
}

}  // namespace

// Reads the header of an image. Finds the format by its first bytes; the format's parser sets the rest of the row. An
// error is the row's status.
ImageInfo ParseHeader(const uint8_t* data, int64_t size) {
  ImageInfo h{};
  // Values for a header that says nothing else.
  h.orientation = 1;
  h.orientation_at = -1;
  h.host_decode = 1;
  Bytes b{data, size};
  if (size == 0) {
    h.status = kEmpty;
  } else if (b.Matches(0, "\xFF\xD8\xFF", 3)) {
    h.host_decode = 0;
    ParseJpeg(b, &h);
  } else if (b.Matches(0, "\x89PNG\r\n\x1A\n", 8)) {
    h.host_decode = 0;
    ParsePng(b, &h);
  } else if (b.Matches(0, "BM", 2) && b.Has(0, 26)) {
    ParseBmp(b, &h);
  } else if (b.Matches(0, "II*\0", 4) || b.Matches(0, "MM\0*", 4) || b.Matches(0, "II+\0", 4) ||
             b.Matches(0, "MM\0+", 4)) {
    ParseTiff(b, &h);
  } else if (b.Matches(0, "RIFF", 4) && b.Matches(8, "WEBP", 4)) {
    ParseWebp(b, &h);
  } else if (b.Has(0, 3) && data[0] == 'P' && data[1] >= '1' && data[1] <= '6' && (data[2] <= ' ' || data[2] == '#')) {
    ParsePnm(b, &h);
  } else if (b.Matches(0, "\0\0\0\x0CjP  \r\n\x87\n", 12) || b.Matches(0, "\xFF\x4F\xFF\x51", 4)) {
    ParseJpeg2000(b, &h);
  } else if (b.Matches(0, "GIF87a", 6) || b.Matches(0, "GIF89a", 6)) {
    ParseGif(b, &h);
  } else if (b.Matches(4, "ftyp", 4)) {
    RecognizeMedia(b, &h);
  } else if (b.Matches(0, "\xFF\x0A", 2) || b.Matches(0, "\0\0\0\x0CJXL \r\n\x87\n", 12)) {
    h.format = static_cast<int32_t>(Format::kJpegXl);
  } else {
    h.status = kUnknownFormat;
  }
  if (h.status != kOk && h.status != kTooLarge) h.height = h.width = 0;  // otherwise messages need the size
  h.region_h = h.status == kOk ? h.height : 0;
  h.region_w = h.status == kOk ? h.width : 0;
  return h;
}

}  // namespace jaxdali
