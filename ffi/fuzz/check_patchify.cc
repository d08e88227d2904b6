// Checks `patchify`: random images and videos in patches of random orders, some of which are no whole number of blocks,
// or more than the output has rows. Places of images in an output are checked on the CPU alone.
#include <array>
#include <limits>

#include "ffi/fuzz/check_kernels.h"
#include "ffi/patchify/patchify.cu"

namespace jaxdali {
namespace {

// A call without data: sizes of patches, and numbers for `scales`.
struct PatchifyOperands {
  PatchifyBatch batch{};
  std::vector<float> scale, offset;

  PatchifyOperands(Random& random, int n, int channels) {
    constexpr int kSizes[] = {1, 2, 3, 7, 8, 13, 14, 16, 17, 35};
    const bool is_square = random(2);
    std::fill(batch.patch_size, batch.patch_size + 8, kNoAxis);
    std::fill(batch.axes, batch.axes + 8, kNoAxis);
    batch.patch_size[0] = kSizes[random(10)];
    batch.patch_size[1] = is_square ? batch.patch_size[0] : kSizes[random(10)];
    batch.merge_size = 1 + random(3);
    batch.temporal_patch_size = 1 + random(3);
    constexpr std::array<int, 4> kOrders[] = {{0, 1, 2, 3}, {3, 0, 1, 2}, {0, 3, 1, 2}};
    std::copy_n(kOrders[random(3)].data(), 4, batch.axes);
    if (random(3) == 0) std::shuffle(batch.axes, batch.axes + 4, std::minstd_rand(static_cast<unsigned>(random(1000))));
    batch.past_caches = random(2);
    batch.scales = random(3) ? random(2) * channels : 1;
    for (int k = 0; k < n * batch.scales; k++) {
      scale.push_back(static_cast<float>(random.Uniform(-2, 2)));
      offset.push_back(static_cast<float>(random.Uniform(-100, 100)));
      if (random(50) == 0) (random(2) ? scale : offset).back() = std::numeric_limits<float>::infinity();
    }
    batch.scale = scale.data();
    batch.offset = offset.data();
  }

  // The shape of a random input, of which rarely a part of a patch is left over.
  std::vector<int> In(Random& random, int channels, bool video) const {
    std::vector<int> shape{random(4) * batch.patch_size[0] * batch.merge_size + (random(60) == 0),
                           random(4) * batch.patch_size[1] * batch.merge_size + (random(60) == 0), channels};
    if (video) shape.insert(shape.begin(), random(5));
    return shape;
  }
  int Tokens(const std::vector<int>& in) const {
    const size_t first = in.size() - 3;
    const int frames = first ? in[0] : 1, t = batch.temporal_patch_size;
    return (frames + t - 1) / t * (in[first] / batch.patch_size[0]) * (in[first + 1] / batch.patch_size[1]);
  }
  int Size(int channels) const {
    return batch.temporal_patch_size * batch.patch_size[0] * batch.patch_size[1] * channels;
  }
};

constexpr DType kOut[] = {DType::kU8, DType::kF16, DType::kBF16, DType::kF32};

// One random batch. `random(k)` is a number below k, so it is 0 once in k times.
void TryPatchify(Random& random) {
  constexpr DType kIn[] = {DType::kU8, DType::kU8, DType::kI16, DType::kU16, DType::kF16, DType::kBF16, DType::kF32};
  const DType type = kIn[random(7)], result = kOut[random(4)];
  const int n = 1 + random(3), channels = random(2) ? 3 : 1 + random(5);
  const bool video = random(3) == 0, dense = random(3) == 0;
  PatchifyOperands operands(random, n, channels);
  Shapes in, out;
  for (int i = 0; i < n; i++) {
    in.push_back(dense && i > 0 ? in[0] : operands.In(random, channels, video));
    const int tokens = std::max(0, operands.Tokens(in.back()) + (random(3) ? random(3) - (random(9) == 0) : 0));
    out.push_back({dense && i > 0 ? out[0][0] : tokens, operands.Size(random(40) ? channels : channels + 1)});
    if (dense && i > 0) out.back() = out[0];
  }
  Memory memory(type, in, dense, BrokenSample(random), random);
  operands.batch.in = memory.batch;
  Run("patchify", operands.batch, result, out, dense, BrokenSample(random), random, LaunchPatchify, Patchify,
      /*exact=*/true);
}

// Images at places of an output, which must be as without places. What no image covers stays as it was.
void TryPlaces(Random& random) {
  const int n = 1 + random(4), samples = 1 + random(3), length = random(60), channels = random(2) ? 3 : 1 + random(5);
  const DType result = kOut[random(4)];
  PatchifyOperands operands(random, n, channels);
  Shapes in;
  std::vector<int32_t> place;
  for (int i = 0; i < n; i++) {
    in.push_back(operands.In(random, channels, /*video=*/false));
    const int first = random(length + 1);
    place.insert(place.end(), {random(samples), first, first + random(length - first + 1)});
    if (random(20) == 0) place[place.size() - 1 - static_cast<size_t>(random(3))] += random(2) ? 100 : -100;
  }
  Memory memory(DType::kU8, in, /*dense=*/false, kNoneBroken, random);
  operands.batch.in = memory.batch;
  const std::vector<int> shape{length, operands.Size(channels)};
  Memory actual(result, Shapes(static_cast<size_t>(samples), shape), /*dense=*/true, kNoneBroken, random);
  const int64_t bytes = actual.batch.capacity * SizeOf(result), row = shape[1] * SizeOf(result);
  for (int i = 0; i < n; i++) {
    const int32_t* const p = place.data() + 3 * i;
    std::vector<uint8_t> expected(actual.data.get(), actual.data.get() + bytes);
    // The same image alone. `one` has the rows of the place, from the beginning of a buffer of its own.
    const bool exists = p[0] >= 0 && p[0] < samples && p[1] >= 0 && p[1] <= p[2] && p[2] <= length;
    Memory one(result, {{exists ? p[2] - p[1] : 0, shape[1]}}, /*dense=*/true, kNoneBroken, random);
    PatchifyBatch b = operands.batch;
    b.in.n = b.out.n = 1;
    b.in.offsets += i;
    b.in.shapes += 3 * i;
    b.scale += i * b.scales;
    b.offset += i * b.scales;
    b.out = one.batch;
    const Status status = exists ? Patchify(b, 0) : kInternal;
    if (status == kOk && one.batch.capacity > 0)
      std::memcpy(expected.data() + (int64_t{p[0]} * length + p[1]) * row, one.data.get(),
                  static_cast<size_t>((p[2] - p[1]) * row));
    b = operands.batch;
    b.out = actual.batch;
    b.place = place.data();
    if (const Status s = Patchify(b, i); s != status) Fail("patchify", i, "status", s, status);
    for (int64_t k = 0; k < bytes; k++)
      if (actual.data[static_cast<size_t>(k)] != expected[static_cast<size_t>(k)])
        Fail("patchify", i, "byte", actual.data[static_cast<size_t>(k)], expected[static_cast<size_t>(k)]);
  }
}

void Try(Random& random) {
  TryPatchify(random);
  TryPlaces(random);
}

JAXDALI_CHECK(patchify, Try)

}  // namespace
}  // namespace jaxdali
