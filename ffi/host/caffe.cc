// Parsers of Caffe's Datum and Caffe2's TensorProtos: protobuf messages (caffe.proto, caffe2.proto), which LMDB
// databases store as values. The comments quote the fields that they read.
//
// Types of wire: 0 is a varint, 2 is bytes, a message or a packed list (record_parser.h).
#include <algorithm>
#include <array>
#include <string>

#include "ffi/host/record_parser.h"

namespace jaxdali {
namespace {

// message TensorProto { repeated int64 dims = 1; DataType data_type = 2; repeated float float_data = 3;
// repeated int32 int32_data = 4; bytes byte_data = 5; repeated bytes string_data = 6; repeated int64 int64_data = 10;
// }
// Adds tensor k, whose message is [begin, end) of the record, as field k. data_type: 1 is float, 2 int32, 3 byte, 4
// string, 10 int64. Returns false if the message is malformed.
bool ParseTensor(FieldCollector* fields, int k, int64_t begin, int64_t end) {
  uint64_t type = 1;
  // Type and shape first: they may come after the data, in any order of fields.
  Message head(&fields->record, begin, end);
  int64_t dims[3] = {0, 0, 0};
  size_t ndim = 0;
  for (WireField f; head.Next(&f);) {
    if (f.wire == 0 && f.number == 2) type = f.value;
    if (f.wire == 0 && f.number == 1 && ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(f.value);
    if (f.wire == 2 && f.number == 1) {  // packed
      Message packed(&fields->record, f.offset, f.offset + f.size);
      for (uint64_t x; packed.Varint(&x);)
        if (ndim++ < 3) dims[ndim - 1] = static_cast<int64_t>(x);
    }
  }
  if (head.bad()) return false;
  Message tensor(&fields->record, begin, end);
  for (WireField f; tensor.Next(&f);) {
    if (f.number == 3 && type == 1 && !fields->AddFloats(k, f)) return false;
    if (((f.number == 4 && type == 2) || (f.number == 10 && type == 10)) && !fields->AddInts(k, f)) return false;
    if (f.number == 5 && type == 3 && f.wire == 2)
      fields->Clear(k), fields->Add(k, ValueType::kBytes, f.offset, f.size, f.size);
    if (f.number == 6 && type == 4 && f.wire == 2 && fields->info(k).type == ValueType::kNone)
      fields->Add(k, ValueType::kBytes, f.offset, f.size, f.size);  // only the first of several strings
  }
  // An image: height and width, with one channel if there is no third extent.
  if (type == 3 && (ndim == 2 || ndim == 3)) {
    if (ndim == 2) dims[2] = 1;
    std::copy_n(dims, 3, fields->info(k).dims);
  }
  return true;
}

}  // namespace

// Finds the image (field 0) and the label (field 1). Wire type 0 is a varint, 2 is bytes. Returns an error message, or
// an empty text. message Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5; bool
// encoded = 7; }
std::string ParseDatum(FieldCollector* fields) {
  Message datum(&fields->record, 0, fields->record.size());
  bool encoded = true;          // a message without the field counts as an encoded image, which states no shape
  int64_t dims[3] = {0, 0, 0};  // channels, height, width
  // Of several fields with one number the last one wins, so the values of those before it are cleared.
  for (WireField f; datum.Next(&f);) {
    if (f.wire == 0 && f.number <= 3) dims[f.number - 1] = static_cast<int32_t>(f.value);
    if (f.wire == 2 && f.number == 4) fields->Clear(0), fields->Add(0, ValueType::kBytes, f.offset, f.size, f.size);
    if (f.wire == 0 && f.number == 5) fields->Clear(1), fields->Add(1, ValueType::kInts, f.offset, f.size, 1);
    if (f.wire == 0 && f.number == 7) encoded = f.value != 0;
  }
  if (datum.bad()) return kMalformed;
  // A raw image is stored as [channels, height, width]; outputs have the channels last.
  if (!encoded) std::copy_n(std::array{dims[1], dims[2], dims[0]}.data(), 3, fields->info(0).dims);
  return {};
}

// Finds the first layout.fields tensors; there may be more. Returns an error message, or an empty text.
// message TensorProtos { repeated TensorProto protos = 1; }
std::string ParseTensorProtos(FieldCollector* fields) {
  Message protos(&fields->record, 0, fields->record.size());
  int k = 0;
  for (WireField f; protos.Next(&f);) {
    if (f.number != 1 || f.wire != 2) continue;
    if (k < fields->layout.fields && !ParseTensor(fields, k, f.offset, f.offset + f.size)) return kMalformed;
    k++;
  }
  if (protos.bad()) return kMalformed;
  if (k < fields->layout.fields)
    return "it has " + std::to_string(k) + " tensors, expected " + std::to_string(fields->layout.fields);
  return {};
}

}  // namespace jaxdali
