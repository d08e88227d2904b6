// Compares the CPU's own JPEG decoder with libjpeg-turbo, for fuzzers.
#ifndef JAXDALI_FFI_FUZZ_COMPARE_JPEG_H_
#define JAXDALI_FFI_FUZZ_COMPARE_JPEG_H_

#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "ffi/common/thread_pool.h"
#include "ffi/cpu_codecs/raster_output.h"
#include "ffi/fuzz/checksum.h"
#include "ffi/fuzz/image_cases.h"
#include "ffi/jpeg/baseline.h"

namespace jaxdali {

class JpegComparison {
 public:
  // helpers: the threads that share an image in one of the decodings; 0: there is no such decoding.
  explicit JpegComparison(int helpers) : helpers_(helpers), pool_(1 + helpers) {}

  // Decodes a file with libjpeg-turbo and in each of the ways of `Decoding`, compares them, and counts the outcomes.
  // is_usual: to RGB bytes, otherwise to a random type. is_partial: a random region. Half of the time the image is
  // scaled down.
  void Compare(const Data& data, bool is_usual, bool is_partial, Choices& choose, const std::string& name) {
    const ImageFile file(data);
    ImageInfo info = file.info;
    if (!file.IsDecoded(kMaxPixels) || info.format != static_cast<int32_t>(Format::kJpeg)) return;
    if (choose.below(2) == 0) ChooseScale(&info, choose);
    if (is_partial) ChooseRegion(&info, choose);
    constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kU16, DType::kF32};
    DecodeOptions options{ImageType::kRgb, /*adjust_orientation=*/true, /*fast_idct=*/false};
    DType dtype = DType::kU8;
    if (!is_usual) {
      options.type = static_cast<ImageType>(choose.below(5));
      options.adjust_orientation = choose.below(3) != 0;
      dtype = kTypes[choose.below(4)];
    }
    const size_t bytes = static_cast<size_t>(int64_t{info.region_h} * info.region_w *
                                             OutputChannels(info, options.type) * SizeOf(dtype));
    auto expected = Exact<uint8_t>(bytes), actual = Exact<uint8_t>(bytes);
    RasterOutput turbo(info, options, dtype, expected.get());
    const Status status = DecodeJpegByTurbo(file.data.get(), file.size, info, options, &turbo);
    bool is_decoded = false;
    OtherKernels& other_kernels = other_kernels_[turn_++ % std::size(other_kernels_)];
    for (Decoding decoding : {kBest, kOtherKernels, kThreads}) {
      if (decoding == kThreads) {
        if (helpers_ == 0) break;
        while (pool_.idle() < helpers_) std::this_thread::yield();
        options.helpers = {&pool_, int64_t{32} << choose.below(8)};
      }
      RasterOutput output(info, options, dtype, actual.get());
      if (!DecodeJpegByBaseline(file.data.get(), file.size, info, options,
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
  static constexpr int64_t kMaxPixels = 1 << 17;

  // The decoder's kernels: the best ones for this CPU, others, or the best ones in several threads.
  enum Decoding { kBest, kOtherKernels, kThreads };

  const int helpers_;
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
  ThreadPool pool_;
  int equal_ = 0, refused_ = 0, refused_good_ = 0, equal_by_threads_ = 0, refused_by_threads_ = 0, failures_ = 0;
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_COMPARE_JPEG_H_
