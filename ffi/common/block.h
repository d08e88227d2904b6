// Functions of a GPU's thread (atomic operations, bits), with a replacement on the host, and the scan of long sequences
// by a block. For kernels that count and decode: equalize, and JPEG.
#ifndef JAXDALI_FFI_COMMON_BLOCK_H_
#define JAXDALI_FFI_COMMON_BLOCK_H_

#include <cstdint>

#include "ffi/common/hd.h"
#include "ffi/common/launch.h"

namespace jaxdali {

// Sets *p to the smaller one of *p and v, atomically.
JAXDALI_HD inline void AtomicMin(uint32_t* p, uint32_t v) {
#if defined(__CUDA_ARCH__)
  atomicMin(p, v);
#else
  uint32_t current = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < current &&
         !__atomic_compare_exchange_n(p, &current, v, /*weak=*/true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

// Sets *p to the larger one of *p and v, atomically.
JAXDALI_HD inline void AtomicMax(int32_t* p, int32_t v) {
#if defined(__CUDA_ARCH__)
  atomicMax(p, v);
#else
  int32_t current = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v > current &&
         !__atomic_compare_exchange_n(p, &current, v, /*weak=*/true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

// Adds v to *p atomically, and returns the sum before.
JAXDALI_HD inline uint32_t AtomicAdd(uint32_t* p, uint32_t v) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(p, v);
#else
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
#endif
}

// The number of a word that was read from memory where its highest byte comes first: its bytes in reverse order.
JAXDALI_HD inline uint32_t BigEndian(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(v, 0, 0x0123);  // selects bytes 3, 2, 1 and 0 of v, from the lowest of the result on
#else
  return __builtin_bswap32(v);
#endif
}

// 32 bits of high:low, from bit `shift` < 32 on.
JAXDALI_HD inline uint32_t FunnelLeft(uint32_t high, uint32_t low, uint32_t shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_l(low, high, shift);
#else
  return static_cast<uint32_t>(((static_cast<uint64_t>(high) << 32 | low) << shift) >> 32);
#endif
}

// The number of bits of v that are set.
JAXDALI_HD inline int CountBits(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return __popc(v);
#else
  return __builtin_popcount(v);
#endif
}

// The position of the lowest bit of v that is set; v is not 0.
JAXDALI_HD inline int LowestBit(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(v)) - 1;
#else
  return __builtin_ctz(v);
#endif
}

// --- inclusive scans, like ScanBlock ---------------------------------------------------------------------------------

template <class V>
struct ScanRows {
  V row[kThreads];
  V carry;
};

inline constexpr int kScanned = 8 * kThreads;
// Sums up get(0) to get(n - 1) in one block, where op(a, b) is the sum of two values, and calls put(i, sum before i,
// sum including i). Each get(i) is called again right before its put, which may overwrite the value. Afterwards `carry`
// is the total. kScanned values are done at a time.
template <class V, class Block, class Get, class Op, class Put>
JAXDALI_HD void ScanAll(const Block& block, ScanRows<V>& s, int n, Get get, Op op, Put put) {
  constexpr int kEach = kScanned / kThreads;  // values of a thread: several mean fewer barriers
  block.Phase([&](int thread) {
    if (thread == 0) s.carry = V{};
  });
  for (int base = 0; base < n; base += kThreads * kEach) {
    // Each thread sums up its kEach values, the sums are scanned, and each thread goes through its values again.
    block.Phase([&](int thread) {
      const int from = base + thread * kEach;
      V sum{};
      for (int i = from; i < from + kEach && i < n; i++) sum = op(sum, get(i));
      s.row[thread] = sum;
    });
    ScanBlock(block, s.row, op);
    block.Phase([&](int thread) {
      const int from = base + thread * kEach;
      V sum_before = thread ? op(s.carry, s.row[thread - 1]) : s.carry;
      for (int i = from; i < from + kEach && i < n; i++) {
        const V sum_with = op(sum_before, get(i));
        put(i, sum_before, sum_with);
        sum_before = sum_with;
      }
    });
    block.Phase([&](int thread) {
      if (thread == 0) s.carry = op(s.carry, s.row[kThreads - 1]);
    });
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_BLOCK_H_
