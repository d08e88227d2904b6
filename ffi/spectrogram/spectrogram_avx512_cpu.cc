// CPU kernel of spectrograms for CPUs with AVX-512; options.cmake says how it is compiled.
#if defined(__x86_64__)
#define JAXDALI_LANE_BYTES 64
#include "ffi/spectrogram/spectrogram_lanes.h"
#endif
