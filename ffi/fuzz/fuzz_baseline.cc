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
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ffi/common/thread_pool.h"
#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/fuzz/checksum.h"
#include "ffi/fuzz/mutator.h"
#include "ffi/fuzz/progressive_writer.h"
#include "ffi/jpeg/baseline.h"

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
  // Prints the outcomes since the last call. Threads share a file when they are idle, so the number of files left to
  // libjpeg-turbo varies. It is printed apart from the numbers that must be equal in each run and on each machine.
  void Print(const char* title) {
    std::printf("%s: %d decoded and equal, %d left to libjpeg-turbo, of which it decodes %d\n", title, equal_, refused_,
                refused_good_);
    std::fflush(stdout);
    std::fprintf(stderr, "%s, by several threads: %d decoded and equal, %d left that one thread decodes\n", title,
                 equal_by_threads_, refused_by_threads_);
    equal_ = refused_ = refused_good_ = equal_by_threads_ = refused_by_threads_ = 0;
  }
  void PrintChecksum() const { std::printf("checksum of the pixels: %s\n", checksum_.text().c_str()); }
  int equal() const { return equal_; }
  int failures() const { return failures_; }

 private:
  // Coefficients that no real image has overflow in libjpeg-turbo's NEON code in another way than in its x86-64 code,
  // which this decoder reproduces everywhere. On other CPUs the kernels are compared with each other, and the checksum
  // with that of x86-64.
#if defined(__x86_64__)
  static constexpr bool kHasReference = true;
#else
  static constexpr bool kHasReference = false;
#endif
  static constexpr int64_t kMaxPixels = 1 << 17;  // larger images cost time and find nothing else
  static constexpr int kHelpers = 2;

  // The decoder's kernels: the best ones for this CPU, others, or the best ones in several threads.
  enum Decoding { kBest, kOtherKernels, kThreads };

  // The offsets of all restart markers.
  static std::vector<size_t> RestartMarkers(const Data& data) {
    std::vector<size_t> places;
    for (size_t offset = 0; offset + 1 < data.size(); offset++)
      if (data[offset] == 0xFF && (data[offset + 1] & 0xF8) == 0xD0) places.push_back(offset);
    return places;
  }

  // Decodes a file with libjpeg-turbo and in each of the ways of `Decoding`, compares them, and counts the outcomes.
  // is_usual: to RGB bytes, otherwise to a random type. is_partial: a random region. Half of the time the image is
  // scaled down.
  void Check(const Data& data, bool is_usual, bool is_partial, const std::string& name) {
    const int64_t size = static_cast<int64_t>(data.size());
    auto input = Exact<uint8_t>(data.size());
    std::copy(data.begin(), data.end(), input.get());
    ImageInfo info = ParseHeader(input.get(), size);
    if (info.status != kOk || info.format != static_cast<int32_t>(Format::kJpeg) || info.host_decode ||
        int64_t{info.height} * info.width > kMaxPixels)
      return;
    if (mutate_.below(2) == 0) {  // scaled down
      const int scale = 2 << mutate_.below(3);
      info.height = info.region_h = (info.height + scale - 1) / scale;
      info.width = info.region_w = (info.width + scale - 1) / scale;
    }
    if (is_partial) {
      info.region_y = mutate_.below(info.height);
      info.region_x = mutate_.below(info.width);
      info.region_h = 1 + mutate_.below(info.height - info.region_y);
      info.region_w = 1 + mutate_.below(info.width - info.region_x);
    }
    constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kU16, DType::kF32};
    DecodeOptions options{ImageType::kRgb, /*adjust_orientation=*/true, /*fast_idct=*/false};
    DType dtype = DType::kU8;
    if (!is_usual) {
      options = {static_cast<ImageType>(mutate_.below(5)), mutate_.below(3) != 0, /*fast_idct=*/false};
      dtype = kTypes[mutate_.below(4)];
    }
    const size_t bytes = static_cast<size_t>(int64_t{info.region_h} * info.region_w *
                                             OutputChannels(info, options.type) * SizeOf(dtype));
    auto expected = Exact<uint8_t>(bytes), actual = Exact<uint8_t>(bytes);
    RasterOutput turbo(info, options, dtype, expected.get());
    const Status status = DecodeJpegByTurbo(input.get(), size, info, options, &turbo);
    bool is_decoded = false;
    OtherKernels& other_kernels = other_kernels_[turn_++ % std::size(other_kernels_)];
    for (Decoding decoding : {kBest, kOtherKernels, kThreads}) {
      if (decoding == kThreads) {
        while (pool_.idle() < kHelpers) std::this_thread::yield();
        options.helpers = {&pool_, int64_t{32} << mutate_.below(8)};
      }
      RasterOutput output(info, options, dtype, actual.get());
      if (!DecodeJpegByBaseline(input.get(), size, info, options,
                                decoding == kOtherKernels ? &other_kernels.decoder : &best_, &output)) {
        refused_ += decoding != kThreads;
        refused_good_ += decoding != kThreads && status == kOk;
        refused_by_threads_ += decoding == kThreads && is_decoded;
        continue;
      }
      is_decoded |= decoding == kBest;
      if (decoding == kBest) {
        checksum_.Add(actual.get(), static_cast<int64_t>(bytes));
        if (!kHasReference) std::memcpy(expected.get(), actual.get(), bytes);
      }
      if (status == kOk && std::memcmp(actual.get(), expected.get(), bytes) == 0) {
        (decoding == kThreads ? equal_by_threads_ : equal_)++;
      } else {
        failures_++;
        std::printf("%s: %s; %d x %d, region %d %d %d %d, type %d, dtype %d, %s\n", name.c_str(),
                    status == kOk ? "pixels differ" : "decoded, but libjpeg-turbo fails", info.height, info.width,
                    info.region_y, info.region_x, info.region_h, info.region_w, static_cast<int>(options.type),
                    static_cast<int>(dtype),
                    decoding == kThreads ? "several threads"
                    : decoding == kBest  ? "best kernels"
                                         : other_kernels.name);
      }
    }
  }

  Mutator mutate_;
  jpeg::BaselineDecoder best_;
  struct OtherKernels {
    const char* name;
    jpeg::BaselineDecoder decoder;
  };
#if defined(JAXDALI_VECTORS)
  // The SIMD kernels. The best ones are the portable ones on a CPU without SIMD, and others with AVX-512.
  static const jpeg::Kernels& Simd() {
    return &jpeg::BestKernels() == &jpeg::kPortableKernels ? jpeg::kPortableKernels : jpeg::kSimdKernels;
  }
  OtherKernels other_kernels_[2] = {{"portable kernels", jpeg::BaselineDecoder(jpeg::kPortableKernels)},
                                    {"SIMD kernels", jpeg::BaselineDecoder(Simd())}};
#else
  OtherKernels other_kernels_[1] = {{"portable kernels", jpeg::BaselineDecoder(jpeg::kPortableKernels)}};
#endif
  unsigned turn_ = 0;
  Checksum checksum_;
  ThreadPool pool_{1 + kHelpers};
  int equal_ = 0, refused_ = 0, refused_good_ = 0, equal_by_threads_ = 0, refused_by_threads_ = 0, failures_ = 0;
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
  fuzzer.Print("seeds");
  for (int k = 0; k < mutations; k++) fuzzer.CheckMutation(seeds[static_cast<size_t>(k) % seeds.size()], k);
  const bool has_enough = 10 * fuzzer.equal() >= mutations;
  fuzzer.Print("mutations");
  fuzzer.PrintChecksum();
  return fuzzer.failures() != 0 || !has_enough;
}
