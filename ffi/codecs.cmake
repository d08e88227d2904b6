# libjpeg-turbo as the target jaxdali_jpeg; libpng and libdeflate as jaxdali_png; libwebp as jaxdali_webp.
#
# The build uses the libraries of the system if they are installed (Debian: libjpeg62-turbo-dev, libpng-dev, libdeflate-dev,
# libwebp-dev). It builds missing
# ones from source as static, position-independent libraries; with -DJAXDALI_BUNDLED_CODECS=ON it builds all of them. It downloads the archives,
# from the projects' own sites or from Debian, and checks their SHA256. On machines without a network it takes local archives (-DJAXDALI_JPEG_TARBALL=..., -DJAXDALI_PNG_TARBALL=...,
# -DJAXDALI_ZLIB_TARBALL=..., -DJAXDALI_DEFLATE_TARBALL=..., -DJAXDALI_WEBP_TARBALL=...) of any version, of libdeflate from 1.15 on. If libdeflate
# can't be had in either way, libpng decodes all PNG files, in twice the time; if libwebp can't, Pillow decodes WebP.
#
# A module that contains these libraries must come with their licences, which the build puts into the wheel: libjpeg-turbo (IJG, BSD 3-Clause),
# libpng (PNG Reference Library License), zlib (Zlib), libdeflate (MIT), libwebp (BSD 3-Clause).

# They are compiled with the options of hardening.cmake, like the modules.
include("${CMAKE_CURRENT_LIST_DIR}/options.cmake")

option(JAXDALI_BUNDLED_CODECS "Build libjpeg-turbo, libpng, zlib, libdeflate and libwebp from source even if the system has them" OFF)
set(JAXDALI_JPEG_TARBALL "" CACHE FILEPATH "Local source archive of libjpeg-turbo, instead of a download")
set(JAXDALI_PNG_TARBALL "" CACHE FILEPATH "Local source archive of libpng, instead of a download")
set(JAXDALI_ZLIB_TARBALL "" CACHE FILEPATH "Local source archive of zlib, instead of a download")
set(JAXDALI_DEFLATE_TARBALL "" CACHE FILEPATH "Local source archive of libdeflate, instead of a download")
set(JAXDALI_WEBP_TARBALL "" CACHE FILEPATH "Local source archive of libwebp, instead of a download")

set(debian http://deb.debian.org/debian/pool/main)  # source archives as upstream made them, less what Debian may not distribute

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

# The source archive of a library: jaxdali_archive(VARIABLE LOCAL [URL SHA256] ...). VARIABLE is set to the local archive if that is given, otherwise
# to a download of the first URL that can be reached and has the checksum, or to "".
function(jaxdali_archive variable local)
  set(archive "")
  if(local)
    get_filename_component(archive "${local}" ABSOLUTE)
  endif()
  while(NOT archive AND ARGN)
    list(POP_FRONT ARGN url sha256)
    get_filename_component(name "${url}" NAME)
    set(archive "${CMAKE_BINARY_DIR}/codecs/archives/${name}")
    set(found "")
    if(EXISTS "${archive}")
      file(SHA256 "${archive}" found)
    endif()
    if(NOT found STREQUAL sha256)
      file(DOWNLOAD "${url}" "${archive}" TIMEOUT 120 TLS_VERIFY ON)
      file(SHA256 "${archive}" found)
    endif()
    if(NOT found STREQUAL sha256)
      file(REMOVE "${archive}")
      set(archive "")
    endif()
  endwhile()
  if(archive)
    message(STATUS "jaxdali: building from ${archive}")
  endif()
  set(${variable} "${archive}" PARENT_SCOPE)
endfunction()

# One static library of an archive with a CMake build: jaxdali_codec(NAME ARCHIVE LIBRARY LICENSES [arguments ...]). Sets NAME_INCLUDE and
# NAME_LIBRARY; the target NAME_external builds it. A wheel gets the files LICENSES of the archive.
function(jaxdali_codec name archive library licenses)
  include(ExternalProject)
  if(NOT archive)
    message(FATAL_ERROR "none of the source archives of ${name} can be downloaded. Install the library, or name a local archive (ffi/codecs.cmake).")
  endif()
  set(prefix "${CMAKE_BINARY_DIR}/codecs/${name}")
  list(JOIN JAXDALI_HARDENING " " hardening)
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.24)
    set(timestamps DOWNLOAD_EXTRACT_TIMESTAMP FALSE)
  endif()
  set(toolchain -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER})
  if(CMAKE_TOOLCHAIN_FILE)
    set(toolchain -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
  endif()
  file(MAKE_DIRECTORY "${prefix}/include")  # an interface include directory must exist at configure time
  set(result "${prefix}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}${library}${CMAKE_STATIC_LIBRARY_SUFFIX}")
  ExternalProject_Add(${name}_external
    URL "${archive}"
    ${timestamps}
    PREFIX "${prefix}/build"
    INSTALL_DIR "${prefix}"
    CMAKE_ARGS
      -DCMAKE_INSTALL_PREFIX=${prefix}
      -DCMAKE_INSTALL_LIBDIR:PATH=${prefix}/lib  # absolute: libjpeg-turbo takes a relative one from its build folder
      -DCMAKE_BUILD_TYPE=Release
      ${toolchain}
      "-DCMAKE_C_FLAGS=${CMAKE_C_FLAGS} ${hardening}"
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON
      -DCMAKE_POLICY_VERSION_MINIMUM=3.5
      ${ARGN}
    BUILD_BYPRODUCTS "${result}")
  list(TRANSFORM licenses PREPEND "${prefix}/build/src/${name}_external/")
  jaxdali_licenses(${name} ${licenses})
  set(${name}_INCLUDE "${prefix}/include" PARENT_SCOPE)
  set(${name}_LIBRARY "${result}" PARENT_SCOPE)
endfunction()

if(JPEG_FOUND)
  target_link_libraries(jaxdali_jpeg INTERFACE JPEG::JPEG)
else()
  set(jpeg_arguments -DENABLE_SHARED=OFF -DENABLE_STATIC=ON -DWITH_TURBOJPEG=OFF -DWITH_JPEG8=ON)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i[3-6]86)$")
    find_program(JAXDALI_NASM NAMES nasm yasm)
    if(JAXDALI_NASM)
      list(APPEND jpeg_arguments -DCMAKE_ASM_NASM_COMPILER=${JAXDALI_NASM} -DREQUIRE_SIMD=ON)
    else()
      message(WARNING
        "libjpeg-turbo is built WITHOUT SIMD because nasm was not found: decoding JPEG will take about three times as long. "
        "Install nasm or libjpeg-turbo itself (apt install libjpeg62-turbo-dev) and configure "
        "again in an empty build folder.")
      list(APPEND jpeg_arguments -DWITH_SIMD=OFF)
    endif()
  endif()
  jaxdali_archive(archive "${JAXDALI_JPEG_TARBALL}"
    https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/3.1.0/libjpeg-turbo-3.1.0.tar.gz
    9564c72b1dfd1d6fe6274c5f95a8d989b59854575d4bbee44ade7bc17aa9bc93
    ${debian}/libj/libjpeg-turbo/libjpeg-turbo_3.1.3.orig.tar.gz
    3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5
    ${debian}/libj/libjpeg-turbo/libjpeg-turbo_2.1.5.orig.tar.gz
    254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c)
  jaxdali_codec(jaxdali_libjpeg "${archive}" jpeg "LICENSE.md;README.ijg" ${jpeg_arguments})
  add_dependencies(jaxdali_jpeg jaxdali_libjpeg_external)
  target_include_directories(jaxdali_jpeg SYSTEM INTERFACE "${jaxdali_libjpeg_INCLUDE}")
  target_link_libraries(jaxdali_jpeg INTERFACE "${jaxdali_libjpeg_LIBRARY}")
endif()

if(PNG_FOUND)
  target_link_libraries(jaxdali_png INTERFACE PNG::PNG)
else()
  if(NOT JAXDALI_BUNDLED_CODECS)
    find_package(ZLIB QUIET)
  endif()
  set(png_arguments -DPNG_SHARED=OFF -DPNG_STATIC=ON -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF -DPNG_TOOLS=OFF -DPNG_FRAMEWORK=OFF)
  if(ZLIB_FOUND)
    set(zlib ZLIB::ZLIB)
  else()
    jaxdali_archive(archive "${JAXDALI_ZLIB_TARBALL}"
      https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz
      9a93b2b7dfdac77ceba5a558a580e74667dd6fede4585b91eefb60f03b72df23
      ${debian}/z/zlib/zlib_1.3.dfsg+really1.3.1.orig.tar.gz
      60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb)
    jaxdali_codec(jaxdali_zlib "${archive}" z LICENSE -DZLIB_BUILD_EXAMPLES=OFF)
    # Debian's archive lacks a file for Windows that zlib's CMakeLists.txt names on all systems.
    ExternalProject_Add_Step(jaxdali_zlib_external resources DEPENDEES download DEPENDERS configure WORKING_DIRECTORY <SOURCE_DIR>
                             COMMAND ${CMAKE_COMMAND} -E make_directory win32 COMMAND ${CMAKE_COMMAND} -E touch win32/zlib1.rc)
    set(zlib "${jaxdali_zlib_LIBRARY}")
    list(APPEND png_arguments -DZLIB_ROOT=${CMAKE_BINARY_DIR}/codecs/jaxdali_zlib -DZLIB_LIBRARY=${zlib}
         -DZLIB_INCLUDE_DIR=${jaxdali_zlib_INCLUDE}
         -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON)  # before a zlib.h of the compiler's system folders
  endif()
  jaxdali_archive(archive "${JAXDALI_PNG_TARBALL}"
    https://downloads.sourceforge.net/project/libpng/libpng16/1.6.52/libpng-1.6.52.tar.xz
    36bd726228ec93a3b6c22fdb49e94a67b16f2fe9b39b78b7cb65772966661ccc
    ${debian}/libp/libpng1.6/libpng1.6_1.6.58.orig.tar.gz
    a9d4df463d36a6e5f9c29bd6f4967312d17e996c1854f3511f833924eb1993cf
    ${debian}/libp/libpng1.6/libpng1.6_1.6.48.orig.tar.gz
    b17e99026055727e8cba99160c3a9a7f9af788e9f786daeadded5a42243f1dd0)
  jaxdali_codec(jaxdali_libpng "${archive}" png16 LICENSE ${png_arguments})
  if(TARGET jaxdali_zlib_external)
    add_dependencies(jaxdali_libpng_external jaxdali_zlib_external)
  endif()
  add_dependencies(jaxdali_png jaxdali_libpng_external)
  target_include_directories(jaxdali_png SYSTEM INTERFACE "${jaxdali_libpng_INCLUDE}")
  target_link_libraries(jaxdali_png INTERFACE "${jaxdali_libpng_LIBRARY}" ${zlib})
  if(UNIX)
    target_link_libraries(jaxdali_png INTERFACE m)
  endif()
endif()

# libdeflate: only this one may be missing.
if(NOT JAXDALI_BUNDLED_CODECS)
  find_path(JAXDALI_DEFLATE_INCLUDE libdeflate.h)
  find_library(JAXDALI_DEFLATE_LIBRARY deflate)
endif()
if(JAXDALI_DEFLATE_INCLUDE AND JAXDALI_DEFLATE_LIBRARY)
  target_include_directories(jaxdali_png SYSTEM INTERFACE "${JAXDALI_DEFLATE_INCLUDE}")
  target_link_libraries(jaxdali_png INTERFACE "${JAXDALI_DEFLATE_LIBRARY}")
  set(JAXDALI_LIBDEFLATE ON)
else()
  jaxdali_archive(archive "${JAXDALI_DEFLATE_TARBALL}"
    https://github.com/ebiggers/libdeflate/archive/refs/tags/v1.25.tar.gz
    d11473c1ad4c57d874695e8026865e38b47116bbcb872bfc622ec8f37a86017d
    ${debian}/libd/libdeflate/libdeflate_1.23.orig.tar.gz
    1ab18349b9fb0ce8a0ca4116bded725be7dcbfa709e19f6f983d99df1fb8b25f)
  if(archive)
    jaxdali_codec(jaxdali_libdeflate "${archive}" deflate COPYING
      -DLIBDEFLATE_BUILD_SHARED_LIB=OFF -DLIBDEFLATE_BUILD_GZIP=OFF -DLIBDEFLATE_COMPRESSION_SUPPORT=OFF)
    add_dependencies(jaxdali_png jaxdali_libdeflate_external)
    target_include_directories(jaxdali_png SYSTEM INTERFACE "${jaxdali_libdeflate_INCLUDE}")
    target_link_libraries(jaxdali_png INTERFACE "${jaxdali_libdeflate_LIBRARY}")
    set(JAXDALI_LIBDEFLATE ON)
  else()
    message(WARNING
      "libdeflate was not found and cannot be downloaded: decoding PNG will take twice as long. "
      "Install it (apt install libdeflate-dev) and configure again in an empty build folder.")
  endif()
endif()
if(JAXDALI_LIBDEFLATE)
  target_compile_definitions(jaxdali_png INTERFACE JAXDALI_LIBDEFLATE)
endif()

# libwebp: may be missing, too. Only its decoder is used.
add_library(jaxdali_webp INTERFACE)
if(NOT JAXDALI_BUNDLED_CODECS)
  find_path(JAXDALI_WEBP_INCLUDE webp/decode.h)
  find_library(JAXDALI_WEBP_LIBRARY webp)
endif()
if(JAXDALI_WEBP_INCLUDE AND JAXDALI_WEBP_LIBRARY)
  target_include_directories(jaxdali_webp SYSTEM INTERFACE "${JAXDALI_WEBP_INCLUDE}")
  target_link_libraries(jaxdali_webp INTERFACE "${JAXDALI_WEBP_LIBRARY}")
  set(JAXDALI_WEBP ON)
else()
  jaxdali_archive(archive "${JAXDALI_WEBP_TARBALL}"
    https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-1.6.0.tar.gz
    e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564
    ${debian}/libw/libwebp/libwebp_1.6.0.orig.tar.gz
    e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564)
  if(archive)
    jaxdali_codec(jaxdali_libwebp "${archive}" webpdecoder "COPYING;PATENTS"
      -DBUILD_SHARED_LIBS=OFF -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF -DWEBP_BUILD_DWEBP=OFF -DWEBP_BUILD_GIF2WEBP=OFF
      -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF -DWEBP_BUILD_WEBPINFO=OFF -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF
      -DWEBP_BUILD_LIBWEBPMUX=OFF)
    add_dependencies(jaxdali_webp jaxdali_libwebp_external)
    target_include_directories(jaxdali_webp SYSTEM INTERFACE "${jaxdali_libwebp_INCLUDE}")
    target_link_libraries(jaxdali_webp INTERFACE "${jaxdali_libwebp_LIBRARY}")
    set(JAXDALI_WEBP ON)
  else()
    message(WARNING
      "libwebp was not found and cannot be downloaded: WebP will be decoded by Pillow, more slowly. "
      "Install it (apt install libwebp-dev) and configure again in an empty build folder.")
  endif()
endif()
if(JAXDALI_WEBP)
  target_compile_definitions(jaxdali_webp INTERFACE JAXDALI_WEBP)
endif()
