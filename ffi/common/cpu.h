// The instruction sets of this x86-64 CPU that kernels choose between at run time. Compilers have
// __builtin_cpu_supports for it, but not all of them bring the library function behind it: zig's, which makes the
// wheels, does not.
#ifndef JAXDALI_FFI_COMMON_CPU_H_
#define JAXDALI_FFI_COMMON_CPU_H_

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace jaxdali {

struct Cpu {
  bool sse42 = false, f16c = false, fma = false, avx2 = false, bmi = false, bmi2 = false;
  bool avx512f = false, avx512bw = false, avx512vbmi = false, avx512vnni = false;

  // For kernels of bytes with 512 bits: AVX-512 that permutes bytes (VBMI) and adds up their products (VNNI).
  bool avx512_for_bytes() const { return avx512bw && avx512vbmi && avx512vnni; }

  // Asks the CPU by its instruction CPUID.
  Cpu() {
    // The registers that CPUID sets (EAX ... EDX), and bits of its leaves 1 and 7, as in Intel's manual, volume 2A.
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    const auto bit = [](uint32_t word, int i) { return (word >> i & 1) != 0; };
    sse42 = bit(c, 20);
    // A CPU may have registers that the operating system does not save: those are not usable.
    uint32_t saved = 0;
    if (bit(c, 27)) {  // OSXSAVE
      uint32_t high;
      __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    }
    // Bits of XCR0: 1 and 2 are the registers XMM and YMM; 5 to 7 are the masks and ZMM of AVX-512.
    const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    f16c = ymm && bit(c, 29);
    fma = ymm && bit(c, 12);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    bmi = bit(b, 3);
    bmi2 = bit(b, 8);
    avx2 = ymm && bit(b, 5);
    avx512f = zmm && bit(b, 16);
    avx512bw = avx512f && bit(b, 30);
    avx512vbmi = avx512f && bit(c, 1);
    avx512vnni = avx512f && bit(c, 11);
  }
};

inline const Cpu& ThisCpu() {
  static const Cpu cpu;
  return cpu;
}

}  // namespace jaxdali

#endif

#endif  // JAXDALI_FFI_COMMON_CPU_H_
