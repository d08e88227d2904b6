// HighwayHash-64 with AVX2, and portable. Both follow the reference implementation (github.com/google/highwayhash),
// whose names of the state they use: v0, v1, mul0, mul1, of four lanes of 64 bits each.
#include "ffi/host/highway_hash.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ffi/common/cpu.h"

namespace jaxdali {
namespace {

using State = HighwayHash::State;

// A little-endian word, on any machine.
uint64_t LoadWord(const uint8_t* p) {
  uint64_t x = 0;
  for (int i = 0; i < 8; i++) x |= uint64_t{p[i]} << 8 * i;
  return x;
}

uint64_t SwapHalves(uint64_t x) { return x << 32 | x >> 32; }

// The reference's "zipper merge": a permutation of the 16 bytes of two neighbouring lanes, which mixes the bytes of
// their products. Byte k of the result is byte kZipper[k].
constexpr uint8_t kZipper[16] = {3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7};

// to += the bytes of `from`, permuted within both pairs of lanes.
void AddPermuted(const uint64_t* from, uint64_t* to) {
  for (int pair = 0; pair < 4; pair += 2) {
    uint64_t sum[2] = {0, 0};
    for (int k = 0; k < 16; k++) {
      const int byte = kZipper[k];
      sum[k / 8] |= (from[pair + byte / 8] >> 8 * (byte % 8) & 255) << 8 * (k % 8);
    }
    to[pair] += sum[0];
    to[pair + 1] += sum[1];
  }
}

// Mixes one packet of 32 bytes, four lanes, into the state, as the reference does.
void Update(State* s, const uint64_t* lanes) {
  for (int i = 0; i < 4; i++) {
    s->v1[i] += s->mul0[i] + lanes[i];
    s->mul0[i] ^= (s->v1[i] & 0xFFFFFFFF) * (s->v0[i] >> 32);
    s->v0[i] += s->mul1[i];
    s->mul1[i] ^= (s->v0[i] & 0xFFFFFFFF) * (s->v1[i] >> 32);
  }
  AddPermuted(s->v1, s->v0);
  AddPermuted(s->v0, s->v1);
}

// Mixes packets of 32 bytes into the state, one after another.
void UpdatePackets(State* s, const uint8_t* data, int64_t packets) {
  for (; packets > 0; packets--, data += 32) {
    const uint64_t lanes[4] = {LoadWord(data), LoadWord(data + 8), LoadWord(data + 16), LoadWord(data + 24)};
    Update(s, lanes);
  }
}

#if defined(__x86_64__)
// UpdatePackets with a register for each array of four lanes: the state is stored in the order v0, v1, mul0, mul1.
__attribute__((target("avx2"))) void UpdatePacketsByAvx2(State* s, const uint8_t* data, int64_t packets) {
  const __m256i zipper = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kZipper)));
  auto* const state = reinterpret_cast<__m256i*>(s);
  __m256i v0 = _mm256_load_si256(state), v1 = _mm256_load_si256(state + 1);
  __m256i mul0 = _mm256_load_si256(state + 2), mul1 = _mm256_load_si256(state + 3);
  for (; packets > 0; packets--, data += 32) {
    const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    v1 = _mm256_add_epi64(v1, _mm256_add_epi64(mul0, lanes));
    mul0 = _mm256_xor_si256(mul0, _mm256_mul_epu32(v1, _mm256_srli_epi64(v0, 32)));
    v0 = _mm256_add_epi64(v0, mul1);
    mul1 = _mm256_xor_si256(mul1, _mm256_mul_epu32(v0, _mm256_srli_epi64(v1, 32)));
    v0 = _mm256_add_epi64(v0, _mm256_shuffle_epi8(v1, zipper));
    v1 = _mm256_add_epi64(v1, _mm256_shuffle_epi8(v0, zipper));
  }
  _mm256_store_si256(state, v0), _mm256_store_si256(state + 1, v1);
  _mm256_store_si256(state + 2, mul0), _mm256_store_si256(state + 3, mul1);
}
#endif

// Chooses the version at run time.
void UpdateAll(State* s, const uint8_t* data, int64_t packets) {
#if defined(__x86_64__)
  if (ThisCpu().avx2) return UpdatePacketsByAvx2(s, data, packets);
#endif
  UpdatePackets(s, data, packets);
}

}  // namespace

// The state before the first packet.
HighwayHash::HighwayHash(const HashKey& key) {
  // The initial state of the reference.
  static constexpr uint64_t kMul0[] = {0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3};
  static constexpr uint64_t kMul1[] = {0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377};
  for (int i = 0; i < 4; i++) {
    state_.mul0[i] = kMul0[i];
    state_.mul1[i] = kMul1[i];
    state_.v0[i] = kMul0[i] ^ key[i];
    state_.v1[i] = kMul1[i] ^ SwapHalves(key[i]);
  }
}

// Fills up the pending packet, mixes whole packets of 32 bytes, and keeps the rest.
void HighwayHash::Append(const uint8_t* data, int64_t size) {
  if (num_pending_ > 0) {
    const auto n = static_cast<int>(std::min<int64_t>(size, 32 - num_pending_));
    std::copy_n(data, n, pending_ + num_pending_);
    num_pending_ += n;
    data += n;
    size -= n;
    if (num_pending_ < 32) return;
    UpdateAll(&state_, pending_, 1);
  }
  UpdateAll(&state_, data, size / 32);
  num_pending_ = static_cast<int>(size % 32);
  std::copy_n(data + size - num_pending_, num_pending_, pending_);
}

// The hash of all bytes. It changes the state, so it is called once.
uint64_t HighwayHash::Finish() {
  State& s = state_;
  // The last bytes, 1 to 31 of them, become a packet, and their number is mixed into the state. Four bytes at a time
  // keep their place; of up to three more, the reference copies the first, the middle and the last one.
  if (num_pending_ > 0) {
    const auto n = static_cast<uint32_t>(num_pending_);
    // Both halves of each lane: v0 grows by n, v1 is rotated by n bits.
    for (int i = 0; i < 4; i++) {
      s.v0[i] += uint64_t{n} << 32 | n;
      const auto low = static_cast<uint32_t>(s.v1[i]), high = static_cast<uint32_t>(s.v1[i] >> 32);
      s.v1[i] = low << n | low >> (32 - n) | uint64_t{high << n | high >> (32 - n)} << 32;
    }
    uint8_t packet[32] = {};
    const int whole = num_pending_ & ~3, last = num_pending_ & 3;
    std::copy_n(pending_, whole, packet);
    if (num_pending_ & 16) {
      std::copy_n(pending_ + num_pending_ - 4, 4, packet + 28);
    } else if (last) {
      packet[16] = pending_[whole];
      packet[17] = pending_[whole + (last >> 1)];
      packet[18] = pending_[whole + last - 1];
    }
    UpdatePackets(&s, packet, 1);
  }
  // Four more rounds, each with the lanes of v0 permuted.
  for (int round = 0; round < 4; round++) {
    const uint64_t lanes[4] = {SwapHalves(s.v0[2]), SwapHalves(s.v0[3]), SwapHalves(s.v0[0]), SwapHalves(s.v0[1])};
    Update(&s, lanes);
  }
  return s.v0[0] + s.v1[0] + s.mul0[0] + s.mul1[0];
}

}  // namespace jaxdali
