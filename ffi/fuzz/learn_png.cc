// libFuzzer's harness of the PNG decoders. An input is 32 bytes of choices (InputChoices) and a file. The choices say
//
// * whether the checksums of the file's chunks are corrected,
// * whether its IDAT chunks have rows that are not compressed yet, so that mutations change rows and filters,
// * whether the own decoder and libpng must agree, or the CPU decodes the file with any options.
#include <cstring>

#include "ffi/fuzz/compare_png.h"

namespace jaxdali {
namespace {

// A file whose chunk IDAT has the compressed contents of all of its chunks IDAT, and which has no chunks after it.
Data CompressRows(const Data& file, int level, int strategy) {
  Data head, rows;
  size_t offset = 8;
  for (int64_t size; (size = ChunkSize(file, offset)) >= 0; offset += 12 + static_cast<size_t>(size)) {
    const uint8_t* chunk = file.data() + offset;
    if (std::memcmp(chunk + 4, "IDAT", 4) == 0)
      rows.insert(rows.end(), chunk + 8, chunk + 8 + size);
    else if (rows.empty())
      head.assign(file.data(), chunk + 12 + size);
  }
  if (rows.empty()) return file;
  Data packed(compressBound(static_cast<uLong>(rows.size())) + 100);
  z_stream z{};
  deflateInit2(&z, level, Z_DEFLATED, /*windowBits=*/15, /*memLevel=*/8, strategy);
  z.next_in = rows.data(), z.avail_in = static_cast<uInt>(rows.size());
  z.next_out = packed.data(), z.avail_out = static_cast<uInt>(packed.size());
  deflate(&z, Z_FINISH);
  PutChunk(&head, "IDAT", packed.data(), z.total_out);
  deflateEnd(&z);
  PutChunk(&head, "IEND", nullptr, 0);
  return head;
}

}  // namespace
}  // namespace jaxdali

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace jaxdali;
  static PngComparison comparison;
  InputChoices choose(input, size);
  Data file = choose.file();
  if (choose.below(2)) {
    const int level = choose.below(4), strategy = choose.below(5);
    file = CompressRows(file, level, strategy);
  }
  if (choose.below(4)) CorrectChecksums(&file);
  if (choose.below(2))
    DecodeAnyhow(file, choose);
  else if (!comparison.Compare(file, choose, "the input"))
    Fail();
  return 0;
}
