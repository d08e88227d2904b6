# The modules and the bundled codecs parse untrusted files. With these options a buffer overrun ends the process instead of running code.
#
# Sets JAXDALI_FORTIFY (the level of _FORTIFY_SOURCE) and JAXDALI_HARDENING (options of C and C++ compilers, for optimized builds).
include(CheckCSourceCompiles)

# Level 3 needs a compiler with __builtin_dynamic_object_size and a C library that uses it; otherwise the level is 2.
set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
check_c_source_compiles("
  #include <string.h>
  #if !defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL < 3
  #error level 2 at most
  #endif
  int main(void) { return 0; }" JAXDALI_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
set(JAXDALI_FORTIFY 2)
if(JAXDALI_FORTIFY_3)
  set(JAXDALI_FORTIFY 3)
endif()
set(JAXDALI_HARDENING -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${JAXDALI_FORTIFY})

# _FORTIFY_SOURCE needs an optimized build.
function(jaxdali_harden target)
  target_compile_options(${target} PRIVATE -fstack-protector-strong $<$<CONFIG:Release>:${JAXDALI_HARDENING}>)
  if(NOT APPLE)
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now)
  endif()
endfunction()

# A module exports the function by which Python imports it, and nothing else: other packages in the process have a libjpeg of their own.
function(jaxdali_export_only_init module)
  if(APPLE)
    target_link_options(${module} PRIVATE "-Wl,-exported_symbol,_PyInit_${module}")
  elseif(UNIX)
    set(script "${CMAKE_CURRENT_BINARY_DIR}/${module}.map")
    file(CONFIGURE OUTPUT "${script}" CONTENT "{ global: PyInit_${module}; local: *; };\n")
    target_link_options(${module} PRIVATE "LINKER:--version-script,${script}")
  endif()
endfunction()
