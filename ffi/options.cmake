# Settings that all modules share: options of the compilers, and the licences in wheels.
include("${CMAKE_CURRENT_LIST_DIR}/hardening.cmake")

# Sets the options of files that are compiled for newer CPUs and chosen at run time. Call it in each folder whose targets contain such files,
# because CMake keeps the properties of files by folder.
function(jaxdali_newer_cpus)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/jpeg/kernels_simd.cc" PROPERTIES COMPILE_OPTIONS "-mavx2;-mbmi;-mbmi2")
    set_source_files_properties("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/spectrogram/spectrogram_avx2_cpu.cc" PROPERTIES COMPILE_OPTIONS "-mavx2")
    set_source_files_properties("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/spectrogram/spectrogram_avx512_cpu.cc" PROPERTIES COMPILE_OPTIONS
                                "-mavx512f;-mprefer-vector-width=512")
  endif()
endfunction()

# Sets `result` to C++ sources that include the CUDA sources `ARGN`, paths in the repository, which compile as C++, too.
function(jaxdali_cuda_as_cpp result)
  set(sources)
  foreach(source ${ARGN})
    string(REGEX REPLACE "^ffi/(.*)\\.cu$" "${CMAKE_BINARY_DIR}/emulated/\\1.cc" including "${source}")
    file(CONFIGURE OUTPUT "${including}" CONTENT "#include \"${source}\"\n")
    list(APPEND sources "${including}")
  endforeach()
  set(${result} "${sources}" PARENT_SCOPE)
endfunction()

# Kernels compute exactly what is written, on all kinds of CPUs: a product and a sum are rounded one by one unless they are fused on purpose.
# Nothing uses floating-point exceptions; compilers that preserve them can't vectorize comparisons and conversions.
set(JAXDALI_ARITHMETIC -ffp-contract=off -fno-trapping-math)

# The wheel gets the licences of what a module contains: jaxdali_licenses(LIBRARY FILE ...).
function(jaxdali_licenses library)
  if(SKBUILD)
    install(FILES ${ARGN} DESTINATION "${SKBUILD_METADATA_DIR}/licenses/${library}")
  endif()
endfunction()
