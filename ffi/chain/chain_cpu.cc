// The stages of a chain on the CPU, and how a chain runs them for one sample.
//
// Each stage (decode, resize or resample, warp, window) answers in terms of regions of an image: which region of its
// input does a region of its output depend on (Reads), and which region does it make if some of it is needed (Makes).
// Chain::Plan asks them from the last stage to the first, and Chain::Run executes them in the opposite order. Two ways
// to do that:
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

Part Whole(const Batch& b, int i) { return {{{0, b.dim(i, 0)}, {0, b.dim(i, 1)}}}; }

// Number of elements in a part of a sample.
int64_t Size(const Batch& b, int i, const Part& part) {
  return part.axis[0].size() * part.axis[1].size() * b.dim(i, 2);
}

// A batch that consists of one part of one sample.
Batch One(const Batch& b, int i, const Part& part, const void* data) {
  Batch one = b;
  one.data = const_cast<void*>(data);
  one.n = 1;
  one.offsets = nullptr;
  one.shapes = nullptr;
  for (int d = 0; d < 2; d++) one.dense[d] = part.axis[d].size();
  one.dense[2] = b.dim(i, 2);
  one.capacity = one.size(0);
  return one;
}

// A clock that divides a time that is measured elsewhere. It is read for each row of an image, so it must be cheap.
int64_t Ticks() {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

// Whether the file ends with a marker. Otherwise data may be missing.
bool EndsAsJpeg(const uint8_t* data, int64_t size) {
  return size >= 2 && data[size - 2] == 0xFF && data[size - 1] == 0xD9;
}

}  // namespace

Status DecodeStage::Reads(int, const Part&, Part* read) const {
  *read = {};
  return kOk;
}

Part DecodeStage::Makes(int i, const Part& wanted) const {
  const Part whole = Whole(out, i);
  if (IsFinished(info[i]) || (options.adjust_orientation && info[i].orientation != 1)) return whole;
  // A file that ends early must be reported as it is without a chain. That needs all rows below, unless the file ends
  // properly.
  const auto format = static_cast<Format>(info[i].format);
  const bool complete = (format == Format::kJpeg && EndsAsJpeg(in.sample<uint8_t>(i), in.size(i))) ||
                        format == Format::kWebp;  // libwebp refuses a file that is shorter than its header says
  Part made = wanted;
  if (IsPixels(i))
    made.axis[1] = whole.axis[1];  // whole rows are packed in memory
  else if (!complete)
    made.axis[0].end = whole.axis[0].end;
  return made;
}

bool DecodeStage::IsPixels(int i) const {
  const ImageInfo& file = info[i];
  return static_cast<Format>(file.format) == Format::kRaw && file.status == kOk && IsDecodable(file) &&
         IsOrdered(file, options) && out.dtype == (file.depth == 16 ? DType::kU16 : DType::kU8) &&
         file.region_w == file.width && !(options.adjust_orientation && file.orientation != 1) &&
         OutputFits(file, options.type, false, out.dim(i, 0), out.dim(i, 1), out.dim(i, 2)) &&
         in.size(i) == int64_t{file.height} * file.width * file.channels * (file.depth / 8);
}

const void* DecodeStage::InPlace(int i, const Part& made) const {
  if (!IsPixels(i)) return nullptr;
  const int64_t row = info[i].region_y + made.axis[0].begin, bytes = info[i].depth / 8;
  const uint8_t* at = in.sample<uint8_t>(i) + row * info[i].width * info[i].channels * bytes;
  return reinterpret_cast<uintptr_t>(at) % bytes == 0 ? at : nullptr;
}

Status DecodeStage::Of(int i, const Part& made, ImageInfo* part) const {
  *part = info[i];
  if (part->status != kOk || IsFinished(*part)) return kOk;  // DecodeImage reports these
  if (!IsDecodable(*part)) return kInternal;
  if (!OutputFits(*part, options.type, options.adjust_orientation, out.dim(i, 0), out.dim(i, 1), out.dim(i, 2)))
    return kSizeMismatch;
  if (!Transposes(*part, options.adjust_orientation)) {
    part->region_y += static_cast<int32_t>(made.axis[0].begin);
    part->region_x += static_cast<int32_t>(made.axis[1].begin);
    part->region_h = static_cast<int32_t>(made.axis[0].size());
    part->region_w = static_cast<int32_t>(made.axis[1].size());
  }
  return kOk;
}

Status DecodeStage::Run(int i, const Part&, const void*, const Part& made, void* to) const {
  ImageInfo part;
  if (Status s = Of(i, made, &part); s != kOk) return s;
  return DecodeImage(in.sample<uint8_t>(i), in.size(i), part, options, out.dtype, to, made.axis[0].size(),
                     made.axis[1].size(), out.dim(i, 2));
}

Rows DecodeStage::MakeRows(int i, const Part& made, const jpeg::Strip* from) const {
  ImageInfo part;
  if (out.dtype != DType::kU8 || Of(i, made, &part) != kOk) return {};
  DecodeOptions as = options;
  const bool gray = part.channels <= 2 && (as.type == ImageType::kRgb || as.type == ImageType::kBgr);
  if (gray) as.type = ImageType::kGray;
  if (static_cast<Format>(part.format) == Format::kPng) {
    png::Decoder* rows = nullptr;
    auto next = [=, this](uint8_t* pixels) mutable {
      if (!rows) rows = StartPngRows(in.sample<uint8_t>(i), in.size(i), part, as);
      if (rows) NextPngRow(rows, part, as, pixels);
      return rows != nullptr;
    };
    return {next, gray};
  }
  if (static_cast<Format>(part.format) != Format::kJpeg) return {};
  jpeg::BaselineDecoder* decoder = nullptr;  // created with the first row, when it is clear that rows are taken
  auto next = [=, this](uint8_t* pixels) mutable {
    if (!decoder) decoder = StartRows(in.sample<uint8_t>(i), in.size(i), part, as, from);
    return decoder && decoder->NextRow(pixels);
  };
  return {next, gray};
}

// The rows of the strips are counted as those of the sample, whose region may begin below the top of the file.
std::vector<jpeg::Strip> DecodeStage::Cut(int i, const Part& made) const {
  ImageInfo part;
  // A file that may end early is decoded by one thread, which finds the end.
  if (!options.helpers.pool || !EndsAsJpeg(in.sample<uint8_t>(i), in.size(i)) || Of(i, made, &part) != kOk) return {};
  jpeg::BaselineDecoder* decoder = StartRows(in.sample<uint8_t>(i), in.size(i), part, options);
  if (!decoder) return {};
  jpeg::Helpers helpers = options.helpers;
  auto strips = jpeg::Cut(decoder, part.region_y + part.region_h, &helpers);
  for (jpeg::Strip& s : strips) s.row -= info[i].region_y;
  return strips;
}

// An axis that is not resized is made whole, from the whole input.
Part ResizeStage::Makes(int i, const Part& wanted) const {
  Part made = Whole(batch.out, i);
  for (int d = 0; d < 2; d++)
    if (d >= batch.first_axis && d < batch.first_axis + batch.num_axes) made.axis[d] = wanted.axis[d];
  return made;
}

Status ResizeStage::Of(int i, const Part& made, ResizeJob* job, ResizePart* part) const {
  if (Status s = batch.Sample(i, job); s != kOk) return s;
  *part = ResizePart::Whole(*job);
  job->outer = job->inner = 1;
  for (int d = 0; d < 3; d++) {
    const int a = d - batch.first_axis;
    const Range range = d < 2 ? made.axis[d] : Range{0, batch.out.dim(i, 2)};
    if (a >= 0 && a < batch.num_axes)
      part->made[a] = range;
    else
      (a < 0 ? job->outer : job->inner) *= range.size();
  }
  return kOk;
}

Status ResizeStage::Reads(int i, const Part& made, Part* read) const {
  ResizeJob job;
  ResizePart part;
  if (Status s = Of(i, made, &job, &part); s != kOk) return s;
  *read = {};
  if (batch.out.size(i) == 0) return kOk;  // the kernel accepts any input then
  if (Status s = SourceOf(job, &part); s != kOk) return s;
  *read = Whole(batch.in, i);
  for (int a = 0; a < batch.num_axes; a++)
    if (const int d = batch.first_axis + a; d < 2) read->axis[d] = part.held[a];
  return kOk;
}

Status ResizeStage::Of(int i, const Part& read, const Part& made, ResizeJob* job, ResizePart* part) const {
  if (Status s = Of(i, made, job, part); s != kOk) return s;
  for (int a = 0; a < batch.num_axes; a++)
    if (const int d = batch.first_axis + a; d < 2) part->held[a] = read.axis[d];
  return kOk;
}

bool ResizeStage::RunOnRows(int i, const Part& read, const Rows& rows, const Part& made, void* to) const {
  ResizeJob job;
  ResizePart part;
  if (batch.first_axis != 0 || Of(i, read, made, &job, &part) != kOk) return false;
  job.out = to;
  return ResizeRows(job, part, rows.next, rows.gray);
}

Status ResizeStage::Run(int i, const Part& read, const void* from, const Part& made, void* to) const {
  ResizeJob job;
  ResizePart part;
  if (Status s = Of(i, read, made, &job, &part); s != kOk) return s;
  job.in = from;
  job.out = to;
  return ResizeSome(job, part);
}

Status WarpStage::Of(int i, const Part& made, WarpArgs* a) const {
  if (Status s = batch.Sample(i, a); s != kOk) return s;
  for (int s = 0; s < 2; s++) {
    a->map[s][3] += made.axis[1].begin * a->map[s][0] + made.axis[0].begin * a->map[s][1];
    a->out_size[s] = made.axis[1 - s].size();
  }
  return kOk;
}

// The box around the points to which the corners of `made` are mapped. A tap outside this box is outside the image.
Status WarpStage::Reads(int i, const Part& made, Part* read) const {
  WarpArgs a;
  if (Status s = Of(i, made, &a); s != kOk) return s;
  *read = Whole(batch.in, i);
  if (Size(batch.out, i, made) == 0 || batch.in.size(i) == 0) return kOk;
  int64_t first[2];
  RowStart(a, 0, 0, first);
  for (int s = 0; s < 2; s++) {
    const int64_t right = (a.out_size[0] - 1) * a.map[s][0], down = (a.out_size[1] - 1) * a.map[s][1];
    const int64_t least = first[s] + std::min<int64_t>(right, 0) + std::min<int64_t>(down, 0),
                  most = first[s] + std::max<int64_t>(right, 0) + std::max<int64_t>(down, 0), last = a.in_size[s] - 1;
    read->axis[1 - s] = {std::clamp<int64_t>(least >> 32, 0, last),
                         std::clamp<int64_t>((most >> 32) + (a.linear ? 1 : 0), 0, last) + 1};
  }
  return kOk;
}

Status WarpStage::Run(int i, const Part& read, const void* from, const Part& made, void* to) const {
  WarpArgs a;
  if (Status s = Of(i, made, &a); s != kOk) return s;
  a.in = from;
  a.out = to;
  for (int s = 0; s < 2; s++) {
    a.map[s][3] -= read.axis[1 - s].begin * kOnePixel;
    a.in_size[s] = read.axis[1 - s].size();
  }
  if (Size(batch.out, i, made) > 0) WarpWhole(a);
  return kOk;
}

bool WindowStage::KeepsAxes(int i) const {
  for (int k = 0; k < 3; k++)
    if (batch.extent[int64_t{3} * i + batch.permutation[k]] != batch.out.dim(i, k)) return false;
  return true;
}

Part WindowStage::Makes(int i, const Part& wanted) const { return KeepsAxes(i) ? wanted : Whole(batch.out, i); }

void WindowStage::Of(int i, const Part& made, int32_t start[3], int32_t extent[3]) const {
  const int64_t at = int64_t{3} * i;
  std::copy_n(batch.start + at, 3, start);
  std::copy_n(batch.extent + at, 3, extent);
  for (int k = 0; k < 2 && KeepsAxes(i); k++) {
    const int d = batch.permutation[k];
    start[d] += static_cast<int32_t>(made.axis[k].begin) * batch.step[at + d];
    extent[d] = static_cast<int32_t>(made.axis[k].size());
  }
}

Status WindowStage::Reads(int i, const Part& made, Part* read) const {
  WindowArgs whole;
  if (Status s = batch.Sample(i, &whole); s != kOk) return s;  // the bounds are checked for the whole window
  int32_t start[3], extent[3];
  Of(i, made, start, extent);
  for (int d = 0; d < 2; d++) {
    const int64_t dim = batch.in.dim(i, d), a = start[d],
                  b = a + (int64_t{extent[d]} - 1) * batch.step[int64_t{3} * i + d];
    read->axis[d] = {std::max<int64_t>(std::min(a, b), 0), std::min(std::max(a, b) + 1, dim)};
    if (read->axis[d].size() <= 0) read->axis[d] = {0, std::min<int64_t>(dim, 1)};  // only fill
  }
  return kOk;
}

Status WindowStage::Run(int i, const Part& read, const void* from, const Part& made, void* to) const {
  int32_t start[3], extent[3];
  Of(i, made, start, extent);
  for (int d = 0; d < 2; d++) start[d] -= static_cast<int32_t>(read.axis[d].begin);
  WindowBatch one = batch;
  one.in = One(batch.in, i, read, from);
  one.out = One(batch.out, i, made, to);
  one.start = start;
  one.extent = extent;
  one.step += int64_t{3} * i;
  one.fill += int64_t{i} * batch.fills;
  one.scale += int64_t{i} * batch.scales;
  one.offset += int64_t{i} * batch.scales;
  return Window(one, 0);
}

Status Chain::Plan(int i, int n, Part* parts, int* failed) const {
  parts[n] = Whole(values[n], i);
  for (int k = n - 1; k >= 0; k--) {
    *failed = k;
    if (Status s = stages[k]->Reads(i, parts[k + 1], &parts[k]); s != kOk) return s;
    if (k == 0) break;
    // A stage that makes nothing would find no errors, but its status is needed: it makes the whole image.
    if (Size(values[k], i, parts[k]) == 0) parts[k] = Whole(values[k], i);
    parts[k] = stages[k - 1]->Makes(i, parts[k]);
  }
  // The first stage reads its whole input.
  if (values[0].ndim == 3) parts[0] = Whole(values[0], i);
  return kOk;
}

bool Chain::RunRows(int i, int k, const Part& read, const jpeg::Strip* from, const Part& made, void* to) const {
  const Stage &first = *stages[k], &second = *stages[k + 1];
  const Rows rows = first.MakeRows(i, read, from);
  if (spent.empty()) return second.RunOnRows(i, read, rows, made, to);
  int64_t making = 0;
  const int64_t start = Ticks();
  const auto next = [&](uint8_t* row) {
    const int64_t begun = Ticks();
    const bool made_one = rows.next(row);
    making += Ticks() - begun;
    return made_one;
  };
  const bool good = second.RunOnRows(i, read, {next, rows.gray}, made, to);
  spent[k] += making;
  spent[k + 1] += Ticks() - start - making;
  return good;
}

bool Chain::Stream(int i, int k, const Part* parts, void* to) const {
  const Stage &first = *stages[k], &second = *stages[k + 1];
  const int64_t start = spent.empty() ? 0 : Ticks();
  const std::vector<jpeg::Strip> strips = first.Cut(i, parts[k + 1]);
  if (!spent.empty()) spent[k] += Ticks() - start;
  if (strips.empty()) return RunRows(i, k, parts[k + 1], nullptr, parts[k + 2], to);

  // A strip makes the output rows that depend on no row above it.
  struct Piece {
    const jpeg::Strip* strip;
    Part read, made;
  };
  std::vector<Piece> pieces;
  const Range whole = parts[k + 2].axis[0];
  for (const jpeg::Strip& strip : strips) {
    Piece p{&strip, parts[k + 1], parts[k + 2]};
    auto needs_more = [&](int64_t row) {
      p.made.axis[0].begin = row;
      return second.Reads(i, p.made, &p.read) != kOk || p.read.axis[0].begin < strip.row;
    };
    int64_t row = pieces.empty() ? whole.begin : pieces.back().made.axis[0].begin + 1;
    for (int64_t end = whole.end; !pieces.empty() && row < end;) {
      const int64_t middle = row + (end - row) / 2;
      needs_more(middle) ? row = middle + 1 : end = middle;
    }
    if (row >= whole.end || needs_more(row)) {
      if (pieces.empty()) return false;
      continue;
    }
    if (!pieces.empty()) {
      Piece& above = pieces.back();
      above.made.axis[0].end = row;
      if (second.Reads(i, above.made, &above.read) != kOk) return false;
      // All rows are decoded, even those that no output row depends on, because they may be damaged.
      above.read.axis[0].end = std::max<int64_t>(above.read.axis[0].end, strip.row);
    }
    pieces.push_back(p);
  }
  const int64_t row_size = parts[k + 2].axis[1].size() * values[k + 2].dim(i, 2) * SizeOf(values[k + 2].dtype);
  std::atomic<bool> good{true};
  helpers.pool->Run(static_cast<int>(pieces.size()), [&](int n) {
    const Piece& p = pieces[n];
    try {
      if (!RunRows(i, k, p.read, p.strip, p.made,
                   static_cast<uint8_t*>(to) + (p.made.axis[0].begin - whole.begin) * row_size))
        good = false;
    } catch (const std::bad_alloc&) {
      good = false;
    }
  });
  return good;
}

Status Chain::Run(int i, int* failed) const {
  thread_local KeptMemory memory[2];
  Part parts[kMostStages + 1];  // one for each value
  *failed = 0;
  for (const Batch& b : values)
    for (int d = 0; d < b.ndim; d++)
      if (b.dim(i, d) < 0) return kInternal;
  try {
    // If a stage can't run, the stages before it run first: their failure comes first.
    int n = static_cast<int>(stages.size());
    Status status = kOk;
    for (Status s; n > 0 && (s = Plan(i, n, parts, failed)) != kOk; n = *failed) status = s;
    const void* from = values[0].bytes(i);
    auto to = [&](int k) -> void* {  // memory for the output of stage k
      const Batch& made = values[k + 1];
      if (k + 1 == static_cast<int>(stages.size())) return made.bytes(i);
      return memory[k % 2].OfSize(Size(made, i, parts[k + 1]) * SizeOf(made.dtype));
    };
    for (int k = 0; k < n; k++) {
      if (streams && k + 1 < n && stages[k]->MakeRows(i, parts[k + 1]).next) {
        void* behind = to(k + 1);
        if (Stream(i, k, parts, behind)) {
          from = behind;
          k++;
          continue;
        }
      }
      *failed = k;
      const bool last = k + 1 == static_cast<int>(stages.size());
      if (const void* there = last ? nullptr : stages[k]->InPlace(i, parts[k + 1])) {
        from = there;
        continue;
      }
      void* made = to(k);
      const int64_t start = spent.empty() ? 0 : Ticks();
      const Status s = stages[k]->Run(i, parts[k], from, parts[k + 1], made);
      if (!spent.empty()) spent[k] += Ticks() - start;
      if (s != kOk) return s;
      from = made;
    }
    if (status != kOk) *failed = n;
    return status;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  }
}

}  // namespace jaxdali
