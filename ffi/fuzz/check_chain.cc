// Compares the chain (ffi/chain), with one thread and with several, to the same kernels run one after the other on
// whole images, under the sanitizers. It runs random stages on random images and on files, good and damaged. The
// status, the failed stage and the output must be equal.
//
//   check_chain FOLDER [ROUNDS [SEED]]
//
// FOLDER has the *.jpg, *.jpeg and *.png files.
#include <array>
#include <thread>

#include "ffi/chain/chain.h"
#include "ffi/common/thread_pool.h"
#include "ffi/fuzz/check_kernels.h"
#include "ffi/fuzz/mutator.h"

namespace jaxdali {
namespace {

using Shape = std::vector<int>;

// Resizing a part may run its two passes in another order than resizing the whole, which changes the rounding.
constexpr double kLevels = 4;

// Whether a resize has the same result for a part as for the whole: by nearest neighbours, in fixed point, and with the
// numbers of Pillow and torchvision.
bool IsExact(const ResizeJob& job) {
  if (job.convention != Convention::kDali) return true;
  Axes axes;
  if (axes.Make(job) != kOk || axes.nearest) return true;
  const bool has_few_taps = std::all_of(axes.axis, axes.axis + 3, [](const Axis& a) { return a.support <= 32; });
  return has_few_taps && job.num_axes < 3 && job.in_type == DType::kU8 && job.out_type == DType::kU8 &&
         (job.inner == 1 || job.inner == 3 || job.inner == 4);
}

// One sample and the stages that it runs through: as a chain, and one kernel after the other on whole images.
class ChainCase {
 public:
  ChainCase(Random& random, Mutator& mutate, ThreadPool* pool) : random_(random), mutate_(mutate) {
    if (random_(2)) helpers_ = {pool, /*min_bytes=*/int64_t{32} << random_(8)};
  }

  // Begins with the decoding of a file, which is damaged first once in three times. Returns false for a file that can't
  // be decoded.
  bool BeginWithFile(const Data& seed) {
    damaged_ = random_(3) == 0;
    const Data file = damaged_ ? mutate_(seed) : seed;
    info_ = ParseHeader(file.data(), static_cast<int64_t>(file.size()));
    if (info_.status != kOk || int64_t{info_.height} * info_.width > 1 << 16 || info_.host_decode) return false;
    if (static_cast<Format>(info_.format) == Format::kJpeg && random_(5) == 0) {  // scaled down
      const int scale = 2 << random_(3);
      info_.height = info_.region_h = (info_.height + scale - 1) / scale;
      info_.width = info_.region_w = (info_.width + scale - 1) / scale;
    }
    if (random_(4) == 0) {  // a window
      info_.region_y = random_(info_.height), info_.region_h = 1 + random_(info_.height - info_.region_y);
      info_.region_x = random_(info_.width), info_.region_w = 1 + random_(info_.width - info_.region_x);
    }
    Add(DType::kU8, {static_cast<int>(file.size())});
    std::copy(file.begin(), file.end(), values_[0]->data.get());
    auto stage = std::make_unique<DecodeStage>();
    // The type, adjust_orientation, fast_idct.
    stage->options = {static_cast<ImageType>(random_(5)), random_(3) > 0, random_(8) == 0};
    Shape shape{info_.region_h, info_.region_w, OutputChannels(info_, stage->options.type)};
    if (Transposes(info_, stage->options.adjust_orientation)) std::swap(shape[0], shape[1]);
    Add(random_(6) ? DType::kU8 : random_(2) ? DType::kF32 : DType::kI16, shape);
    stage->in = values_[0]->batch;
    stage->out = values_[1]->batch;
    stage->info = &info_;
    whole_.push_back(DecodeImage(stage->in.sample<uint8_t>(0), stage->in.size(0), info_, stage->options,
                                 stage->out.dtype, stage->out.data, shape[0], shape[1], shape[2]));
    stage->options.helpers = helpers_;
    chain_.stages.push_back(std::move(stage));
    return true;
  }

  // Begins with a random image, often of bytes.
  void BeginWithImage() {
    constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kI16, DType::kF32};
    Add(kTypes[random_(4)], {random_.Extent(90), random_.Extent(90), random_(2) ? 3 : 1 + random_(5)});
  }

  // Adds a random stage to the chain, and runs its kernel on the whole image.
  void AddStage() {
    switch (random_(3)) {
      case 0:
        return AddResize();
      case 1:
        return AddWarp();
      default:
        return AddWindow();
    }
  }

  // Adds the last stage: patches, often of a size that divides the image. The chain may write them to a place in a
  // larger output.
  void AddPatchify() {
    PatchifyBatch b{};
    std::fill(b.patch_size, b.patch_size + 8, kNoAxis);
    std::fill(b.axes, b.axes + 8, kNoAxis);
    b.merge_size = 1 + random_(2);
    b.temporal_patch_size = 1 + random_(2);
    int grid[2];
    for (size_t d = 0; d < 2; d++) {
      std::vector<int> sizes{1 + random_(20)};
      for (int size = 1; size <= 20; size++)
        if (shape_[d] % (size * b.merge_size) == 0) sizes.push_back(size);
      b.patch_size[d] = sizes[static_cast<size_t>(random_(20) ? static_cast<int>(sizes.size()) - 1 : 0)];
      grid[d] = shape_[d] / b.patch_size[d];
    }
    constexpr std::array<int, 4> kOrders[] = {{0, 1, 2, 3}, {3, 0, 1, 2}, {0, 3, 1, 2}, {2, 3, 1, 0}};
    std::copy_n(kOrders[random_(4)].data(), 4, b.axes);
    b.past_caches = random_(2);
    b.scales = random_(3);
    b.scale = Numbers({0.5, 1});
    b.offset = Numbers({3, -90});
    constexpr DType kTypes[] = {DType::kU8, DType::kF32, DType::kBF16, DType::kF16};
    const int size = b.temporal_patch_size * b.patch_size[0] * b.patch_size[1] * shape_[2];
    const int tokens = grid[0] * grid[1] + random_(4) - (random_(9) == 0);
    Append<PatchifyStage>(b, kTypes[random_(exact_ ? 4 : 2)], {std::max(0, tokens), size}, Patchify);
    const int first = random_(5);
    if (random_(2)) place_ = {random_(3), first, first + shape_[0]};
  }

  // Runs the chain and compares it with `whole_`. Exits with 1 if they differ. Returns the chain's status.
  Status Compare() {
    const int n = static_cast<int>(chain_.stages.size());
    Shapes shapes{shape_};
    if (!place_.empty()) shapes = Shapes(3, {place_[2] + random_(3), shape_[1]});
    Memory result(values_.back()->batch.dtype, shapes, /*dense=*/!place_.empty(), kNoneBroken, random_);
    chain_.place = place_.empty() ? nullptr : place_.data();
    chain_.values.push_back(values_[0]->batch);
    // The values between stages have a type and a shape, but no memory.
    for (int k = 1; k < n; k++) {
      chain_.values.push_back(values_[static_cast<size_t>(k)]->batch);
      chain_.values.back().data = nullptr;
      chain_.values.back().capacity = 0;
    }
    chain_.values.push_back(result.batch);
    for (int k = 0; k < n; k++) SetValues(chain_.stages[static_cast<size_t>(k)].get(), k);
    int failed_stage = -1;
    chain_.streams = random_(3) > 0;
    chain_.helpers = helpers_;
    // Waits until a thread is idle, which can help.
    while (helpers_.pool && helpers_.pool->idle() == 0) std::this_thread::yield();
    const Status status = chain_.Run(/*i=*/0, &failed_stage);
    // The first stage that fails on whole images must fail in the chain, with the same status.
    const auto first_bad = std::find_if(whole_.begin(), whole_.end(), [](Status s) { return s != kOk; });
    const int expected_stage = first_bad == whole_.end() ? 0 : static_cast<int>(first_bad - whole_.begin());
    const Status expected = first_bad == whole_.end() ? kOk : *first_bad;
    // A part of a damaged file may be good.
    if (damaged_ && expected != kOk && expected_stage == 0 && (status == kOk || failed_stage > 0)) return status;
    if (status != expected) Fail("chain", /*i=*/0, "status", status, expected);
    if (status != kOk) {
      if (failed_stage != expected_stage) Fail("chain", /*i=*/0, "stage", failed_stage, expected_stage);
      return status;
    }
    const Batch& whole = values_.back()->batch;
    const int64_t first = place_.empty() ? 0 : (int64_t{place_[0]} * shapes[0][0] + place_[1]) * shape_[1];
    for (int64_t e = 0; e < whole.size(0); e++) {
      const double a = Value(result.batch, first + e), b = Value(whole, e);
      if (exact_ ? std::memcmp(&a, &b, sizeof a) != 0 : !(a == b || std::fabs(a - b) <= kLevels))
        Fail("chain", /*i=*/0, "value", a, b);
    }
    return kOk;
  }

 private:
  // Adds a value: the memory of the image after the last stage.
  void Add(DType type, const Shape& shape) {
    shape_ = shape;
    values_.push_back(std::make_unique<Memory>(type, Shapes{shape}, /*dense=*/false, kNoneBroken, random_));
  }

  // Gives stage number k the chain's values before and after it, of which those between stages have no data.
  void SetValues(Stage* stage, int k) {
    const Batch &in = chain_.values[static_cast<size_t>(k)], &out = chain_.values[static_cast<size_t>(k) + 1];
    auto set = [&](auto* typed_stage) {
      if (typed_stage) typed_stage->batch.in = in, typed_stage->batch.out = out;
    };
    set(dynamic_cast<ResizeStage*>(stage));
    set(dynamic_cast<WarpStage*>(stage));
    set(dynamic_cast<WindowStage*>(stage));
    set(dynamic_cast<PatchifyStage*>(stage));
    if (auto* patchify = dynamic_cast<PatchifyStage*>(stage)) patchify->batch.place = chain_.place;
    if (auto* decode = dynamic_cast<DecodeStage*>(stage)) decode->in = in, decode->out = out;
  }

  // Appends the stage of a kernel, and runs the kernel on the whole image: its output and status are what the chain
  // must give. `batch`: the kernel's operands, apart from the images; `type` and `shape`: of its output.
  template <class S, class B, class Kernel>
  void Append(B batch, DType type, const Shape& shape, Kernel kernel) {
    batch.in = values_.back()->batch;
    Add(type, shape);
    batch.out = values_.back()->batch;
    whole_.push_back(kernel(batch, /*i=*/0));
    auto stage = std::make_unique<S>();
    stage->batch = batch;
    chain_.stages.push_back(std::move(stage));
  }

  DType type() const { return values_.back()->batch.dtype; }
  // Keep numbers that a stage's operands point to.
  float* Numbers(std::initializer_list<double> numbers) {
    numbers_.emplace_back(numbers.begin(), numbers.end());
    return numbers_.back().data();
  }
  int32_t* Integers(std::vector<int32_t> integers) {
    integers_.push_back(std::move(integers));
    return integers_.back().data();
  }

  // Resizes one to three axes, mostly height and width, with random filters and regions.
  void AddResize() {
    ResizeBatch b{};
    b.first_axis = random_(4) ? 0 : random_(3);
    b.num_axes = random_(4) ? std::min(2, 3 - b.first_axis) : 1 + random_(3 - b.first_axis);
    b.antialias = random_(4) > 0;
    b.filters = Integers({random_(6), random_(6)});
    std::vector<float> roi;
    Shape shape = shape_;
    for (int d = b.first_axis; d < b.first_axis + b.num_axes; d++) {
      const double extent = shape[static_cast<size_t>(d)];
      double begin = 0, end = extent;
      if (random_(3) == 0) begin = random_.Uniform(-0.2, 1.2) * extent, end = random_.Uniform(-0.2, 1.2) * extent;
      if (std::fabs(begin - end) < 1e-3) end = begin + 1e-3;
      if (random_(6) == 0) std::swap(begin, end);
      roi.insert(roi.end(), {static_cast<float>(begin), static_cast<float>(end)});
      shape[static_cast<size_t>(d)] = random_.Extent(80);
    }
    floats_.push_back(std::move(roi));
    b.roi = floats_.back().data();
    const DType out = random_(5) ? type() : DType::kF32;
    const bool of_bytes = type() == DType::kU8 && out == DType::kU8;
    if (of_bytes && random_(2)) b.convention = random_(2) ? Convention::kPillow : Convention::kTorchvision;
    Append<ResizeStage>(b, out, shape, Resize);
    ResizeJob job;
    auto& whole = static_cast<ResizeStage&>(*chain_.stages.back()).batch;
    if (whole.Sample(0, &job) == kOk && !IsExact(job)) exact_ = false;
  }

  // Maps the image by a random affine matrix, often by one of small integers.
  void AddWarp() {
    WarpBatch b{};
    b.dims = 2;
    b.linear = random_(3) > 0;
    b.has_fill = random_(3) > 0;
    b.fill = Numbers({static_cast<double>(random_(200))});
    // Two rows of the matrix, each followed by its translation.
    std::vector<double> map;
    for (int s = 0; s < 2; s++) {
      for (int k = 0; k < 2; k++)
        map.push_back(random_(3) ? random_.Uniform(-1.5, 1.5) : random_(2) ? s == k : random_(3) - 1);
      map.push_back(random_.Uniform(-40, 80));
    }
    maps_.push_back(std::move(map));
    b.map = maps_.back().data();
    const DType out = random_(5) ? type() : DType::kF32;
    Append<WarpStage>(b, out, {random_.Extent(80), random_.Extent(80), shape_[2]}, Warp);
  }

  // Takes a random slice, mirrored, permuted, filled, scaled and converted at random.
  void AddWindow() {
    WindowBatch b{};
    // The number of fill values; without any, a window that reaches outside is an error.
    b.fills = random_(8) == 0 ? 0 : 1 + random_(2);
    b.channel = 2;
    b.past_caches = random_(2);
    std::vector<int32_t> start, step, extent;
    for (int size : shape_) {
      const int stride = random_(4) ? 1 : 1 + random_(2), num_taken = random_(3) ? size : 1 + random_(2 * size + 1);
      const bool is_mirrored = random_(4) == 0;
      int first = b.fills ? random_(2 * size + 1) - size / 2 : random_(std::max(1, size - (num_taken - 1) * stride));
      if (num_taken == size && random_(2)) first = 0;
      start.push_back(is_mirrored ? first + (num_taken - 1) * stride : first);
      step.push_back(is_mirrored ? -stride : stride);
      extent.push_back(num_taken);
    }
    for (int d = 0; d < 3; d++) b.permutation[d] = d;
    if (random_(3) == 0)
      std::shuffle(b.permutation, b.permutation + 3, std::minstd_rand(static_cast<unsigned>(random_(1000))));
    Shape shape;
    for (int d : b.permutation) {
      if (shape.size() < 3) shape.push_back(extent[static_cast<size_t>(d)]);
    }
    const auto unit_axis = std::find(shape.begin(), shape.end(), 1);
    if (unit_axis != shape.end() && random_(2)) {  // drops an axis and adds another
      shape.erase(unit_axis);
      shape.push_back(1);
    }
    b.start = Integers(start);
    b.step = Integers(step);
    b.extent = Integers(extent);
    constexpr DType kTypes[] = {DType::kU8, DType::kI16, DType::kF32};
    const DType out = random_(3) ? type() : kTypes[random_(3)];
    // The number of scales and offsets. A conversion has some.
    b.scales = out != type() ? 1 + random_(3) : random_(3);
    b.fill = Numbers({9, 200});
    b.scale = Numbers({0.5, 1, -0.25});
    b.offset = Numbers({3, 0, 90});
    Append<WindowStage>(b, out, shape, Window);
  }

  Random& random_;
  Mutator& mutate_;
  jpeg::Helpers helpers_;
  bool damaged_ = false, exact_ = true;  // the file is damaged; results must be equal, not only within kLevels
  ImageInfo info_{};
  Shape shape_;                                  // of the last value
  std::vector<std::unique_ptr<Memory>> values_;  // the input, then the whole image after each stage
  std::vector<Status> whole_;                    // status of each stage on whole images
  Chain chain_;
  std::vector<int32_t> place_;  // of patches, see PatchifyBatch
  // Memory that the stages point to.
  std::vector<std::vector<float>> numbers_, floats_;
  std::vector<std::vector<int32_t>> integers_;
  std::vector<std::vector<double>> maps_;
};

}  // namespace
}  // namespace jaxdali

// Runs the rounds. Returns 1 if less than a third of them give a good result, since they would test little.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: check_chain FOLDER [ROUNDS [SEED]]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 2000, seed = argc > 3 ? std::atoi(argv[3]) : 1;
  const auto files = jaxdali::ReadSeeds(argv[1], {".jpg", ".jpeg", ".png"});
  if (files.empty()) {
    std::fprintf(stderr, "%s: no JPEG or PNG files\n", argv[1]);
    return 2;
  }
  jaxdali::ThreadPool pool(3);
  int good = 0, decoded = 0;
  for (int k = 0; k < rounds; k++) {
    jaxdali::Random random(static_cast<unsigned>(seed * 1000003 + k));  // so that each round can be repeated alone
    jaxdali::Mutator mutate(static_cast<uint64_t>(seed) * 1000003 + static_cast<uint64_t>(k));
    jaxdali::ChainCase chain_case(random, mutate, &pool);
    const bool has_file = random(3) > 0;
    if (has_file && !chain_case.BeginWithFile(files[static_cast<size_t>(random(static_cast<int>(files.size())))].data))
      continue;
    if (!has_file) chain_case.BeginWithImage();
    // A chain has at least two stages; decoding is one.
    for (int n = 1 + !has_file + random(3); n > 0; n--) chain_case.AddStage();
    if (random(3) == 0) chain_case.AddPatchify();
    if (std::getenv("CHECK_CHAIN_VERBOSE")) std::fprintf(stderr, "round %d\n", k);
    const bool is_ok = chain_case.Compare() == jaxdali::kOk;
    good += is_ok;
    decoded += is_ok && has_file;
  }
  std::printf("%d chains, %d good, %d of them with files\n", rounds, good, decoded);
  return good * 3 < rounds;
}
