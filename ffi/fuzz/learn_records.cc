// libFuzzer's harness of containers: records, archives, and indices. An input is 32 bytes of choices (InputChoices) and
// a file; the first choice is what the file is. Checksums are mostly corrected, so that mutations get past them.
#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "ffi/fuzz/record_cases.h"

namespace jaxdali {
namespace {

enum Kind { kRecord, kArchive, kIndexText, kTarIndexText, kChunks, kSparse, kRiegeliChunk, kNumKinds };

// A file in memory, which has a path.
const std::string& PathInMemory() {
  static const std::string path = "/proc/self/fd/" + std::to_string(memfd_create("learn_records", /*flags=*/0));
  return path;
}

// Layouts of all formats, with outputs of all kinds of shapes.
const std::vector<RecordLayout>& Layouts() {
  using Shape = RecordOutput::Shape;
  static const std::vector<RecordLayout> layouts = {
      ExampleLayout(RecordFormat::kExample),
      ExampleLayout(RecordFormat::kMessage),
      {RecordFormat::kImageRecord, {}, 2, 1, {{"image", "uint8", 0, ValueType::kBytes, 1, Shape::kCount, {}, {}}}},
      {RecordFormat::kDatum, {}, 2, 1, {{"image", "uint8", 0, ValueType::kBytes, 1, Shape::kStated, {}, {}}}},
      {RecordFormat::kTensorProtos, {}, 4, 1, {{"image", "uint8", 0, ValueType::kBytes, 1, Shape::kStated, {}, {}}}},
      {RecordFormat::kTarMember, {}, 1, 1, {{"data", "uint8", 0, ValueType::kBytes, 1, Shape::kCount, {}, {}}}}};
  return layouts;
}

// Reads a record and its outputs from memory and from a file, which must give the same.
void CheckRecord(Data data, Choices& choose, ThreadPool* pool) {
  const RecordLayout& layout = Layouts()[static_cast<size_t>(choose.below(Layouts().size()))];
  if (choose.below(8)) {
    if (layout.format == RecordFormat::kExample) data = FrameRecord(data);
    if (layout.format == RecordFormat::kTarMember && data.size() >= kTarBlock) CorrectChecksum(data.data());
  }
  const Result result = ReadFromMemory(layout, data, pool);
  if (choose.below(4) == 1 && !(ReadFromFile(layout, data, PathInMemory(), pool) == result)) std::abort();
}

// Reads an archive after the checksums of its headers are corrected.
void CheckArchive(Data data, Choices& choose) {
  if (choose.below(8))
    for (size_t block = 0; block + kTarBlock <= data.size(); block += kTarBlock)
      if (data[block + 257] == 'u') CorrectChecksum(&data[block]);
  if (ReadArchive(data, PathInMemory()) < 0) std::abort();
  const int fd = open(PathInMemory().c_str(), O_RDONLY);
  for (size_t block = 0; block < data.size(); block += kTarBlock) CheckSparse(fd, static_cast<int64_t>(block));
  close(fd);
}

// Checks a chunk of one record, of which the first bytes are the header and what precedes the record.
void CheckRiegeliChunk(const Data& data, Choices& choose, ThreadPool* pool) {
  if (data.size() < kChunkHeader) return;
  const auto head_size = kChunkHeader + choose.below(data.size() - kChunkHeader + 1);
  const int64_t start = 0, size = static_cast<int64_t>(data.size()) - head_size;
  auto head = Exact<uint8_t>(static_cast<size_t>(head_size)), record = Exact<uint8_t>(static_cast<size_t>(size));
  std::copy_n(data.begin(), head_size, head.get());
  std::copy(data.begin() + head_size, data.end(), record.get());
  int32_t error = kGoodChunk;
  CheckChunks(head.get(), head_size, &head_size, 1, record.get(), &start, &size, &error, pool);
}

}  // namespace
}  // namespace jaxdali

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace jaxdali;
  static ThreadPool pool(1);
  InputChoices choose(input, size);
  const Data data = choose.file();
  switch (choose.below(kNumKinds)) {
    case kRecord:
      CheckRecord(data, choose, &pool);
      break;
    case kArchive:
      CheckArchive(data, choose);
      break;
    case kIndexText:
      CheckIndex(data, choose.below(12));
      break;
    case kTarIndexText:
      CheckTarIndex(data, choose);
      break;
    case kChunks: {
      const int64_t max_rows = choose.below(10);
      CheckChunkTable(data, max_rows, choose.below(data.size() + 1));
      break;
    }
    case kSparse: {
      const size_t blocks = data.size() / kTarBlock * kTarBlock;
      auto before = Exact<char>(blocks);
      std::copy_n(data.begin(), blocks, before.get());
      bool needs_more = false;
      CheckSparse({before.get(), blocks}, &needs_more);
      break;
    }
    case kRiegeliChunk:
      CheckRiegeliChunk(data, choose, &pool);
      break;
  }
  return 0;
}
