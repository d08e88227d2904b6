// Random batches for a kernel. All check_<kernel>.cc use them.
#ifndef JAXDALI_FFI_FUZZ_CHECK_KERNELS_H_
#define JAXDALI_FFI_FUZZ_CHECK_KERNELS_H_

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/half.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/fuzz/checksum.h"

namespace jaxdali {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  // A number from 0 to below - 1.
  int operator()(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  // An extent: mostly small, sometimes 0 or large.
  int Extent(int max_extent) {
    return (*this)(40) == 0 ? 0 : (*this)(4) == 0 ? 1 + (*this)(max_extent) : 1 + (*this)(std::min(max_extent, 12));
  }
  // An interval of an axis, often the whole axis, sometimes beyond its ends or reversed; once in 20 times it is
  // very far and long. (Regions between add up so many weights that CPU and CUDA round sums differently.)
  std::pair<float, float> Interval(double extent) {
    const bool is_whole = (*this)(3) == 0;
    double a = is_whole ? 0 : Uniform(-0.2, 1.2) * extent, b = is_whole ? extent : Uniform(-0.2, 1.2) * extent;
    if ((*this)(20) == 0) {
      const double factor = std::pow(10, Uniform(10, 38));
      a = std::clamp(a * factor, -3e38, 3e38);
      b = std::clamp(b * factor, -3e38, 3e38);
    }
    if (std::fabs(a - b) < 1e-3) b = a + 1e-3;
    if ((*this)(4) == 0) std::swap(a, b);
    return {static_cast<float>(a), static_cast<float>(b)};
  }

 private:
  std::mt19937 engine_;
};

using Shapes = std::vector<std::vector<int>>;

// The number of a batch's sample whose shape or offset is wrong: none, or the first one, once in ten times.
inline constexpr int kNoneBroken = -1;
inline int BrokenSample(Random& random) { return random(10) ? kNoneBroken : 0; }

// The memory of a batch. It ends where the batch does, so that AddressSanitizer finds accesses outside.
struct Memory {
  Batch batch{};  // points to the arrays below
  std::unique_ptr<uint8_t[]> data;
  std::vector<int32_t> offsets, shapes;  // unused if the batch is dense

  // A batch with random elements. `dense`: all samples have the first one's shape, and lie one after another. `broken`:
  // the sample that gets a wrong shape or offset, or kNoneBroken.
  Memory(DType dtype, const Shapes& sample_shapes, bool dense, int broken, Random& random) {
    batch.dtype = dtype;
    batch.n = static_cast<int>(sample_shapes.size());
    batch.ndim = static_cast<int>(sample_shapes[0].size());
    int64_t size = 0;
    for (const auto& shape : sample_shapes) {
      // Samples of a batch that is not dense begin at multiples of kAlignment elements.
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
      for (int d = 0; d < batch.ndim; d++) batch.dense[d] = sample_shapes[0][static_cast<size_t>(d)];
      return;
    }
    if (broken >= 0) {
      int32_t& field =
          random(2) ? offsets[static_cast<size_t>(broken)] : shapes[static_cast<size_t>(broken * batch.ndim)];
      field = random(2) ? -1 : 1 << 24;
    }
    batch.offsets = offsets.data();
    batch.shapes = shapes.data();
  }

 private:
  // Sets element i to a random value: floats are within -300 .. 300.
  void Fill(int64_t i, Random& random) {
    uint8_t* bytes = data.get() + i * SizeOf(batch.dtype);
    if (batch.dtype == DType::kF32) {
      const float v = static_cast<float>(random.Uniform(-300, 300));
      std::memcpy(bytes, &v, sizeof v);
    } else if (batch.dtype == DType::kF16) {
      const Half v(static_cast<float>(random.Uniform(-300, 300)));
      std::memcpy(bytes, &v, sizeof v);
    } else if (batch.dtype == DType::kBF16) {
      const BFloat16 v(static_cast<float>(random.Uniform(-300, 300)));
      std::memcpy(bytes, &v, sizeof v);
    } else {
      for (int64_t b = 0; b < SizeOf(batch.dtype); b++) bytes[b] = static_cast<uint8_t>(random(256));
    }
  }
};

// Element i of a batch. Of the types that no case names, the first byte.
inline double Value(const Batch& b, int64_t i) {
  const uint8_t* bytes = static_cast<const uint8_t*>(b.data) + i * SizeOf(b.dtype);
  auto as = [&](auto v) {
    std::memcpy(&v, bytes, sizeof v);
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
    case DType::kBF16:
      return as(BFloat16{});
    case DType::kF32:
      return as(float{});
    default:
      return *bytes;
  }
}

// Prints how a sample's result differs, and ends the program.
[[noreturn]] inline void Fail(const char* kernel, int i, const char* quantity, double actual, double expected) {
  std::fprintf(stderr, "%s, sample %d: %s %.9g instead of %.9g\n", kernel, i, quantity, actual, expected);
  std::exit(1);
}

// Checksums of the CPU kernels' results, by kernel: integers and floats.
inline std::map<std::string, Checksum>& Checksums() {
  static std::map<std::string, Checksum> checksums;
  return checksums;
}

// Ends the program unless both outputs are equal, or nearly so unless `exact`: results of other orders of operations
// round differently. Adds the expected values to the kernel's checksum.
inline void Compare(const char* kernel, const Batch& actual, const Batch& expected,
                    const std::vector<int32_t>& actual_status, const std::vector<int32_t>& expected_status,
                    const std::vector<int32_t>& present, bool exact) {
  for (int i = 0; i < actual.n; i++) {
    const size_t k = static_cast<size_t>(i);
    if (actual_status[k] != expected_status[k]) Fail(kernel, i, "status", actual_status[k], expected_status[k]);
    if (!present[k] || expected_status[k] != kOk) continue;
    double largest = 10;  // largest element; smaller results come from inputs up to 300 that cancel
    for (int64_t e = 0; e < expected.size(i); e++) {
      const double v = Value(expected, expected.start(i) + e);
      if (std::isfinite(v) && std::fabs(v) > largest) largest = std::fabs(v);
    }
    const double relative_tolerance = expected.dtype == DType::kF16    ? 1e-3
                                      : expected.dtype == DType::kBF16 ? 8e-3
                                                                       : 1e-5;
    const bool is_float =
        expected.dtype == DType::kF32 || expected.dtype == DType::kF16 || expected.dtype == DType::kBF16;
    const double tolerance = exact ? 0 : is_float ? relative_tolerance * largest : std::max(1.0, 1e-6 * largest);
    for (int64_t e = 0; e < expected.size(i); e++) {
      const double a = Value(actual, actual.start(i) + e), b = Value(expected, expected.start(i) + e);
      const bool is_same = a == b || (std::isnan(a) && std::isnan(b));  // infinite values, too
      if (!is_same && !(std::fabs(a - b) <= tolerance)) Fail(kernel, i, "value", a, b);
    }
    const int64_t element = SizeOf(expected.dtype);
    Checksums()[std::string(kernel) + (is_float ? ", floats" : "")].Add(
        static_cast<const uint8_t*>(expected.data) + expected.start(i) * element, expected.size(i) * element);
  }
}

// Runs `launch` on `batch`, and `cpu` sample by sample on a batch with another output, and compares the outputs. Both
// begin with the same random contents, with shapes `out_shapes`; `dense`, `broken`: as for Memory. A tenth of the
// samples is not present. Samples without a valid place must get kInternal.
template <class B, class Launch, class Cpu>
void Run(const char* kernel, B batch, DType out_type, const Shapes& out_shapes, bool dense, int broken, Random& random,
         Launch launch, Cpu cpu, bool exact = false) {
  Random random_actual(static_cast<unsigned>(random(1 << 30))), random_expected = random_actual;
  Memory actual(out_type, out_shapes, dense, broken, random_actual),
      expected(out_type, out_shapes, dense, broken, random_expected);
  std::vector<int32_t> present, status(out_shapes.size(), -1), expected_status;
  const std::unique_ptr<uint8_t[]> plans(new uint8_t[out_shapes.size() * kPlanBytes]);
  for (size_t i = 0; i < out_shapes.size(); i++) present.push_back(random(10) > 0);
  batch.out = expected.batch;
  for (int i = 0; i < batch.out.n; i++) {
    const bool is_present = present[static_cast<size_t>(i)];
    expected_status.push_back(!is_present ? kOk : batch.in.valid(i) && batch.out.valid(i) ? cpu(batch, i) : kInternal);
  }
  batch.out = actual.batch;
  if (const char* error = launch(batch, Samples{batch.out.n, present.data(), status.data(), plans.get()}, nullptr)) {
    std::fprintf(stderr, "%s: %s\n", kernel, error);
    std::exit(1);
  }
  Compare(kernel, actual.batch, expected.batch, status, expected_status, present, exact);
}

inline constexpr DType kAllTypes[] = {DType::kU8, DType::kI16, DType::kF32, DType::kI64};

// The checks by kernel. Each file check_<kernel>.cc adds its own.
using Check = void (*)(Random&);
inline std::map<std::string, Check>& Checks() {
  static std::map<std::string, Check> checks;
  return checks;
}
#define JAXDALI_CHECK(kernel, check) \
  [[maybe_unused]] const bool added_##kernel = Checks().emplace(#kernel, check).second;

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_CHECK_KERNELS_H_
