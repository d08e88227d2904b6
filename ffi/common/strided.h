// Copies in which each element of a packed output has a place in the input that a count and a stride for each axis give
// (broadcasting, windows). A kernel provides `Sources`: its operands, and Find(i, Strided*); LaunchStrided does the
// rest.
#ifndef JAXDALI_FFI_COMMON_STRIDED_H_
#define JAXDALI_FFI_COMMON_STRIDED_H_

#include "ffi/common/launch.h"
#include "ffi/common/units.h"

namespace jaxdali {

// The elements of the input, in the order of the output. Axes are outermost first.
struct Strided {
  int ndim;
  int64_t size;       // elements
  int64_t start;      // of element 0
  Divisor extent[8];  // elements along each axis
  int64_t stride[8];  // elements of the input from one to the next

  JAXDALI_HD void Clear() {
    ndim = 0;
    size = 1;
    start = 0;
  }
  // Adds an axis inside all others. Axes that are contiguous in memory become one, which saves divisions.
  JAXDALI_HD void Add(int64_t n, int64_t distance) {
    size *= n;
    if (n == 1) return;
    const int d = ndim > 0 && stride[ndim - 1] == n * distance ? ndim - 1 : ndim;
    extent[d] = Divisor(d < ndim ? extent[d].n() * n : n);
    stride[d] = distance;
    ndim = d + 1;
  }
};

// The offsets of elements i, i + 1, ... It counts along the two inner axes instead of dividing.
class Walk {
 public:
  JAXDALI_HD Walk(const Strided& from, int64_t i)
      : from_(from), i_(i), step_(from.ndim > 0 ? from.stride[from.ndim - 1] : 0) {
    Find();
  }
  JAXDALI_HD int64_t offset() const { return offset_; }
  // The number of elements from this one on that are `step` apart, at least if it is small.
  JAXDALI_HD int32_t left() const { return left_[0]; }
  JAXDALI_HD int64_t step() const { return step_; }
  JAXDALI_HD void Next() {
    i_++;
    offset_ += step_;
    if (--left_[0] == 0) NextRow();
  }

 private:
  static constexpr int64_t kMost = 1 << 30;

  // Goes to the beginning of the next row, along the second innermost axis.
  JAXDALI_HD void NextRow() {
    if (--left_[1] == 0) return Find();
    const int64_t n = from_.extent[from_.ndim - 1].n();
    left_[0] = Left(n);
    offset_ += from_.stride[from_.ndim - 2] - n * step_;
  }
  // Finds the offset of element i_ by division, and how many elements and rows are left along the two inner axes.
  JAXDALI_HD void Find() {
    offset_ = from_.start;
    left_[0] = left_[1] = 1;
    uint64_t i = static_cast<uint64_t>(i_);
    for (int d = from_.ndim - 1; d >= 0; d--) {
      const auto q = from_.extent[d].Divide(i);
      const int64_t index = static_cast<int64_t>(q.rest);
      offset_ += index * from_.stride[d];
      if (d == from_.ndim - 1) left_[0] = Left(from_.extent[d].n() - index);
      if (d == from_.ndim - 2) left_[1] = Left(from_.extent[d].n() - index);
      i = q.quotient;
    }
  }
  JAXDALI_HD static int32_t Left(int64_t n) { return static_cast<int32_t>(n < kMost ? n : kMost); }

  const Strided& from_;
  int64_t i_, offset_;  // number of the element in the output, and its place in the input
  const int64_t step_;  // stride of the innermost axis
  int32_t left_[2];     // elements of this row and rows from here on, kMost at most
};

// The plans of copies. Sources has `in`, `out` and Find(i, Strided*).
template <class Sources>
struct StridedPlanner : Sources {
  struct Plan {
    int64_t units;       // of 16 bytes of the output
    Units to;            // the output
    Strided from;        // where its elements are in the input
    const uint8_t* in;   // the sample's first element
    const uint8_t* end;  // end of the buffer that contains `in`
  };

  // Fills in the plan of sample i: what the threads that work on it need. The status is that of the kernel's Find.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->in = this->in.bytes(i);
    // `end`: a unit is read by whole words, which may reach into the next samples but not beyond the buffer.
    s->end = static_cast<const uint8_t*>(this->in.data) + this->in.capacity * SizeOf(this->in.dtype);
    if (const Status status = this->Find(i, &s->from); status != kOk) return status;
    s->units = s->to.Set(this->out.bytes(i), s->from.size, this->out.dtype);
    return kOk;
  }
};

// A kernel that copies elements of type T. Each thread copies 16 bytes of the output at a time.
template <class Sources, class T>
struct StridedKernel : StridedPlanner<Sources> {
  using Planner = StridedPlanner<Sources>;
  using typename Planner::Plan;
  static constexpr int kEach = kUnit / sizeof(T);

  // The work of a thread: units first, first + kThreads, ... of the output, 16 bytes each. It copies by words where the
  // unit's elements are contiguous in the input, otherwise element by element.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t k = first; k < end; k += kThreads) {
      const int64_t i = s.to.First(k);
      Walk walk(s.from, i);
      uint32_t words[kUnitWords];
      if (s.to.template IsWhole<T>(k) && ReadRuns(s, i, walk, words))
        WriteWords(s.to.out + i * static_cast<int64_t>(sizeof(T)), words);
      else
        s.to.template Write<T>(k, [&] {
          const T v = At(s, walk.offset())[0];
          walk.Next();
          return v;
        });
    }
  }

 private:
  // Reads the words of a unit whose elements are contiguous in the input, in one run or two. Most units are. Returns
  // false if they are not, or if words of the input would reach outside its buffer.
  JAXDALI_HD bool ReadRuns(const Plan& s, int64_t i, const Walk& walk, uint32_t* words) const {
    if (walk.step() != 1 || s.from.extent[s.from.ndim - 1].n() < kEach) return false;
    if (!Read(s, walk.offset(), /*first=*/0, words)) return false;
    if (walk.left() >= kEach) return true;
    const int left = walk.left() * static_cast<int>(sizeof(T));  // bytes of the first run
    uint32_t next[kUnitWords];
    if (!Read(s, Walk(s.from, i + walk.left()).offset(), left, next)) return false;
    JAXDALI_UNROLL
    for (int w = 0; w < kUnitWords; w++) {
      const int first_bytes = left - 4 * w;  // bytes of the word from the first run
      const uint32_t mask = first_bytes >= 4 ? ~0u : first_bytes <= 0 ? 0u : (1u << (8 * first_bytes)) - 1;
      words[w] = (words[w] & mask) | (next[w] & ~mask);
    }
    return true;
  }

  JAXDALI_HD static const T* At(const Plan& s, int64_t i) { return reinterpret_cast<const T*>(s.in) + i; }
  // Reads the words whose byte number `first` begins element i of the input.
  JAXDALI_HD bool Read(const Plan& s, int64_t i, int first, uint32_t* words) const {
    return ReadUnit(reinterpret_cast<const uint8_t*>(At(s, i)) - first, static_cast<const uint8_t*>(this->in.data),
                    s.end, words);
  }
};

// Launches a copy. Only the size of the elements matters, not their type. Returns null or an error message.
template <class Sources>
const char* LaunchStrided(const Sources& sources, const Samples& samples, void* stream) {
  switch (SizeOf(sources.in.dtype)) {
    case 1:
      return Launch(StridedKernel<Sources, uint8_t>{{sources}}, samples, stream);
    case 2:
      return Launch(StridedKernel<Sources, uint16_t>{{sources}}, samples, stream);
    case 4:
      return Launch(StridedKernel<Sources, uint32_t>{{sources}}, samples, stream);
    default:
      return Launch(StridedKernel<Sources, uint64_t>{{sources}}, samples, stream);
  }
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_STRIDED_H_
