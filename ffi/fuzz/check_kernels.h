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
  int operator()(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  // Mostly small, sometimes 0 or large.
  int Extent(int most) {
    return (*this)(40) == 0 ? 0 : (*this)(4) == 0 ? 1 + (*this)(most) : 1 + (*this)(std::min(most, 12));
  }
  // A part of an axis, often the whole axis, sometimes beyond its ends or reversed.
  std::pair<float, float> Interval(double extent) {
    const bool whole = (*this)(3) == 0;
    double a = whole ? 0 : Uniform(-0.2, 1.2) * extent, b = whole ? extent : Uniform(-0.2, 1.2) * extent;
    if (std::fabs(a - b) < 1e-3) b = a + 1e-3;
    if ((*this)(4) == 0) std::swap(a, b);
    return {static_cast<float>(a), static_cast<float>(b)};
  }

 private:
  std::mt19937 engine_;
};

using Shapes = std::vector<std::vector<int>>;

// The memory of a batch, with nothing before or after it.
struct Memory {
  Batch batch{};
  std::unique_ptr<uint8_t[]> data;
  std::vector<int32_t> offsets, shapes;

  // Dense if all samples have one shape and `dense` is true. `broken`: a sample whose shape or offset is wrong, or -1.
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
    } else if (batch.dtype == DType::kBF16) {
      const BFloat16 v(static_cast<float>(random.Uniform(-300, 300)));
      std::memcpy(at, &v, sizeof v);
    } else {
      for (int64_t b = 0; b < SizeOf(batch.dtype); b++) at[b] = static_cast<uint8_t>(random(256));
    }
  }
};

inline double Value(const Batch& b, int64_t i) {
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
    case DType::kBF16:
      return as(BFloat16{});
    case DType::kF32:
      return as(float{});
    default:
      return *at;
  }
}

[[noreturn]] inline void Fail(const char* kernel, int i, const char* what, double got, double want) {
  std::fprintf(stderr, "%s, sample %d: %s %.9g instead of %.9g\n", kernel, i, what, got, want);
  std::exit(1);
}

// Checksums of the CPU kernels' results, by kernel: integers and floats.
inline std::map<std::string, Checksum>& Checksums() {
  static std::map<std::string, Checksum> checksums;
  return checksums;
}

// Fails unless both outputs are equal, up to rounding unless `exact`.
inline void Compare(const char* kernel, const Batch& got, const Batch& want, const std::vector<int32_t>& got_status,
                    const std::vector<int32_t>& want_status, const std::vector<int32_t>& present, bool exact) {
  for (int i = 0; i < got.n; i++) {
    const size_t k = static_cast<size_t>(i);
    if (got_status[k] != want_status[k]) Fail(kernel, i, "status", got_status[k], want_status[k]);
    if (!present[k] || want_status[k] != kOk) continue;
    double largest = 10;  // largest element; smaller results come from inputs up to 300 that cancel
    for (int64_t e = 0; e < want.size(i); e++) {
      const double v = Value(want, want.start(i) + e);
      if (std::isfinite(v) && std::fabs(v) > largest) largest = std::fabs(v);
    }
    const double bits = want.dtype == DType::kF16 ? 1e-3 : want.dtype == DType::kBF16 ? 8e-3 : 1e-5;
    const bool is_float = want.dtype == DType::kF32 || want.dtype == DType::kF16 || want.dtype == DType::kBF16;
    const double tolerance = exact ? 0 : is_float ? bits * largest : std::max(1.0, 1e-6 * largest);
    for (int64_t e = 0; e < want.size(i); e++) {
      const double a = Value(got, got.start(i) + e), b = Value(want, want.start(i) + e);
      const bool same = a == b || (std::isnan(a) && std::isnan(b));  // infinite values, too
      if (!same && !(std::fabs(a - b) <= tolerance)) Fail(kernel, i, "value", a, b);
    }
    const int64_t element = SizeOf(want.dtype);
    Checksums()[std::string(kernel) + (is_float ? ", floats" : "")].Add(
        static_cast<const uint8_t*>(want.data) + want.start(i) * element, want.size(i) * element);
  }
}

// Runs `launch` on `batch`, and `cpu` sample by sample on a batch with another output.
template <class B, class Launch, class Cpu>
void Run(const char* kernel, B batch, DType out_type, const Shapes& out_shapes, bool dense, int broken, Random& random,
         Launch launch, Cpu cpu, bool exact = false) {
  Random again(static_cast<unsigned>(random(1 << 30))), once = again;
  Memory got(out_type, out_shapes, dense, broken, again), want(out_type, out_shapes, dense, broken, once);
  std::vector<int32_t> present, status(out_shapes.size(), -1), expected;
  const std::unique_ptr<uint8_t[]> plans(new uint8_t[out_shapes.size() * kPlanBytes]);
  for (size_t i = 0; i < out_shapes.size(); i++) present.push_back(random(10) > 0);
  batch.out = want.batch;
  for (int i = 0; i < batch.out.n; i++) {
    const bool is_present = present[static_cast<size_t>(i)];
    expected.push_back(!is_present ? kOk : batch.in.valid(i) && batch.out.valid(i) ? cpu(batch, i) : kInternal);
  }
  batch.out = got.batch;
  if (const char* what = launch(batch, Samples{batch.out.n, present.data(), status.data(), plans.get()}, nullptr)) {
    std::fprintf(stderr, "%s: %s\n", kernel, what);
    std::exit(1);
  }
  Compare(kernel, got.batch, want.batch, status, expected, present, exact);
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
