// Checks `resample`. The resizing of other libraries has no CUDA kernel, so a result in two parts, each computed from a
// copy of only the source samples that it depends on, is compared with the whole result.
#include "ffi/fuzz/check_kernels.h"
#include "ffi/resample/resample.h"

namespace jaxdali {
namespace {

// A block [outer, extents of `range`, inner] of an array [outer, extents, inner], with one to three axes between.
struct Block {
  int64_t outer, inner;  // bytes
  int axes;
  const int64_t* extent;
  const Range* range;

  // Calls f(place in the array, place in the block, bytes) for all rows of the block. A missing axis counts as one of
  // the extent 1.
  template <class F>
  void EachRow(F f) const {
    int64_t block = 0;
    const int64_t row = range[axes - 1].size() * inner;
    for (int64_t o = 0; o < outer; o++) {
      for (int64_t z = axes > 2 ? range[axes - 3].begin : 0; z < (axes > 2 ? range[axes - 3].end : 1); z++) {
        for (int64_t y = axes > 1 ? range[axes - 2].begin : 0; y < (axes > 1 ? range[axes - 2].end : 1); y++) {
          const int64_t line = (o * (axes > 2 ? extent[axes - 3] : 1) + z) * (axes > 1 ? extent[axes - 2] : 1) + y;
          f((line * extent[axes - 1] + range[axes - 1].begin) * inner, block, row);
          block += row;
        }
      }
    }
  }
  int64_t bytes() const {
    int64_t n = outer * inner;
    for (int a = 0; a < axes; a++) n *= range[a].size();
    return n;
  }
};

// Computes a result in two parts, which meet at `split` along an axis. Each gets a copy of only those source samples
// that ResampleSourceOf says it depends on, so that an access to others is found. Returns kOk or a part's error.
Status ResampleInParts(const ResizeJob& job, int axis, int64_t split) {
  int64_t size = job.outer * job.inner;
  for (int a = 0; a < job.num_axes; a++) size *= job.out_extent[a];
  if (size == 0) return kOk;
  const int64_t last = job.out_extent[axis];
  for (const Range part_of_axis : {Range{0, split}, Range{split, last}}) {
    if (part_of_axis.size() == 0) continue;
    ResizePart part = ResizePart::Whole(job);
    part.output[axis] = part_of_axis;
    if (Status status = ResampleSourceOf(job, &part); status != kOk) return status;
    const Block source_block{job.outer, job.inner * SizeOf(job.in_type), job.num_axes, job.in_extent, part.source};
    const Block result_block{job.outer, job.inner * SizeOf(job.out_type), job.num_axes, job.out_extent, part.output};
    const std::unique_ptr<uint8_t[]> in(new uint8_t[static_cast<size_t>(source_block.bytes())]);
    const std::unique_ptr<uint8_t[]> out(new uint8_t[static_cast<size_t>(result_block.bytes())]);
    source_block.EachRow([&](int64_t from, int64_t to, int64_t bytes) {
      std::memcpy(in.get() + to, static_cast<const uint8_t*>(job.in) + from, static_cast<size_t>(bytes));
    });
    ResizeJob part_job = job;
    part_job.in = in.get();
    part_job.out = out.get();
    if (Status status = ResampleSome(part_job, part); status != kOk) return status;
    result_block.EachRow([&](int64_t to, int64_t from, int64_t bytes) {
      std::memcpy(static_cast<uint8_t*>(job.out) + to, out.get() + from, static_cast<size_t>(bytes));
    });
  }
  return kOk;
}

// One random batch: samples resized along one to three axes, once in twenty along large ones, each in two parts at a
// random place. `random(k)` is a number below k, so it is 0 once in k times.
void TryResample(Random& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kU16, DType::kF16, DType::kBF16, DType::kF32};
  constexpr Convention kConventions[] = {Convention::kPillow, Convention::kTensorFlow, Convention::kTorchvision};
  const Convention convention = kConventions[random(3)];
  const bool is_pillow = convention == Convention::kPillow;
  const DType type = is_pillow ? (random(2) ? DType::kU8 : DType::kF32) : kTypes[random(6)];
  const DType out_type = is_pillow || random(2) ? type : kTypes[3 + random(3)];
  const int axes = 1 + random(3), first = random(2), rank = first + axes + random(2), n = 1 + random(4);
  Shapes in, out;
  std::vector<float> roi;
  std::vector<int32_t> filters;
  std::vector<int> split_axis, split_of_100;
  for (int i = 0; i < n; i++) {
    std::vector<int> shape, result;
    for (int d = 0; d < rank; d++) {
      const bool is_resized = d >= first && d < first + axes;
      // Volumes are small. Of axes that are resized one in twenty is large.
      const int max_extent = axes == 3 ? 12 : is_resized ? (random(20) ? 60 : 900) : 4;
      shape.push_back(random.Extent(max_extent));
      result.push_back(is_resized ? random.Extent(max_extent) : shape.back());
    }
    for (int d = first; d < first + axes; d++) {
      const std::pair<float, float> interval = random.Interval(shape[static_cast<size_t>(d)]);
      roi.insert(roi.end(), {interval.first, interval.second});
    }
    in.push_back(shape);
    out.push_back(result);
    filters.push_back(random(7));
    filters.push_back(random(3) ? filters.back() : random(7));
    split_axis.push_back(random(axes));
    split_of_100.push_back(random(101));
  }
  Memory memory(type, in, /*dense=*/false, BrokenSample(random), random);
  const ResizeBatch b{memory.batch, /*out=*/{}, roi.data(), filters.data(), first, axes, /*antialias=*/random(4) > 0,
                      convention};
  const auto in_parts = [&](const ResizeBatch& batch, const Samples& samples, void*) -> const char* {
    for (int i = 0; i < samples.n; i++) {
      ResizeJob job;
      samples.status[i] = !samples.present[i]                       ? kOk
                          : batch.in.valid(i) && batch.out.valid(i) ? batch.Sample(i, &job)
                                                                    : kInternal;
      if (!samples.present[i] || samples.status[i] != kOk) continue;
      const size_t k = static_cast<size_t>(i);
      samples.status[i] = ResampleInParts(job, split_axis[k], job.out_extent[split_axis[k]] * split_of_100[k] / 100);
    }
    return nullptr;
  };
  Run("resample", b, out_type, out, /*dense=*/false, kNoneBroken, random, in_parts, Resample);
}

JAXDALI_CHECK(resample, TryResample)

}  // namespace
}  // namespace jaxdali
