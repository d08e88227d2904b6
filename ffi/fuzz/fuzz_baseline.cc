// Fuzzes the CPU's own JPEG decoder. If it accepts a file, its pixels must be libjpeg-turbo's and libjpeg-turbo must
// not warn. No mutation may make it read or write outside the data, its buffers or the output. It runs the portable
// kernels, those for this CPU, and several threads. The program threads_baseline does this under ThreadSanitizer.
//
//   fuzz_baseline FOLDER [MUTATIONS [SEED]]
//
// Every *.jpg and *.jpeg of FOLDER is a seed file, and so is a progressive file with random scans that is made from it.
// The seeds are decoded first: whole, in parts, and at 1/2, 1/4 and 1/8 of their size, to all image types and several
// element types. Input and output are heap blocks of exactly the right size. Exits with 1 if results differ, or if
// hardly any mutation is decoded.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ffi/fuzz/compare_jpeg.h"
#include "ffi/fuzz/mutator.h"
#include "ffi/fuzz/progressive_writer.h"

namespace jaxdali {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : mutate_(seed) {}

  // Decodes a seed, progressive files made from it, and copies with a wrong restart marker.
  void CheckSeed(const SeedFile& seed) {
    for (int k = 0; k < 12; k++) Check(seed.data, /*is_usual=*/k == 0, /*is_partial=*/k > 3, seed.name);
    for (int k = 0; k < 4; k++)
      Check(AsProgressive(seed.data, &mutate_), /*is_usual=*/k == 0, /*is_partial=*/k > 1, seed.name + ", progressive");
    const std::vector<size_t> markers = RestartMarkers(seed.data);
    for (int k = 0; k < 40 && !markers.empty(); k++) {
      Data damaged = seed.data;
      damaged[markers[mutate_.below(markers.size())] + 1] ^= static_cast<uint8_t>(1 + mutate_.below(3));
      Check(damaged, /*is_usual=*/false, /*is_partial=*/k > 1, seed.name + ", wrong restart marker");
    }
  }
  // Decodes mutation k of a seed. Half of them are changed files. The others are progressive, and half of those
  // changed.
  void CheckMutation(const SeedFile& seed, int k) {
    const std::string name = "mutation " + std::to_string(k) + " of " + seed.name;
    if (k % 4 < 2) return Check(mutate_(seed.data), /*is_usual=*/k % 2 == 0, /*is_partial=*/k % 3 == 0, name);
    const Data progressive = AsProgressive(seed.data, &mutate_);
    Check(k % 8 < 4 ? progressive : mutate_(progressive), /*is_usual=*/k % 2 == 0, /*is_partial=*/k % 3 == 0,
          name + ", progressive");
  }
  JpegComparison& comparison() { return comparison_; }

 private:
  // The offsets of all restart markers.
  static std::vector<size_t> RestartMarkers(const Data& data) {
    std::vector<size_t> places;
    for (size_t offset = 0; offset + 1 < data.size(); offset++)
      if (data[offset] == 0xFF && (data[offset + 1] & 0xF8) == 0xD0) places.push_back(offset);
    return places;
  }

  void Check(const Data& data, bool is_usual, bool is_partial, const std::string& name) {
    comparison_.Compare(data, is_usual, is_partial, mutate_, name);
  }

  Mutator mutate_;
  JpegComparison comparison_{/*helpers=*/2};
};

}  // namespace
}  // namespace jaxdali

// Checks the seeds, then mutations of them. Returns 1 after a failure, or if less than a tenth of the mutations were
// decoded with equal results, since they would test little.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_baseline FOLDER [MUTATIONS [SEED]]\n");
    return 2;
  }
  const auto seeds = jaxdali::ReadSeeds(argv[1], {".jpg", ".jpeg"});
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no JPEG files\n", argv[1]);
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 2000;
  jaxdali::Fuzzer fuzzer(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  for (const auto& seed : seeds) fuzzer.CheckSeed(seed);
  fuzzer.comparison().Print("seeds");
  for (int k = 0; k < mutations; k++) fuzzer.CheckMutation(seeds[static_cast<size_t>(k) % seeds.size()], k);
  const bool has_enough = 10 * fuzzer.comparison().equal() >= mutations;
  fuzzer.comparison().Print("mutations");
  fuzzer.comparison().PrintChecksum();
  return fuzzer.comparison().failures() != 0 || !has_enough;
}
