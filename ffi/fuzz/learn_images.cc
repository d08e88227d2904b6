// libFuzzer's harness of images in all formats: reads their headers, and decodes WebP. JPEG and PNG have their own. An
// input is 32 bytes of choices (InputChoices) and a file.
#include "ffi/fuzz/image_cases.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  jaxdali::InputChoices choose(input, size);
  jaxdali::DecodeAnyhow(choose.file(), choose);
  return 0;
}
