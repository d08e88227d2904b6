// Checks the chains of GPUs: a resize or a warp and a window in one kernel, compared to the bit with these kernels one
// after the other. (check_chain.cc has the chains of the CPU.)
#include "ffi/chain/chain.cu"
#include "ffi/common/stages.h"
#include "ffi/fuzz/check_kernels.h"

namespace jaxdali {
namespace {

// Runs a window behind a first kernel both ways. `launch` runs the first kernel alone, which makes the window's images.
template <class B>
void CheckWindowed(B first_kernel, DType image_type, const Shapes& image_shapes, Random& random,
                   const char* (*launch)(const B&, const Samples&, void*)) {
  const int n = first_kernel.in.n;
  Memory image(image_type, image_shapes, /*dense=*/false, kNoneBroken, random);
  std::vector<int32_t> start, step, extent;
  Shapes out;
  const bool is_planar = random(2);
  for (const auto& shape : image_shapes) {
    std::vector<int> result;
    for (int d = 0; d < 3; d++) {
      const int size = shape[static_cast<size_t>(d)];
      const bool is_whole = random(3) == 0 || (d == 2 && random(4));
      const int stride = is_whole || random(4) ? 1 : 1 + random(3);
      const int num_taken = is_whole ? size : size == 0 ? 0 : 1 + random((size - 1) / stride + 1);
      int first = size == 0 || is_whole ? 0 : random(size - (num_taken - 1) * stride);
      const bool is_mirrored = num_taken > 0 && random(3) == 0;
      if (is_mirrored) first += (num_taken - 1) * stride;
      if (random(80) == 0) first += 2;  // may reach outside
      start.push_back(first);
      step.push_back(is_mirrored ? -stride : stride);
      extent.push_back(num_taken);
      result.push_back(num_taken);
    }
    if (is_planar) std::rotate(result.begin(), result.begin() + 2, result.end());
    out.push_back(result);
  }
  WindowBatch w{image.batch, /*out=*/{}, start.data(), step.data(), extent.data()};
  // The axes of the output: height, width, channels, or the channels first.
  const int orders[2][3] = {{0, 1, 2}, {2, 0, 1}};
  std::copy_n(orders[is_planar], 3, w.permutation);
  w.channel = 2;
  constexpr DType kTypes[] = {DType::kU8, DType::kF16, DType::kBF16, DType::kF32};
  const DType type = kTypes[random(4)];
  w.scales = random(4);
  std::vector<float> numbers;
  for (int i = 0; i < 4 * n; i++) numbers.push_back(static_cast<float>(random.Uniform(-2, 2)));
  w.scale = w.offset = numbers.data();

  first_kernel.out = image.batch;
  std::vector<int32_t> present(static_cast<size_t>(n), 1), status(present);
  const std::unique_ptr<uint8_t[]> plans(new uint8_t[static_cast<size_t>(n) * kPlanBytes]);
  launch(first_kernel, Samples{n, present.data(), status.data(), plans.get()}, nullptr);

  // Both in one kernel: the image between them has no memory.
  Windowed<B> b{first_kernel.in, {}, first_kernel, w};
  b.maker.out.data = nullptr;
  b.maker.out.capacity = std::numeric_limits<int64_t>::max();
  auto fused = [](const Windowed<B>& call, const Samples& samples, void* stream) {
    Windowed<B> with_out = call;
    with_out.window.out = call.out;
    with_out.window.in.data = nullptr;
    return LaunchWindowed(with_out, samples, stream);
  };
  auto run_window = [&](const Windowed<B>& call, int i) {
    if (status[static_cast<size_t>(i)] != kOk) return static_cast<Status>(status[static_cast<size_t>(i)]);
    WindowBatch window = call.window;
    window.out = call.out;
    return InStage(1, Window(window, i));  // the window is the second stage
  };
  Run("chain", b, type, out, /*dense=*/false, kNoneBroken, random, fused, run_window, /*exact=*/true);
}

// Random shapes of the first kernel's images, and of those that it makes of them.
struct Images {
  // The largest extent of most images, and of one in twenty, which has several tiles.
  static constexpr int kUsualExtent = 70, kLargeExtent = 600;

  Shapes in, out;
  bool dense;

  // One to four images. Those of a dense batch have the shape of the first one.
  explicit Images(Random& random) : dense(random(3) == 0) {
    for (int i = 1 + random(4); i > 0; i--) {
      const int channels = random(2) ? 3 : 1 + random(kMostTileChannels);
      auto extent = [&] { return random.Extent(random(20) ? kUsualExtent : kLargeExtent); };
      in.push_back(dense && !in.empty() ? in[0] : std::vector<int>{extent(), extent(), channels});
      out.push_back({extent(), extent(), in.back()[2]});
    }
  }
};

// One random batch: images that are resized or warped, before the window of CheckWindowed.
// `random(k)` is a number below k, so it is 0 once in k times.
void TryChain(Random& random) {
  const Images images(random);
  const Memory memory(DType::kU8, images.in, images.dense, BrokenSample(random), random);
  if (random(2)) {
    std::vector<float> roi;
    std::vector<int32_t> filters;
    for (const auto& shape : images.in) {
      for (size_t d = 0; d < 2; d++) {
        const std::pair<float, float> interval = random.Interval(shape[d]);
        roi.insert(roi.end(), {interval.first, interval.second});
      }
      filters.push_back(random(6));
      filters.push_back(random(3) ? filters.back() : random(6));
    }
    const ResizeBatch b{memory.batch,     /*out=*/{},     roi.data(),   filters.data(),
                        /*first_axis=*/0, /*num_axes=*/2, random(4) > 0};
    return CheckWindowed(b, random(4) ? DType::kU8 : DType::kF32, images.out, random, LaunchResize);
  }
  std::vector<double> map;
  std::vector<float> fill;
  for (size_t i = 0; i < images.in.size(); i++) {
    const double max_coefficient = random(3) ? 1 : 3;
    for (int s = 0; s < 2; s++) {
      for (int k = 0; k < 2; k++)
        map.push_back(random(3) ? random.Uniform(-max_coefficient, max_coefficient) : random(3) - 1);
      map.push_back(random.Uniform(-20, 60));
    }
    fill.push_back(static_cast<float>(random(200)));
  }
  const WarpBatch b{memory.batch,
                    /*out=*/{},
                    map.data(),
                    fill.data(),
                    /*dims=*/2,
                    /*first=*/0,
                    /*linear=*/random(3) > 0,
                    /*has_fill=*/random(2) > 0};
  CheckWindowed(b, DType::kU8, images.out, random, LaunchWarp);
}

JAXDALI_CHECK(chain, TryChain)

}  // namespace
}  // namespace jaxdali
