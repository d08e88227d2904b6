// Medians of windows in registers, by networks that compare and exchange: Medians3 and Medians5 for windows of 3 x 3
// and 5 x 5. Neighbouring windows share the sorting of rows and of pairs of rows. Select is for all other windows.
#ifndef JAXDALI_FFI_STENCIL_MEDIAN_H_
#define JAXDALI_FFI_STENCIL_MEDIAN_H_

#include <cmath>
#include <cstdint>

#include "ffi/common/hd.h"

namespace jaxdali::median {

// Two values of 0 to 255, in the halves of a word.
struct Halves {
  uint32_t bits;
};

// The smaller value in each half. The order of numbers without a sign is that of the half-precision floats with the
// same bits, whose minima and maxima GPUs have for both halves at once.
JAXDALI_HD inline Halves Smaller(Halves a, Halves b) {
#if defined(__CUDA_ARCH__)
  Halves c;
  asm("min.f16x2 %0, %1, %2;" : "=r"(c.bits) : "r"(a.bits), "r"(b.bits));
  return c;
#else
  const uint32_t low = (a.bits & 0xFFFF) < (b.bits & 0xFFFF) ? a.bits : b.bits;
  return {((a.bits >> 16 < b.bits >> 16 ? a.bits : b.bits) & 0xFFFF0000) | (low & 0xFFFF)};
#endif
}
// The larger value in each half; see Smaller.
JAXDALI_HD inline Halves Larger(Halves a, Halves b) {
#if defined(__CUDA_ARCH__)
  Halves c;
  asm("max.f16x2 %0, %1, %2;" : "=r"(c.bits) : "r"(a.bits), "r"(b.bits));
  return c;
#else
  const uint32_t low = (a.bits & 0xFFFF) < (b.bits & 0xFFFF) ? b.bits : a.bits;
  return {((a.bits >> 16 < b.bits >> 16 ? b.bits : a.bits) & 0xFFFF0000) | (low & 0xFFFF)};
#endif
}
// The smaller one of two floats.
JAXDALI_HD inline float Smaller(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
// The larger one of two floats.
JAXDALI_HD inline float Larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a < b ? b : a;
#endif
}

// Sorts two values; the network's only step.
template <class V>
JAXDALI_HD inline void Sort(V& a, V& b) {
  const V low = Smaller(a, b);
  b = Larger(a, b);
  a = low;
}
template <class V>
JAXDALI_HD inline V MedianOf(V a, V b, V c) {
  return Larger(Smaller(a, b), Smaller(Larger(a, b), c));
}

// --- 3 x 3 -----------------------------------------------------------------------------------------------------------

// The medians of n windows of 3 x 3 below each other: load(y, x) returns a value, put(y, median) takes a result.
template <class V, int n, class Load, class Put>
JAXDALI_HD inline void Medians3(Load load, Put put) {
  V low[3], middle[3], high[3];  // of the last three rows
  JAXDALI_UNROLL
  for (int y = 0; y < n + 2; y++) {
    V a = load(y, 0), b = load(y, 1), c = load(y, 2);
    Sort(a, b);
    Sort(b, c);
    Sort(a, b);
    low[y % 3] = a;
    middle[y % 3] = b;
    high[y % 3] = c;
    if (y < 2) continue;
    // The median of nine is the median of: the largest of the rows' minima, the median of their medians, the smallest
    // of their maxima.
    put(y - 2, MedianOf(Larger(Larger(low[0], low[1]), low[2]), MedianOf(middle[0], middle[1], middle[2]),
                        Smaller(Smaller(high[0], high[1]), high[2])));
  }
}

// --- 5 x 5 -----------------------------------------------------------------------------------------------------------

// Sorts five values by nine exchanges, the fewest possible.
template <class V>
JAXDALI_HD inline void Sort(V (&v)[5]) {
  Sort(v[0], v[1]);
  Sort(v[3], v[4]);
  Sort(v[2], v[4]);
  Sort(v[2], v[3]);
  Sort(v[1], v[4]);
  Sort(v[0], v[3]);
  Sort(v[0], v[2]);
  Sort(v[1], v[3]);
  Sort(v[1], v[2]);
}

// Batcher's odd-even merge of two sorted rows into one: merges their elements of odd numbers (counted from 1) and those
// of even numbers, then exchanges neighbours. Here of two elements each, below of five.
template <class V>
JAXDALI_HD inline void Merge(V a0, V a1, V b0, V b1, V (&to)[4]) {
  to[0] = a0;
  to[1] = b0;
  to[2] = a1;
  to[3] = b1;
  Sort(to[0], to[1]);
  Sort(to[2], to[3]);
  Sort(to[1], to[2]);
}
// Batcher's odd-even merge of two sorted rows of five elements each.
template <class V>
JAXDALI_HD inline void Merge(const V (&a)[5], const V (&b)[5], V (&to)[10]) {
  // The odd elements are numbers 1, 3 and 5: the outer ones of both rows are merged, then number 3 of each is put in.
  V outer[4], even[4], low = a[2], high = b[2];
  Merge(a[0], a[4], b[0], b[4], outer);
  Merge(a[1], a[3], b[1], b[3], even);
  Sort(low, high);
  Sort(outer[1], low);
  Sort(outer[2], high);
  const V odd[6] = {outer[0], outer[1], low, outer[2], high, outer[3]};
  to[0] = odd[0];
  JAXDALI_UNROLL
  for (int i = 0; i < 4; i++) {
    to[2 * i + 1] = odd[i + 1];
    to[2 * i + 2] = even[i];
    Sort(to[2 * i + 1], to[2 * i + 2]);
  }
  to[9] = odd[5];
}

// Of two sorted rows the six values in the middle, sorted. Of 20 values in a window of 25, only they can be its median.
template <class V>
JAXDALI_HD inline void Middle(const V (&a)[10], const V (&b)[10], V (&to)[6]) {
  // The smaller values of a[i] and b[9 - i] are the ten smallest. The larger values of two of these, five apart, are
  // the five largest among them. The other half is the mirror image.
  V low[5], high[5];  // the larger ones of the smaller half, the smaller ones of the larger half
  JAXDALI_UNROLL
  for (int i = 0; i < 5; i++) {
    low[i] = Larger(Smaller(a[i], b[9 - i]), Smaller(a[i + 5], b[4 - i]));
    high[i] = Smaller(Larger(a[i], b[9 - i]), Larger(a[i + 5], b[4 - i]));
  }
  Sort(low);
  Sort(high);
  JAXDALI_UNROLL
  for (int i = 0; i < 3; i++) {
    to[i] = low[i + 2];
    to[i + 3] = high[i];
  }
}

// The median of six and five sorted values, which is the sixth smallest. Each way to take six values from the fronts of
// the rows has a largest one; the median is the smallest of these.
template <class V>
JAXDALI_HD inline V MedianOf(const V (&a)[6], const V (&b)[5]) {
  V median = a[5];
  JAXDALI_UNROLL
  for (int i = 0; i < 5; i++) median = Smaller(median, Larger(a[4 - i], b[i]));
  return median;
}

template <class V, int n>
JAXDALI_HD inline void Copy(const V (&from)[n], V (&to)[n]) {
  JAXDALI_UNROLL
  for (int i = 0; i < n; i++) to[i] = from[i];
}

// The medians of n windows of 5 x 5 below each other, with load and put as Medians3 has them. Two windows at a time
// share four rows; n is even.
template <class V, int n, class Load, class Put>
JAXDALI_HD inline void Medians5(Load load, Put put) {
  auto load_row = [&](int y, V(&row)[5]) {
    JAXDALI_UNROLL
    for (int x = 0; x < 5; x++) row[x] = load(y, x);
    Sort(row);
  };
  V first[5], third[5], fourth[5], upper[10];  // rows y, y + 2, y + 3, and rows y + 1 and y + 2 merged
  load_row(0, first);
  load_row(1, fourth);
  load_row(2, third);
  Merge(fourth, third, upper);
  load_row(3, fourth);
  JAXDALI_UNROLL
  for (int y = 0; y < n; y += 2) {
    V fifth[5], sixth[5], lower[10], middle[6];
    load_row(y + 4, fifth);
    Merge(fourth, fifth, lower);
    Middle(upper, lower, middle);
    put(y, MedianOf(middle, first));
    load_row(y + 5, sixth);
    put(y + 1, MedianOf(middle, sixth));
    Copy(third, first);
    Copy(fifth, third);
    Copy(sixth, fourth);
    Copy(lower, upper);
  }
}

// --- others ----------------------------------------------------------------------------------------------------------

// The value for which at most `rank` values are smaller, and more than `rank` are smaller or equal. for_each(f) calls
// f(value) for all values, and is called a few times: each time about halves the number of values between low and high.
// `first` is the value that is tried first.
template <class ForEach>
JAXDALI_HD inline float Select(int64_t rank, float first, ForEach for_each) {
  float pivot = first, low = -INFINITY, high = INFINITY;  // the median is between them
  for (;;) {
    int64_t below = 0, same = 0;
    float smaller = pivot, larger = pivot;
    for_each([&](float v) {
      below += v < pivot;
      same += v == pivot;
      if (v < pivot && v > low) smaller = v;
      if (v > pivot && v < high) larger = v;
    });
    if (rank < below) {
      if (!(smaller < pivot)) return low;
      high = pivot;
      pivot = smaller;
    } else if (rank >= below + same) {
      if (!(larger > pivot)) return high;
      low = pivot;
      pivot = larger;
    } else {
      return pivot;
    }
  }
}

}  // namespace jaxdali::median

#endif  // JAXDALI_FFI_STENCIL_MEDIAN_H_
