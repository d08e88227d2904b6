// Launches of kernels from the PTX that nvcc made of them, on the CPU. ffi/common/launch.h calls it where JAXDALI_PTX
// is defined.
//
// This interpreter goes once `tests/gpu` has run on a GPU with these kernels (launch.cc).
#ifndef JAXDALI_FFI_FUZZ_PTX_LAUNCH_H_
#define JAXDALI_FFI_FUZZ_PTX_LAUNCH_H_

#include <cstddef>
#include <cstdint>

namespace jaxdali::ptx {

inline constexpr unsigned kBlockThreads = 256;

// Runs all blocks of the kernel whose type has this name (std::type_info). Returns null, or an error message: an access
// outside of arrays or misaligned, a race, a barrier or an exchange that not all threads reach, or a parameter whose
// size nvcc sees otherwise than the host's compiler.
const char* Launch(const char* type, const void* kernel, size_t size, int64_t blocks);

// Decodes all kernels. Returns how many there are. Prints those with an instruction that the interpreter does not know,
// and returns 0 then.
int DecodeAll();

// The number of instructions that all threads have run so far.
uint64_t InstructionCount();

}  // namespace jaxdali::ptx

#endif  // JAXDALI_FFI_FUZZ_PTX_LAUNCH_H_
