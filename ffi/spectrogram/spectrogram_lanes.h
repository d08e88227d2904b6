// The kernel of spectrograms with vectors of JAXDALI_LANE_BYTES bytes: a lane has a window of the signal. Each file
// that includes it is compiled for other CPUs, so pocketfft is in a namespace of its own in each: the linker must not
// join their functions. No include guard, because each file includes it once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ffi/spectrogram/spectrogram.h"

#define JAXDALI_JOIN_(a, b) a##b
#define JAXDALI_JOIN(a, b) JAXDALI_JOIN_(a, b)
#define POCKETFFT_NO_MULTITHREADING
#define POCKETFFT_CACHE_SIZE 0
#define pocketfft JAXDALI_JOIN(jaxdali_pocketfft_, JAXDALI_LANE_BYTES)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC does not see that all of an array is written
#endif
#include "ffi/third_party/pocketfft/pocketfft_hdronly.h"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace jaxdali {
namespace {

using Vector = float __attribute__((vector_size(JAXDALI_LANE_BYTES)));
constexpr int kLanes = JAXDALI_LANE_BYTES / 4;
using Plan = pocketfft::detail::pocketfft_r<float>;

// The index in [0, n) of a position outside the signal, mirrored at the centres of its first and last sample. (Reflect
// in common/border.h must not be joined with versions for other CPUs either.)
int64_t Reflected(int64_t position, int64_t n) {
  if (n < 2) return 0;
  const int64_t period = 2 * n - 2;
  position %= period;
  if (position < 0) position += period;
  return std::min(position, period - position);
}

// Writes `count` windows of the signal x[n], the first of which begins at `start`, each into its lane: multiplied by
// the window function, and followed by zeros up to nfft.
void Gather(const SpectrogramBatch& b, const float* x, int64_t n, int64_t start, int count, Vector* lanes) {
  float* to = reinterpret_cast<float*>(lanes);
  if (count < kLanes) std::memset(to, 0, sizeof(Vector) * static_cast<size_t>(b.length));
  for (int lane = 0; lane < count; lane++) {
    const int64_t begin = start + int64_t{lane} * b.step;
    if (begin >= 0 && begin + b.length <= n) {
      for (int t = 0; t < b.length; t++) to[int64_t{t} * kLanes + lane] = x[begin + t] * b.window[t];
      continue;
    }
    for (int t = 0; t < b.length; t++) {
      const int64_t k = begin + t;
      const float v = k >= 0 && k < n ? x[k] : b.reflect ? x[Reflected(k, n)] : 0;
      to[int64_t{t} * kLanes + lane] = v * b.window[t];
    }
  }
  std::memset(static_cast<void*>(lanes + b.length), 0, sizeof(Vector) * static_cast<size_t>(b.nfft - b.length));
}

// Squares or magnitudes of the bins, from pocketfft's order: re(0), re(1), im(1), re(2), ... If nfft is even, the last
// bin has no imaginary part.
void Magnitudes(const SpectrogramBatch& b, const Vector* c, Vector* out) {
  const int last = b.nfft / 2;
  out[0] = c[0] * c[0];
  for (int k = 1; k <= last; k++) {
    const Vector re = c[2 * k - 1];
    out[k] = re * re;
    if (2 * k < b.nfft) out[k] += c[2 * k] * c[2 * k];
  }
  if (b.squares) return;
  float* values = reinterpret_cast<float*>(out);
  for (int64_t k = 0; k < int64_t{last + 1} * kLanes; k++) values[k] = std::sqrt(values[k]);
}

// Makes the spectrogram of sample i, kLanes times (windows) together. Row k of `result` has the frequency k of all
// lanes.
void Run(const SpectrogramBatch& b, int i) {
  thread_local std::unique_ptr<Plan> plan;  // of the call before, mostly of the same length
  if (!plan || plan->length() != static_cast<size_t>(b.nfft)) plan = std::make_unique<Plan>(b.nfft);
  const int rows = b.Rows(), bins = b.Bins();
  pocketfft::detail::arr<Vector> c(static_cast<size_t>(b.nfft)), power(static_cast<size_t>(bins)),
      mel(static_cast<size_t>(b.filters));
  const float* x = b.in.sample<float>(i);
  float* out = b.out.sample<float>(i);
  const int64_t n = b.in.size(i), times = b.out.dim(i, b.time);
  for (int64_t f = 0; f < times; f += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, times - f));
    Gather(b, x, n, f * b.step - b.before, count, c.data());
    plan->exec(c.data(), /*fct=*/1.0f, /*fwd=*/true);
    Magnitudes(b, c.data(), power.data());
    const Vector* result = power.data();
    // Each bin belongs to two neighbouring mel filters. The last one's neighbour does not exist.
    if (b.filters) {
      for (int k = 0; k < b.filters; k++) mel[k] = Vector{};
      for (int k = 0; k < bins; k++) {
        mel[b.first[k]] += power[k] * b.weights[2 * k];
        if (b.first[k] + 1 < b.filters) mel[b.first[k] + 1] += power[k] * b.weights[2 * k + 1];
      }
      result = mel.data();
    }
    const float* values = reinterpret_cast<const float*>(result);
    if (b.time == 1) {
      for (int k = 0; k < rows; k++)
        std::memcpy(out + k * times + f, values + int64_t{k} * kLanes, sizeof(float) * static_cast<size_t>(count));
    } else {
      for (int lane = 0; lane < count; lane++)
        for (int k = 0; k < rows; k++) out[(f + lane) * rows + k] = values[int64_t{k} * kLanes + lane];
    }
  }
}

}  // namespace

// The CPU kernel with vectors of JAXDALI_LANE_BYTES bytes: makes sample i of the output. kInternal: the output has
// another number of frequencies, or the signal is empty.
Status JAXDALI_JOIN(Spectrogram, JAXDALI_LANE_BYTES)(const SpectrogramBatch& b, int i) {
  if (b.out.dim(i, 1 - b.time) != b.Rows() || b.in.size(i) < 1) return kInternal;
  Run(b, i);
  return kOk;
}

}  // namespace jaxdali
