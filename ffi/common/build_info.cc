// Reads the versions of compiler and codecs from their macros, when this file is compiled.
#include "ffi/common/build_info.h"

#include <jpeglib.h>
#if defined(JAXDALI_LIBPNG)
#include <png.h>
#endif
#if defined(JAXDALI_LIBDEFLATE)
#include <libdeflate.h>
#endif
#if defined(JAXDALI_WEBP)
#include <webp/decode.h>
#endif

#include <cstddef>
#include <cstdio>
#include <string>

#include "ffi/common/cpu.h"
#include "ffi/common/simd.h"
#include "xla/ffi/api/c_api.h"

namespace jaxdali {

// Two steps, so that a macro as the argument is replaced by its value first.
#define JAXDALI_TEXT_OF(x) #x
#define JAXDALI_TEXT(x) JAXDALI_TEXT_OF(x)

// How this module was built, by name. A codec that was left out is "".
std::map<std::string, std::string> BuildInfo() {
  std::map<std::string, std::string> info;
#if defined(__clang__)
  info["compiler"] = "Clang " __clang_version__;
#elif defined(__GNUC__)
  info["compiler"] = "GCC " __VERSION__;
#else
  info["compiler"] = "unknown compiler";
#endif
  info["cuda_left_out"] = JAXDALI_CUDA_LEFT_OUT;
  info["ffi_api"] = JAXDALI_TEXT(XLA_FFI_API_MAJOR) "." JAXDALI_TEXT(XLA_FFI_API_MINOR);
  info["jpeg"] = "libjpeg-turbo " JAXDALI_TEXT(LIBJPEG_TURBO_VERSION);
#if !defined(JAXDALI_LIBPNG)
  info["png"] = "";
#elif defined(JAXDALI_LIBDEFLATE)
  info["png"] = "libpng " PNG_LIBPNG_VER_STRING ", libdeflate " LIBDEFLATE_VERSION_STRING;
#else
  info["png"] = "libpng " PNG_LIBPNG_VER_STRING;
#endif
#if defined(JAXDALI_WEBP)
  // The version of the library that runs, in three bytes.
  const int version = WebPGetDecoderVersion();
  info["webp"] = "libwebp " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) + "." +
                 std::to_string(version & 255);
#else
  info["webp"] = "";
#endif
#if defined(__x86_64__)
  info["simd"] = !kHasSimd                      ? "SSE2"
                 : ThisCpu().avx512_for_bytes() ? "AVX-512"
                 : kHasAvx512                   ? "AVX2; AVX-512 in a few kernels"
                                                : "AVX2";
#elif defined(__aarch64__)
  info["simd"] = "NEON";
#else
  info["simd"] = "none";
#endif
  return info;
}

}  // namespace jaxdali
