// Random damage to files, for the fuzzers, and their seed files. Each mutation is one to three small changes, so that
// many mutated files still reach the decoders' inner parts.
#ifndef JAXDALI_FFI_FUZZ_MUTATOR_H_
#define JAXDALI_FFI_FUZZ_MUTATOR_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "ffi/fuzz/choices.h"

namespace jaxdali {

class Mutator : public Choices {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // The file with one to three changes.
  Data operator()(const Data& seed) {
    Data d = seed;
    for (int i = 0, n = 1 + below(3); i < n && !d.empty(); i++) ChangeOnce(&d);
    return d;
  }
  int below(size_t n) override { return n ? static_cast<int>(random_() % n) : 0; }

 private:
  // Changes a file, which is not empty, in one of ten random ways.
  void ChangeOnce(Data* d) {
    Data& v = *d;
    switch (below(10)) {
      case 0:
      case 1:  // one bit anywhere
        v[below(v.size())] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 2:  // some bits of the second half, which is mostly in the scan
        for (int i = 0, n = 1 + below(16); i < n; i++)
          v[v.size() / 2 + below(v.size() - v.size() / 2)] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 3:  // truncation
        v.resize(v.size() - below(v.size() / 4));
        break;
      case 4: {  // a marker or chunk: its type or its length
        size_t offset = RandomStructureOffset(v);
        if (offset < v.size()) v[offset] = static_cast<uint8_t>(below(4) ? random_() : "\x00\xFF\xC0\xDA"[below(4)]);
        break;
      }
      case 5: {  // a field in a segment: sizes, sampling factors, table numbers
        size_t offset = RandomStructureOffset(v) + below(24);
        if (offset < v.size()) v[offset] = static_cast<uint8_t>(below(2) ? random_() : v[offset] + (below(2) ? 1 : -1));
        break;
      }
      case 6: {  // a marker inserted into the data
        static const uint8_t kMarkers[] = {0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xC4, 0xDB, 0xDD, 0xC0, 0xC2, 0x00, 0xFF};
        size_t offset = below(v.size());
        if (offset + 1 < v.size()) v[offset] = 0xFF, v[offset + 1] = kMarkers[below(sizeof(kMarkers))];
        break;
      }
      case 7: {  // a piece copied elsewhere
        size_t n = 1 + below(std::min<size_t>(v.size(), 64)), begin = below(v.size() - n + 1),
               destination = below(v.size() - n + 1);
        std::memmove(&v[destination], &v[begin], n);
        break;
      }
      case 8: {  // a piece removed: everything after it moves
        size_t n = 1 + below(std::min<size_t>(v.size(), 32)), begin = below(v.size() - n + 1);
        v.erase(v.begin() + begin, v.begin() + begin + n);
        break;
      }
      case 9: {  // a piece repeated
        size_t n = 1 + below(std::min<size_t>(v.size(), 256)), begin = below(v.size() - n + 1);
        Data piece(v.begin() + begin, v.begin() + begin + n);
        v.insert(v.begin() + begin, piece.begin(), piece.end());
        break;
      }
    }
  }

  // Offset of a byte in one of the file's markers (JPEG) or chunk headers (PNG): markers, lengths, types.
  size_t RandomStructureOffset(const Data& v) {
    std::vector<size_t> places;
    if (v.size() > 8 && v[0] == 0x89) {  // PNG: a chunk has 12 bytes besides its data, and begins with their number
      for (size_t offset = 8; offset + 12 <= v.size();) {
        places.push_back(offset);
        size_t n = static_cast<size_t>(v[offset]) << 24 | v[offset + 1] << 16 | v[offset + 2] << 8 | v[offset + 3];
        if (n > v.size()) break;
        offset += 12 + n;
      }
      return places.empty() ? 8 : places[below(places.size())] + below(8);
    }
    for (size_t offset = 2; offset + 4 <= v.size(); offset++)
      if (v[offset] == 0xFF && v[offset + 1] >= 0xC0 && v[offset + 1] != 0xFF) places.push_back(offset);
    return places.empty() ? 2 : places[below(places.size())] + below(4);
  }

  std::mt19937_64 random_;
};

struct SeedFile {
  std::string name;
  Data data;
};

// The nonempty files of a folder with these extensions, sorted by name.
inline std::vector<SeedFile> ReadSeeds(const char* folder, std::initializer_list<const char*> extensions) {
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (std::find(extensions.begin(), extensions.end(), entry.path().extension()) != extensions.end())
      names.push_back(entry.path());
  std::sort(names.begin(), names.end());
  std::vector<SeedFile> seeds;
  for (const auto& name : names) {
    std::ifstream f(name, std::ios::binary);
    seeds.push_back({name.filename(), Data(std::istreambuf_iterator<char>(f), std::istreambuf_iterator<char>())});
    if (seeds.back().data.empty()) seeds.pop_back();
  }
  return seeds;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_MUTATOR_H_
