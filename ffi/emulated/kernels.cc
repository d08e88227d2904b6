// The CUDA kernels as C++: the same blocks and threads in a loop on the host, see ffi/common/launch.h. For tests.
#include "ffi/common/cuda_version.cu"
#include "ffi/decode/decode.cu"
#include "ffi/expand/expand.cu"
#include "ffi/resize/resize.cu"
#include "ffi/warp/warp.cu"
#include "ffi/window/window.cu"
