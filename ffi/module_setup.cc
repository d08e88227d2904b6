// The set-up of operators for a batch: sizes of a resize, windows, and packing of operands (ffi/host/resize_plan.h,
// ffi/host/windows.h).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/host/resize_plan.h"
#include "ffi/host/windows.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OptionalMatrix = std::optional<Matrix<const double> >;
using Field = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// PlanResize (host/resize_plan.h) with checks of shapes.
bool Plan(Matrix<const double> extents, Matrix<const double> request, OptionalMatrix first, OptionalMatrix last,
          bool relative, ResizeMode mode, OptionalMatrix max_size, bool subpixel_scale, ExtentRounding rounding,
          OptionalMatrix alignment, int64_t most, Matrix<int64_t> sizes,
          nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu> intervals) {
  const size_t n = extents.shape(0), axes = extents.shape(1);
  const auto data = [&](const OptionalMatrix& x) -> const double* {  // of an operand [n, axes]; null: it is absent
    if (!x.has_value()) return nullptr;
    if (x->shape(0) != n || x->shape(1) != axes) throw nb::value_error("plan_resize: shapes of the operands differ");
    return x->data();
  };
  if (first.has_value() != last.has_value() || sizes.shape(0) != n || sizes.shape(1) != axes ||
      intervals.shape(0) != n || intervals.shape(1) != axes || intervals.shape(2) != 2)
    throw nb::value_error("plan_resize: shapes of the operands differ");
  const ResizeRequest r{static_cast<int64_t>(n),
                        static_cast<int64_t>(axes),
                        extents.data(),
                        data(request),
                        data(first),
                        data(last),
                        relative,
                        mode,
                        data(max_size),
                        subpixel_scale,
                        rounding,
                        data(alignment)};
  return PlanResize(r, most, sizes.data(), intervals.data());
}

// BoundWindows (host/windows.h) with checks of shapes.
std::vector<int> Bound(Matrix<const int64_t> shapes, bool trim, Matrix<int64_t> start, Matrix<int64_t> extent) {
  for (const auto& x : {start, extent})
    if (x.shape(0) != shapes.shape(0) || x.shape(1) != shapes.shape(1))
      throw nb::value_error("bound_windows: shapes of the operands differ");
  return BoundWindows(shapes.data(), static_cast<int64_t>(shapes.shape(0)), static_cast<int64_t>(shapes.shape(1)), trim,
                      start.data(), extent.data());
}

// MirrorWindows (host/windows.h) with checks of shapes. `which`: the samples whose windows are mirrored along `axis`.
void Mirror(Matrix<int64_t> start, Matrix<int64_t> step, Matrix<const int64_t> extent, int64_t axis,
            Vector<const bool> which) {
  const auto n = static_cast<int64_t>(start.shape(0)), ndim = static_cast<int64_t>(start.shape(1));
  for (const auto& x : {Matrix<const int64_t>(step), extent})
    if (x.shape(0) != start.shape(0) || x.shape(1) != start.shape(1))
      throw nb::value_error("mirror_windows: shapes of the operands differ");
  if (which.shape(0) != start.shape(0) || axis < 0 || axis >= ndim)
    throw nb::value_error("mirror_windows: shapes of the operands differ");
  MirrorWindows(n, ndim, axis, which.data(), extent.data(), start.data(), step.data());
}

// Copies the rows of arrays [S, ...] to their places in the rows of a buffer. `places`: where each begins, in bytes.
void PackRows(const std::vector<Field>& arrays, const std::vector<int64_t>& places, Matrix<int32_t> out) {
  const size_t rows = out.shape(0), row_bytes = out.shape(1) * sizeof(int32_t);
  if (arrays.size() != places.size()) throw nb::value_error("pack_rows: lengths differ");
  for (size_t i = 0; i < arrays.size(); i++) {
    const Field& x = arrays[i];
    if (x.ndim() == 0 || x.shape(0) != rows) throw nb::value_error("pack_rows: numbers of rows differ");
    const size_t bytes = x.nbytes() / (rows == 0 ? 1 : rows);
    if (places[i] < 0 || static_cast<size_t>(places[i]) + bytes > row_bytes)
      throw nb::value_error("pack_rows: a place lies outside the buffer");
    for (size_t s = 0; s < rows && bytes > 0; s++)
      std::memcpy(reinterpret_cast<uint8_t*>(out.data()) + s * row_bytes + places[i],
                  static_cast<const uint8_t*>(x.data()) + s * bytes, bytes);
  }
}

// Whether any byte of an object's buffer (PEP 3118) is not 0. A jax.Array waits, without the interpreter's lock, until
// its values are computed. The argument is called `lender`, as in Python, because it lends its memory for the time of
// the call.
bool AnySet(const nb::object& lender) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(lender.ptr(), &buffer, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
  const auto* bytes = static_cast<const uint8_t*>(buffer.buf);
  const bool any_set = std::any_of(bytes, bytes + buffer.len, [](uint8_t byte) { return byte != 0; });
  PyBuffer_Release(&buffer);
  return any_set;
}

// The number of elements that the fullest row of packed samples uses, from its beginning to the end of its last sample.
int64_t PackedEnd(Vector<const int32_t> offsets, Matrix<const int64_t> shapes) {
  if (shapes.shape(0) != offsets.size()) throw nb::value_error("packed_end: lengths differ");
  int64_t end = 0;
  for (size_t i = 0; i < offsets.size(); i++) {
    int64_t size = 1;
    for (size_t axis = 0; axis < shapes.shape(1); axis++) size *= shapes(i, axis);
    end = std::max(end, offsets(i) * kAlignment + size);
  }
  return end;
}

}  // namespace

// Defines the functions for the set-up of operators.
void DefineSetup(nb::module_& m) {
  nb::enum_<ResizeMode>(m, "ResizeMode", nb::is_arithmetic(), "What becomes of axes without a size.")
      .value("DEFAULT", ResizeMode::kDefault)
      .value("STRETCH", ResizeMode::kStretch)
      .value("NOT_LARGER", ResizeMode::kNotLarger)
      .value("NOT_SMALLER", ResizeMode::kNotSmaller);
  nb::enum_<ExtentRounding>(m, "ExtentRounding", nb::is_arithmetic(), "How an extent becomes a whole number.")
      .value("ROUND", ExtentRounding::kRound, "halves up")
      .value("EVEN", ExtentRounding::kEven, "halves to even")
      .value("TRUNCATE", ExtentRounding::kTruncate, "towards 0")
      .value("CEIL", ExtentRounding::kCeil, "up")
      .value("PYTHON", ExtentRounding::kPython, "halves to even; of one scale for all axes, in double precision")
      .value("TORCHVISION", ExtentRounding::kTorchvision,
             "halves to even; of one scale for all axes, as torchvision does")
      .value("TIMM", ExtentRounding::kTimm, "halves to even; of one scale for all axes, as timm does");
  m.def("plan_resize", &Plan, nb::arg("extents"), nb::arg("request"), nb::arg("first").none(), nb::arg("last").none(),
        nb::arg("relative"), nb::arg("mode"), nb::arg("max_size").none(), nb::arg("subpixel_scale"),
        nb::arg("rounding"), nb::arg("alignment").none(), nb::arg("most"), nb::arg("sizes").noconvert(),
        nb::arg("intervals").noconvert(),
        "Writes the extents and source intervals of a resize. Returns whether all numbers are finite and no extent is "
        "larger than `most`.");
  m.def("bound_windows", &Bound, nb::arg("shapes"), nb::arg("trim"), nb::arg("start").noconvert(),
        nb::arg("extent").noconvert(), "Finds the windows that reach outside their samples: cuts or returns them.");
  m.def("mirror_windows", &Mirror, nb::arg("start").noconvert(), nb::arg("step").noconvert(), nb::arg("extent"),
        nb::arg("axis"), nb::arg("which"), "Mirrors an axis of the windows of some samples.");
  m.def("pack_rows", &PackRows, nb::arg("arrays"), nb::arg("places"), nb::arg("out").noconvert(),
        "Copies the rows of arrays [S, ...] to their places, in bytes, in the rows of a buffer.");
  m.def("any_set", &AnySet, nb::arg("lender"),
        "Whether a byte of an object's buffer is not 0. Waits for a jax.Array; BufferError if it is not one on one CPU "
        "device.");
  m.def("packed_end", &PackedEnd, nb::arg("offsets"), nb::arg("shapes"),
        "Returns the end of what the fullest row of packed samples uses, in elements.");
}

}  // namespace jaxdali
