// Both passes of the fixed-point resize with registers of 512 bits, for x86-64 CPUs with AVX-512 VBMI and VNNI. Results
// equal those of resize_u8_cpu.cc; read that file first.
//
// The horizontal pass works on groups of outputs. A group's taps lie close together in the line, so one or two
// registers hold them, and a byte permutation brings two taps of each output side by side for a multiplication by
// pairs. Make prepares the permutation and the weights of each group, and Choose the narrowest kernel that fits them.
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // for operands that GCC's own intrinsics leave undefined
#endif

#include <algorithm>
#include <vector>

#include "ffi/common/cpu.h"
#include "ffi/common/vectors.h"
#include "ffi/resize/resize_u8_avx512.h"

#define JAXDALI_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vnni")))

namespace jaxdali::resize_u8 {
namespace {

const bool kHasWide = ThisCpu().avx512_for_bytes();

// 32 bytes as Q7 numbers of 16 bits.
JAXDALI_VBMI JAXDALI_INLINE __m512i Widen(const uint8_t* from) {
  return _mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), 7);
}

// The vertical pass for n >= kWideBytes elements from `begin` on: the sum of `taps` rows times their weights, which are
// negated. Products are rounded one by one, and sums saturated. The last registers overlap the ones before, so that
// nothing outside the rows is read. It is VerticalSimd of resize_u8_cpu.cc with registers of twice the size.
template <int K>  // taps; 0: any number
JAXDALI_VBMI void Vertical(const uint8_t* const* rows, const int16_t* w, int taps, int64_t begin, int64_t n,
                           int16_t* out) {
  const int k = K ? K : taps;
  for (int64_t i = 0; i < n; i += kWideBytes) {
    const int64_t x = std::min(i, n - kWideBytes);
    __m512i low = _mm512_setzero_si512(), high = low;
    for (int j = 0; j < k; j++) {
      const uint8_t* p = rows[j] + begin + x;
      const __m512i weight = _mm512_set1_epi16(w[j]);
      low = _mm512_subs_epi16(low, _mm512_mulhrs_epi16(Widen(p), weight));
      high = _mm512_subs_epi16(high, _mm512_mulhrs_epi16(Widen(p + 32), weight));
    }
    _mm512_storeu_si512(out + x, low);
    _mm512_storeu_si512(out + x + 32, high);
  }
}

void AnyVertical(const uint8_t* const* rows, const int16_t* w, int k, int64_t begin, int64_t n, int16_t* out) {
  static constexpr WideVertical kVertical[] = {Vertical<0>, Vertical<1>, Vertical<2>, Vertical<3>,
                                               Vertical<4>, Vertical<5>, Vertical<6>};
  kVertical[k <= 6 ? k : 0](rows, w, k, begin, n, out);
}

constexpr int kGroups = 4;  // groups made together, whose bytes fill a register

template <int C>
constexpr int kOutputs = 16 / C;  // outputs of a group; int32 i of a register is output i / C, channel i % C

// The byte orders of one group, computed at compile time.
template <int C>
struct Order {
  alignas(64) int32_t output[16];
  alignas(64) uint8_t taps[64];    // bytes of its first two taps, from the start of the output's taps
  alignas(64) uint8_t packed[64];  // where the row's bytes are after four registers are packed
  constexpr Order() : output{}, taps{}, packed{} {
    constexpr int kUsed = kOutputs<C> * C;
    for (int i = 0; i < 16; i++) {
      output[i] = i < kUsed ? i / C : 0;
      // Bytes 0 and 1 of an int32 are the int16 of the first tap, bytes 2 and 3 that of the second, C elements later.
      for (int b = 0; b < 4; b++) taps[4 * i + b] = static_cast<uint8_t>(2 * (i % C + b / 2 * C) + b % 2);
    }
    // Packs work on lanes of 128 bits: a lane gets its four numbers from each of the groups' registers in turn.
    for (int b = 0; b < kGroups * kUsed; b++) {
      const int group = b / kUsed, i = b % kUsed;
      packed[b] = static_cast<uint8_t>(i / 4 * 16 + group * 4 + i % 4);
    }
  }
};
template <int C>
constexpr Order<C> kOrder;

// Fills `first` and `blocks` as MakeWideHorizontal describes them. offset: first taps of n outputs in the line; w: [n,
// taps].
template <int C>
JAXDALI_VBMI void Fill(int64_t n, const int32_t* offset, const int16_t* w, int taps, int32_t* first, Block* blocks) {
  const __m512i output = _mm512_load_si512(kOrder<C>.output), bytes = _mm512_load_si512(kOrder<C>.taps);
  const __m512i pair = _mm512_mullo_epi32(output, _mm512_set1_epi32(taps / 2));
  for (int64_t o = 0; o < n; o += kOutputs<C>, offset += kOutputs<C>, w += kOutputs<C> * taps) {
    *first = *std::min_element(offset, offset + kOutputs<C>);
    // How far each output's taps begin behind the group's first, in elements; twice that in bytes, for all four bytes.
    const __m512i from = _mm512_sub_epi32(_mm512_i32gather_epi32(output, offset, 4), _mm512_set1_epi32(*first++));
    _mm512_store_si512(blocks++, _mm512_add_epi8(bytes, _mm512_mullo_epi32(from, _mm512_set1_epi32(0x02020202))));
    // Two weights of each output are an int32: `pair` counts these.
    for (int j = 0; j < taps; j += 2) _mm512_store_si512(blocks++, _mm512_i32gather_epi32(pair, w + j, 4));
  }
}

// The horizontal pass, with the arguments of WideHorizontal: `first` is where each group's taps begin in the line, and
// `blocks` has for each group the byte order of two taps, then weights for each two taps. K: number of taps; 0:
// `all_taps`. Loads are the bottleneck: kTogether taps of a group are extracted from kRegisters that begin at the first
// of them.
template <int C, int K, int kTogether, int kRegisters>
JAXDALI_VBMI void Horizontal(const int16_t* line, const int32_t* first, const Block* blocks, int all_taps, int shift,
                             int64_t n, uint8_t* dst) {
  const int taps = K ? K : all_taps, stride = 1 + taps / 2;
  constexpr int kBytes = kOutputs<C> * C;  // of a group
  const __m512i packed = _mm512_load_si512(kOrder<C>.packed);
  // Weights are negative, so sums are -v. They start with a value that makes the complement of a sum v + half - 1,
  // which rounds up only if the result is odd; if the result is even, 1 is subtracted.
  const __m512i start = _mm512_set1_epi32(-(1 << (shift - 1))), parity = _mm512_set1_epi32(1 << shift);
  const __m512i one = _mm512_set1_epi32(1), ones = _mm512_set1_epi32(-1);
  const __m128i bits = _mm_cvtsi32_si128(shift);
  for (int64_t left = n * C; left > 0; left -= kGroups * kBytes, dst += kGroups * kBytes) {
    __m512i sum[kGroups];
    for (int g = 0; g < kGroups; g++) {
      const int16_t* p = line + *first++;
      const Block* block = blocks + g * stride;
      const __m512i bytes = _mm512_load_si512(block++);
      sum[g] = start;
      for (int j = 0; j < taps; j += kTogether, p += kTogether * C) {
        const __m512i low = _mm512_loadu_si512(p), high = kRegisters == 2 ? _mm512_loadu_si512(p + 32) : low;
        for (int i = 0; i < kTogether; i += 2) {
          const __m512i order = i ? _mm512_add_epi8(bytes, _mm512_set1_epi8(2 * C * i)) : bytes;
          const __m512i pair =
              kRegisters == 2 ? _mm512_permutex2var_epi8(low, order, high) : _mm512_permutexvar_epi8(order, low);
          sum[g] = _mm512_dpwssd_epi32(sum[g], pair, _mm512_load_si512(block++));
        }
      }
    }
    blocks += kGroups * stride;
    // Rounds halves to even, see `start`.
    for (int g = 0; g < kGroups; g++) {
      const __mmask16 even = _mm512_testn_epi32_mask(sum[g], parity);
      sum[g] = _mm512_sra_epi32(_mm512_mask_sub_epi32(sum[g], even, sum[g], one), bits);
    }
    // The complements, as 16 bits, then as bytes; the permutation undoes the interleaving of packs by lanes.
    const __m512i low = _mm512_xor_si512(_mm512_packs_epi32(sum[0], sum[1]), ones);
    const __m512i high = _mm512_xor_si512(_mm512_packs_epi32(sum[2], sum[3]), ones);
    const __m512i pixels = _mm512_permutexvar_epi8(packed, _mm512_packus_epi16(low, high));
    if (left >= 64)  // bytes beyond the output's are overwritten later
      _mm512_storeu_si512(dst, pixels);
    else
      _mm512_mask_storeu_epi8(dst, ~uint64_t{0} >> (64 - std::min<int64_t>(left, kGroups * kBytes)), pixels);
  }
}

// The kernel with the fewest loads whose registers hold the taps of a group, or null. span: elements between the first
// taps of a group's outputs.
template <int C, int K>
WideHorizontal Choose(int taps, int span) {
  constexpr int kTogether = K ? K : 4;
  auto fit = [&](int together, int registers) { return taps % together == 0 && span + together * C <= 32 * registers; };
  return fit(kTogether, 1)   ? Horizontal<C, K, kTogether, 1>
         : fit(2, 1)         ? Horizontal<C, K, 2, 1>
         : fit(kTogether, 2) ? Horizontal<C, K, kTogether, 2>
         : fit(2, 2)         ? Horizontal<C, 0, 2, 2>
                             : nullptr;
}

// MakeWideHorizontal for C channels, on a CPU that has the instructions.
template <int C>
WideHorizontal Make(int64_t n, const int32_t* offset, const int16_t* w, int taps, std::vector<int32_t>* first,
                    std::vector<Block>* blocks) {
  int span = 0;
  for (int64_t o = 0; o < n; o += kOutputs<C>) {
    const auto [least, most] = std::minmax_element(offset + o, offset + o + kOutputs<C>);
    span = std::max(span, *most - *least);
  }
  const auto choose = taps == 2 ? Choose<C, 2> : taps == 4 ? Choose<C, 4> : taps == 6 ? Choose<C, 6> : Choose<C, 0>;
  const WideHorizontal wide = choose(taps, span);
  if (!wide) return nullptr;
  constexpr int kOutputsOfGroups = kGroups * kOutputs<C>;
  const size_t groups = static_cast<size_t>((n + kOutputsOfGroups - 1) / kOutputsOfGroups * kGroups);
  first->assign(groups, 0);
  blocks->assign(groups * (1 + taps / 2), {});
  Fill<C>(n, offset, w, taps, first->data(), blocks->data());
  return wide;
}

}  // namespace

WideVertical MakeWideVertical() { return kHasWide ? AnyVertical : nullptr; }

WideHorizontal MakeWideHorizontal(int channels, int64_t n, const int32_t* offset, const int16_t* w, int taps,
                                  std::vector<int32_t>* first, std::vector<Block>* blocks) {
  if (!kHasWide) return nullptr;
  return (channels == 1 ? Make<1> : channels == 3 ? Make<3> : Make<4>)(n, offset, w, taps, first, blocks);
}

}  // namespace jaxdali::resize_u8

#endif  // defined(__x86_64__)
