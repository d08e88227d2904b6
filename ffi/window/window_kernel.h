// The CUDA kernel of windows whose elements are computed or have fill around them, with one thread per 16 bytes of the
// output. Several sources compile it, each for some types, because it takes nvcc minutes.
#ifndef JAXDALI_FFI_WINDOW_WINDOW_KERNEL_H_
#define JAXDALI_FFI_WINDOW_WINDOW_KERNEL_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ffi/common/convert.h"
#include "ffi/common/launch.h"
#include "ffi/common/units.h"
#include "ffi/window/window.h"

namespace jaxdali {

// The plan of a window. Axes are merged where possible, as each one costs a division for every unit.
struct WindowPlanner : WindowBatch {
  struct Axis {
    Divisor extent;
    int64_t stride;
    int32_t begin;   // the first index inside the input
    uint32_t width;  // the number of indices inside

    JAXDALI_HD int64_t n() const { return extent.n(); }
    JAXDALI_HD bool Contains(int32_t index) const { return static_cast<uint32_t>(index - begin) < width; }
  };
  // The values that vary along the axis of the channels.
  struct Channel {
    float scale, offset;
    uint64_t fill;  // its first bytes are an element of the output
  };
  struct Plan {
    static constexpr int kChannels = 4;

    int64_t units;  // of 16 bytes of the output
    Units to;       // the output
    const uint8_t* in;
    int64_t start;    // element of the input at index 0 of all axes
    int32_t last;     // number of the innermost axis; there are at least two
    int32_t channel;  // number of the axis of the channels; -1: none
    Axis axis[8];
    int64_t first_channel, step_channel;  // this and the rest: as in WindowArgs
    const float *fill, *scale, *offset;
    int32_t fills, scales;
    Channel channels[kChannels];  // the first ones

    // Adds an axis inside all others. An axis that is contiguous with the one before becomes part of it, if all its
    // indices are inside the input, and neither is the axis of the channels. `n`: its indices, of which begin ... end -
    // 1 are inside; `stride`: elements of the input from one to the next.
    JAXDALI_HD void Add(int64_t n, int64_t stride, int64_t begin, int64_t end, bool is_channel) {
      const bool whole = begin == 0 && end == n;  // all indices are inside the input
      if (!is_channel && n == 1 && whole) return;
      if (last >= 0 && !is_channel && last != channel && whole) {
        const Axis& outer = axis[last];
        if (outer.stride == n * stride && (outer.n() * n) >> 31 == 0) {
          axis[last] = {Divisor(outer.n() * n), stride, outer.begin * static_cast<int32_t>(n),
                        outer.width * static_cast<uint32_t>(n)};
          return;
        }
      }
      axis[++last] = {Divisor(n), stride, static_cast<int32_t>(begin), static_cast<uint32_t>(end - begin)};
      if (is_channel) channel = last;
    }
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    WindowArgs a;
    if (Status status = Sample(i, &a); status != kOk) return status;
    s->units = s->to.Set(a.out, out.size(i), out.dtype);
    s->in = a.in;
    s->start = a.start;
    s->first_channel = a.first_channel;
    s->step_channel = a.step_channel;
    s->fill = a.fill;
    s->scale = a.scale;
    s->offset = a.offset;
    s->fills = a.fills;
    s->scales = a.scales;
    s->last = s->channel = -1;
    for (int d = 0; d < a.ndim; d++)
      s->Add(a.extent[d], a.stride[d], a.begin[d], a.end[d], d == a.channel && (a.fills > 1 || a.scales > 1));
    while (s->last < 1) {  // adds an outer axis
      if (s->last == 0) s->axis[1] = s->axis[0];
      if (s->channel == 0) s->channel = 1;
      s->axis[0] = {Divisor(1), 0, 0, 1};
      s->last++;
    }
    for (int c = 0; c < Plan::kChannels; c++) s->channels[c] = ChannelAt(*s, c);
    return kOk;
  }

 protected:
  // The channel of an index along the axis of the channels. Without this axis all indices are of the first one.
  JAXDALI_NOINLINE JAXDALI_HD Channel ChannelAt(const Plan& s, int32_t index) const {
    const int64_t channel = s.channel < 0 ? 0 : s.first_channel + index * s.step_channel;
    Channel c{.scale = 1, .offset = 0, .fill = 0};
    if (s.scales > 0) {
      c.scale = WindowArgs::Pick(s.scale, s.scales, channel);
      c.offset = WindowArgs::Pick(s.offset, s.scales, channel);
    }
    if (s.fills > 0) StoreFill(out.dtype, &c.fill, /*i=*/0, WindowArgs::Pick(s.fill, s.fills, channel));
    return c;
  }
};

// Elements that are only moved, with fill around them, are of one type V, In and Out: the unsigned integer of their
// size. All others are computed in V, which is float or double.
template <class V, class In, class Out, class Index>
struct ComputedWindows : WindowPlanner {
  using Planner = WindowPlanner;
  static constexpr bool kMoves = std::is_integral_v<V>;

  // The work of a thread: units first, first + kThreads, ... of the output, 16 bytes each.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    WithKnown<Out>(out.dtype, [&](auto t) {
      using T = decltype(t);
      for (int64_t k = first; k < end; k += kThreads) {
        Place place(*this, s, static_cast<Index>(s.to.First(k)));
        // The usual units need no check of each element: all inside the input, all outside, or whole pixels.
        const int side = s.to.template IsWhole<T>(k) ? place.Side(kUnit / static_cast<int>(sizeof(T))) : 0;
        const Channel channel = place.Current();
        if (side > 0)
          s.to.template Write<T>(k, [&] { return place.template Element<T>(channel); });
        else if (side < 0)
          s.to.template Write<T>(k, [v = FillOf<T>(channel)] { return v; });
        else if (s.to.template IsWhole<T>(k) && place.InPixels(kUnit / static_cast<int>(sizeof(T))))
          s.to.template Write<T>(k, [&] { return place.template OfPixel<T>(); });
        else
          s.to.template WriteInLoop<T>(k, [&] { return place.template Next<T>(); });
      }
    });
  }

 private:
  // The fill of a channel as an element of the output.
  template <class T>
  JAXDALI_HD static T FillOf(const Channel& channel) {
    T v;
    std::memcpy(&v, &channel.fill, sizeof v);
    return v;
  }

  // An element of the output and those behind it. It counts along the two inner axes instead of dividing.
  class Place {
   public:
    JAXDALI_HD Place(const ComputedWindows& windows, const Plan& s, Index i)
        : windows_(windows),
          s_(s),
          row_(s.axis[s.last]),
          step_(static_cast<Index>(row_.stride)),
          i_(i),
          varies_by_last_(s.channel == s.last) {
      Find();
    }
    // 1 if the next n elements are inside the input, -1 if all are outside, for elements in one row and of one channel.
    // Otherwise 0.
    JAXDALI_HD int Side(int n) const {
      if (varies_by_last_) return 0;
      const bool first = inside_ && row_.Contains(x_), last = inside_ && row_.Contains(x_ + n - 1);
      if (first || last) return first && last ? 1 : 0;
      if (x_ + n > row_.n()) return 0;
      return !inside_ || row_.begin <= x_ || row_.begin >= x_ + n ? -1 : 0;
    }
    // Whether the next n elements are channels of pixels in one row, inside the input, whose numbers are in the plan.
    JAXDALI_HD bool InPixels(int n) const {
      if (!varies_by_last_ || !inside_ || row_.n() > Plan::kChannels || row_.begin > 0 || row_.width < row_.n())
        return false;
      const Axis& outer = s_.axis[s_.last - 1];
      const auto end = row_.extent.Divide(static_cast<uint32_t>(x_ + n - 1)).quotient;
      return outer.Contains(y_ + static_cast<int32_t>(end));
    }
    // The next element, if InPixels is true for it: it is inside the input, and its channel's values are in the plan.
    template <class T>
    JAXDALI_HD T OfPixel() {
      const T v = ElementAt<T>(offset_, s_.channels[x_]);
      offset_ += step_;
      if (++x_ == static_cast<int32_t>(row_.extent.n())) {
        x_ = 0;
        offset_ += static_cast<Index>(s_.axis[s_.last - 1].stride) - static_cast<Index>(row_.extent.n()) * step_;
      }
      return v;
    }
    // The next element, whether it is inside the input or not.
    template <class T>
    JAXDALI_HD T Next() {
      if (x_ == static_cast<int32_t>(row_.extent.n())) NextRow();
      if (varies_by_last_) channel_ = x_;
      const bool inside = inside_ && row_.Contains(x_);
      x_++;
      i_++;
      offset_ += step_;
      return inside ? ElementAt<T>(offset_ - step_, Current()) : FillOf<T>(Current());
    }
    // The next element, which is inside the input.
    template <class T>
    JAXDALI_HD T Element(const Channel& channel) {
      offset_ += step_;
      return ElementAt<T>(offset_ - step_, channel);
    }
    JAXDALI_HD Channel Current() const {
      return channel_ < Plan::kChannels ? s_.channels[channel_] : windows_.ChannelAt(s_, channel_);
    }

   private:
    // Finds the indices of element i_ by division.
    JAXDALI_HD void Find() {
      const Axis& outer = s_.axis[s_.last - 1];
      auto q = row_.extent.Divide(i_);
      x_ = static_cast<int32_t>(q.rest);
      offset_ = static_cast<Index>(s_.start) + q.rest * step_;
      q = outer.extent.Divide(q.quotient);
      y_ = static_cast<int32_t>(q.rest);
      offset_ += q.rest * static_cast<Index>(outer.stride);
      outer_inside_ = true;
      channel_ = s_.channel == s_.last - 1 ? y_ : 0;
      for (int d = s_.last - 2; d >= 0; d--) {
        const Axis& axis = s_.axis[d];
        q = axis.extent.Divide(q.quotient);
        offset_ += q.rest * static_cast<Index>(axis.stride);
        outer_inside_ = outer_inside_ && axis.Contains(static_cast<int32_t>(q.rest));
        if (d == s_.channel) channel_ = static_cast<int32_t>(q.rest);
      }
      inside_ = outer_inside_ && outer.Contains(y_);
    }
    // Goes to the next index of the second axis from the inside. At its end, divides anew.
    JAXDALI_HD void NextRow() {
      const Axis& outer = s_.axis[s_.last - 1];
      if (y_ + 1 == static_cast<int32_t>(outer.n())) return Find();
      y_++;
      x_ = 0;
      offset_ += static_cast<Index>(outer.stride) - static_cast<Index>(row_.n()) * step_;
      if (s_.channel == s_.last - 1) channel_ = y_;
      inside_ = outer_inside_ && outer.Contains(y_);
    }
    // The element of the output that is made from the input's element at `offset`.
    template <class T>
    JAXDALI_HD T ElementAt(Index offset, const Channel& channel) const {
      if constexpr (kMoves) {
        return reinterpret_cast<const T*>(s_.in)[offset];
      } else {
        V v = LoadAs<V, In>(windows_.in.dtype, s_.in, offset);
        if (s_.scales > 0) v = v * static_cast<V>(channel.scale) + static_cast<V>(channel.offset);
        return ConvertTo<T>(v);
      }
    }

    const ComputedWindows& windows_;
    const Plan& s_;
    const Axis row_;  // the innermost axis
    const Index step_;
    Index i_, offset_;            // number and offset of the next element; offsets outside the input wrap around
    int32_t channel_;             // index along the axis of the channels
    const bool varies_by_last_;   // fill, scale and offset vary along the innermost axis
    int32_t x_, y_;               // indices of the two inner axes
    bool outer_inside_, inside_;  // the indices of the other axes are inside; those of all axes but the innermost are
  };
};

template <class V, class In, class Out, class Index>
const char* LaunchComputedWindows(const WindowBatch& b, const Samples& samples, void* stream) {
  return Launch(ComputedWindows<V, In, Out, Index>{{b}}, samples, stream);
}

// Compiled by window.cu, and by the source with the name of V and Index.
extern template const char* LaunchPlans(const SamplePlanner<WindowPlanner>&, const WorkSplit&, void*);
extern template const char* LaunchComputedWindows<float, AnyType, AnyType, uint32_t>(const WindowBatch&, const Samples&,
                                                                                     void*);
extern template const char* LaunchComputedWindows<float, AnyType, AnyType, uint64_t>(const WindowBatch&, const Samples&,
                                                                                     void*);
extern template const char* LaunchComputedWindows<double, AnyType, AnyType, uint32_t>(const WindowBatch&,
                                                                                      const Samples&, void*);
extern template const char* LaunchComputedWindows<double, AnyType, AnyType, uint64_t>(const WindowBatch&,
                                                                                      const Samples&, void*);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_WINDOW_WINDOW_KERNEL_H_
