// libFuzzer's harness of the JPEG decoders. An input is 32 bytes of choices (InputChoices) and a file. The first choice
// says what happens to the file:
//
//   0  the CPU decodes it with any options
//   1  its own decoder and libjpeg-turbo must agree
//   2  the host makes the operands of the CUDA decoder. (The emulation of its kernels takes too long to learn from.)
#include <cstdint>

#include "ffi/cuda_jpeg/compact.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/fuzz/compare_jpeg.h"

namespace jaxdali {
namespace {

// Makes the row and, of a progressive file, the coefficients for the kernels.
void MakeOperands(const Data& data, Choices& choose) {
  ImageFile file(data);
  if (!file.IsDecoded(kLearnedPixels) || file.info.format != static_cast<int32_t>(Format::kJpeg)) return;
  const auto type = static_cast<ImageType>(choose.below(5));
  if (choose.below(2)) ChooseRegion(&file.info, choose);
  jpeg::ImageTable row;
  jpeg::Compact compact{};
  if (!jpeg::MakeTable(file.data.get(), file.size, file.info, &row))
    jpeg::MakeCompact(file.data.get(), file.size, file.info, type, /*max_bytes=*/INT32_MAX, &compact, &row);
}

}  // namespace
}  // namespace jaxdali

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace jaxdali;
  static JpegComparison comparison(/*helpers=*/0);
  InputChoices choose(input, size);
  const Data file = choose.file();
  switch (choose.below(3)) {
    case 0:
      DecodeAnyhow(file, choose);
      break;
    case 1: {
      const bool is_usual = choose.below(2), is_partial = choose.below(2);
      comparison.Compare(file, is_usual, is_partial, choose, "the input");
      if (comparison.failures()) Fail();
      break;
    }
    case 2:
      MakeOperands(file, choose);
      break;
  }
  return 0;
}
