// Compares the CPU's own PNG decoder with libpng, for fuzzers.
#ifndef JAXDALI_FFI_FUZZ_COMPARE_PNG_H_
#define JAXDALI_FFI_FUZZ_COMPARE_PNG_H_

#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/fuzz/checksum.h"
#include "ffi/fuzz/image_cases.h"

namespace jaxdali {

inline void Put32(Data* file, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) file->push_back(static_cast<uint8_t>(v >> shift));
}

// Appends a chunk: length, type, data, and the checksum of type and data.
inline void PutChunk(Data* file, const char* type, const uint8_t* data, size_t size) {
  Put32(file, static_cast<uint32_t>(size));
  const size_t start = file->size();
  file->insert(file->end(), type, type + 4);
  file->insert(file->end(), data, data + size);
  Put32(file, static_cast<uint32_t>(crc32(0, file->data() + start, static_cast<uInt>(size + 4))));
}

// The number of bytes of the chunk at this offset; -1: it does not end within the file.
inline int64_t ChunkSize(const Data& file, size_t offset) {
  if (offset + 12 > file.size()) return -1;
  const uint8_t* p = file.data() + offset;
  const size_t size = static_cast<size_t>(p[0]) << 24 | p[1] << 16 | p[2] << 8 | p[3];
  return size > file.size() - offset - 12 ? -1 : static_cast<int64_t>(size);
}

// Corrects the checksums of a damaged file's chunks, as far as its structure is intact.
inline void CorrectChecksums(Data* file) {
  size_t offset = 8;
  for (int64_t size; (size = ChunkSize(*file, offset)) >= 0; offset += 12 + static_cast<size_t>(size)) {
    uint8_t* chunk = file->data() + offset;
    const auto crc = static_cast<uint32_t>(crc32(0, chunk + 4, static_cast<uInt>(size + 4)));
    for (int i = 0; i < 4; i++) chunk[8 + size + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  }
}

class PngComparison {
 public:
  // Decodes a file, or a region of it, with both decoders, compares them, and counts the outcome. False: the own
  // decoder accepts the file, and libpng fails or gives other pixels.
  bool Compare(const Data& data, Choices& choose, const std::string& name) {
    const ImageFile file(data);
    ImageInfo info = file.info;
    if (!file.IsDecoded(kMaxPixels) || info.format != static_cast<int32_t>(Format::kPng)) return true;
    if (choose.below(2)) ChooseRegion(&info, choose);
    constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kU16, DType::kF32};
    const auto type = static_cast<ImageType>(choose.below(5));
    const DecodeOptions options{type, choose.below(3) != 0, /*fast_idct=*/false};
    const DType dtype = info.depth == 16 && choose.below(2) ? DType::kU16 : kTypes[choose.below(4)];
    const size_t bytes = static_cast<size_t>(int64_t{info.region_h} * info.region_w *
                                             OutputChannels(info, options.type) * SizeOf(dtype));
    auto expected = Exact<uint8_t>(bytes), actual = Exact<uint8_t>(bytes);
    RasterOutput libpng(info, options, dtype, expected.get()), output(info, options, dtype, actual.get());
    const Status status = DecodePngByLibpng(file.data.get(), file.size, info, options, &libpng);
    if (!DecodePngByLibdeflate(file.data.get(), file.size, info, options, &output)) {
      refused_++;
      refused_good_ += status == kOk;
      return true;
    }
    checksum_.Add(actual.get(), static_cast<int64_t>(bytes));
    if (status == kOk && std::memcmp(actual.get(), expected.get(), bytes) == 0) {
      equal_++;
      return true;
    }
    std::printf("%s: %s; %d x %d, region %d %d %d %d, type %d, dtype %d\n", name.c_str(),
                status == kOk ? "pixels differ" : "decoded, but libpng fails", info.height, info.width, info.region_y,
                info.region_x, info.region_h, info.region_w, static_cast<int>(options.type), static_cast<int>(dtype));
    return false;
  }
  // Prints the outcomes since the last call.
  void Print(const char* title) {
    std::printf("%s: %d decoded and equal, %d left to libpng, of which it decodes %d\n", title, equal_, refused_,
                refused_good_);
    std::fflush(stdout);
    equal_ = refused_ = refused_good_ = 0;
  }
  void PrintChecksum() const { std::printf("checksum of the pixels: %s\n", checksum_.text().c_str()); }
  int equal() const { return equal_; }

 private:
  static constexpr int64_t kMaxPixels = 1 << 17;

  Checksum checksum_;
  int equal_ = 0, refused_ = 0, refused_good_ = 0;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_COMPARE_PNG_H_
