// Fails if a sample failed. It serves programs whose status nobody checks while they run: functions of values inside
// jax.jit. Its results are its operands (the caller declares them as aliases), so nothing reads them before the check
// has run.
#include <string>
#include <string_view>

#include "ffi/common/binding.h"

namespace jaxdali {
namespace {

// The text of a status code (common/status.h).
const char* TextOf(int32_t status) {
  switch (status) {
#define JAXDALI_STATUS_CASE(name, code, text) \
  case code:                                  \
    return text;
    JAXDALI_STATUS_TABLE(JAXDALI_STATUS_CASE)
#undef JAXDALI_STATUS_CASE
    default:
      return "unknown status";
  }
}

// Returns the error of the first failed status. steps: one line for each column of `status`, its name. samples: the
// size of the whole batch, of which a device may have a part. The remaining operands are outputs, aliased to the
// results: they pass through unchanged, so that their readers wait for the check.
ffi::Error Check(I32 status, ffi::RemainingArgs, ffi::RemainingRets, std::string_view steps, int32_t samples) {
  const auto dims = status.dimensions();
  if (dims.size() != 2) return ffi::Error::InvalidArgument("check: status must be [N, steps]");
  const int32_t* code = status.typed_data();
  for (int64_t i = 0; i < dims[0]; i++) {
    for (int64_t k = 0; k < dims[1]; k++, code++) {
      if (*code == kOk) continue;
      // The name of step k is line k of `steps`.
      for (int64_t line = 0; line < k; line++) steps.remove_prefix(std::min(steps.find('\n'), steps.size() - 1) + 1);
      std::string text(steps.substr(0, steps.find('\n')));
      text += ": sample " + std::to_string(i);
      if (dims[0] != samples) text += " of the " + std::to_string(dims[0]) + " on its device";
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, text + ": " + TextOf(*code));
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_check, Check,
                              ffi::Ffi::Bind()
                                  .Arg<I32>()  // status [N, steps]
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("steps")
                                  .Attr<int32_t>("samples"));

}  // namespace jaxdali
