// Runs the CUDA kernels of resize, warp, window and expand, emulated, over random batches, whose buffers are on the
// heap and exactly as long as they say: with AddressSanitizer and UBSan nothing outside is touched unnoticed. The
// status of every sample and its pixels are compared with the CPU kernels'.
//
//   check_kernels [ROUNDS] [SEED]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "ffi/expand/expand.cu"
#include "ffi/resize/resize.cu"
#include "ffi/warp/warp.cu"
#include "ffi/window/window.cu"

namespace jaxdali {
namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int operator()(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  // Mostly small, at times 0 or many.
  int Extent(int most) {
    return (*this)(40) == 0 ? 0 : (*this)(4) == 0 ? 1 + (*this)(most) : 1 + (*this)(std::min(most, 12));
  }

 private:
  std::mt19937 engine_;
};

using Shapes = std::vector<std::vector<int>>;

// The memory of a batch: nothing before it, nothing after it.
struct Memory {
  Batch batch{};
  std::unique_ptr<uint8_t[]> data;
  std::vector<int32_t> offsets, shapes;

  // Dense when all samples have one shape and it is asked for. `broken`: a sample whose shape or place is wrong, or -1.
  Memory(DType dtype, const Shapes& each, bool dense, int broken, Random& random) {
    batch.dtype = dtype;
    batch.n = static_cast<int>(each.size());
    batch.ndim = static_cast<int>(each[0].size());
    int64_t size = 0;
    for (const auto& shape : each) {
      int64_t elements = 1;
      for (int n : shape) elements *= n;
      if (!dense) size = (size + kAlignment - 1) / kAlignment * kAlignment;
      offsets.push_back(static_cast<int32_t>(size / kAlignment));
      shapes.insert(shapes.end(), shape.begin(), shape.end());
      size += elements;
    }
    batch.capacity = size;
    data.reset(new uint8_t[static_cast<size_t>(size * SizeOf(dtype))]);
    for (int64_t i = 0; i < size; i++) Fill(i, random);
    batch.data = data.get();
    if (dense) {
      for (int d = 0; d < batch.ndim; d++) batch.dense[d] = each[0][static_cast<size_t>(d)];
      return;
    }
    if (broken >= 0) {
      int32_t& what =
          random(2) ? offsets[static_cast<size_t>(broken)] : shapes[static_cast<size_t>(broken * batch.ndim)];
      what = random(2) ? -1 : 1 << 24;
    }
    batch.offsets = offsets.data();
    batch.shapes = shapes.data();
  }

 private:
  void Fill(int64_t i, Random& random) {
    uint8_t* at = data.get() + i * SizeOf(batch.dtype);
    if (batch.dtype == DType::kF32) {
      const float v = static_cast<float>(random.Uniform(-300, 300));
      std::memcpy(at, &v, sizeof v);
    } else if (batch.dtype == DType::kF16) {
      const Half v(static_cast<float>(random.Uniform(-300, 300)));
      std::memcpy(at, &v, sizeof v);
    } else {
      for (int64_t b = 0; b < SizeOf(batch.dtype); b++) at[b] = static_cast<uint8_t>(random(256));
    }
  }
};

double Value(const Batch& b, int64_t i) {
  const uint8_t* at = static_cast<const uint8_t*>(b.data) + i * SizeOf(b.dtype);
  auto as = [&](auto v) {
    std::memcpy(&v, at, sizeof v);
    return static_cast<double>(static_cast<float>(v));
  };
  switch (b.dtype) {
    case DType::kI16:
      return as(int16_t{});
    case DType::kU16:
      return as(uint16_t{});
    case DType::kI32:
      return as(int32_t{});
    case DType::kF16:
      return as(Half{});
    case DType::kF32:
      return as(float{});
    default:
      return *at;
  }
}

[[noreturn]] void Fail(const char* kernel, int i, const char* what, double got, double want) {
  std::fprintf(stderr, "%s, sample %d: %s %.9g instead of %.9g\n", kernel, i, what, got, want);
  std::exit(1);
}

// Whether the outputs of both are one up to rounding.
void Compare(const char* kernel, const Batch& got, const Batch& want, const std::vector<int32_t>& got_status,
             const std::vector<int32_t>& want_status, const std::vector<int32_t>& present) {
  for (int i = 0; i < got.n; i++) {
    const size_t k = static_cast<size_t>(i);
    if (got_status[k] != want_status[k]) Fail(kernel, i, "status", got_status[k], want_status[k]);
    if (!present[k] || want_status[k] != kOk) continue;
    double largest = 0;
    for (int64_t e = 0; e < want.size(i); e++) {
      const double v = Value(want, want.start(i) + e);
      if (std::fabs(v) > largest) largest = std::fabs(v);
    }
    const double bits = want.dtype == DType::kF16 ? 1e-3 : 1e-5;
    const bool is_float = want.dtype == DType::kF32 || want.dtype == DType::kF16;
    const double tolerance = is_float ? bits * largest : std::max(1.0, 1e-6 * largest);
    for (int64_t e = 0; e < want.size(i); e++) {
      const double a = Value(got, got.start(i) + e), b = Value(want, want.start(i) + e);
      if (!(std::fabs(a - b) <= tolerance)) Fail(kernel, i, "value", a, b);
    }
  }
}

// `launch` on `batch`, and `cpu` sample by sample on one with an output of its own.
template <class B, class Launch, class Cpu>
void Run(const char* kernel, B batch, DType out_type, const Shapes& out_shapes, bool dense, int broken, Random& random,
         Launch launch, Cpu cpu) {
  Random again(static_cast<unsigned>(random(1 << 30))), once = again;
  Memory got(out_type, out_shapes, dense, broken, again), want(out_type, out_shapes, dense, broken, once);
  std::vector<int32_t> present, status(out_shapes.size(), -1), expected;
  for (size_t i = 0; i < out_shapes.size(); i++) present.push_back(random(10) > 0);
  batch.out = want.batch;
  for (int i = 0; i < batch.out.n; i++) {
    const bool is_present = present[static_cast<size_t>(i)];
    expected.push_back(!is_present ? kOk : batch.in.valid(i) && batch.out.valid(i) ? cpu(batch, i) : kInternal);
  }
  batch.out = got.batch;
  if (const char* what = launch(batch, Samples{batch.out.n, present.data(), status.data()}, nullptr)) {
    std::fprintf(stderr, "%s: %s\n", kernel, what);
    std::exit(1);
  }
  Compare(kernel, got.batch, want.batch, status, expected, present);
}

void TryResize(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kU16, DType::kF16, DType::kF32};
  const DType type = kTypes[random(5)], out_type = random(2) ? type : DType::kF32;
  const int axes = 1 + random(3), first = random(2), rank = first + axes + random(2), n = 1 + random(4);
  const bool dense = random(3) == 0;
  Shapes in, out;
  std::vector<float> roi;
  std::vector<int32_t> filters;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      const bool resized = d >= first && d < first + axes;
      const int most = axes == 3 ? 12 : resized ? (random(20) ? 60 : 900) : d < first ? 3 : random(10) ? 5 : 300;
      shape.push_back(random.Extent(most));
      result.push_back(resized ? random.Extent(most) : shape.back());
    }
    in.push_back(dense && i > 0 ? in[0] : shape);
    out.push_back(dense && i > 0 ? out[0] : result);
    for (int d = first; d < first + axes; d++) {
      const double extent = in.back()[static_cast<size_t>(d)];
      const bool whole = random(3) == 0;
      double a = whole ? 0 : random.Uniform(-0.2, 1.2) * extent,
             b = whole ? extent : random.Uniform(-0.2, 1.2) * extent;
      if (std::fabs(a - b) < 1e-3) b = a + 1e-3;
      if (random(4) == 0) std::swap(a, b);
      roi.push_back(static_cast<float>(a));
      roi.push_back(static_cast<float>(b));
    }
    filters.push_back(random(6));
    filters.push_back(random(3) ? filters.back() : random(6));
  }
  Memory memory(type, in, dense, random(10) ? -1 : 0, random);
  ResizeBatch b{memory.batch, {}, roi.data(), filters.data(), first, axes, random(4) > 0};
  Run("resize", b, out_type, out, dense, -1, random, LaunchResize, [](const ResizeBatch& batch, int i) -> Status {
    ResizeJob job;
    const Status status = batch.Sample(i, &job);
    return status == kOk ? ResizeCpu(job) : status;
  });
}

void TryWarp(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kI32, DType::kF16, DType::kF32};
  DType type = kTypes[random(5)], out_type = random(2) ? type : DType::kF32;
  if (random(4) == 0) {
    out_type = type;
    type = DType::kF32;
  }
  const int dims = 2 + (random(4) == 0), first = random(2), n = 1 + random(4);
  const bool dense = random(3) == 0, has_fill = random(2) > 0;
  Shapes in, out;
  std::vector<double> map;
  std::vector<float> fill;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < first + dims + 1; d++) {
      const bool spatial = d >= first && d < first + dims;
      const int most = spatial ? (dims == 3 ? 10 : random(20) ? 70 : 500) : 4;
      shape.push_back(d == first + dims && random(2) ? 3 : random.Extent(most));
      result.push_back(spatial ? random.Extent(most) : shape.back());
    }
    in.push_back(dense && i > 0 ? in[0] : shape);
    out.push_back(dense && i > 0 ? out[0] : result);
    for (int s = 0; s < dims; s++) {
      for (int k = 0; k < dims; k++) map.push_back(random(3) ? random.Uniform(-1.5, 1.5) : random(3) - 1);
      map.push_back(random.Uniform(-20, 60));
    }
    fill.push_back(static_cast<float>(random(200)));
  }
  Memory memory(type, in, dense, random(10) ? -1 : 0, random);
  WarpBatch b{memory.batch, {}, map.data(), fill.data(), dims, first, random(3) > 0, has_fill};
  Run("warp", b, out_type, out, dense, -1, random, LaunchWarp, [](const WarpBatch& batch, int i) -> Status {
    WarpArgs a;
    const Status status = batch.Sample(i, &a);
    if (status == kOk) WarpSample(a);
    return status;
  });
}

constexpr DType kAllTypes[] = {DType::kU8, DType::kI16, DType::kF32, DType::kI64};

void TryWindow(Random& random) {
  const DType type = kAllTypes[random(4)];
  const int rank = 1 + random(5), n = 1 + random(4);
  Shapes in, out;
  std::vector<int32_t> start, step, extent;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      const int size = random(3) ? random.Extent(rank > 3 ? 9 : 200) : 3;
      const bool whole = random(3) == 0;
      const int by = whole ? 1 : 1 + (random(3) == 0), take = whole       ? size
                                                              : size == 0 ? 0
                                                                          : 1 + random((size - 1) / by + 1);
      int begin = size == 0 || whole ? 0 : random(size - (take - 1) * by);
      const bool mirrored = take > 0 && random(4) == 0;
      if (mirrored) begin += (take - 1) * by;
      if (random(60) == 0) begin += 2;  // may be outside
      shape.push_back(size);
      result.push_back(take);
      start.push_back(begin);
      step.push_back(mirrored ? -by : by);
      extent.push_back(take);
    }
    in.push_back(shape);
    out.push_back(result);
  }
  Memory memory(type, in, false, random(10) ? -1 : 0, random);
  WindowBatch b{memory.batch, {}, start.data(), step.data(), extent.data()};
  Run("window", b, type, out, false, -1, random, LaunchWindow, [](const WindowBatch& batch, int i) -> Status {
    WindowArgs a;
    const Status status = batch.Sample(i, &a);
    if (status == kOk) CopyWindow(a);
    return status;
  });
}

void TryExpand(Random& random) {
  const DType type = kAllTypes[random(4)];
  const int rank = 1 + random(4), missing = random(rank), n = 1 + random(4);
  Shapes in, out;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      result.push_back(random.Extent(rank > 3 ? 9 : 40));
      if (d >= missing) shape.push_back(random(3) == 0 ? 1 : random(60) ? result.back() : 2);
    }
    in.push_back(shape);
    out.push_back(result);
  }
  Memory memory(type, in, false, random(10) ? -1 : 0, random);
  ExpandBatch b{memory.batch, {}};
  Run("expand", b, type, out, false, -1, random, LaunchExpand, [](const ExpandBatch& batch, int i) -> Status {
    ExpandArgs a;
    const Status status = batch.Sample(i, &a);
    if (status == kOk) Expand(a);
    return status;
  });
}

}  // namespace
}  // namespace jaxdali

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  jaxdali::Random random(static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 0));
  for (int i = 0; i < rounds; i++) {
    jaxdali::TryResize(random);
    jaxdali::TryWarp(random);
    jaxdali::TryWindow(random);
    jaxdali::TryExpand(random);
  }
  std::printf("%d batches of each kernel\n", rounds);
}
