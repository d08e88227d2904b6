// Status codes of one sample. A native call returns i32[N] of them, and the host pass uses the same codes. The failure
// of a sample is data; ffi::Error reports bugs in jaxdali.
#ifndef JAXDALI_FFI_COMMON_STATUS_H_
#define JAXDALI_FFI_COMMON_STATUS_H_

#include <cstdint>

namespace jaxdali {

// X(name, code, text)
#define JAXDALI_STATUS_TABLE(X)                                               \
  X(kOk, 0, "good")                                                           \
  X(kTruncated, 1, "the image data end early (truncated file)")               \
  X(kCorrupt, 2, "the image data are damaged")                                \
  X(kUnknownFormat, 3, "the data are not an image of a known format")         \
  X(kUnsupported, 4, "the image uses a feature that is not supported")        \
  X(kEmpty, 5, "the sample is empty (0 bytes)")                               \
  X(kSizeMismatch, 6, "the decoded size differs from the size in the header") \
  X(kOutOfBounds, 7, "the window reaches outside the input")                  \
  X(kTooLarge, 8, "the image is too large")                                   \
  X(kReadError, 9, "the file can't be read")                                  \
  X(kOutOfMemory, 10, "out of memory")                                        \
  X(kInternal, 11, "internal error")                                          \
  X(kRefused, 12, "the GPU's decoder refused the data")                       \
  X(kArgument, 13, "an argument is invalid")                                  \
  X(kInput, 14, "the operator does not support this input")                   \
  X(kOutOfRange, 15, "an index is out of range")                              \
  X(kRecord, 16, "the record can't be read")                                  \
  X(kTooManyScans, 17, "the image has more than 500 scans, which are not decoded")

enum Status : int32_t {
#define JAXDALI_STATUS_ENUM(name, code, text) name = code,
  JAXDALI_STATUS_TABLE(JAXDALI_STATUS_ENUM)
#undef JAXDALI_STATUS_ENUM
};

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_STATUS_H_
