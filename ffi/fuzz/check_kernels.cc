// Runs the emulated CUDA kernels on random batches. Buffers are on the heap and have exactly the stated length, so
// AddressSanitizer and UBSan find every access outside. The status of each sample and its elements are compared with
// the CPU kernels'. (fuzz_jpeg checks kernel `decode`.)
//
//   check_kernels [ROUNDS] [SEED] [KERNEL]
#include "ffi/fuzz/check_kernels.h"

// Runs the checks of all kernels, or of one, in turn. Returns 1 if a kernel of ops.def has no check; a check that fails
// ends the program itself.
int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  const std::string only = argc > 3 ? argv[3] : "";
  jaxdali::Random random(static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 0));
  const auto& checks = jaxdali::Checks();
#define JAXDALI_KERNEL_CUDA(name)                                      \
  if (!checks.count(#name) && std::string(#name) != "decode") {        \
    std::fprintf(stderr, "there is no ffi/fuzz/check_" #name ".cc\n"); \
    return 1;                                                          \
  }
#define JAXDALI_KERNEL(name)
#include "ffi/ops.def"
  for (int i = 0; i < rounds; i++)
    for (const auto& [kernel, check] : checks)
      if (only.empty() || only == kernel) check(random);
  std::printf("%d batches of each kernel; checksums of what the CPU's made:\n", rounds);
  for (const auto& [name, checksum] : jaxdali::Checksums())
    std::printf("  %-24s %s\n", name.c_str(), checksum.text().c_str());
}
