# The module `_cuda`: built when nvcc is found, or demanded. And `_emulated`, a module for tests with the same kernels run
# by a loop on the CPU.
set(JAXDALI_CUDA AUTO CACHE STRING "CUDA module: AUTO (built when nvcc works), ON (an error when it does not) or OFF")
set_property(CACHE JAXDALI_CUDA PROPERTY STRINGS AUTO ON OFF)
set(JAXDALI_CUDA_REAL 80 90 CACHE STRING "Architectures to compile CUDA kernels for; PTX of the first serves newer ones")
option(JAXDALI_EMULATED "Build the tests' module that emulates the CUDA kernels on the CPU" OFF)

file(GLOB JAXDALI_CUDA_KERNELS CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}" ffi/*/*.cu)
list(FILTER JAXDALI_CUDA_KERNELS EXCLUDE REGEX "^ffi/common/")
# Beside each kernel its binding, and what is not the CPU kernel's alone.
foreach(kernel ${JAXDALI_CUDA_KERNELS})
  get_filename_component(folder "${kernel}" DIRECTORY)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
  list(FILTER sources EXCLUDE REGEX "_cpu\\.cc$")
  list(APPEND JAXDALI_CUDA_BINDINGS ${sources})
endforeach()

# A module with the handlers that launch kernels; `ARGN`: where the kernels are.
function(jaxdali_kernel_module name)
  nanobind_add_module(${name} NB_STATIC STABLE_ABI ffi/module.cc ${JAXDALI_CUDA_BINDINGS} ${ARGN})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_include_directories(${name} SYSTEM PRIVATE "${XLA_FFI_INCLUDE}")
  target_link_libraries(${name} PRIVATE Threads::Threads)
  target_compile_definitions(${name} PRIVATE JAXDALI_CUDA JAXDALI_MODULE=${name})
  target_compile_options(${name} PRIVATE -Wall -Wextra ${JAXDALI_ARITHMETIC} $<$<BOOL:${JAXDALI_WERROR}>:-Werror>)
  if(JAXDALI_OUTPUT)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${JAXDALI_OUTPUT}")
  endif()
  install(TARGETS ${name} LIBRARY DESTINATION jaxdali)
endfunction()

# The CUDA kernels as C++: the same blocks and threads in a loop on the host, see ffi/common/launch.h.
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
    set(ENV{CUDACXX} "${JAXDALI_NVCC}")  # a compiler given as a variable would be believed unchecked
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # given below: one front-end pass for all of them
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
    message(FATAL_ERROR "CUDA module: ${why}, and JAXDALI_CUDA=ON demands it")
  endif()
  message(NOTICE "-- CUDA module: ${why}, building without")
  return()
endif()

list(TRANSFORM JAXDALI_CUDA_REAL PREPEND "sm_" OUTPUT_VARIABLE code)
list(JOIN code ", " JAXDALI_ARCHITECTURES)
list(GET JAXDALI_CUDA_REAL 0 virtual)
list(APPEND code compute_${virtual})
list(JOIN code "," code)
message(NOTICE "-- CUDA module: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, ${code}; takes some minutes, left out with "
               "-DJAXDALI_CUDA=OFF (pip install: -C cmake.define.JAXDALI_CUDA=OFF)")

set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25, Debian's, knows no C++20 of nvcc 13
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
add_library(jaxdali_cuda OBJECT ${JAXDALI_CUDA_KERNELS} ffi/common/cuda_version.cu)
set_target_properties(jaxdali_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
target_include_directories(jaxdali_cuda PRIVATE "${CMAKE_SOURCE_DIR}")
target_compile_definitions(jaxdali_cuda PRIVATE "JAXDALI_ARCHITECTURES=\"${JAXDALI_ARCHITECTURES}\"")
# Without contraction results equal the CPU's to the bit wherever the order of operations does; sums say fma themselves.
# The host compiler sees the kernels' "#pragma unroll", too, and does not know it.
target_compile_options(jaxdali_cuda PRIVATE -fmad=false --expt-relaxed-constexpr -gencode arch=compute_${virtual},code=[${code}] -Xcompiler=-Wall,-Wno-unknown-pragmas
                                            "$<$<BOOL:${JAXDALI_WERROR}>:-Werror=all-warnings>")
jaxdali_kernel_module(_cuda $<TARGET_OBJECTS:jaxdali_cuda>)
set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
