// Sound in the host pass (ffi/host/signals.h) with checks of the arguments.
#include "ffi/host/signals.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

template <class T>
using Channels = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // [samples, channels]

// Resample (host/signals.h) with checks of sizes. The table says how many lobes the filter has.
void ResampleChecked(Channels<const float> x, double step, Vector<const float> table, Channels<float> out) {
  const auto table_size = static_cast<int64_t>(table.size()), length = static_cast<int64_t>(out.shape(0));
  int lobes = 1;
  while (lobes < ResamplingFilter::kMostLobes && ResamplingFilter::TableSize(lobes) < table_size) lobes++;
  if (ResamplingFilter::TableSize(lobes) != table_size) throw nb::value_error("resample: no table has this size");
  if (x.shape(1) != out.shape(1)) throw nb::value_error("resample: numbers of channels differ");
  if (!(step > 0 && step * static_cast<double>(length) <= 0x1p60))
    throw nb::value_error("resample: step must be above 0, and length * step at most 2^60");
  nb::gil_scoped_release release;
  Resample(x.data(), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1)), step, {lobes, table.data()},
           out.data(), length);
}

// MeanPowers (host/signals.h) with checks of sizes.
void MeanPowersChecked(Vector<double> squares, int64_t window, Vector<float> out) {
  const auto n = static_cast<int64_t>(squares.size());
  if (window < 1 || window > n || static_cast<int64_t>(out.size()) != n - window + 1)
    throw nb::value_error("mean_powers: sizes of the window and of the result");
  nb::gil_scoped_release release;
  MeanPowers(squares.data(), n, window, out.data());
}

}  // namespace

// Defines the functions for sound.
void DefineSound(nb::module_& m) {
  m.def("resample", &ResampleChecked, nb::arg("x"), nb::arg("step"), nb::arg("table"), nb::arg("out").noconvert(),
        "Resamples a signal as DALI does: new samples are `step` old ones apart. `table`: that of the filter.");
  m.def("mean_powers", &MeanPowersChecked, nb::arg("squares").noconvert(), nb::arg("window"),
        nb::arg("out").noconvert(),
        "The mean power of each window of a signal. Cumulative sums replace the squares of its samples.");
}

}  // namespace jaxdali
