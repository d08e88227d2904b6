// Fuzzes the CUDA decoder of JPEG files in the emulation. Its pixels must be those of the CPU's decoder, and no
// mutation of a file may cause an access outside the data, the working memory or the output.
//
//   fuzz_jpeg FOLDER [MUTATIONS [SEED [DECODINGS]]]
//
// Every *.jpg and *.jpeg of FOLDER is a seed file, and every second one once more as a progressive file with random
// scans. The seeds that the kernels support are decoded first, DECODINGS times (default 12): whole and in parts, with
// short and long subsequences, in one group or several, to all image types and several element types. Mutations follow,
// of files and of the coefficients that the host makes of progressive files. All arrays are heap blocks of exactly the
// right size. Exits with 1 if pixels differ from libjpeg-turbo's, or if a seed is refused.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ffi/cuda_jpeg/compact.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/decode/decode.cu"  // compiled as C++, with a loop instead of launches
#include "ffi/decode/decode.h"
#include "ffi/fuzz/image_cases.h"
#include "ffi/fuzz/mutator.h"
#include "ffi/fuzz/progressive_writer.h"

namespace jaxdali {
namespace {

struct Sample {
  const Data* data;
  ImageInfo info;
};

// The operands of the kernels for a sample.
struct Operands {
  Sample sample;  // refers to `compact` if that is not empty
  Data compact;
  jpeg::ImageTable row;
};

// Settings of a decoding; the last two are PlanWorkspace's.
struct Settings {
  ImageType type;
  bool adjust_orientation;
  DType dtype;
  int subsequence_bits;  // 0: chosen by the size of the data
  int groups;
};

struct Result {
  int status;
  Data pixels;
};

// [height, width, channels], after the orientation is applied.
std::vector<int32_t> OutputShape(const ImageInfo& info, const Settings& settings) {
  std::vector<int32_t> shape{info.region_h, info.region_w, OutputChannels(info, settings.type)};
  if (Transposes(info, settings.adjust_orientation)) std::swap(shape[0], shape[1]);
  return shape;
}

int64_t OutputBytes(const std::vector<int32_t>& shape, DType dtype) {
  return int64_t{shape[0]} * shape[1] * shape[2] * SizeOf(dtype);
}

// The expected result: that of the CPU's decoder.
Result DecodeByCpu(const Sample& sample, const Settings& settings) {
  const DecodeOptions options{settings.type, settings.adjust_orientation, /*fast_idct=*/false};
  const auto shape = OutputShape(sample.info, settings);
  Result result;
  result.pixels.resize(static_cast<size_t>(OutputBytes(shape, settings.dtype)));
  result.status = DecodeImage(sample.data->data(), static_cast<int64_t>(sample.data->size()), sample.info, options,
                              settings.dtype, result.pixels.data(), shape[0], shape[1], shape[2]);
  return result;
}

// The next offset at which a sample may begin.
int64_t Aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

// Decodes a batch with the kernels, from rows that are already made.
std::vector<Result> DecodeByKernels(const std::vector<Sample>& samples, const std::vector<jpeg::ImageTable>& rows,
                                    const Settings& settings) {
  const int n = static_cast<int>(samples.size());
  std::vector<int32_t> in_offsets, in_shapes, out_offsets, out_shapes, present(n, 1);
  std::vector<ImageInfo> info;
  int64_t in_end = 0, out_end = 0;  // end of the last sample
  for (const Sample& s : samples) {
    const auto shape = OutputShape(s.info, settings);
    in_offsets.push_back(static_cast<int32_t>(Aligned(in_end) / kAlignment));
    in_shapes.push_back(static_cast<int32_t>(s.data->size()));
    in_end = Aligned(in_end) + in_shapes.back();
    out_offsets.push_back(static_cast<int32_t>(Aligned(out_end) / kAlignment));
    out_shapes.insert(out_shapes.end(), shape.begin(), shape.end());
    out_end = Aligned(out_end) + OutputBytes(shape, DType::kU8);
    info.push_back(s.info);
  }
  auto tables = Exact<jpeg::ImageTable>(rows.size());
  std::copy(rows.begin(), rows.end(), tables.get());
  const int64_t workspace_size = jpeg::PlanWorkspace(tables.get(), n, settings.subsequence_bits, settings.groups);
  auto in = Exact<uint8_t>(static_cast<size_t>(in_end));
  auto workspace = Exact<uint8_t>(static_cast<size_t>(workspace_size));
  auto out = Exact<uint8_t>(static_cast<size_t>(out_end * SizeOf(settings.dtype)));
  auto status = Exact<int32_t>(static_cast<size_t>(n));
  std::memset(workspace.get(), 0xA5, static_cast<size_t>(workspace_size));  // garbage, which no kernel may rely on
  for (int i = 0; i < n; i++)
    std::copy(samples[i].data->begin(), samples[i].data->end(), in.get() + in_offsets[i] * kAlignment);

  DecodeBatch batch{};
  batch.in = Batch{DType::kU8, in.get(), in_end, n, 1, in_offsets.data(), in_shapes.data(), {}};
  batch.out = Batch{settings.dtype, out.get(), out_end, n, 3, out_offsets.data(), out_shapes.data(), {}};
  batch.info = info.data();
  batch.tables = tables.get();
  batch.workspace = workspace.get();
  batch.workspace_size = workspace_size;
  batch.type = settings.type;
  batch.adjust_orientation = settings.adjust_orientation;
  if (const char* error =
          LaunchInGroups(batch, Samples{n, present.data(), status.get(), nullptr}, settings.groups, nullptr)) {
    std::fprintf(stderr, "%s\n", error);
    std::exit(1);
  }
  std::vector<Result> results;
  for (int i = 0; i < n; i++) {
    const uint8_t* pixels = batch.out.bytes(i);
    results.push_back({status[i], Data(pixels, pixels + batch.out.size(i) * SizeOf(settings.dtype))});
  }
  return results;
}

class Fuzzer {
 public:
  // Adds a progressive file for every second seed.
  Fuzzer(std::vector<SeedFile> seeds, uint64_t seed) : seeds_(std::move(seeds)), mutate_(seed) {
    for (size_t i = 0, n = seeds_.size(); i < n; i += 2) {
      Data data = AsProgressive(seeds_[i].data, &mutate_);
      if (!data.empty()) seeds_.push_back({seeds_[i].name + ", progressive", std::move(data)});
    }
  }

  // Decodes every seed `decodings` times: whole in the first third, then in parts. More than one refusal in twenty is a
  // failure.
  void CheckSeeds(int decodings) {
    int num_supported = 0, decoded = 0, refused = 0;
    for (const SeedFile& seed : seeds_) {
      Sample sample{&seed.data, Parse(seed.data)};
      Operands operands;
      // Any settings will do here: this only tells whether the kernels support the file.
      if (sample.info.status != kOk || !MakeOperands(sample, {}, &operands)) continue;
      const Settings usual{ImageType::kRgb, /*adjust_orientation=*/true, DType::kU8, /*subsequence_bits=*/0,
                           /*groups=*/1};
      if (DecodeByCpu(sample, usual).status != kOk) continue;  // a damaged file
      num_supported++;
      for (int k = 0; k < decodings; k++) {
        if (k > decodings / 3) ChooseRegion(&sample.info, mutate_);
        // A finished image beside it, which is only copied.
        Settings settings = ChooseSettings(k == 0);
        MakeOperands(sample, settings, &operands);
        Result expected = DecodeByCpu(sample, settings);
        Sample copied{&expected.pixels, sample.info};
        copied.info.format = static_cast<int32_t>(Format::kPixels);
        const auto results = DecodeByKernels({copied, operands.sample, operands.sample},
                                             {jpeg::ImageTable{}, operands.row, operands.row}, settings);
        for (const Result& result : results) {
          decoded++;
          if (result.status == kRefused)
            refused++;
          else if (result.status != kOk || result.pixels != expected.pixels)
            Report(seed.name, result.status, sample.info, settings);
        }
      }
    }
    std::printf("%zu files, %d for the kernels, %d of %d decodings refused\n", seeds_.size(), num_supported, refused,
                decoded);
    if (20 * refused > decoded) failures_++;
  }

  // Decodes mutated files. What the kernels accept must equal the CPU's pixels.
  void Mutate(int mutations) {
    for (int k = 0; k < mutations; k++) {
      const Data data = mutate_(seeds_[k % seeds_.size()].data);
      Sample sample{&data, Parse(data)};
      Operands operands;
      if (sample.info.status != kOk || int64_t{sample.info.height} * sample.info.width > kMaxPixels) {
        unsupported_++;
        continue;
      }
      if (k % 3 == 0) ChooseRegion(&sample.info, mutate_);
      const Settings settings = ChooseSettings(k % 2 == 0);
      if (!MakeOperands(sample, settings, &operands)) {
        unsupported_++;
        continue;
      }
      const Result result = DecodeByKernels({operands.sample}, {operands.row}, settings)[0];
      if (result.status != kOk) {
        refused_++;
        if (result.status != kRefused) Report("mutation " + std::to_string(k), result.status, sample.info, settings);
        continue;
      }
      const Result expected = DecodeByCpu(sample, settings);
      if (expected.status != kOk) {
        cpu_failed_++;
      } else if (result.pixels == expected.pixels) {
        equal_++;
      } else {
        Report("mutation " + std::to_string(k), result.status, sample.info, settings);
      }
    }
    std::printf("%d mutations: %d not for the kernels, %d refused, %d good and equal, %d bad for the CPU's decoder\n",
                mutations, unsupported_, refused_, equal_, cpu_failed_);
  }

  // Mutates the coefficients that the host makes of progressive files. The kernels check all places in them. Any pixels
  // are right, as long as all accesses are inside.
  void MutateCoefficients(int mutations) {
    std::vector<const SeedFile*> seeds;
    Operands operands;
    for (const SeedFile& seed : seeds_) {
      const Sample sample{&seed.data, Parse(seed.data)};
      if (sample.info.status != kOk || int64_t{sample.info.height} * sample.info.width > kMaxPixels) continue;
      if (MakeOperands(sample, {}, &operands) && operands.row.coding == jpeg::Coding::kCompact) seeds.push_back(&seed);
    }
    int decoded = 0, refused = 0;
    for (int k = 0; k < mutations && !seeds.empty(); k++) {
      const SeedFile& seed = *seeds[k % seeds.size()];
      Sample sample{&seed.data, Parse(seed.data)};
      if (k % 3 == 0) ChooseRegion(&sample.info, mutate_);
      const Settings settings = ChooseSettings(k % 2 == 0);
      MakeOperands(sample, settings, &operands);
      Damage(operands.row, &operands.compact);
      const int status = DecodeByKernels({operands.sample}, {operands.row}, settings)[0].status;
      (status == kOk ? decoded : refused)++;
      if (status != kOk && status != kInternal) Report("coefficients of " + seed.name, status, sample.info, settings);
    }
    std::printf("%d mutations of coefficients: %d decoded, %d refused\n", decoded + refused, decoded, refused);
  }

  int failures() const { return failures_; }

 private:
  static constexpr int64_t kMaxPixels = 1 << 16;  // larger images cost time and find nothing else

  static ImageInfo Parse(const Data& data) { return ParseHeader(data.data(), static_cast<int64_t>(data.size())); }

  // Makes the kernels' operands, from a heap block of exactly the file's size. False: the kernels don't support the
  // file.
  static bool MakeOperands(const Sample& s, const Settings& settings, Operands* operands) {
    auto input = Exact<uint8_t>(s.data->size());
    std::copy(s.data->begin(), s.data->end(), input.get());
    const auto size = static_cast<int64_t>(s.data->size());
    operands->sample = s;
    if (s.info.format != static_cast<int32_t>(Format::kJpeg)) return false;
    if (jpeg::MakeTable(input.get(), size, s.info, &operands->row)) return true;
    jpeg::Compact compact{};
    if (!jpeg::MakeCompact(input.get(), size, s.info, settings.type, /*max_bytes=*/INT32_MAX, &compact, &operands->row))
      return false;
    operands->compact.assign(compact.bytes.get(), compact.bytes.get() + compact.size);
    operands->sample.data = &operands->compact;
    operands->sample.info.format = static_cast<int32_t>(Format::kCompact);
    return true;
  }

  // Changes places and sizes that the kernels read, or anything else.
  void Damage(const jpeg::ImageTable& row, Data* data) {
    if (mutate_.below(4) == 0) {
      *data = mutate_(*data);
      return;
    }
    const uint32_t size = static_cast<uint32_t>(data->size());
    // 126: the bytes of a wide block with all 63 values.
    for (int i = 0, n = 1 + mutate_.below(4); i < n; i++) {
      const jpeg::Component& c = row.component[mutate_.below(row.components)];
      const int64_t units = c.compact + int64_t{c.blocks()} * static_cast<int64_t>(sizeof(jpeg::CompactBlock));
      const uint32_t words[] = {0,        0xFFFFFFFF, 0x80000000, size,
                                size - 1, size - 126, 0u - 126,   1u << mutate_.below(32)};
      const uint32_t word = words[mutate_.below(std::size(words))];
      // A word of a block, where the last one has DC and the place of the values; or the place of a unit's values.
      const int64_t offset = mutate_.below(3) ? c.compact + int64_t{4} * mutate_.below(3 * c.blocks())
                                              : units + int64_t{4} * mutate_.below(c.idct_blocks());
      if (offset + 4 <= static_cast<int64_t>(size)) std::memcpy(data->data() + offset, &word, sizeof word);
    }
  }

  // Random settings; with is_usual, those of RGB bytes.
  Settings ChooseSettings(bool is_usual) {
    constexpr DType kTypes[] = {DType::kU8,  DType::kU8,  DType::kU16, DType::kF32,
                                DType::kI16, DType::kF16, DType::kBF16};
    constexpr int kBits[] = {128, 512, 1024, 2048, 0};
    const int bits = kBits[mutate_.below(5)], groups = 1 + mutate_.below(3);
    if (is_usual) return {ImageType::kRgb, /*adjust_orientation=*/true, DType::kU8, bits, groups};
    return {static_cast<ImageType>(mutate_.below(5)), mutate_.below(3) != 0, kTypes[mutate_.below(7)], bits, groups};
  }

  // Prints a failure and counts it.
  void Report(const std::string& name, int status, const ImageInfo& i, const Settings& s) {
    std::printf(
        "%s: status %d or pixels differ; %d x %d, region %d %d %d %d, orientation %d, type %d, dtype %d, bits %d\n",
        name.c_str(), status, i.height, i.width, i.region_y, i.region_x, i.region_h, i.region_w, i.orientation,
        static_cast<int>(s.type), static_cast<int>(s.dtype), s.subsequence_bits);
    failures_++;
  }

  std::vector<SeedFile> seeds_;
  Mutator mutate_;
  int unsupported_ = 0, refused_ = 0, equal_ = 0, cpu_failed_ = 0, failures_ = 0;
};

}  // namespace
}  // namespace jaxdali

// Decodes the seeds, then mutations of files and of coefficients. Returns 1 after a failure.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_jpeg FOLDER [MUTATIONS [SEED [DECODINGS]]]\n");
    return 2;
  }
  auto seeds = jaxdali::ReadSeeds(argv[1], {".jpg", ".jpeg"});
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no JPEG files\n", argv[1]);
    return 2;
  }
  jaxdali::Fuzzer fuzzer(std::move(seeds), argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  fuzzer.CheckSeeds(argc > 4 ? std::atoi(argv[4]) : 12);
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 2000;
  fuzzer.Mutate(mutations);
  fuzzer.MutateCoefficients(mutations / 4);
  return fuzzer.failures() != 0;
}
