// Extracts the operands of a program from its argument buffer (jaxdali/_program/operands.py). XLA would compile a loop
// for each of them, which takes most of the time until a program's first batch.
#include <cstring>

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

// Copies each result from `words`, the argument buffer. places: where each one begins there, in bytes.
ffi::Error Unpack(I32 words, ffi::RemainingRets results, ffi::Span<const int64_t> places) {
  if (results.size() != places.size()) return ffi::Error::InvalidArgument("unpack: one place for each result");
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.typed_data());
  for (size_t i = 0; i < places.size(); i++) {
    auto result = results.get<ffi::AnyBuffer>(i);
    if (result.has_error()) return result.error();
    const auto size = static_cast<int64_t>((*result)->size_bytes());
    if (places[i] < 0 || places[i] + size > static_cast<int64_t>(words.size_bytes()))
      return ffi::Error::InvalidArgument("unpack: a result is not in the buffer");
    std::memcpy((*result)->untyped_data(), bytes + places[i], static_cast<size_t>(size));
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_unpack, Unpack,
                              ffi::Ffi::Bind().Arg<I32>().RemainingRets().Attr<ffi::Span<const int64_t>>("places"));

}  // namespace jaxdali
