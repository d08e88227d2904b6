// Counts the PTX instructions of CUDA kernels for photos of 224 x 224 in bytes. The time of a kernel that is bound by
// instructions is proportional to them.
//
//   count_kernels [TEXT]   only the cases whose name contains the text
#include <algorithm>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ffi/color/color.h"
#include "ffi/common/samples.h"
#include "ffi/equalize/equalize.h"
#include "ffi/filter/filter.h"
#include "ffi/fuzz/ptx/launch.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"
#include "ffi/paste/paste.h"
#include "ffi/reduce/reduce.h"
#include "ffi/remap/remap.h"
#include "ffi/resize/resize.h"
#include "ffi/stencil/stencil.h"
#include "ffi/table/table.h"
#include "ffi/warp/warp.h"
#include "ffi/window/window.h"

namespace jaxdali {
namespace {

constexpr int kSide = 224, kChannels = 3;

// A batch of one sample.
struct Image {
  // Elements of the type, [shape...]. The bytes have no meaning.
  Image(DType dtype, std::initializer_list<int64_t> shape) {
    batch.dtype = dtype;
    batch.n = 1;
    batch.capacity = 1;
    for (const int64_t n : shape) {
      batch.dense[batch.ndim++] = n;
      batch.capacity *= n;
    }
    for (int64_t k = 0; k < batch.capacity * SizeOf(dtype); k++) data.push_back(static_cast<uint8_t>(k * k >> 5));
    batch.data = data.data();
  }
  Image(Image&&) = default;  // the batch points to the data

  std::vector<uint8_t> data;
  Batch batch{};
};

class Counter {
 public:
  explicit Counter(std::string only) : only_(std::move(only)) {}

  // Runs a kernel, if its name contains the text, and prints the instructions for each element. `set` fills in what the
  // kernel needs besides its input and output.
  template <class B, class Launch>
  void operator()(const char* name, Launch launch, Image in, Image out, std::function<void(B*)> set) {
    if (std::string(name).find(only_) == std::string::npos) return;
    B batch{};
    batch.in = in.batch;
    batch.out = out.batch;
    std::vector<float> scratch(1 << 20);  // more than any kernel needs
    if constexpr (requires { batch.scratch; }) {
      batch.scratch = scratch.data();
      batch.scratch_size = static_cast<int64_t>(scratch.size());
    }
    set(&batch);
    const std::vector<int32_t> present{1};
    std::vector<int32_t> status{-1};
    std::vector<uint8_t> plans(kPlanBytes);
    const uint64_t before = ptx::InstructionCount();
    const char* error = launch(batch, Samples{1, present.data(), status.data(), plans.data()}, nullptr);
    if (error || status[0] != kOk) {
      std::printf("%s: %s, status %d\n", name, error ? error : "no error", status[0]);
      failures++;
    }
    const double count = static_cast<double>(ptx::InstructionCount() - before);
    std::printf("%-40s %8.1f\n", name, count / static_cast<double>(std::max(in.batch.capacity, out.batch.capacity)));
  }

  int failures = 0;

 private:
  std::string only_;
};

Image Photo(DType dtype = DType::kU8) { return Image(dtype, {kSide, kSide, kChannels}); }
Image Planes(DType dtype) { return Image(dtype, {kChannels, kSide, kSide}); }

// `window` between bytes, floats and planes.
void CountWindows(Counter& count) {
  // A mirrored window; to planes and with a scale and an offset for each channel, if there are any.
  const std::vector<int32_t> start{0, kSide - 1, 0}, step{1, -1, 1}, extent{kSide, kSide, kChannels};
  const std::vector<float> scale{.1F, .2F, .3F}, offset{1, 2, 3};
  const auto window = [&](WindowBatch* b) {
    b->start = start.data();
    b->step = step.data();
    b->extent = extent.data();
    b->channel = 2;
    for (int d = 0; d < 3; d++) b->permutation[d] = d;
  };
  const auto normalized = [&](WindowBatch* b) {
    window(b);
    b->scales = kChannels;
    b->scale = scale.data();
    b->offset = offset.data();
  };
  const auto to_planes = [&](WindowBatch* b) {
    normalized(b);
    for (int d = 0; d < 3; d++) b->permutation[d] = (d + 2) % 3;
  };
  count.operator()<WindowBatch>("window: mirrored u8", LaunchWindow, Photo(), Photo(), window);
  count.operator()<WindowBatch>("window: normalized u8 to f32", LaunchWindow, Photo(), Photo(DType::kF32), normalized);
  count.operator()<WindowBatch>("window: normalized u8 to f32 planes", LaunchWindow, Photo(), Planes(DType::kF32),
                                to_planes);
  count.operator()<WindowBatch>("window: normalized u8 to f16 planes", LaunchWindow, Photo(), Planes(DType::kF16),
                                to_planes);
  count.operator()<WindowBatch>("window: normalized f32 to f32 planes", LaunchWindow, Photo(DType::kF32),
                                Planes(DType::kF32), to_planes);
}

// Kernels that make each pixel from one pixel.
void CountPixels(Counter& count) {
  const std::vector<float> matrix{.9F, .1F, .1F, 5, .1F, .9F, .1F, 5, .1F, .1F, .9F, 5};
  count.operator()<ColorBatch>("color: 3 x 3", LaunchColor, Photo(), Photo(), [&](ColorBatch* b) {
    b->matrix = matrix.data();
    b->in_channels = b->out_channels = kChannels;
  });
  const std::vector<uint8_t> tables(kChannels * 256, 7);
  count.operator()<TableBatch>("table: of each channel", LaunchTable, Photo(), Photo(), [&](TableBatch* b) {
    b->table = tables.data();
    b->tables = kChannels;
  });
  // The input, the place in it (y, x), height, width, and the place in the output (y, x).
  const std::vector<PasteRegion> regions{{0, 0, 0, kSide, kSide / 2, 0, 0}, {0, 0, 0, 20, 20, 30, 30}};
  count.operator()<PasteBatch>("paste: two regions", LaunchPaste, Photo(), Photo(), [&](PasteBatch* b) {
    b->regions = regions.data();
    b->most = 2;
  });
}

// Kernels that make each pixel from its neighbours, in windows of n x n.
void CountNeighbourhoods(Counter& count) {
  for (const int n : {3, 5, 13, 31}) {
    const std::vector<float> window(static_cast<size_t>(2 * n), 1.F / static_cast<float>(n));
    const std::vector<int32_t> taps{n, n};
    const std::string name = "filter: " + std::to_string(n) + " x " + std::to_string(n);
    count.operator()<FilterBatch>(name.c_str(), LaunchFilter, Photo(), Photo(), [&](FilterBatch* b) {
      b->window = window.data();
      b->taps = taps.data();
      b->axes = 2;
      b->most = n;
    });
  }
  for (const int n : {3, 5, 7, 15}) {
    const std::vector<int32_t> window{n, n}, anchor{n / 2, n / 2};
    const std::vector<float> fill{0};
    const std::vector<float> weights(static_cast<size_t>(n * n), 1.F / static_cast<float>(n * n));
    for (const auto& [reduction, name] :
         {std::pair{StencilReduction::kMedian, "median"}, std::pair{StencilReduction::kMax, "dilation"},
          std::pair{StencilReduction::kSum, "convolution"}}) {
      const std::string full = "stencil: " + std::string(name) + ' ' + std::to_string(n) + " x " + std::to_string(n);
      count.operator()<StencilBatch>(full.c_str(), LaunchStencil, Photo(), Photo(), [&](StencilBatch* b) {
        b->window = window.data();
        b->anchor = anchor.data();
        b->fill = fill.data();
        b->weights = weights.data();
        b->most = n * n;
        b->axes = 2;
        b->reduction = reduction;
        b->border = Border::kReplicate;
      });
    }
  }
}

// Kernels whose result depends on the whole image.
void CountWholes(Counter& count) {
  for (const bool channels : {false, true}) {
    count.operator()<ReduceBatch>(channels ? "reduce: sum of channels" : "reduce: sum of all", LaunchReduce, Photo(),
                                  Image(DType::kF32, {channels ? kChannels : 1}), [&](ReduceBatch* b) {
                                    b->reduction = Reduction::kSum;
                                    b->axes = channels ? 3 : 7;  // a bit for each axis: height, width, channels
                                  });
  }
  const std::vector<float> limit{0};
  const std::vector<int32_t> first{0};
  count.operator()<EqualizeBatch>("equalize: channels", LaunchEqualize, Photo(), Photo(), [&](EqualizeBatch* b) {
    b->limit = limit.data();
    b->first_table = first.data();
    b->tiles_y = b->tiles_x = 1;
  });
  const std::vector<int32_t> quantizers(128, 9);
  count.operator()<JpegDistortionBatch>("jpeg_distortion", LaunchJpegDistortion, Photo(), Photo(),
                                        [&](JpegDistortionBatch* b) {
                                          b->tables = quantizers.data();
                                          b->first_unit = first.data();
                                        });
}

// Kernels that move pixels: a rotation, the same as a projection, and two sizes.
void CountGeometry(Counter& count) {
  const std::vector<double> rotation{.97, .26, -9, -.26, .97, 9}, projection{.97, .26, -9, -.26, .97, 9, 0, 0, 1};
  const std::vector<float> fill{0}, roi{0, kSide, 0, kSide};
  const std::vector<int32_t> applied{1}, linear{1, 1}, cubic{2, 2};
  count.operator()<WarpBatch>("warp: rotation, linear", LaunchWarp, Photo(), Photo(), [&](WarpBatch* b) {
    b->map = rotation.data();
    b->fill = fill.data();
    b->dims = 2;
    b->linear = b->has_fill = true;
  });
  for (const Interp sampling : {Interp::kNN, Interp::kLinear, Interp::kCubic}) {
    const char* names[] = {"remap: nearest", "remap: linear", "remap: cubic"};
    count.operator()<RemapBatch>(names[static_cast<int>(sampling)], LaunchRemap, Photo(), Photo(), [&](RemapBatch* b) {
      b->numbers = projection.data();
      b->fill = fill.data();
      b->applied = applied.data();
      b->fills = 1;
      b->points = Points::kProjective;
      b->sampling = sampling;
      b->border = Border::kReplicate;
    });
  }
  const auto resize = [&](const std::vector<int32_t>& filters) {
    return [&](ResizeBatch* b) {
      b->roi = roi.data();
      b->filters = filters.data();
      b->num_axes = 2;
      b->antialias = true;
    };
  };
  const auto square = [](int64_t side) { return Image(DType::kU8, {side, side, kChannels}); };
  count.operator()<ResizeBatch>("resize: 224 to 100, linear", LaunchResize, Photo(), square(100), resize(linear));
  count.operator()<ResizeBatch>("resize: 224 to 448, cubic", LaunchResize, Photo(), square(448), resize(cubic));
}

}  // namespace
}  // namespace jaxdali

// Prints the counts of all kernels, or of those whose name contains argv[1]. Returns 1 if one fails.
int main(int argc, char** argv) {
  jaxdali::Counter count(argc > 1 ? argv[1] : "");
  std::printf("PTX instructions for each element of the larger of input and output\n");
  jaxdali::CountWindows(count);
  jaxdali::CountPixels(count);
  jaxdali::CountNeighbourhoods(count);
  jaxdali::CountWholes(count);
  jaxdali::CountGeometry(count);
  return count.failures > 0;
}
