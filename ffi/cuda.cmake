# The module `_cuda`, which is built if nvcc is found or required, and the tests' module `_emulated`, which runs the same kernels in a loop
# on the CPU.
set(JAXDALI_CUDA AUTO CACHE STRING "CUDA module: AUTO (built when nvcc works), ON (an error when it does not) or OFF")
set_property(CACHE JAXDALI_CUDA PROPERTY STRINGS AUTO ON OFF)
set(JAXDALI_CUDA_REAL "" CACHE STRING "Architectures to compile CUDA kernels for; PTX of the first serves newer ones. Default: 80 90, with CUDA 12.8 or newer 80 90 100 120")
option(JAXDALI_EMULATED "Build the tests' module that emulates the CUDA kernels on the CPU" OFF)

file(GLOB JAXDALI_CUDA_KERNELS CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}" ffi/*/*.cu)
list(FILTER JAXDALI_CUDA_KERNELS EXCLUDE REGEX "^ffi/common/")
# For each kernel: its binding, and all files that are not for the CPU alone.
foreach(kernel ${JAXDALI_CUDA_KERNELS})
  get_filename_component(folder "${kernel}" DIRECTORY)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
  list(FILTER sources EXCLUDE REGEX "_cpu\\.cc$")
  list(APPEND JAXDALI_CUDA_BINDINGS ${sources})
endforeach()

# A module with the handlers that launch kernels. `ARGN` are the files or objects with the kernels.
function(jaxdali_kernel_module name)
  nanobind_add_module(${name} NB_STATIC STABLE_ABI PROTECT_STACK ffi/module.cc ${JAXDALI_CUDA_BINDINGS} ${ARGN})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_include_directories(${name} SYSTEM PRIVATE "${XLA_FFI_INCLUDE}")
  target_link_libraries(${name} PRIVATE Threads::Threads)
  jaxdali_harden(${name})
  jaxdali_export_only_init(${name})
  target_compile_definitions(${name} PRIVATE JAXDALI_CUDA JAXDALI_MODULE=${name})
  target_compile_options(${name} PRIVATE -Wall -Wextra ${JAXDALI_ARITHMETIC} $<$<BOOL:${JAXDALI_WERROR}>:-Werror>)
  if(JAXDALI_OUTPUT)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${JAXDALI_OUTPUT}")
  endif()
  install(TARGETS ${name} LIBRARY DESTINATION jaxdali)
endfunction()

# The CUDA kernels compiled as C++. The same blocks and threads run in a loop on the host, see ffi/common/launch.h.
if(JAXDALI_EMULATED)
  set(emulated)
  foreach(kernel ${JAXDALI_CUDA_KERNELS} ffi/common/cuda_version.cu)
    string(REGEX REPLACE "^ffi/(.*)\\.cu$" "${CMAKE_BINARY_DIR}/emulated/\\1.cc" source "${kernel}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${kernel}\"\n")
    list(APPEND emulated "${source}")
  endforeach()
  jaxdali_kernel_module(_emulated ${emulated})
  target_compile_definitions(_emulated PRIVATE JAXDALI_EMULATED)
endif()

set(why "switched off by JAXDALI_CUDA")
if(JAXDALI_CUDA)
  set(why "nvcc not found")
  find_program(JAXDALI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
  if(JAXDALI_NVCC)
    set(why "${JAXDALI_NVCC} does not work with this C++ compiler")
    set(ENV{CUDACXX} "${JAXDALI_NVCC}")  # check_language does not check a compiler that is given as a CMake variable
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # given below, so that one pass of the front end serves all of them
    include(CheckLanguage)
    set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
    check_language(CUDA)
    unset(CMAKE_MESSAGE_LOG_LEVEL)
    if(CMAKE_CUDA_COMPILER)
      set(why "")
    endif()
  endif()
endif()
if(NOT why)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
    set(why "${JAXDALI_NVCC} is older than CUDA 12")
  endif()
endif()
if(why)
  if(JAXDALI_CUDA STREQUAL ON)
    message(FATAL_ERROR "CUDA module: ${why}, and JAXDALI_CUDA=ON requires it")
  endif()
  message(NOTICE "-- CUDA module: ${why}, building without")
  return()
endif()

if(NOT JAXDALI_CUDA_REAL)
  set(JAXDALI_CUDA_REAL 80 90)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND JAXDALI_CUDA_REAL 100 120)  # a driver older than the compiler can't compile its PTX
  endif()
endif()
list(TRANSFORM JAXDALI_CUDA_REAL PREPEND "sm_" OUTPUT_VARIABLE code)
list(JOIN code ", " JAXDALI_ARCHITECTURES)
list(GET JAXDALI_CUDA_REAL 0 virtual)
list(APPEND code compute_${virtual})
list(JOIN code "," code)
message(NOTICE "-- CUDA module: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, ${code}; takes some minutes, left out with "
               "-DJAXDALI_CUDA=OFF (pip install: -C cmake.define.JAXDALI_CUDA=OFF)")

set(CMAKE_CUDA_STANDARD 17)  # Debian's CMake 3.25 does not support C++20 with nvcc 13
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
add_library(jaxdali_cuda OBJECT ${JAXDALI_CUDA_KERNELS} ffi/common/cuda_version.cu)
set_target_properties(jaxdali_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
target_include_directories(jaxdali_cuda PRIVATE "${CMAKE_SOURCE_DIR}")
target_compile_definitions(jaxdali_cuda PRIVATE "JAXDALI_ARCHITECTURES=\"${JAXDALI_ARCHITECTURES}\"")
# Without contraction, results equal the CPU's to the bit wherever the order of operations is the same. Kernels that want a fused operation
# call it explicitly. The host compiler sees "#pragma unroll" in the kernels, too, and would warn about it. With line numbers, which cost no
# time, compute-sanitizer and profilers name the line of a kernel.
target_compile_options(jaxdali_cuda PRIVATE -fmad=false -lineinfo --expt-relaxed-constexpr -gencode arch=compute_${virtual},code=[${code}] -Xcompiler=-Wall,-Wno-unknown-pragmas
                                            "$<$<BOOL:${JAXDALI_WERROR}>:-Werror=all-warnings>")
jaxdali_kernel_module(_cuda $<TARGET_OBJECTS:jaxdali_cuda>)
set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
