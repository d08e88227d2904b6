// Converts rows of elements to the floats or doubles that CPU kernels compute with, and back, with vectors where
// possible. There is one function per element type, instead of one per pair of types in each kernel.
#ifndef JAXDALI_FFI_COMMON_ROWS_H_
#define JAXDALI_FFI_COMMON_ROWS_H_

#include <cstdint>

#include "ffi/common/convert.h"

namespace jaxdali {

inline constexpr int64_t kRow = 512;  // numbers that a kernel converts at a time, so that they stay in the L1 cache

// Loads n elements, `step` elements apart, from element `first` of an array on.
void LoadRow(DType type, const void* array, int64_t first, int64_t step, int64_t n, float* to);
void LoadRow(DType type, const void* array, int64_t first, int64_t step, int64_t n, double* to);

// Stores n elements from element `first` of an array on.
void StoreRow(DType type, const float* from, int64_t n, void* array, int64_t first);
void StoreRow(DType type, const double* from, int64_t n, void* array, int64_t first);

// values = values * scale + offset. It rounds twice, as CUDA kernels do.
void ScaleRow(const float* scale, const float* offset, int64_t n, float* values);
void ScaleRow(const float* scale, const float* offset, int64_t n, double* values);
void ScaleRow(float scale, float offset, int64_t n, float* values);
void ScaleRow(float scale, float offset, int64_t n, double* values);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_ROWS_H_
