// The strided window on CUDA: one thread per 16 bytes of the output if elements are only moved, otherwise one per
// element.
#include "ffi/common/strided.h"
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

template <class V>
struct ComputedWindows : WindowBatch {
  struct Plan {
    int64_t units;  // elements
    WindowArgs args;
  };

  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    s->units = out.size(i);
    return Sample(i, &s->args);
  }
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t i = first; i < end; i += kThreads) Element(s.args, i);
  }

 private:
  JAXDALI_HD static void Element(const WindowArgs& a, int64_t i) {
    int64_t from = a.start, rest = i, channel = 0;
    bool inside = true;
    for (int d = a.ndim - 1; d >= 0; d--) {
      const Quotient q = d > 0 ? Divide(rest, a.extent[d]) : Quotient{0, rest};
      rest = q.quotient;
      inside = inside && q.rest >= a.begin[d] && q.rest < a.end[d];
      from += q.rest * a.stride[d];
      if (d == a.channel) channel = a.Channel(q.rest);
    }
    if (!inside) {
      StoreFill(a.out_type, a.out, i, a.Fill(channel));
    } else if (a.moves()) {
      Copy(a, from, i);
    } else {
      V v = LoadElement<V>(a.in_type, a.in, from);
      if (a.scales > 0)
        v = v * static_cast<V>(WindowArgs::Pick(a.scale, a.scales, channel)) +
            static_cast<V>(WindowArgs::Pick(a.offset, a.scales, channel));
      StoreElement(a.out_type, a.out, i, v);
    }
  }
  JAXDALI_HD static void Copy(const WindowArgs& a, int64_t from, int64_t to) {
    switch (SizeOf(a.in_type)) {
      case 1:
        a.out[to] = a.in[from];
        return;
      case 2:
        reinterpret_cast<uint16_t*>(a.out)[to] = reinterpret_cast<const uint16_t*>(a.in)[from];
        return;
      case 4:
        reinterpret_cast<uint32_t*>(a.out)[to] = reinterpret_cast<const uint32_t*>(a.in)[from];
        return;
      default:
        reinterpret_cast<uint64_t*>(a.out)[to] = reinterpret_cast<const uint64_t*>(a.in)[from];
    }
  }
};

}  // namespace

const char* LaunchWindow(const WindowBatch& b, const Samples& samples, void* stream) {
  if (b.moves() && b.fills == 0) return LaunchStrided(Windows{b}, samples, stream);
  if (FitsFloat(b.in.dtype)) return Launch(ComputedWindows<float>{b}, samples, stream);
  return Launch(ComputedWindows<double>{b}, samples, stream);
}

}  // namespace jaxdali
