// Shuffling and random numbers (ffi/host/shuffle.h, ffi/host/philox.h) with checks of their arguments.
#include "ffi/host/philox.h"
#include "ffi/host/shuffle.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {

// Defines the functions for shuffling and random numbers.
void DefineRandom(nb::module_& m) {
  m.def(
      "shuffle_epochs",
      [](Vector<int64_t> order, uint64_t seed, int64_t first, int64_t last) {
        if (order.size() >> 32) throw nb::value_error("shuffle_epochs: 2^32 entries or more");
        nb::gil_scoped_release release;
        ShuffleEpochs(order.data(), static_cast<int64_t>(order.size()), seed, first, last);
      },
      nb::arg("order"), nb::arg("seed"), nb::arg("first"), nb::arg("last"),
      "Shuffles a list in place, once for each of the epochs first .. last, as DALI does.");
  m.def(
      "philox",
      [](Vector<const uint32_t> counter, uint64_t key) {
        if (counter.size() != 4) throw nb::value_error("a counter is 4 words");
        const uint32_t* c = counter.data();
        Philox4 r = Philox({c[0], c[1], c[2], c[3]}, key);
        return nb::make_tuple(r[0], r[1], r[2], r[3]);
      },
      "One block of Philox4x32-10.");
  m.def("stream_key", &StreamKey, nb::arg("seed"), nb::arg("stream"));
  m.def(
      "random_fill",
      [](uint64_t key, Distribution distribution, Vector<const int64_t> epoch, Vector<const int64_t> position,
         Vector<const int64_t> sizes, Vector<int64_t> starts, Vector<double> out, int pool_id) {
        size_t n = sizes.size();
        if (epoch.size() != n || position.size() != n || starts.size() != n) throw nb::value_error("lengths differ");
        int64_t end = 0;
        for (size_t i = 0; i < n; i++) {
          if (sizes.data()[i] < 0 || sizes.data()[i] > static_cast<int64_t>(out.size()) - end)
            throw nb::value_error("the buffer is too small");
          starts.data()[i] = end;
          end += sizes.data()[i];
        }
        auto pool = Pool(pool_id);
        nb::gil_scoped_release release;
        Fill(key, distribution, epoch.data(), position.data(), starts.data(), sizes.data(), static_cast<int>(n),
             out.data(), pool.get());
      },
      "Writes the random doubles of one sample after another to a buffer, and where those of each start.");
}

}  // namespace jaxdali
