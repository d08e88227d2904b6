# libjpeg-turbo and libpng as the targets jaxdali_jpeg and jaxdali_png.
#
# The system's libraries are taken when they are there (Debian: libjpeg62-turbo-dev, libpng-dev). What is missing, or all of
# it with -DJAXDALI_BUNDLED_CODECS=ON, is built from source as static, position-independent libraries: the archive is
# downloaded and checked against its SHA256, or taken from a local file on machines without a network
# (-DJAXDALI_JPEG_TARBALL=..., -DJAXDALI_PNG_TARBALL=..., -DJAXDALI_ZLIB_TARBALL=...; any version's own archive will do).
option(JAXDALI_BUNDLED_CODECS "Build libjpeg-turbo, libpng and zlib from source even if the system has them" OFF)
set(JAXDALI_JPEG_TARBALL "" CACHE FILEPATH "Local source archive of libjpeg-turbo, instead of a download")
set(JAXDALI_PNG_TARBALL "" CACHE FILEPATH "Local source archive of libpng, instead of a download")
set(JAXDALI_ZLIB_TARBALL "" CACHE FILEPATH "Local source archive of zlib, instead of a download")

add_library(jaxdali_jpeg INTERFACE)
add_library(jaxdali_png INTERFACE)

if(NOT JAXDALI_BUNDLED_CODECS)
  find_package(JPEG QUIET)
  find_package(PNG QUIET)
endif()

if(JPEG_FOUND)
  # Decoding straight to other pixel orders, and pixels equal to the CUDA decoder's, need libjpeg-turbo, not IJG's libjpeg.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES "${JPEG_INCLUDE_DIRS}")
  check_cxx_source_compiles("
    #include <cstddef>
    #include <cstdio>
    #include <jpeglib.h>
    #ifndef LIBJPEG_TURBO_VERSION
    #error IJG
    #endif
    int main() { return JCS_EXT_BGR == 0; }" JAXDALI_JPEG_IS_TURBO)
  unset(CMAKE_REQUIRED_INCLUDES)
  if(NOT JAXDALI_JPEG_IS_TURBO)
    message(STATUS "jaxdali: the system's libjpeg is not libjpeg-turbo; building libjpeg-turbo from source")
    set(JPEG_FOUND FALSE)
  endif()
endif()
if(JPEG_FOUND)
  target_link_libraries(jaxdali_jpeg INTERFACE JPEG::JPEG)
endif()
if(PNG_FOUND)
  target_link_libraries(jaxdali_png INTERFACE PNG::PNG)
endif()
