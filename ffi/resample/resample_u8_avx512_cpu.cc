// Both passes over bytes with registers of 512 bits, for x86-64 CPUs with AVX-512 VBMI and VNNI; see resample_u8.h.
//
// One instruction multiplies four unsigned bytes by four signed ones and adds the products to a sum. So a weight is
// written in digits of 8 bits, each from -128 to 127, and each of its three digits has a sum of its own.
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // for operands that GCC's own intrinsics leave undefined
#endif

#include <algorithm>
#include <vector>

#include "ffi/common/cpu.h"
#include "ffi/common/vectors.h"
#include "ffi/resample/resample_u8.h"

#define JAXDALI_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vnni")))

namespace jaxdali::resample_u8 {
namespace {

const bool kHasWide = ThisCpu().avx512_for_bytes();

constexpr int kDigits = 3;
constexpr int kGroups = 4;  // groups of outputs made together, whose bytes fill a register

// Whether three digits hold all weights.
bool FitsDigits(const Taps& t) {
  constexpr int32_t kMost = 127 * 65536;
  return std::all_of(t.weight, t.weight + t.n * t.k, [](int32_t w) { return w > -kMost && w < kMost; });
}

// Writes the digits of the weights of four taps, from tap j on, of output o: a word for each digit, the lowest first.
void Digits(const Taps& t, int64_t o, int j, uint32_t* words) {
  words[0] = words[1] = words[2] = 0;
  for (int i = 0; i < kTogether && j + i < t.k; i++) {
    int32_t rest = t.weight[o * t.k + j + i];
    for (int d = 0; d < kDigits; d++) {
      const int32_t digit = static_cast<int8_t>(rest & 0xFF);
      words[d] |= static_cast<uint32_t>(digit & 0xFF) << 8 * i;
      rest = (rest - digit) >> 8;
    }
  }
}

// Sums of 16 outputs by the digits of their weights.
struct Sums {
  __m512i low, middle, high;
};

// Sums of nothing but a half, for rounding.
JAXDALI_VBMI JAXDALI_INLINE Sums Start() {
  return {_mm512_set1_epi32(1 << (kBits - 1)), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

// The sums, before they are limited to bytes.
JAXDALI_VBMI JAXDALI_INLINE __m512i Joined(const Sums& s) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(s.high, 8), s.middle);
  return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), s.low), kBits);
}

// Bytes of 64 outputs. Packing works on lanes of 128 bits: a lane gets its four numbers from each of the sums in turn.
JAXDALI_VBMI JAXDALI_INLINE __m512i Packed(__m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

// Adds the products of bytes, four for each output, and the digits of their weights.
JAXDALI_VBMI JAXDALI_INLINE void Add(__m512i bytes, __m512i low, __m512i middle, __m512i high, Sums* s) {
  s->low = _mm512_dpbusd_epi32(s->low, bytes, low);
  s->middle = _mm512_dpbusd_epi32(s->middle, bytes, middle);
  s->high = _mm512_dpbusd_epi32(s->high, bytes, high);
}

// The vertical pass, 64 bytes at a time. The last block overlaps the one before, so that nothing outside the rows is
// read.
JAXDALI_VBMI void Vertical(const uint8_t* const* rows, const int32_t* digits, int taps, int64_t n, uint8_t* out) {
  for (int64_t begin = 0; begin < n; begin += kWideBytes) {
    const int64_t i = std::min(begin, n - kWideBytes);
    Sums first = Start(), second = Start(), third = Start(), fourth = Start();
    const int32_t* word = digits;
    for (int j = 0; j < taps; j += kTogether, word += kDigits) {
      const __m512i a = _mm512_loadu_si512(rows[j] + i), b = _mm512_loadu_si512(rows[j + 1] + i),
                    c = _mm512_loadu_si512(rows[j + 2] + i), d = _mm512_loadu_si512(rows[j + 3] + i);
      const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b),
                    cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
      const __m512i low = _mm512_set1_epi32(word[0]), middle = _mm512_set1_epi32(word[1]),
                    high = _mm512_set1_epi32(word[2]);
      // The bytes of four rows side by side. Packing the sums undoes the order of these.
      Add(_mm512_unpacklo_epi16(ab_low, cd_low), low, middle, high, &first);
      Add(_mm512_unpackhi_epi16(ab_low, cd_low), low, middle, high, &second);
      Add(_mm512_unpacklo_epi16(ab_high, cd_high), low, middle, high, &third);
      Add(_mm512_unpackhi_epi16(ab_high, cd_high), low, middle, high, &fourth);
    }
    _mm512_storeu_si512(out + i, Packed(Joined(first), Joined(second), Joined(third), Joined(fourth)));
  }
}

template <int C>
constexpr int kOutputs = 16 / C;  // outputs of a group; int32 i of a register is output i / C, channel i % C

// Where the row's bytes are after the registers of four groups are packed.
template <int C>
struct Order {
  alignas(64) uint8_t byte[64];
  constexpr Order() : byte{} {
    constexpr int kUsed = kOutputs<C> * C;
    for (int b = 0; b < kGroups * kUsed; b++) {
      const int group = b / kUsed, i = b % kUsed;
      byte[b] = static_cast<uint8_t>(i / 4 * 16 + group * 4 + i % 4);
    }
  }
};
template <int C>
constexpr Order<C> kOrder;

// The sums of a group, before they are limited to bytes: a permutation brings four taps of each output side by side,
// from one or two registers of the row. K: number of taps; 0: `all_taps`.
template <int C, int K, int kRegisters>
JAXDALI_VBMI JAXDALI_INLINE __m512i Group(const uint8_t* from, const Block* block, int all_taps) {
  const int taps = K ? K : all_taps;
  const __m512i place = _mm512_load_si512(block++);
  Sums sums = Start();
  for (int j = 0; j < taps; j += kTogether, from += kTogether * C, block += kDigits) {
    const __m512i bytes = kRegisters == 2
                              ? _mm512_permutex2var_epi8(_mm512_loadu_si512(from), place, _mm512_loadu_si512(from + 64))
                              : _mm512_permutexvar_epi8(place, _mm512_loadu_si512(from));
    Add(bytes, _mm512_load_si512(block), _mm512_load_si512(block + 1), _mm512_load_si512(block + 2), &sums);
  }
  return Joined(sums);
}

// The horizontal pass.
template <int C, int K, int kRegisters>
JAXDALI_VBMI void Horizontal(const uint8_t* row, const int32_t* first, const Block* blocks, int all_taps, int64_t n,
                             uint8_t* out) {
  constexpr int kBytes = kGroups * kOutputs<C> * C;
  const int stride = 1 + (K ? K : all_taps) / kTogether * kDigits;  // blocks of a group
  const __m512i order = _mm512_load_si512(kOrder<C>.byte);
  for (int64_t left = n * C; left > 0; left -= kBytes, out += kBytes, first += kGroups, blocks += kGroups * stride) {
    const __m512i packed = Packed(Group<C, K, kRegisters>(row + first[0], blocks, all_taps),
                                  Group<C, K, kRegisters>(row + first[1], blocks + stride, all_taps),
                                  Group<C, K, kRegisters>(row + first[2], blocks + 2 * stride, all_taps),
                                  Group<C, K, kRegisters>(row + first[3], blocks + 3 * stride, all_taps));
    const __m512i pixels = _mm512_permutexvar_epi8(order, packed);
    if (left >= 64)  // bytes beyond the output's are overwritten later
      _mm512_storeu_si512(out, pixels);
    else
      _mm512_mask_storeu_epi8(out, ~uint64_t{0} >> (64 - std::min<int64_t>(left, kBytes)), pixels);
  }
}

// MakeWideHorizontal for C channels, on a CPU that has the instructions.
template <int C>
WideHorizontal Make(const Taps& x, int taps, std::vector<int32_t>* first, std::vector<Block>* blocks) {
  constexpr int kOutputsOfGroups = kGroups * kOutputs<C>;
  int span = 0;  // bytes that the first four taps of a group's outputs are in
  const int64_t groups = (x.n + kOutputsOfGroups - 1) / kOutputsOfGroups * kGroups;
  first->assign(static_cast<size_t>(groups), 0);
  for (int64_t g = 0; g * kOutputs<C> < x.n; g++) {
    const int32_t* begin = x.first + g * kOutputs<C>;
    const auto [least, most] =
        std::minmax_element(begin, begin + std::min<int64_t>(kOutputs<C>, x.n - g * kOutputs<C>));
    span = std::max(span, (*most - *least + kTogether) * C);
    (*first)[static_cast<size_t>(g)] = *least * C;
  }
  if (span > 128) return nullptr;
  blocks->assign(static_cast<size_t>(groups) * (1 + taps / kTogether * kDigits), {});
  Block* block = blocks->data();
  for (int64_t g = 0; g < groups; g++) {
    Block* place = block++;
    for (int i = 0; i < kOutputs<C>; i++) {
      const int64_t o = g * kOutputs<C> + i;
      if (o >= x.n) break;
      for (int b = 0; b < 4 * C; b++)  // of channel b / 4, tap b % 4
        place->byte[4 * C * i + b] = static_cast<uint8_t>(x.first[o] * C - (*first)[g] + b % 4 * C + b / 4);
      for (int j = 0; j < taps / kTogether; j++) {
        uint32_t words[kDigits];
        Digits(x, o, kTogether * j, words);
        for (int d = 0; d < kDigits; d++)
          std::fill_n(reinterpret_cast<uint32_t*>(block[j * kDigits + d].byte) + i * C, C, words[d]);
      }
    }
    block += taps / kTogether * kDigits;
  }
  if (span > 64) return Horizontal<C, 0, 2>;
  return taps == 4 ? Horizontal<C, 4, 1> : taps == 8 ? Horizontal<C, 8, 1> : Horizontal<C, 0, 1>;
}

}  // namespace

WideVertical MakeWideVertical(const Taps& y, int taps, std::vector<int32_t>* digits) {
  if (!kHasWide || !FitsDigits(y)) return nullptr;
  digits->resize(static_cast<size_t>(y.n * taps / kTogether * kDigits));
  uint32_t* words = reinterpret_cast<uint32_t*>(digits->data());
  for (int64_t o = 0; o < y.n; o++)
    for (int j = 0; j < taps; j += kTogether, words += kDigits) Digits(y, o, j, words);
  return Vertical;
}

WideHorizontal MakeWideHorizontal(const Taps& x, int channels, int taps, std::vector<int32_t>* first,
                                  std::vector<Block>* blocks) {
  if (!kHasWide || !FitsDigits(x)) return nullptr;
  return (channels == 1 ? Make<1> : channels == 3 ? Make<3> : Make<4>)(x, taps, first, blocks);
}

}  // namespace jaxdali::resample_u8

#endif  // defined(__x86_64__)
