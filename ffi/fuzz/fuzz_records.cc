// Mutates the container formats that native code parses, under the sanitizers: records of TFRecord and RecordIO files,
// Caffe's and Caffe2's messages, the headers of tar archives, and the text of indices. No mutation may cause an access
// outside a record or the memory for its values. (Other code parses Zip, Riegeli's blocks, and LMDB's pages.)
//
//   fuzz_records [MUTATIONS [SEED]]
//
// This program writes the seeds itself. Each mutation is read from memory, from a heap block of exactly the right size.
// Every fourth one, and each archive, is also read from a file, where the record lies between other bytes. Both must
// find the same, and the values must have the stated sizes. Exits with 1 if they differ, or if fewer than a fifth of
// the mutated records, or a tenth of the mutated archives, can be read.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "ffi/fuzz/mutator.h"
#include "ffi/fuzz/record_cases.h"

namespace jaxdali {
namespace {

// Protobuf's wire format: a varint, and fields of both kinds.
void PutVarint(Data* d, uint64_t x) {
  for (; x > 127; x >>= 7) d->push_back(static_cast<uint8_t>(x | 128));
  d->push_back(static_cast<uint8_t>(x));
}

// A field of a message with a varint. The key is the field's number times 8, plus the wire type, 0.
Data NumberField(int field, uint64_t x) {
  Data d;
  PutVarint(&d, static_cast<uint64_t>(field) << 3);
  PutVarint(&d, x);
  return d;
}

// A field with bytes or a message: wire type 2, then the size.
Data BytesField(int field, const Data& x) {
  Data d;
  PutVarint(&d, static_cast<uint64_t>(field) << 3 | 2);
  PutVarint(&d, x.size());
  d.insert(d.end(), x.begin(), x.end());
  return d;
}

Data FromText(const char* text) { return Data(text, text + std::strlen(text)); }

// An entry of tf.Example's map of features. kind: 1 bytes, 2 floats, 3 integers.
Data FeatureEntry(const char* name, int kind, const Data& list) {
  return BytesField(1, BytesField(1, FromText(name)) + BytesField(2, BytesField(kind, list)));
}

// An entry of tf.SequenceExample's map of feature lists. steps: Features.
Data ListEntry(const char* name, const std::vector<Data>& steps) {
  Data list;
  for (const Data& step : steps) list = list + BytesField(1, step);
  return BytesField(1, BytesField(1, FromText(name)) + BytesField(2, list));
}

// A part of a record of MXNet's RecordIO, padded to a multiple of 4 bytes. kind: 0 whole, 1 first, 2 middle, 3 last.
Data RecordIoPart(uint32_t kind, const Data& payload) {
  Data d;
  PutFixed(&d, 0xCED7230A, 4);
  PutFixed(&d, kind << 29 | payload.size(), 4);
  return d + payload + Data(-payload.size() & 3);
}

// A member of a tar archive: the header (ustar; see tar.cc for the fields) and the content, padded to whole blocks.
Data TarBlocks(const std::string& name, char type, const Data& content) {
  Data d(kTarBlock);
  std::copy(name.begin(), name.end(), d.begin());
  std::snprintf(reinterpret_cast<char*>(&d[124]), 12, "%011zo", content.size());
  d[156] = static_cast<uint8_t>(type);
  std::memcpy(&d[257], "ustar", 6);
  CorrectChecksum(d.data());
  return d + content + Data(-content.size() & (kTarBlock - 1));
}

struct Seed {
  RecordLayout layout;
  Data data;
};

// Valid records of each format. Those of tf.Example lack one of the layout's features; some have others.
std::vector<Seed> MakeSeeds() {
  Data floats, ints;
  for (int i = 0; i < 20; i++) PutFixed(&floats, 0x3F800000u + i, 4), PutVarint(&ints, uint64_t{1} << 3 * i);
  const RecordLayout example = ExampleLayout(RecordFormat::kExample), message = ExampleLayout(RecordFormat::kMessage);
  const Data small = BytesField(1, FeatureEntry("image", 1, BytesField(1, FromText("an image"))) +
                                       FeatureEntry("label", 3, BytesField(1, ints)) + FeatureEntry("other", 2, {}) +
                                       FeatureEntry("box", 2, BytesField(1, floats)));
  const Data large = BytesField(
      1, FeatureEntry("image", 1, BytesField(1, Data(30000, 7))) + FeatureEntry("label", 3, NumberField(1, 5)));
  const auto texts = [](std::initializer_list<const char*> strings) {
    Data list;
    for (const char* text : strings) list = list + BytesField(1, FromText(text));
    return BytesField(1, list);
  };
  const Data lists =
      BytesField(2, ListEntry("frames", {texts({"first"}), texts({"second", ""}), texts({})}) +
                        ListEntry("rows", {BytesField(3, BytesField(1, ints)), BytesField(3, NumberField(1, 5)), {}}) +
                        ListEntry("texts", {texts({"a"}), texts({"text"})}));
  // The strings are too large for a window.
  const Data large_lists =
      BytesField(2, ListEntry("frames", {BytesField(1, BytesField(1, Data(20000, 3)) + BytesField(1, Data(30, 4)))}) +
                        ListEntry("rows", {Data(), Data()}));
  Data header, image(40, 9);
  PutFixed(&header, 2, 4), header.resize(24), PutFixed(&header, 0x3F8000003F800000, 8);
  const RecordLayout record{RecordFormat::kImageRecord, {}, 2};
  const Data datum = NumberField(1, 3) + NumberField(2, 2) + NumberField(3, 4) + BytesField(4, Data(24, 1)) +
                     NumberField(5, 7) + NumberField(7, 0);
  const Data tensors =
      BytesField(1, NumberField(1, 2) + NumberField(1, 4) + NumberField(1, 3) + NumberField(2, 3) +
                        BytesField(5, Data(24, 1))) +
      BytesField(1, NumberField(2, 2) + BytesField(4, ints)) +
      BytesField(1, NumberField(2, 1) + BytesField(3, floats)) +
      BytesField(1, NumberField(2, 4) + BytesField(6, FromText("text")) + BytesField(6, FromText("more")));
  return {{example, FrameRecord(small)},
          {example, FrameRecord(large)},
          {example, FrameRecord(small + lists)},
          {example, FrameRecord(large_lists + large)},
          {message, small + lists},
          {record, RecordIoPart(0, header + image)},
          {record, RecordIoPart(1, header) + RecordIoPart(2, image) + RecordIoPart(3, image)},
          {{RecordFormat::kDatum, {}, 2}, datum},
          {{RecordFormat::kTensorProtos, {}, 4}, tensors},
          {{RecordFormat::kBytes, {}, 1}, image},
          {{RecordFormat::kTarMember, {}, 1}, TarBlocks("a.jpg", '0', Data(1024, 6))}};
}

// Lists of offsets of records, an index of an archive, and a table of chunks.
const Data kIndex = FromText("0 40\n40 1040\n1080 36\n\n1116\t9223372036854775807\n");
const Data kTarIndex = FromText("jpg 512 1000 a/0.jpg cls 2048 1 a/0.cls\njpg 3072 9 1.jpg\n\nCLS 4608 2 d/2.CLS\n");
const Data kChunkTable = {8,  64, 16, 5,    24,   1,    8,    0x80, 0x81, 0x80, 0x10,
                          24, 3,  8,  0xff, 0xff, 0xff, 0x7f, 16,   9,    24,   1};

// A valid archive: folders, links, hidden files, GNU's long names, and a PAX header.
Data MakeArchive() {
  const std::string pax = "30 path=folder/second.seg.png\n12 size=600\n";
  return TarBlocks("folder/", '5', {}) + TarBlocks("folder/first.jpg", '0', Data(700, 1)) +
         TarBlocks("././@LongLink", 'L', FromText("folder/first.and.a.long.name")) +
         TarBlocks("folder/first", '0', Data(3, 2)) + TarBlocks("pax", 'x', Data(pax.begin(), pax.end())) +
         TarBlocks("second", '0', Data(600, 3)) + TarBlocks("folder/link.jpg", '2', Data(0)) +
         TarBlocks(".hidden.jpg", '0', Data(1, 5)) + TarBlocks("folder/third.jpg", '\0', {}) + Data(2 * kTarBlock);
}

// A mutated archive. Mostly headers are mutated and their checksums corrected, since few archives get past a wrong
// checksum.
Data MutateArchive(Mutator* mutate) {
  static const Data kArchive = MakeArchive();
  if (mutate->below(4) == 0) return (*mutate)(kArchive);
  Data d = kArchive;
  for (int i = 0, n = 1 + mutate->below(4); i < n; i++) {
    const size_t block = static_cast<size_t>(mutate->below(d.size() / kTarBlock)) * kTarBlock;
    // Bytes of a header's fields: name, mode, size, type, magic, prefix, and those of sparse files.
    static const size_t kFields[] = {0, 1, 5, 100, 124, 125, 130, 134, 135, 156, 257, 262, 345, 482, 504};
    d[block + kFields[mutate->below(std::size(kFields))]] =
        static_cast<uint8_t>(mutate->below(2) ? "\0 0197xLSg5\x80\xff/."[mutate->below(16)] : mutate->below(256));
    if (d[block + 257] == 'u') CorrectChecksum(&d[block]);
  }
  if (mutate->below(8) == 0) d.resize(static_cast<size_t>(mutate->below(d.size())));
  return d;
}

}  // namespace
}  // namespace jaxdali

int main(int argc, char** argv) {
  using namespace jaxdali;
  const int mutations = argc > 1 ? std::atoi(argv[1]) : 20000;
  Mutator mutate(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  ThreadPool pool(1);
  const auto folder = std::filesystem::temp_directory_path() / ("fuzz_records." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto seeds = MakeSeeds();
  std::map<std::string, int> outcomes;
  int num_read = 0, num_archives = 0, num_different = 0;
  for (int k = 0; k < mutations; k++) {
    const Seed& seed = seeds[static_cast<size_t>(k) % seeds.size()];
    Data data = k < static_cast<int>(seeds.size()) ? seed.data : mutate(seed.data);
    if (seed.layout.format == RecordFormat::kExample && data.size() >= 16 && mutate.below(8))
      data = FrameRecord(Data(data.begin() + 12, data.end() - 4));  // corrects the checksums
    const Result result = ReadFromMemory(seed.layout, data, &pool);
    if (k % 4 == 0 || k < static_cast<int>(seeds.size()))
      num_different += !(ReadFromFile(seed.layout, data, folder / "x", &pool) == result);
    if (k < static_cast<int>(seeds.size()) && !result.error.empty()) {
      std::fprintf(stderr, "seed %d: %s\n", k, result.error.c_str());
      return 1;
    }
    num_read += result.error.empty();
    std::string message = result.error;
    std::erase_if(message, [](char c) { return c >= '0' && c <= '9'; });
    outcomes[message]++;
    // In separate statements, because the order in which arguments are evaluated is unspecified.
    const Data index = mutate(kIndex);
    CheckIndex(index, mutate.below(12));
    CheckTarIndex(mutate(kTarIndex), mutate);
    const Data table = mutate(kChunkTable);
    const int64_t max_rows = 2 + mutate.below(8);
    CheckChunkTable(table, max_rows, mutate.below(table.size() + 1));
    const int archive_result = ReadArchive(k ? MutateArchive(&mutate) : MakeArchive(), folder / "x.tar");
    num_archives += archive_result > 0;
    num_different += archive_result < 0;
    if (k == 0 && archive_result != 1) std::abort();
  }
  std::filesystem::remove_all(folder);
  for (const auto& [text, n] : outcomes) std::printf("%6d  %s\n", n, text.empty() ? "read" : text.c_str());
  std::printf("%d mutations of %zu records, %d read, and of an archive, %d read; %d differ between memory and file\n",
              mutations, seeds.size(), num_read, num_archives, num_different);
  return num_different != 0 || num_read * 5 < mutations || num_archives * 10 < mutations;
}
