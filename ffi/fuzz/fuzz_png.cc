// Fuzzes the CPU's own PNG decoder. If it accepts a file, its pixels must be libpng's and libpng must not warn. No
// mutation may cause an access outside the data, its buffers or the output.
//
//   fuzz_png FOLDER [MUTATIONS [SEED]]
//
// Every *.png of FOLDER is a seed file. More seeds are random images of all colour types, depths and filters,
// interlaced or not, with random chunks. Half of the mutations change bytes of the file, with or without correct
// checksums; the others change rows before compression. Input and output are heap blocks of exactly the right size.
// Exits with 1 if results differ, or if hardly any file is decoded.
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ffi/fuzz/compare_png.h"
#include "ffi/fuzz/mutator.h"

namespace jaxdali {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : mutate_(seed) {}

  void CheckSeed(const SeedFile& seed) {
    for (int k = 0; k < 8; k++) Check(seed.data, seed.name);
  }
  // Every second one is a random image, the others are mutated files or images.
  void CheckMutation(const std::vector<SeedFile>& seeds, int k) {
    const std::string name = "mutation " + std::to_string(k);
    if (k % 2 == 0) {
      Check(Image(), name);
      return;
    }
    Data data = mutate_(seeds.empty() || below(2) ? Image() : seeds[static_cast<size_t>(below(seeds.size()))].data);
    if (below(2)) CorrectChecksums(&data);
    Check(data, name);
  }
  PngComparison& comparison() { return comparison_; }
  int failures() const { return failures_; }

 private:
  int below(size_t n) { return mutate_.below(n); }

  // A random file of a random kind.
  Data Image() {
    // Colour type and bits of a sample.
    static constexpr int kKinds[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 8},  {2, 16},
                                        {3, 1}, {3, 2}, {3, 4}, {3, 8}, {4, 8},  {6, 8}, {4, 16}, {6, 16}};
    const int* kind = kKinds[below(std::size(kKinds))];
    const int color = kind[0], bits = kind[1], samples = color == 2 ? 3 : color == 4 ? 2 : color == 6 ? 4 : 1;
    const int width = 1 + below(below(8) ? 40 : 700), height = 1 + below(below(8) ? 40 : 200);
    const bool interlaced = below(3) == 0;

    // Appends n rows with a filter each, rarely an invalid one (5 to 7).
    Data rows;
    auto add = [&](int n, int pixels) {
      const int bytes = (pixels * samples * bits + 7) / 8, usual_filter = below(6), content = below(3);
      for (int y = 0; y < n && pixels > 0; y++) {
        rows.push_back(static_cast<uint8_t>(usual_filter < 5 && below(4) ? usual_filter
                                            : below(5000)                ? below(5)
                                                                         : 5 + below(3)));
        const int level = below(256);
        for (int i = 0; i < bytes; i++)
          rows.push_back(static_cast<uint8_t>(content == 0 ? level : content == 1 ? below(7) - 3 : below(256)));
      }
    };
    if (interlaced) {  // the seven passes of Adam7
      static constexpr int kY[] = {0, 0, 4, 0, 2, 0, 1}, kX[] = {0, 4, 0, 2, 0, 1, 0}, kStepY[] = {8, 8, 8, 4, 4, 2, 2},
                           kStepX[] = {8, 8, 4, 4, 2, 2, 1};
      for (int p = 0; p < 7; p++)
        add(std::max(height - kY[p] + kStepY[p] - 1, 0) / kStepY[p],
            std::max(width - kX[p] + kStepX[p] - 1, 0) / kStepX[p]);
    } else {
      add(height, width);
    }
    if (below(40) == 0) rows.resize(rows.size() - below(std::min<size_t>(rows.size(), 50)));  // too few
    if (below(40) == 0) rows.push_back(0);                                                    // too many

    // Compressed as encoders do it, or with a window that may be too small for what the header declares.
    Data packed(rows.size() + rows.size() / 100 + 1000);
    z_stream z{};
    // In separate statements, because the order in which arguments are evaluated is unspecified.
    const int window = below(4) ? 15 : 9 + below(7), level = below(10), strategy = below(5);
    deflateInit2(&z, level, Z_DEFLATED, window, /*memLevel=*/8, strategy);
    z.next_in = rows.data(), z.avail_in = static_cast<uInt>(rows.size());
    z.next_out = packed.data(), z.avail_out = static_cast<uInt>(packed.size());
    deflate(&z, Z_FINISH);
    packed.resize(z.total_out);
    deflateEnd(&z);
    if (below(20) == 0 && packed.size() > 2) {  // declares another window size
      packed[0] = static_cast<uint8_t>(8 | below(8) << 4);
      packed[1] = static_cast<uint8_t>(31 - packed[0] * 256 % 31);  // makes both bytes a multiple of 31 (RFC 1950)
    }
    if (below(30) == 0) packed.push_back(static_cast<uint8_t>(below(256)));

    Data file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, header;
    Put32(&header, static_cast<uint32_t>(width));
    Put32(&header, static_cast<uint32_t>(height));
    header.insert(header.end(), {static_cast<uint8_t>(bits), static_cast<uint8_t>(color), 0, 0, interlaced});
    PutChunk(&file, "IHDR", header.data(), header.size());
    MaybePutOtherChunks(&file);
    if (color == 3 || (color != 0 && below(8) == 0)) {
      Data palette;
      const int entries = below(3) ? (bits == 8 ? 256 : 1 << bits) : 1 + below(256);
      for (int i = 0; i < 3 * entries; i++) palette.push_back(static_cast<uint8_t>(below(256)));
      PutChunk(&file, "PLTE", palette.data(), palette.size());
      if (color == 3 && below(3) == 0) PutChunk(&file, "tRNS", palette.data(), static_cast<size_t>(1 + below(entries)));
    }
    if (color % 2 == 0 && color < 4 && below(4) == 0) PutChunk(&file, "tRNS", header.data(), color == 0 ? 2 : 6);
    MaybePutOtherChunks(&file);
    for (size_t offset = 0; offset < packed.size();) {
      const size_t n = below(3) ? packed.size() - offset : std::min<size_t>(packed.size() - offset, below(200));
      PutChunk(&file, "IDAT", packed.data() + offset, n);
      offset += n;
    }
    MaybePutOtherChunks(&file);
    if (below(20)) PutChunk(&file, "IEND", nullptr, 0);
    return file;
  }

  // Once in three times appends an ancillary chunk with random data; rarely a critical or a wrongly named one.
  void MaybePutOtherChunks(Data* file) {
    static constexpr const char* kTypes[] = {"tEXt", "zTXt", "iTXt", "gAMA", "sRGB", "iCCP", "pHYs", "bKGD",
                                             "sBIT", "tIME", "eXIf", "prVt", "cHRM", "hIST", "sPLT", "oFFs"};
    static constexpr const char* kWrongTypes[] = {"CRIT", "a1Bc", "prva"};  // critical, no letter, a small third letter
    if (below(3)) return;
    Data text;
    for (int i = 0, n = below(40); i < n; i++) text.push_back(static_cast<uint8_t>(below(256)));
    PutChunk(file, below(200) ? kTypes[below(std::size(kTypes))] : kWrongTypes[below(std::size(kWrongTypes))],
             text.data(), text.size());
  }

  // Compares the decoders. The first files that differ are written to the current folder.
  void Check(const Data& data, const std::string& name) {
    if (comparison_.Compare(data, mutate_, name) || ++failures_ > 3) return;
    std::FILE* f = std::fopen(("fuzz_png-" + std::to_string(failures_) + ".png").c_str(), "wb");
    if (f) std::fwrite(data.data(), 1, data.size(), f), std::fclose(f);
  }

  Mutator mutate_;
  PngComparison comparison_;
  int failures_ = 0;
};

}  // namespace
}  // namespace jaxdali

// Checks the seeds, then mutations of them. Returns 1 after a failure, or if less than a quarter of the mutations were
// decoded with equal results, since they would test little.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_png FOLDER [MUTATIONS [SEED]]\n");
    return 2;
  }
#if !defined(JAXDALI_LIBDEFLATE)
  std::printf("skipped: built without libdeflate, PNG is libpng's alone\n");
  return 0;
#endif
  const auto seeds = jaxdali::ReadSeeds(argv[1], {".png"});
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 2000;
  jaxdali::Fuzzer fuzzer(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  for (const auto& seed : seeds) fuzzer.CheckSeed(seed);
  fuzzer.comparison().Print("seeds");
  for (int k = 0; k < mutations; k++) fuzzer.CheckMutation(seeds, k);
  const bool has_enough = 4 * fuzzer.comparison().equal() >= mutations;
  fuzzer.comparison().Print("mutations");
  fuzzer.comparison().PrintChecksum();
  return fuzzer.failures() != 0 || !has_enough;
}
