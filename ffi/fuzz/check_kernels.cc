// Runs the CUDA kernels, emulated, over random batches, whose buffers are on the heap and exactly as long as they say:
// with AddressSanitizer and UBSan nothing outside is touched unnoticed. The status of every sample and its elements are
// compared with the CPU kernels'. (Kernel `decode` has fuzz_jpeg.)
//
//   check_kernels [ROUNDS] [SEED] [KERNEL]
#include "ffi/fuzz/check_kernels.h"

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
  for (const auto& [what, checksum] : jaxdali::Checksums())
    std::printf("  %-24s %s\n", what.c_str(), checksum.text().c_str());
}
