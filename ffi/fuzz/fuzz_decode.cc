// Mutates JPEG and PNG files and decodes them under the sanitizers. No mutation may cause an access outside the data or
// the output.
//
//   fuzz_decode FOLDER [MUTATIONS [SEED]]
//
// Every *.jpg, *.jpeg and *.png of FOLDER is a seed file. SEED alone determines the sequence of mutations. Input and
// output are heap blocks of exactly the right size, so that AddressSanitizer sees an access one byte too far. Exits
// with 1 if fewer than a fifth of the mutations decode, because such mutations are too coarse to reach the decoders.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "ffi/fuzz/image_cases.h"
#include "ffi/fuzz/mutator.h"

using jaxdali::DType;

// Decodes mutations of the seeds, and prints how many had each outcome. Returns 1 if less than a fifth could be
// decoded, since they would test little.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_decode FOLDER [MUTATIONS [SEED]]\n");
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 2000;
  jaxdali::Mutator mutate(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);

  const auto seeds = jaxdali::ReadSeeds(argv[1], {".jpg", ".jpeg", ".png"});
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no JPEG or PNG files\n", argv[1]);
    return 2;
  }

  // A small file that claims a huge image finds no memory errors and takes seconds.
  constexpr int64_t kMaxPixels = 1 << 20;
  constexpr DType kTypes[] = {DType::kU8, DType::kU16, DType::kF32, DType::kI16, DType::kF16, DType::kBF16};
  std::map<std::string, int> outcomes;
  int num_decoded = 0, num_too_large = 0;
  for (int k = 0; k < mutations; k++) {
    const jaxdali::ImageFile file(mutate(seeds[k % seeds.size()].data));
    jaxdali::ImageInfo info = file.info;
    int worst_status = info.status;
    if (info.status == jaxdali::kOk) {
      if (static_cast<int64_t>(info.height) * info.width > kMaxPixels) {
        num_too_large++;
        continue;
      }
      info.truncated = k % 2;
      if (info.palette == jaxdali::kHasPalette && k % 3 == 0) info.palette = jaxdali::kAsIndices, info.channels = 1;
      for (int type = 0; type < 5; type++) {
        // The type, adjust_orientation, fast_idct.
        const jaxdali::DecodeOptions options{static_cast<jaxdali::ImageType>(type), (k + type) % 3 != 0, type == 1};
        // RGB is the usual case and goes straight to the output. Each other type is also tested with another element
        // type.
        const DType dtype = type == 0 ? DType::kU8 : kTypes[(k / 7 + type) % 6];
        if (type == 2) jaxdali::ChooseRegion(&info, mutate);  // from this type on a part of the image
        worst_status = std::max<int>(worst_status, jaxdali::DecodeExactly(file, info, options, dtype));
      }
    }
    num_decoded += worst_status == jaxdali::kOk;
    static const char* const kText[] = {
#define TEXT(name, code, text) text,
        JAXDALI_STATUS_TABLE(TEXT)
#undef TEXT
    };
    outcomes[kText[worst_status]]++;
  }
  for (const auto& [text, n] : outcomes) std::printf("%6d  %s\n", n, text.c_str());
  std::printf("%6d  left out: more than %lld pixels\n", num_too_large, static_cast<long long>(kMaxPixels));
  std::printf("%d mutations of %zu files, %d decoded\n", mutations, seeds.size(), num_decoded);
  return num_decoded * 5 < mutations;
}
