// CPU kernel of spectrograms for CPUs with AVX2; options.cmake says how it is compiled.
#if defined(__x86_64__)
#define JAXDALI_LANE_BYTES 32
#include "ffi/spectrogram/spectrogram_lanes.h"
#endif
