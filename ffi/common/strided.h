// Where each element of a packed array is in another array: a count and a stride for each axis.
#ifndef JAXDALI_FFI_COMMON_STRIDED_H_
#define JAXDALI_FFI_COMMON_STRIDED_H_

#include "ffi/common/launch.h"
#include "ffi/common/words.h"

namespace jaxdali {

struct Strided {
  int ndim;
  int64_t size;   // elements
  int64_t start;  // of element 0
  int64_t extent[8], stride[8];

  JAXDALI_HD void Clear() {
    ndim = 0;
    size = 1;
    start = 0;
  }
  // Adds an axis inside all others. Axes that are contiguous in memory become one, which saves divisions.
  JAXDALI_HD void Add(int64_t n, int64_t distance) {
    size *= n;
    if (n == 1) return;
    if (ndim > 0 && stride[ndim - 1] == n * distance) {
      extent[ndim - 1] *= n;
      stride[ndim - 1] = distance;
      return;
    }
    extent[ndim] = n;
    stride[ndim++] = distance;
  }
  JAXDALI_HD int64_t At(int64_t i) const {
    int64_t at = start;
    for (int d = ndim - 1; d > 0; d--) {
      const Quotient q = Divide(i, extent[d]);
      at += q.rest * stride[d];
      i = q.quotient;
    }
    return ndim > 0 ? at + i * stride[0] : at;
  }
};

// The offsets of elements i, i + 1, ... It counts along the two inner axes instead of dividing.
class Walk {
 public:
  JAXDALI_HD Walk(const Strided& from, int64_t i) : from_(from), i_(i) { Find(); }
  JAXDALI_HD int64_t at() const { return at_; }
  JAXDALI_HD void Next() {
    i_++;
    if (--left_[0] > 0) {
      at_ += from_.stride[from_.ndim - 1];
    } else if (--left_[1] > 0) {
      left_[0] = from_.extent[from_.ndim - 1];
      at_ += from_.stride[from_.ndim - 2] - (left_[0] - 1) * from_.stride[from_.ndim - 1];
    } else {
      Find();
    }
  }

 private:
  JAXDALI_HD void Find() {
    at_ = from_.At(i_);
    left_[0] = left_[1] = 1;
    if (from_.ndim == 0) return;
    const Quotient inner = Divide(i_, from_.extent[from_.ndim - 1]);
    left_[0] = from_.extent[from_.ndim - 1] - inner.rest;
    if (from_.ndim > 1)
      left_[1] = from_.extent[from_.ndim - 2] - Divide(inner.quotient, from_.extent[from_.ndim - 2]).rest;
  }

  const Strided& from_;
  int64_t i_, at_, left_[2];
};

// A kernel that copies elements of type T. Each thread copies 16 bytes of the output at a time. Sources has `in`, `out`
// and Find(i, Strided*).
template <class Sources, class T>
struct StridedKernel : Sources {
  static constexpr int kWords = 4, kEach = 4 * kWords / sizeof(T);  // words and elements of a unit
  static constexpr int kOfWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

  struct Plan {
    int64_t units;
    Strided from;
    const T* in;
    T* out;
    const uint8_t* end;  // end of the buffer that contains `in`
    int before;          // elements of the output's first unit that are before the output
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->in = this->in.template sample<const T>(i);
    s->out = this->out.template sample<T>(i);
    s->end = static_cast<const uint8_t*>(this->in.data) + this->in.capacity * static_cast<int64_t>(sizeof(T));
    if (const Status status = this->Find(i, &s->from); status != kOk) return status;
    s->before = static_cast<int>((reinterpret_cast<uintptr_t>(s->out) & (4 * kWords - 1)) / sizeof(T));
    s->units = s->from.size > 0 ? (s->from.size + s->before + kEach - 1) / kEach : 0;
    return kOk;
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t k = first; k < end; k += kThreads) {
      const int64_t i = k * kEach - s.before;
      uint32_t words[kWords];
      if (Runs(s, i, words))
        WriteWords(reinterpret_cast<uint8_t*>(s.out + i), words);
      else
        for (int64_t w = i; w < i + kEach; w += kOfWord) Word(s, w);
    }
  }

 private:
  // Writes the word of output elements i, i + 1, ..., some of which may be outside.
  JAXDALI_HD static void Word(const Plan& s, int64_t i) {
    if (kOfWord == 1 || i < 0 || i + kOfWord > s.from.size) {
      for (int64_t k = i; k < i + kOfWord; k++)
        if (k >= 0 && k < s.from.size) s.out[k] = s.in[s.from.At(k)];
      return;
    }
    uint32_t word = 0;
    Walk walk(s.from, i);
    for (int e = 0; e < kOfWord; e++) {
      if (e > 0) walk.Next();
      word |= static_cast<uint32_t>(s.in[walk.at()]) << (8 * static_cast<int>(sizeof(T)) * e);
    }
    WriteWord(reinterpret_cast<uint8_t*>(s.out + i), word);
  }

  // Reads the words of a unit whose elements are contiguous in the input, in one run or two. Most units are. Returns
  // false if they are not, if some are outside, or if words of the input would reach outside its buffer.
  JAXDALI_HD bool Runs(const Plan& s, int64_t i, uint32_t* words) const {
    const int inner = s.from.ndim - 1;
    if (inner < 0 || s.from.stride[inner] != 1 || i < 0 || i + kEach > s.from.size) return false;
    const int64_t extent = s.from.extent[inner];
    if (extent < kEach) return false;
    const int left = static_cast<int>(Least(extent - Divide(i, extent).rest, kEach) * static_cast<int>(sizeof(T)));
    if (!Read(s, s.from.At(i), 0, words)) return false;
    if (left == 4 * kWords) return true;
    uint32_t next[kWords];
    if (!Read(s, s.from.At(i + left / static_cast<int>(sizeof(T))), left, next)) return false;
    JAXDALI_UNROLL
    for (int w = 0; w < kWords; w++) {
      const int here = left - 4 * w;  // bytes from the first run
      const uint32_t mask = here >= 4 ? ~0u : here <= 0 ? 0u : (1u << (8 * here)) - 1;
      words[w] = (words[w] & mask) | (next[w] & ~mask);
    }
    return true;
  }

  // Reads the words in which byte `first` is that of element `at` of the input.
  JAXDALI_HD bool Read(const Plan& s, int64_t at, int first, uint32_t* words) const {
    const uint8_t* p = reinterpret_cast<const uint8_t*>(s.in + at) - first;
    const int over = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
    if (s.end - p + over < 4 * (kWords + 1) || p - over < static_cast<const uint8_t*>(this->in.data)) return false;
    uint32_t low = ReadWord(p - over);
    JAXDALI_UNROLL
    for (int w = 0; w < kWords; w++) {
      const uint32_t high = ReadWord(p - over + 4 * (w + 1));
      words[w] = Funnel(low, high, 8 * over);
      low = high;
    }
    return true;
  }
  JAXDALI_HD static int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
};

template <class Sources>
const char* LaunchStrided(const Sources& sources, const Samples& samples, void* stream) {
  switch (SizeOf(sources.in.dtype)) {
    case 1:
      return Launch(StridedKernel<Sources, uint8_t>{sources}, samples, stream);
    case 2:
      return Launch(StridedKernel<Sources, uint16_t>{sources}, samples, stream);
    case 4:
      return Launch(StridedKernel<Sources, uint32_t>{sources}, samples, stream);
    default:
      return Launch(StridedKernel<Sources, uint64_t>{sources}, samples, stream);
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_STRIDED_H_
