// The stages of a chain on the CPU, and how a chain runs them for one sample.
//
// Each stage (decode, resize or resample, warp, window, patchify) answers in terms of regions of an image: which region
// of its input does a region of its output depend on (Reads), and which region does it make if some of it is needed
// (Makes). Chain::Plan asks them from the last stage to the first, and Chain::Run executes them in the opposite order.
// Two ways to do that:
//
//   stage by stage   each stage writes its region into memory of the thread (KeptMemory), where the next one reads it.
//   by rows          a decoder hands its rows to a fixed-point resize (Stream, RunRows). Idle threads may share the
//                    image, a strip of rows each.
//
// Read chain.h first. The kernels themselves are in their own folders; chain.cc has the binding.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "ffi/chain/chain.h"
#include "ffi/common/kept_memory.h"
#include "ffi/common/thread_pool.h"
#include "ffi/jpeg/baseline.h"

namespace jaxdali {
namespace {

ImageRegion Whole(const Batch& b, int i) { return {{{0, b.dim(i, 0)}, {0, b.dim(i, 1)}}}; }

// Number of elements in a region of a sample.
int64_t Size(const Batch& b, int i, const ImageRegion& region) {
  return region.axis[0].size() * region.axis[1].size() * b.dim(i, 2);
}

// A dense batch of one sample: a region of sample i, which lies at `data`.
Batch BatchOfRegion(const Batch& b, int i, const ImageRegion& region, const void* data) {
  Batch one = b;
  one.data = const_cast<void*>(data);
  one.n = 1;
  one.offsets = nullptr;
  one.shapes = nullptr;
  for (int d = 0; d < 2; d++) one.dense[d] = region.axis[d].size();
  one.dense[2] = b.dim(i, 2);
  one.capacity = one.size(0);
  return one;
}

// A cheap clock, since it is read for each row of an image. Its unit is unknown: only ratios of its times are used, to
// divide the time of a call among the stages.
int64_t Ticks() {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

// Whether the file ends with the marker EOI. Otherwise data may be missing.
bool EndsAsJpeg(const uint8_t* data, int64_t size) {
  return size >= 2 && data[size - 2] == 0xFF && data[size - 1] == 0xD9;
}

}  // namespace

// The input of a decoder is a file, which has no regions.
Status DecodeStage::Reads(int, const ImageRegion&, ImageRegion* input) const {
  *input = {};
  return kOk;
}

// The region that is decoded if `needed` is needed.
ImageRegion DecodeStage::Makes(int i, const ImageRegion& needed) const {
  const ImageRegion whole = Whole(out, i);
  if (IsFinished(info[i]) || (options.adjust_orientation && info[i].orientation != 1)) return whole;
  // A chain must report a truncated file as the single kernel does, which decodes all rows. So all rows below are
  // needed, too, unless the file certainly ends properly.
  const auto format = static_cast<Format>(info[i].format);
  const bool is_complete = (format == Format::kJpeg && EndsAsJpeg(in.sample<uint8_t>(i), in.size(i))) ||
                           format == Format::kWebp;  // libwebp refuses a file that is shorter than its header says
  ImageRegion output = needed;
  if (IsPixels(i))
    output.axis[1] = whole.axis[1];  // whole rows are packed in memory
  else if (!is_complete)
    output.axis[0].end = whole.axis[0].end;
  return output;
}

// Whether the data of sample i are pixels that the host pass made, in the form of the output, row after row.
bool DecodeStage::IsPixels(int i) const {
  const ImageInfo& file = info[i];
  return static_cast<Format>(file.format) == Format::kRaw && file.status == kOk && IsDecodable(file) &&
         IsOrdered(file, options) && out.dtype == StoredType(file.depth) && file.region_w == file.width &&
         !(options.adjust_orientation && file.orientation != 1) &&
         OutputFits(file, options.type, /*adjust_orientation=*/false, out.dim(i, 0), out.dim(i, 1), out.dim(i, 2)) &&
         in.size(i) == int64_t{file.height} * file.width * file.channels * (file.depth / 8);
}

// The address of `output` in the data of sample i, or null if it has to be made.
const void* DecodeStage::InPlace(int i, const ImageRegion& output) const {
  if (!IsPixels(i)) return nullptr;
  const int64_t row = info[i].region_y + output.axis[0].begin, bytes = info[i].depth / 8;
  const uint8_t* address = in.sample<uint8_t>(i) + row * info[i].width * info[i].channels * bytes;
  // The next stage reads pixels of 16 or 32 bits as such, so they must be aligned.
  return reinterpret_cast<uintptr_t>(address) % bytes == 0 ? address : nullptr;
}

// Sets `region` to the info row of the file, with the region that becomes `output`. An output whose axes are exchanged
// is made whole (Makes), so the row's region stays.
Status DecodeStage::InfoOf(int i, const ImageRegion& output, ImageInfo* region) const {
  *region = info[i];
  if (region->status != kOk || IsFinished(*region)) return kOk;  // DecodeImage reports these
  if (!IsDecodable(*region)) return kInternal;
  if (!OutputFits(*region, options.type, options.adjust_orientation, out.dim(i, 0), out.dim(i, 1), out.dim(i, 2)))
    return kSizeMismatch;
  if (!Transposes(*region, options.adjust_orientation)) {
    region->region_y += static_cast<int32_t>(output.axis[0].begin);
    region->region_x += static_cast<int32_t>(output.axis[1].begin);
    region->region_h = static_cast<int32_t>(output.axis[0].size());
    region->region_w = static_cast<int32_t>(output.axis[1].size());
  }
  return kOk;
}

Status DecodeStage::Run(int i, const ImageRegion&, const void*, const ImageRegion& output, void* to) const {
  ImageInfo region;
  if (Status s = InfoOf(i, output, &region); s != kOk) return s;
  return DecodeImage(in.sample<uint8_t>(i), in.size(i), region, options, out.dtype, to, output.axis[0].size(),
                     output.axis[1].size(), out.dim(i, 2));
}

// The rows of `output` from a PNG or JPEG decoder, from the strip `first` on (null: all). The result has no `next` if
// there is no such decoder for the file.
Rows DecodeStage::MakeRows(int i, const ImageRegion& output, const jpeg::Strip* first) const {
  ImageInfo region;
  if (out.dtype != DType::kU8 || InfoOf(i, output, &region) != kOk) return {};
  DecodeOptions row_options = options;
  // A gray file makes gray rows, of a third of the bytes. The next stage triples the resized pixels.
  const bool gray =
      region.channels <= 2 && (row_options.type == ImageType::kRgb || row_options.type == ImageType::kBgr);
  if (gray) row_options.type = ImageType::kGray;
  if (static_cast<Format>(region.format) == Format::kPng) {
    png::Decoder* rows = nullptr;
    auto next = [=, this](uint8_t* pixels) mutable {
      if (!rows) rows = StartPngRows(in.sample<uint8_t>(i), in.size(i), region, row_options);
      if (rows) NextPngRow(rows, region, row_options, pixels);
      return rows != nullptr;
    };
    return {next, gray};
  }
  if (static_cast<Format>(region.format) != Format::kJpeg) return {};
  jpeg::BaselineDecoder* decoder = nullptr;  // created with the first row, when it is clear that rows are taken
  auto next = [=, this](uint8_t* pixels) mutable {
    if (!decoder) decoder = StartRows(in.sample<uint8_t>(i), in.size(i), region, row_options, first);
    return decoder && decoder->NextRow(pixels);
  };
  return {next, gray};
}

// The rows of the strips are counted as those of the sample, whose region may begin below the top of the file. Only
// JPEG files have strips, see StartRows.
std::vector<jpeg::Strip> DecodeStage::Cut(int i, const ImageRegion& output) const {
  ImageInfo region;
  // A file that may end early is decoded by one thread, which finds the end.
  if (!options.helpers.pool || !EndsAsJpeg(in.sample<uint8_t>(i), in.size(i)) || InfoOf(i, output, &region) != kOk)
    return {};
  jpeg::BaselineDecoder* decoder = StartRows(in.sample<uint8_t>(i), in.size(i), region, options);
  if (!decoder) return {};
  jpeg::Helpers helpers = options.helpers;
  auto strips = jpeg::Cut(decoder, region.region_y + region.region_h, &helpers);
  for (jpeg::Strip& strip : strips) strip.row -= info[i].region_y;
  return strips;
}

// An axis that is not resized is made whole, from the whole input.
ImageRegion ResizeStage::Makes(int i, const ImageRegion& needed) const {
  ImageRegion output = Whole(batch.out, i);
  for (int d = 0; d < 2; d++)
    if (d >= batch.first_axis && d < batch.first_axis + batch.num_axes) output.axis[d] = needed.axis[d];
  return output;
}

// Describes the resize that makes `output`: the whole job, and `output` as a part of it.
Status ResizeStage::JobOf(int i, const ImageRegion& output, ResizeJob* job, ResizePart* part) const {
  if (Status s = batch.Sample(i, job); s != kOk) return s;
  *part = ResizePart::Whole(*job);
  job->outer = job->inner = 1;
  for (int d = 0; d < 3; d++) {
    // Axes before the resized ones count as `outer`, those behind them as `inner`.
    const int a = d - batch.first_axis;
    const Range range = d < 2 ? output.axis[d] : Range{0, batch.out.dim(i, 2)};
    if (a >= 0 && a < batch.num_axes)
      part->output[a] = range;
    else
      (a < 0 ? job->outer : job->inner) *= range.size();
  }
  return kOk;
}

// Sets `input` to the region that `output` depends on. An axis that is not resized is read whole.
Status ResizeStage::Reads(int i, const ImageRegion& output, ImageRegion* input) const {
  ResizeJob job;
  ResizePart part;
  if (Status s = JobOf(i, output, &job, &part); s != kOk) return s;
  *input = {};
  if (batch.out.size(i) == 0) return kOk;  // the kernel accepts any input then
  if (Status s = SourceOf(job, &part); s != kOk) return s;
  *input = Whole(batch.in, i);
  for (int a = 0; a < batch.num_axes; a++)
    if (const int d = batch.first_axis + a; d < 2) input->axis[d] = part.source[a];
  return kOk;
}

// Describes the resize that makes `output`, as a part of the whole job, where only `input` is in memory.
Status ResizeStage::JobOf(int i, const ImageRegion& input, const ImageRegion& output, ResizeJob* job,
                          ResizePart* part) const {
  if (Status s = JobOf(i, output, job, part); s != kOk) return s;
  for (int a = 0; a < batch.num_axes; a++)
    if (const int d = batch.first_axis + a; d < 2) part->source[a] = input.axis[d];
  return kOk;
}

// Makes `output` from the rows of `input`. False: ResizeRows can't, or a row was missing.
bool ResizeStage::RunOnRows(int i, const ImageRegion& input, const Rows& rows, const ImageRegion& output,
                            void* to) const {
  ResizeJob job;
  ResizePart part;
  // ResizeRows takes rows of the first axis that is resized.
  if (batch.first_axis != 0 || JobOf(i, input, output, &job, &part) != kOk) return false;
  job.out = to;
  return ResizeRows(job, part, rows.next, rows.gray);
}

// Makes `output` at `to` from `input` at `from`.
Status ResizeStage::Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const {
  ResizeJob job;
  ResizePart part;
  if (Status s = JobOf(i, input, output, &job, &part); s != kOk) return s;
  job.in = from;
  job.out = to;
  return ResizeSome(job, part);
}

// Describes the warp that makes `output` from the whole input.
Status WarpStage::ArgsOf(int i, const ImageRegion& output, WarpArgs* a) const {
  if (Status s = batch.Sample(i, a); s != kOk) return s;
  // A row of `map` has the factors of x, y and z, and the offset. The offset moves to the first pixel of `output`.
  for (int s = 0; s < 2; s++) {  // source axis: 0 is x, 1 is y, the reverse of the image's axes
    a->map[s][3] += output.axis[1].begin * a->map[s][0] + output.axis[0].begin * a->map[s][1];
    a->out_size[s] = output.axis[1 - s].size();
  }
  return kOk;
}

// The box around the points to which the corners of `output` are mapped (32 fractional bits, see warp.h). A tap outside
// this box is outside the image.
Status WarpStage::Reads(int i, const ImageRegion& output, ImageRegion* input) const {
  WarpArgs a;
  if (Status s = ArgsOf(i, output, &a); s != kOk) return s;
  *input = Whole(batch.in, i);
  if (Size(batch.out, i, output) == 0 || batch.in.size(i) == 0) return kOk;
  int64_t first[2];
  RowStart(a, /*y=*/0, /*z=*/0, first);
  for (int s = 0; s < 2; s++) {
    const int64_t right = (a.out_size[0] - 1) * a.map[s][0], down = (a.out_size[1] - 1) * a.map[s][1];
    const int64_t least = first[s] + std::min<int64_t>(right, 0) + std::min<int64_t>(down, 0),
                  most = first[s] + std::max<int64_t>(right, 0) + std::max<int64_t>(down, 0), last = a.in_size[s] - 1;
    input->axis[1 - s] = {std::clamp<int64_t>(least >> 32, 0, last),
                          std::clamp<int64_t>((most >> 32) + (a.linear ? 1 : 0), 0, last) + 1};
  }
  return kOk;
}

// Makes `output` at `to` from `input` at `from`.
Status WarpStage::Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const {
  WarpArgs a;
  if (Status s = ArgsOf(i, output, &a); s != kOk) return s;
  a.in = from;
  a.out = to;
  // Source coordinates count from the first pixel of `input`. Source axis 0 is x, which is axis 1 of the image.
  for (int s = 0; s < 2; s++) {
    a.map[s][3] -= input.axis[1 - s].begin * kOnePixel;
    a.in_size[s] = input.axis[1 - s].size();
  }
  if (Size(batch.out, i, output) > 0) WarpWhole(a);
  return kOk;
}

bool WindowStage::KeepsAxes(int i) const {
  for (int k = 0; k < 3; k++)
    if (batch.extent[int64_t{3} * i + batch.permutation[k]] != batch.out.dim(i, k)) return false;
  return true;
}

ImageRegion WindowStage::Makes(int i, const ImageRegion& needed) const {
  return KeepsAxes(i) ? needed : Whole(batch.out, i);
}

// The window that makes `output`: its first index and its number of indices along each axis of the input. If the output
// has other axes than the input, `output` is the whole (Makes), and the window is that of the sample.
void WindowStage::WindowOf(int i, const ImageRegion& output, int32_t start[3], int32_t extent[3]) const {
  const int64_t row = int64_t{3} * i;
  std::copy_n(batch.start + row, 3, start);
  std::copy_n(batch.extent + row, 3, extent);
  for (int k = 0; k < 2 && KeepsAxes(i); k++) {
    const int d = batch.permutation[k];
    start[d] += static_cast<int32_t>(output.axis[k].begin) * batch.step[row + d];
    extent[d] = static_cast<int32_t>(output.axis[k].size());
  }
}

// Sets `input` to the rows and columns of the input that `output` depends on.
Status WindowStage::Reads(int i, const ImageRegion& output, ImageRegion* input) const {
  WindowArgs whole;
  if (Status s = batch.Sample(i, &whole); s != kOk) return s;  // the bounds are checked for the whole window
  int32_t start[3], extent[3];
  WindowOf(i, output, start, extent);
  for (int d = 0; d < 2; d++) {
    const int64_t dim = batch.in.dim(i, d), first = start[d],
                  last = first + (int64_t{extent[d]} - 1) * batch.step[int64_t{3} * i + d];
    input->axis[d] = {std::max<int64_t>(std::min(first, last), 0), std::min(std::max(first, last) + 1, dim)};
    if (input->axis[d].size() <= 0) input->axis[d] = {0, std::min<int64_t>(dim, 1)};  // only fill
  }
  return kOk;
}

// Makes `output` at `to` from `input` at `from`.
Status WindowStage::Run(int i, const ImageRegion& input, const void* from, const ImageRegion& output, void* to) const {
  int32_t start[3], extent[3];
  WindowOf(i, output, start, extent);
  // Rows and columns count from the first ones of `input`.
  for (int d = 0; d < 2; d++) start[d] -= static_cast<int32_t>(input.axis[d].begin);
  // A batch of one sample, whose operands are those of sample i.
  WindowBatch one = batch;
  one.in = BatchOfRegion(batch.in, i, input, from);
  one.out = BatchOfRegion(batch.out, i, output, to);
  one.start = start;
  one.extent = extent;
  one.step += int64_t{3} * i;
  one.fill += int64_t{i} * batch.fills;
  one.scale += int64_t{i} * batch.scales;
  one.offset += int64_t{i} * batch.scales;
  return Window(one, /*i=*/0);
}

// Sets `input` to the whole input.
Status PatchifyStage::Reads(int i, const ImageRegion&, ImageRegion* input) const {
  PatchifyArgs a;
  *input = Whole(batch.in, i);
  return batch.Sample(i, &a);
}

// Makes the patches where the batch says.
Status PatchifyStage::Run(int i, const ImageRegion&, const void* from, const ImageRegion&, void*) const {
  return PatchifyImage(batch, i, from);
}

// Finds the regions of values 0 to n, from the last one to the first. Stage k reads regions[k] and makes its successor;
// regions[n] is whole. `failed`: the stage that can't run.
Status Chain::Plan(int i, int n, ImageRegion* regions, int* failed) const {
  regions[n] = Whole(values[n], i);
  for (int k = n - 1; k >= 0; k--) {
    *failed = k;
    if (Status s = stages[k]->Reads(i, regions[k + 1], &regions[k]); s != kOk) return s;
    if (k == 0) break;
    // A stage that makes nothing would find no errors, but its status is needed: it makes the whole image.
    if (Size(values[k], i, regions[k]) == 0) regions[k] = Whole(values[k], i);
    regions[k] = stages[k - 1]->Makes(i, regions[k]);
  }
  // The first stage reads its whole input.
  if (values[0].ndim == 3) regions[0] = Whole(values[0], i);
  return kOk;
}

// Runs stages k and k + 1 by rows: the first one makes the rows of `input` (from the strip `first` on), from which the
// second one makes `output` at `to`. False: they can't.
bool Chain::RunRows(int i, int k, const ImageRegion& input, const jpeg::Strip* first, const ImageRegion& output,
                    void* to) const {
  const Stage &maker = *stages[k], &taker = *stages[k + 1];
  const Rows rows = maker.MakeRows(i, input, first);
  if (ticks.empty()) return taker.RunOnRows(i, input, rows, output, to);
  // The taker calls for the rows, so its time contains the maker's.
  int64_t maker_ticks = 0;
  const int64_t start = Ticks();
  const auto next = [&](uint8_t* row) {
    const int64_t row_start = Ticks();
    const bool has_row = rows.next(row);
    maker_ticks += Ticks() - row_start;
    return has_row;
  };
  const bool done = taker.RunOnRows(i, input, {next, rows.gray}, output, to);
  ticks[k] += maker_ticks;
  ticks[k + 1] += Ticks() - start - maker_ticks;
  return done;
}

// Runs stages k and k + 1 by rows for their whole regions, with strips of the image on all idle threads. False: they
// can't.
bool Chain::Stream(int i, int k, const ImageRegion* regions, void* to) const {
  const Stage &maker = *stages[k], &taker = *stages[k + 1];
  const int64_t start = ticks.empty() ? 0 : Ticks();
  const std::vector<jpeg::Strip> strips = maker.Cut(i, regions[k + 1]);
  if (!ticks.empty()) ticks[k] += Ticks() - start;
  if (strips.empty()) return RunRows(i, k, regions[k + 1], /*first=*/nullptr, regions[k + 2], to);

  // A job for each strip: the output rows that depend on no row above the strip, up to those of the next strip. Jobs
  // overlap in their input, because the taps of neighbouring output rows do.
  struct StripJob {
    const jpeg::Strip* strip;
    ImageRegion input, output;
  };
  std::vector<StripJob> jobs;
  const Range rows = regions[k + 2].axis[0];
  for (const jpeg::Strip& strip : strips) {
    StripJob job{&strip, regions[k + 1], regions[k + 2]};
    auto reads_above = [&](int64_t row) {  // whether the output from `row` on depends on rows above the strip
      job.output.axis[0].begin = row;
      return taker.Reads(i, job.output, &job.input) != kOk || job.input.axis[0].begin < strip.row;
    };
    // The first output row that doesn't, by bisection: the input of later rows begins further down.
    int64_t row = jobs.empty() ? rows.begin : jobs.back().output.axis[0].begin + 1;
    for (int64_t end = rows.end; !jobs.empty() && row < end;) {
      const int64_t middle = row + (end - row) / 2;
      reads_above(middle) ? row = middle + 1 : end = middle;
    }
    if (row >= rows.end || reads_above(row)) {
      if (jobs.empty()) return false;
      continue;  // all further output rows read above the strip, so the job above makes them
    }
    if (!jobs.empty()) {
      StripJob& above = jobs.back();
      above.output.axis[0].end = row;
      if (taker.Reads(i, above.output, &above.input) != kOk) return false;
      // All rows are decoded, even those that no output row depends on, because they may be damaged.
      above.input.axis[0].end = std::max<int64_t>(above.input.axis[0].end, strip.row);
    }
    jobs.push_back(job);
  }
  const int64_t row_size = regions[k + 2].axis[1].size() * values[k + 2].dim(i, 2) * SizeOf(values[k + 2].dtype);
  std::atomic<bool> done{true};
  // Each job writes its rows of the output.
  helpers.pool->Run(static_cast<int>(jobs.size()), [&](int n) {
    const StripJob& job = jobs[n];
    if (!RunRows(i, k, job.input, job.strip, job.output,
                 static_cast<uint8_t*>(to) + (job.output.axis[0].begin - rows.begin) * row_size))
      done = false;
  });
  return done;
}

// Runs all stages for sample i. `failed` is the first stage that failed, if the status is not kOk.
Status Chain::Run(int i, int* failed) const {
  thread_local KeptMemory memory[2];     // the images of even and of odd stages
  ImageRegion regions[kMostStages + 1];  // one for each value
  *failed = 0;
  for (const Batch& b : values)
    for (int d = 0; d < b.ndim; d++)
      if (b.dim(i, d) < 0) return kInternal;
  try {
    // First half: plan the regions. If stage n can't run, the stages before it run nevertheless, because their failure
    // comes first. Its status is reported in the end if none of them fails.
    int n = static_cast<int>(stages.size());
    Status plan_status = kOk;
    for (Status s; n > 0 && (s = Plan(i, n, regions, failed)) != kOk; n = *failed) plan_status = s;
    const void* from = values[0].bytes(i);
    auto output_of = [&](int k) -> void* {  // memory for the output of stage k
      const Batch& value = values[k + 1];
      if (k + 1 == static_cast<int>(stages.size())) return place ? nullptr : value.bytes(i);  // it finds its place
      return memory[k % 2].OfSize(Size(value, i, regions[k + 1]) * SizeOf(value.dtype));
    };
    // Second half: run the stages. Each finds its input at `from`.
    for (int k = 0; k < n; k++) {
      // Two stages at a time, by rows. If that fails, both run one by one, and report the reason.
      if (streams && k + 1 < n && stages[k]->MakeRows(i, regions[k + 1]).next) {
        void* to = output_of(k + 1);
        if (Stream(i, k, regions, to)) {
          from = to;
          k++;
          continue;
        }
      }
      *failed = k;
      const bool is_last = k + 1 == static_cast<int>(stages.size());
      if (const void* pixels = is_last ? nullptr : stages[k]->InPlace(i, regions[k + 1])) {
        from = pixels;
        continue;
      }
      void* to = output_of(k);
      const int64_t start = ticks.empty() ? 0 : Ticks();
      const Status s = stages[k]->Run(i, regions[k], from, regions[k + 1], to);
      if (!ticks.empty()) ticks[k] += Ticks() - start;
      if (s != kOk) return s;
      from = to;
    }
    if (plan_status != kOk) *failed = n;
    return plan_status;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace jaxdali
