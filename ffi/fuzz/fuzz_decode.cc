// Mutates JPEG and PNG files and decodes them under the sanitizers: no mutation may lead outside the data or the
// output.
//
//   fuzz_decode FOLDER [MUTATIONS [SEED]]
//
// Every *.jpg, *.jpeg and *.png of FOLDER is a seed file. The sequence of mutations depends on SEED alone. Input and
// output are heap blocks of exactly the right size, so that AddressSanitizer sees one byte too many. Exits with 1 when
// fewer than a fifth of the mutations still decode: then the mutations are too coarse to reach the decoders.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ffi/decode.h"

namespace {

using jaxdali::DType;
using Data = std::vector<uint8_t>;

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  Data operator()(const Data& seed) {
    Data d = seed;
    for (int i = 0, n = 1 + below(3); i < n && !d.empty(); i++) Once(&d);
    return d;
  }
  int below(size_t n) { return n ? static_cast<int>(random_() % n) : 0; }

 private:
  void Once(Data* d) {
    Data& v = *d;
    switch (below(10)) {
      case 0:
      case 1:
        v[below(v.size())] ^= static_cast<uint8_t>(1 << below(8));
        break;  // one bit anywhere
      case 2:   // some bits, mostly of the scan
        for (int i = 0, n = 1 + below(16); i < n; i++)
          v[v.size() / 2 + below(v.size() - v.size() / 2)] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 3:
        v.resize(v.size() - below(v.size() / 4));
        break;   // truncation
      case 4: {  // a marker or chunk: its type or its length
        size_t at = Structure(v);
        if (at < v.size()) v[at] = static_cast<uint8_t>(below(4) ? random_() : "\x00\xFF\xC0\xDA"[below(4)]);
        break;
      }
      case 5: {  // a field inside a segment: sizes, sampling factors, table numbers
        size_t at = Structure(v) + below(24);
        if (at < v.size()) v[at] = static_cast<uint8_t>(below(2) ? random_() : v[at] + (below(2) ? 1 : -1));
        break;
      }
      case 6: {  // a marker planted in the data
        static const uint8_t kMarkers[] = {0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xC4, 0xDB, 0xDD, 0xC0, 0xC2, 0x00, 0xFF};
        size_t at = below(v.size());
        if (at + 1 < v.size()) v[at] = 0xFF, v[at + 1] = kMarkers[below(sizeof(kMarkers))];
        break;
      }
      case 7: {  // a piece copied to another place
        size_t n = 1 + below(std::min<size_t>(v.size(), 64)), from = below(v.size() - n + 1),
               to = below(v.size() - n + 1);
        std::memmove(&v[to], &v[from], n);
        break;
      }
      case 8: {  // a piece left out: everything after it moves
        size_t n = 1 + below(std::min<size_t>(v.size(), 32)), from = below(v.size() - n + 1);
        v.erase(v.begin() + from, v.begin() + from + n);
        break;
      }
      case 9: {  // a piece twice
        size_t n = 1 + below(std::min<size_t>(v.size(), 256)), from = below(v.size() - n + 1);
        Data piece(v.begin() + from, v.begin() + from + n);
        v.insert(v.begin() + from, piece.begin(), piece.end());
        break;
      }
    }
  }

  // Offset of a byte of one of the markers (JPEG) or chunk heads (PNG) of a file: markers, lengths, types.
  size_t Structure(const Data& v) {
    std::vector<size_t> places;
    if (v.size() > 8 && v[0] == 0x89) {
      for (size_t at = 8; at + 12 <= v.size();) {
        places.push_back(at);
        size_t n = static_cast<size_t>(v[at]) << 24 | v[at + 1] << 16 | v[at + 2] << 8 | v[at + 3];
        if (n > v.size()) break;
        at += 12 + n;
      }
      return places.empty() ? 8 : places[below(places.size())] + below(8);
    }
    for (size_t at = 2; at + 4 <= v.size(); at++)
      if (v[at] == 0xFF && v[at + 1] >= 0xC0 && v[at + 1] != 0xFF) places.push_back(at);
    return places.empty() ? 2 : places[below(places.size())] + below(4);
  }

  std::mt19937_64 random_;
};

template <class T>
std::unique_ptr<T[]> Exact(size_t n) {
  return std::unique_ptr<T[]>(new T[n]);  // not make_unique: uninitialised, and never larger than n
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fuzz_decode FOLDER [MUTATIONS [SEED]]\n");
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 2000;
  Mutator mutate(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);

  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    auto extension = entry.path().extension();
    if (extension == ".jpg" || extension == ".jpeg" || extension == ".png") names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  std::vector<Data> seeds;
  for (const auto& name : names) {
    std::ifstream f(name, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(f), std::istreambuf_iterator<char>());
    if (seeds.back().empty()) seeds.pop_back();
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no JPEG or PNG files\n", argv[1]);
    return 2;
  }

  // A mutation that makes a small file claim a gigantic image says nothing about memory errors and costs seconds.
  constexpr int64_t kMaxPixels = 1 << 20;
  constexpr DType kTypes[] = {DType::kU8, DType::kU16, DType::kF32, DType::kI16, DType::kF16};
  std::map<std::string, int> outcome;
  int decoded = 0, too_big = 0;
  for (int k = 0; k < mutations; k++) {
    const Data data = mutate(seeds[k % seeds.size()]);
    auto input = Exact<uint8_t>(data.size());
    std::copy(data.begin(), data.end(), input.get());
    const int64_t size = static_cast<int64_t>(data.size());
    jaxdali::ImageInfo info = jaxdali::ParseHeader(input.get(), size);
    int worst = info.status;
    if (info.status == jaxdali::kOk) {
      if (static_cast<int64_t>(info.height) * info.width > kMaxPixels) {
        too_big++;
        continue;
      }
      for (int type = 0; type < 5; type++) {
        const jaxdali::DecodeOptions options{static_cast<jaxdali::ImageType>(type), (k + type) % 3 != 0, type == 1};
        // RGB is the usual case and goes straight to the output; each other type also takes another element type.
        const DType dtype = type == 0 ? DType::kU8 : kTypes[(k / 7 + type) % 5];
        if (type == 2) {  // from here on a part of the image
          info.region_y = mutate.below(info.height);
          info.region_x = mutate.below(info.width);
          info.region_h = 1 + mutate.below(info.height - info.region_y);
          info.region_w = 1 + mutate.below(info.width - info.region_x);
        }
        int64_t h = info.region_h, w = info.region_w, c = jaxdali::OutputChannels(info, options.type);
        if (jaxdali::Transposes(info, options.adjust_orientation)) std::swap(h, w);
        auto out = Exact<uint8_t>(h * w * c * jaxdali::SizeOf(dtype));
        worst = std::max<int>(worst, jaxdali::DecodeImage(input.get(), size, info, options, dtype, out.get(), h, w, c));
      }
    }
    decoded += worst == jaxdali::kOk;
    static const char* const kText[] = {
#define TEXT(name, code, text) text,
        JAXDALI_STATUS_TABLE(TEXT)
#undef TEXT
    };
    outcome[kText[worst]]++;
  }
  for (const auto& [text, n] : outcome) std::printf("%6d  %s\n", n, text.c_str());
  std::printf("%6d  left out: more than %lld pixels\n", too_big, static_cast<long long>(kMaxPixels));
  std::printf("%d mutations of %zu files, %d decoded\n", mutations, seeds.size(), decoded);
  return decoded * 5 < mutations;
}
