// The CUDA kernels as C++: the same blocks and threads in a loop on the host, see ffi/common/launch.h. For tests.
#include "ffi/common/cuda_version.cu"
#include "ffi/decode.cu"
#include "ffi/expand.cu"
#include "ffi/resize.cu"
#include "ffi/rotate.cu"
#include "ffi/window.cu"
