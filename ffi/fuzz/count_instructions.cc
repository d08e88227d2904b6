// One call of a CPU kernel on a photo, for `.ci/instructions`, which counts the instructions of jaxdali_counted below
// under callgrind. Counts don't depend on the load of the machine, as times do.
//
//   count_instructions CASE FILE
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "ffi/common/cpu.h"
#include "ffi/decode/decode.h"
#include "ffi/resize/resize.h"
#include "ffi/warp/warp.h"

// Has this name and stays a function of its own, so that callgrind finds it.
extern "C" __attribute__((noinline)) void jaxdali_counted(const std::function<void()>& call) {
  call();
  __asm__ volatile("");  // else the call is a jump, after which the function does not return
}

namespace jaxdali {
namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "count_instructions: %s\n", what);
  std::exit(1);
}

void Check(Status status) {
  if (status != kOk) Fail("the kernel failed");
}

// A dense batch of one image, and its memory.
struct Image {
  std::vector<uint8_t> memory;
  Batch batch{};

  // Pixels [height, width, channels], which are zeros.
  Image(DType dtype, int64_t height, int64_t width, int64_t channels) {
    batch.dtype = dtype;
    batch.n = 1;
    batch.ndim = 3;
    batch.dense[0] = height;
    batch.dense[1] = width;
    batch.dense[2] = channels;
    batch.capacity = height * width * channels;
    memory.resize(static_cast<size_t>(batch.capacity * SizeOf(dtype)));
    batch.data = memory.data();
  }
};

// A file, its header's facts, and its pixels as RGB bytes.
struct Photo {
  std::vector<uint8_t> file;
  ImageInfo info;
  Image pixels;

  explicit Photo(std::vector<uint8_t> data)
      : file(std::move(data)),
        info(ParseHeader(file.data(), static_cast<int64_t>(file.size()))),
        pixels(DType::kU8, info.height, info.width, 3) {
    Decode();
  }

  // Decodes the region of `info` into the beginning of `pixels`.
  void Decode() {
    Check(DecodeImage(file.data(), static_cast<int64_t>(file.size()), info,
                      {ImageType::kRgb, /*adjust_orientation=*/false, /*fast_idct=*/false, /*helpers=*/{}}, DType::kU8,
                      pixels.memory.data(), info.region_h, info.region_w, 3));
  }
};

// Runs a call once uncounted, which fills tables and caches, then counts.
void Count(const std::function<void()>& call) {
  call();
  jaxdali_counted(call);
}

void DecodeWhole(Photo& photo) {
  Count([&] { photo.Decode(); });
}

// Counts the decoding of a part of the image, half as high and wide as the whole.
void DecodeWindow(Photo& photo) {
  photo.info.region_y = photo.info.height / 3;
  photo.info.region_x = photo.info.width / 4;
  photo.info.region_h = photo.info.height / 2;
  photo.info.region_w = photo.info.width / 2;
  Count([&] { photo.Decode(); });
}

// Counts the resizing of the whole photo to size x size pixels.
void ResizeTo(Photo& photo, int64_t size, Interp filter, DType type) {
  Image out(type, size, size, 3);
  const float roi[] = {0, static_cast<float>(photo.info.height), 0, static_cast<float>(photo.info.width)};
  const int32_t filters[] = {static_cast<int32_t>(filter), static_cast<int32_t>(filter)};
  const ResizeBatch b{photo.pixels.batch, out.batch,         roi, filters, /*first_axis=*/0,
                      /*num_axes=*/2,     /*antialias=*/true};
  Count([&] { Check(Resize(b, 0)); });
}

// Counts the rotation of the photo about its centre by 10 degrees.
void Rotate(Photo& photo, bool linear, DType type) {
  const int64_t height = photo.info.height, width = photo.info.width;
  Image out(type, height, width, 3);
  const double x = static_cast<double>(width) / 2, y = static_cast<double>(height) / 2;  // the centre
  const double c = 0.984807753, s = 0.173648178;                                         // of 10 degrees
  const double map[] = {c, -s, x - c * x + s * y, s, c, y - s * x - c * y};
  const float fill = 0;
  const WarpBatch b{photo.pixels.batch, out.batch, map, &fill, /*dims=*/2, /*first=*/0, linear, /*has_fill=*/true};
  Count([&] { Check(Warp(b, 0)); });
}

const std::map<std::string, std::function<void(Photo&)>> kCases = {
    {"decode", DecodeWhole},
    {"decode_window", DecodeWindow},
    {"resize_linear", [](Photo& p) { ResizeTo(p, 224, Interp::kLinear, DType::kU8); }},
    {"resize_linear_float", [](Photo& p) { ResizeTo(p, 224, Interp::kLinear, DType::kF32); }},
    {"resize_cubic_larger", [](Photo& p) { ResizeTo(p, 640, Interp::kCubic, DType::kU8); }},
    {"warp_linear", [](Photo& p) { Rotate(p, /*linear=*/true, DType::kU8); }},
    {"warp_nearest", [](Photo& p) { Rotate(p, /*linear=*/false, DType::kU8); }},
    {"warp_linear_float", [](Photo& p) { Rotate(p, /*linear=*/true, DType::kF32); }},
};

}  // namespace
}  // namespace jaxdali

// Runs one case on a file: uncounted first, then in jaxdali_counted, whose instructions callgrind counts.
int main(int argc, char** argv) {
  using namespace jaxdali;
  const auto case_entry = argc == 3 ? kCases.find(argv[1]) : kCases.end();
  if (case_entry == kCases.end()) Fail("usage: count_instructions CASE FILE");
#if defined(__x86_64__)
  if (!ThisCpu().avx2) Fail("this CPU has no AVX2");
#endif
  std::ifstream stream(argv[2], std::ios::binary);
  std::vector<uint8_t> data{std::istreambuf_iterator<char>(stream), {}};
  if (data.empty()) Fail("the file is missing or empty");
  Photo photo(std::move(data));
  case_entry->second(photo);
  return 0;
}
