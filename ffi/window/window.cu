// The strided window on CUDA, with one thread per 16 bytes of the output.
#include "ffi/common/strided.h"
#include "ffi/common/units.h"
#include "ffi/window/window.h"

namespace jaxdali {
namespace {

struct Windows : WindowBatch {
  JAXDALI_HD Status Find(int i, Strided* from) const {
    WindowArgs a;
    if (Status s = Sample(i, &a); s != kOk) return s;
    from->Clear();
    from->start = a.start;
    for (int d = 0; d < a.ndim; d++) from->Add(a.extent[d], a.stride[d]);
    return kOk;
  }
};

// Windows of bytes without fill, of which those of mirrored RGB images take whole units at a time.
struct ByteWindows : StridedKernel<Windows, uint8_t> {
  using Base = StridedKernel<Windows, uint8_t>;

  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const int row = s.from.ndim - 2, pixel = s.from.ndim - 1;
    const bool mirrored =
        s.from.ndim >= 2 && s.from.stride[row] == -3 && s.from.stride[pixel] == 1 && s.from.extent[pixel].n() == 3;
    if (!mirrored) return Base::Work(s, first, end);
    for (int64_t k = first; k < end; k += kThreads) {
      uint32_t words[kUnitWords];
      if (s.to.IsWhole<uint8_t>(k) && Mirror(s, s.to.First(k), words))
        WriteWords(s.to.out + s.to.First(k), words);
      else
        Base::Work(s, k, k + 1);
    }
  }

 private:
  // Reads the words of a unit, which has bytes of six pixels. Returns false if they are not in one row, or if words of
  // the input would reach outside its buffer.
  JAXDALI_HD bool Mirror(const Plan& s, int64_t i, uint32_t* words) const {
    constexpr int kPixels = 6;
    const auto q = s.from.extent[s.from.ndim - 1].Divide(static_cast<uint64_t>(i));
    int64_t at = s.from.start, left = 0;
    uint64_t rest = q.quotient;
    for (int d = s.from.ndim - 2; d >= 0; d--) {
      const auto r = s.from.extent[d].Divide(rest);
      at += static_cast<int64_t>(r.rest) * s.from.stride[d];
      if (d == s.from.ndim - 2) left = s.from.extent[d].n() - static_cast<int64_t>(r.rest);
      rest = r.quotient;
    }
    if (left < kPixels) return false;
    // The bytes of these pixels in the input's order; the last of the output's is the first. Five words contain them.
    const uint8_t *p = s.in + at - 3 * (kPixels - 1), *begin = static_cast<const uint8_t*>(this->in.data);
    const int over = static_cast<int>(reinterpret_cast<uintptr_t>(p) & 3);
    p -= over;
    if (p < begin || s.end - p < 24) return false;
    uint32_t in[5], low = ReadWord(p);
    JAXDALI_UNROLL
    for (int w = 0; w < 5; w++) {
      const uint32_t high = ReadWord(p + 4 * (w + 1));
      in[w] = Funnel(low, high, 8 * over);
      low = high;
    }
    // Pixel 5 has bytes 15 to 17, pixel 4 has bytes 12 to 14, and so on.
    const uint32_t out[5] = {Permute(in[3], in[4], 0x0543), Permute(in[2], in[3], 0x2165),
                             Permute(in[1], in[2], 0x4327), Permute(in[0], in[1], 0x0543),
                             Permute(in[0], in[0], 0x0021)};
    JAXDALI_UNROLL
    for (int w = 0; w < kUnitWords; w++) words[w] = Funnel(out[w], out[w + 1], 8 * static_cast<int>(q.rest));
    return true;
  }
};

// Elements that are only moved, with fill around them, are of one type V, In and Out: the unsigned integer of their
// size. All others are computed in V, which is float or double.
template <class V, class In, class Out, class Index>
struct ComputedWindows : WindowBatch {
  static constexpr bool kMoves = std::is_integral_v<V>;

  struct Axis {
    Divisor extent;
    int64_t stride;
    int32_t begin;   // the first index inside the input
    uint32_t width;  // the number of indices inside

    JAXDALI_HD int64_t n() const { return extent.n(); }
    JAXDALI_HD bool Contains(int32_t index) const { return static_cast<uint32_t>(index - begin) < width; }
  };
  struct Channel {
    float scale, offset;
    uint64_t fill;  // its first bytes are an element of the output
  };
  struct Plan {
    static constexpr int kChannels = 4;

    int64_t units;
    Units to;
    const uint8_t* in;
    int64_t start;  // element of the input at index 0 of all axes
    int32_t last;   // number of the innermost axis; there are at least two
    int32_t channel;
    Axis axis[8];
    int64_t first_channel, step_channel;
    const float *fill, *scale, *offset;
    int32_t fills, scales;
    Channel channels[kChannels];  // the first ones

    // Adds an axis inside all others. An axis that is contiguous with the one before becomes part of it.
    JAXDALI_HD void Add(int64_t n, int64_t stride, int64_t begin, int64_t end, bool is_channel) {
      const bool whole = begin == 0 && end == n;
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
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    WithKnown<Out>(out.dtype, [&](auto t) {
      using T = decltype(t);
      for (int64_t k = first; k < end; k += kThreads) {
        Place place(*this, s, static_cast<Index>(s.to.First(k)));
        const int where = s.to.template IsWhole<T>(k) ? place.Where(kUnit / static_cast<int>(sizeof(T))) : 0;
        const Channel channel = place.Current();
        if (where > 0)
          s.to.template Write<T>(k, [&] { return place.template Element<T>(channel); });
        else if (where < 0)
          s.to.template Write<T>(k, [v = FillOf<T>(channel)] { return v; });
        else if (s.to.template IsWhole<T>(k) && place.InPixels(kUnit / static_cast<int>(sizeof(T))))
          s.to.template Write<T>(k, [&] { return place.template OfPixel<T>(); });
        else
          s.to.template WriteInLoop<T>(k, [&] { return place.template Next<T>(); });
      }
    });
  }

 private:
  // The channel of an index along the axis of the channels. Without this axis all indices are of the first one.
  JAXDALI_NOINLINE JAXDALI_HD Channel ChannelAt(const Plan& s, int32_t index) const {
    const int64_t channel = s.channel < 0 ? 0 : s.first_channel + index * s.step_channel;
    Channel c{1, 0, 0};
    if (s.scales > 0) {
      c.scale = WindowArgs::Pick(s.scale, s.scales, channel);
      c.offset = WindowArgs::Pick(s.offset, s.scales, channel);
    }
    if (s.fills > 0) StoreFill(out.dtype, &c.fill, 0, WindowArgs::Pick(s.fill, s.fills, channel));
    return c;
  }

  template <class T>
  JAXDALI_HD static T FillOf(const Channel& channel) {
    T v;
    std::memcpy(&v, &channel.fill, sizeof v);
    return v;
  }

  // An element and those behind it. It counts along the two inner axes instead of dividing.
  class Place {
   public:
    JAXDALI_HD Place(const ComputedWindows& windows, const Plan& s, Index i)
        : windows_(windows),
          s_(s),
          row_(s.axis[s.last]),
          step_(static_cast<Index>(row_.stride)),
          i_(i),
          by_last_(s.channel == s.last) {
      Find();
    }
    // Where the next n elements are, if they are in one row and of one channel: 1: inside the input, -1: outside, 0:
    // otherwise.
    JAXDALI_HD int Where(int n) const {
      if (by_last_) return 0;
      const bool first = inside_ && row_.Contains(x_), last = inside_ && row_.Contains(x_ + n - 1);
      if (first || last) return first && last ? 1 : 0;
      if (x_ + n > row_.n()) return 0;
      return !inside_ || row_.begin <= x_ || row_.begin >= x_ + n ? -1 : 0;
    }
    // Whether the next n elements are channels of pixels in one row, inside the input, whose numbers are in the plan.
    JAXDALI_HD bool InPixels(int n) const {
      if (!by_last_ || !inside_ || row_.n() > Plan::kChannels || row_.begin > 0 || row_.width < row_.n()) return false;
      const Axis& outer = s_.axis[s_.last - 1];
      const auto end = row_.extent.Divide(static_cast<uint32_t>(x_ + n - 1)).quotient;
      return outer.Contains(y_ + static_cast<int32_t>(end));
    }
    // The next of these elements.
    template <class T>
    JAXDALI_HD T OfPixel() {
      const T v = ElementAt<T>(at_, s_.channels[x_]);
      at_ += step_;
      if (++x_ == static_cast<int32_t>(row_.extent.n())) {
        x_ = 0;
        at_ += static_cast<Index>(s_.axis[s_.last - 1].stride) - static_cast<Index>(row_.extent.n()) * step_;
      }
      return v;
    }
    // The next element, whether it is inside the input or not.
    template <class T>
    JAXDALI_HD T Next() {
      if (x_ == static_cast<int32_t>(row_.extent.n())) NextRow();
      if (by_last_) channel_ = x_;
      const bool inside = inside_ && row_.Contains(x_);
      x_++;
      i_++;
      at_ += step_;
      return inside ? ElementAt<T>(at_ - step_, Current()) : FillOf<T>(Current());
    }
    // The next element, which is inside the input.
    template <class T>
    JAXDALI_HD T Element(const Channel& channel) {
      at_ += step_;
      return ElementAt<T>(at_ - step_, channel);
    }
    JAXDALI_HD Channel Current() const {
      return channel_ < Plan::kChannels ? s_.channels[channel_] : windows_.ChannelAt(s_, channel_);
    }

   private:
    JAXDALI_HD void Find() {
      const Axis& outer = s_.axis[s_.last - 1];
      auto q = row_.extent.Divide(i_);
      x_ = static_cast<int32_t>(q.rest);
      at_ = static_cast<Index>(s_.start) + q.rest * step_;
      q = outer.extent.Divide(q.quotient);
      y_ = static_cast<int32_t>(q.rest);
      at_ += q.rest * static_cast<Index>(outer.stride);
      outer_inside_ = true;
      channel_ = s_.channel == s_.last - 1 ? y_ : 0;
      for (int d = s_.last - 2; d >= 0; d--) {
        const Axis& axis = s_.axis[d];
        q = axis.extent.Divide(q.quotient);
        at_ += q.rest * static_cast<Index>(axis.stride);
        outer_inside_ = outer_inside_ && axis.Contains(static_cast<int32_t>(q.rest));
        if (d == s_.channel) channel_ = static_cast<int32_t>(q.rest);
      }
      inside_ = outer_inside_ && outer.Contains(y_);
    }
    JAXDALI_HD void NextRow() {
      const Axis& outer = s_.axis[s_.last - 1];
      if (y_ + 1 == static_cast<int32_t>(outer.n())) return Find();
      y_++;
      x_ = 0;
      at_ += static_cast<Index>(outer.stride) - static_cast<Index>(row_.n()) * step_;
      if (s_.channel == s_.last - 1) channel_ = y_;
      inside_ = outer_inside_ && outer.Contains(y_);
    }
    template <class T>
    JAXDALI_HD T ElementAt(Index at, const Channel& channel) const {
      if constexpr (kMoves) {
        return reinterpret_cast<const T*>(s_.in)[at];
      } else {
        V v = LoadAs<V, In>(windows_.in.dtype, s_.in, at);
        if (s_.scales > 0) v = v * static_cast<V>(channel.scale) + static_cast<V>(channel.offset);
        return ConvertTo<T>(v);
      }
    }

    const ComputedWindows& windows_;
    const Plan& s_;
    const Axis row_;  // the innermost axis
    const Index step_;
    Index i_, at_;                // number and offset of the next element; offsets outside the input wrap around
    int32_t channel_;             // index along the axis of the channels
    const bool by_last_;          // fill, scale and offset vary along the innermost axis
    int32_t x_, y_;               // indices of the two inner axes
    bool outer_inside_, inside_;  // the indices of the other axes are inside; those of all axes but the innermost are
  };
};

template <class T>
const char* LaunchMoves(const WindowBatch& b, const Samples& samples, void* stream) {
  if (Counts32(b.in) && Counts32(b.out)) return Launch(ComputedWindows<T, T, T, uint32_t>{b}, samples, stream);
  return Launch(ComputedWindows<T, T, T, uint64_t>{b}, samples, stream);
}

}  // namespace

const char* LaunchWindow(const WindowBatch& b, const Samples& samples, void* stream) {
  if (b.moves() && b.fills == 0) {
    if (SizeOf(b.in.dtype) == 1) return Launch(ByteWindows{{{b}}}, samples, stream);
    return LaunchStrided(Windows{b}, samples, stream);
  }
  if (!b.moves())
    return WithKernelTypes(b.in, b.out, [&](auto v, auto from, auto to, auto index) {
      return Launch(ComputedWindows<decltype(v), decltype(from), decltype(to), decltype(index)>{b}, samples, stream);
    });
  switch (SizeOf(b.in.dtype)) {
    case 1:
      return LaunchMoves<uint8_t>(b, samples, stream);
    case 2:
      return LaunchMoves<uint16_t>(b, samples, stream);
    case 4:
      return LaunchMoves<uint32_t>(b, samples, stream);
    default:
      return LaunchMoves<uint64_t>(b, samples, stream);
  }
}

}  // namespace jaxdali
