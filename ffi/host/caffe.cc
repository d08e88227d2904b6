#include <algorithm>
#include <array>
#include <string>

#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// message TensorProto { repeated int64 dims = 1; DataType data_type = 2; repeated float float_data = 3;
// repeated int32 int32_data = 4; bytes byte_data = 5; repeated bytes string_data = 6; repeated int64 int64_data = 10;
// }
bool Tensor(FoundFields* found, int k, int64_t begin, int64_t end) {
  uint64_t type = 1;
  Message head(&found->record, begin, end);
  int64_t dims[3] = {0, 0, 0};
  size_t ndim = 0;
  for (WireField f; head.Next(&f);) {
    if (f.wire == 0 && f.number == 2) type = f.value;
    if (f.wire == 0 && f.number == 1 && ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(f.value);
    if (f.wire == 2 && f.number == 1) {  // packed
      Message packed(&found->record, f.offset, f.offset + f.size);
      for (uint64_t x; packed.Varint(&x);)
        if (ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(x);
    }
  }
  if (head.bad()) return false;
  Message tensor(&found->record, begin, end);
  for (WireField f; tensor.Next(&f);) {
    if (f.number == 3 && type == 1 && !found->AddFloats(k, f)) return false;
    if (((f.number == 4 && type == 2) || (f.number == 10 && type == 10)) && !found->AddInts(k, f)) return false;
    if (f.number == 5 && type == 3 && f.wire == 2)
      found->Clear(k), found->Add(k, ValueType::kBytes, f.offset, f.size, f.size);
    if (f.number == 6 && type == 4 && f.wire == 2 && found->info(k).type == ValueType::kNone)
      found->Add(k, ValueType::kBytes, f.offset, f.size, f.size);  // only the first of several strings
  }
  if (type == 3 && (ndim == 2 || ndim == 3)) {
    if (ndim == 2) dims[2] = 1;
    std::copy_n(dims, 3, found->info(k).dims);
  }
  return true;
}

}  // namespace

// message Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5; bool encoded = 7; }
std::string ParseDatum(FoundFields* found) {
  Message datum(&found->record, 0, found->record.size());
  bool encoded = true;
  int64_t dims[3] = {0, 0, 0};  // channels, height, width
  for (WireField f; datum.Next(&f);) {
    if (f.wire == 0 && f.number <= 3) dims[f.number - 1] = static_cast<int32_t>(f.value);
    if (f.wire == 2 && f.number == 4) found->Clear(0), found->Add(0, ValueType::kBytes, f.offset, f.size, f.size);
    if (f.wire == 0 && f.number == 5) found->Clear(1), found->Add(1, ValueType::kInts, f.offset, f.size, 1);
    if (f.wire == 0 && f.number == 7) encoded = f.value != 0;
  }
  if (datum.bad()) return kMalformed;
  if (!encoded) std::copy_n(std::array{dims[1], dims[2], dims[0]}.data(), 3, found->info(0).dims);
  return {};
}

// message TensorProtos { repeated TensorProto protos = 1; }
std::string ParseTensorProtos(FoundFields* found) {
  Message protos(&found->record, 0, found->record.size());
  int k = 0;
  for (WireField f; protos.Next(&f);) {
    if (f.number != 1 || f.wire != 2) continue;
    if (k < found->layout.fields && !Tensor(found, k, f.offset, f.offset + f.size)) return kMalformed;
    k++;
  }
  if (protos.bad()) return kMalformed;
  if (k < found->layout.fields)
    return "it has " + std::to_string(k) + " tensors, expected " + std::to_string(found->layout.fields);
  return {};
}

}  // namespace jaxdali
