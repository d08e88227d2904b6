# libjpeg-turbo as the target jaxdali_jpeg; libpng and libdeflate as jaxdali_png; libwebp as jaxdali_webp.
#
# The build uses the libraries of the system if they are installed (Debian: libjpeg62-turbo-dev, libpng-dev, libdeflate-dev, libwebp-dev). Missing ones,
# with -DJAXDALI_BUNDLED_CODECS=ON all, are compiled here as static, position-independent libraries. Their archives come from the projects' own sites,
# from Debian, or from source distributions of Python packages that contain them, and have pinned checksums; where there is no network, from local
# archives (-DJAXDALI_JPEG_TARBALL=..., -DJAXDALI_PNG_TARBALL=..., -DJAXDALI_ZLIB_TARBALL=..., -DJAXDALI_DEFLATE_TARBALL=...,
# -DJAXDALI_WEBP_TARBALL=...) of any version, of libdeflate from 1.15 on. Only libjpeg-turbo is needed: of the others, one that can't be had or does not
# compile is left out, unless -DJAXDALI_REQUIRE_CODECS=ON. GCC 16 and Clang 20 compile these versions.
#
# Each list goes from the newest version to the oldest, since whoever blocks the first hosts gets the last one. It has no version with a published
# memory fault, not even one that nothing here reaches: rather a codec is left out. The system's libraries may have lower versions, because
# distributions mend the faults of old ones. So do not add an archive of Debian's that its patches mend.
#
# A module that contains these libraries must come with their licences, which the build puts into the wheel: libjpeg-turbo (IJG, BSD 3-Clause),
# libpng (PNG Reference Library License), zlib (Zlib), libdeflate (MIT), libwebp (BSD 3-Clause).

# They are compiled with the options of hardening.cmake, like the modules.
include("${CMAKE_CURRENT_LIST_DIR}/options.cmake")

option(JAXDALI_BUNDLED_CODECS "Build libjpeg-turbo, libpng, zlib, libdeflate and libwebp from source even if the system has them" OFF)
option(JAXDALI_REQUIRE_CODECS "End with an error where one of them can't be had, as for wheels" OFF)
set(JAXDALI_JPEG_TARBALL "" CACHE FILEPATH "Local source archive of libjpeg-turbo, instead of a download")
set(JAXDALI_PNG_TARBALL "" CACHE FILEPATH "Local source archive of libpng, instead of a download")
set(JAXDALI_ZLIB_TARBALL "" CACHE FILEPATH "Local source archive of zlib, instead of a download")
set(JAXDALI_DEFLATE_TARBALL "" CACHE FILEPATH "Local source archive of libdeflate, instead of a download")
set(JAXDALI_WEBP_TARBALL "" CACHE FILEPATH "Local source archive of libwebp, instead of a download")

set(debian https://deb.debian.org/debian/pool/main)  # source archives as upstream made them, less what Debian may not distribute
set(pypi https://files.pythonhosted.org/packages)

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

# Downloads an archive: jaxdali_download(VARIABLE ADDRESS SHA256). VARIABLE is "" if it can't be had. A host that does not answer is not asked again.
function(jaxdali_download variable address sha256)
  set(${variable} "" PARENT_SCOPE)
  get_filename_component(name "${address}" NAME)
  set(archive "${CMAKE_BINARY_DIR}/codecs/archives/${name}")
  set(checksum "")
  if(EXISTS "${archive}")
    file(SHA256 "${archive}" checksum)
  endif()
  if(NOT checksum STREQUAL sha256)
    string(REGEX MATCH "^[a-z]+://[^/]+" host "${address}")
    get_property(silent GLOBAL PROPERTY JAXDALI_SILENT_HOSTS)
    if(host IN_LIST silent)
      return()
    endif()
    foreach(seconds 30 600)  # the longer time is for a slow connection
      file(DOWNLOAD "${address}" "${archive}" INACTIVITY_TIMEOUT 10 TIMEOUT ${seconds} TLS_VERIFY ON STATUS status)
      list(GET status 0 code)
      file(SIZE "${archive}" size)
      if(NOT code EQUAL 28 OR size EQUAL 0)
        break()
      endif()
    endforeach()
    if(code MATCHES "^(6|7|28)$" AND size EQUAL 0)  # curl: no such host, no connection, a timeout
      set_property(GLOBAL APPEND PROPERTY JAXDALI_SILENT_HOSTS "${host}")
    endif()
    file(SHA256 "${archive}" checksum)
  endif()
  if(checksum STREQUAL sha256)
    set(${variable} "${archive}" PARENT_SCOPE)
  else()
    file(REMOVE "${archive}")
  endif()
endfunction()

# Compiles a static library now, so that a failure is known before the module is: jaxdali_compile(VARIABLE NAME ARCHIVE FOLDER [arguments ...]).
# VARIABLE is the reason if it fails. Does nothing if the archive, the compiler and the arguments are those of the last time.
function(jaxdali_compile variable name archive folder)
  set(prefix "${CMAKE_BINARY_DIR}/codecs/${name}")
  list(JOIN JAXDALI_HARDENING " " hardening)
  set(toolchain -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER})
  if(CMAKE_TOOLCHAIN_FILE)
    set(toolchain -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
  endif()
  set(arguments -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=${prefix}
      -DCMAKE_INSTALL_LIBDIR:PATH=${prefix}/lib  # absolute: libjpeg-turbo takes a relative one from its build folder
      "-DCMAKE_C_FLAGS=${CMAKE_C_FLAGS} ${hardening} -w"  # no warnings, which -Werror in the user's CFLAGS would make errors
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 ${ARGN})
  set(${variable} "" PARENT_SCOPE)
  file(SHA256 "${archive}" sum)
  set(made "${sum} ${folder} ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} ${arguments}")
  set(last "")
  if(EXISTS "${prefix}/made")
    file(READ "${prefix}/made" last)
  endif()
  if(made STREQUAL last)
    return()
  endif()

  message(STATUS "jaxdali: building from ${archive}")
  file(REMOVE_RECURSE "${prefix}")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${prefix}/archive")
  file(GLOB source "${prefix}/archive/*")  # the one folder of the archive
  file(RENAME "${source}${folder}" "${prefix}/source" RESULT failed)
  if(failed)
    set(${variable} "it has no folder ${folder}" PARENT_SCOPE)
    return()
  endif()
  if(EXISTS "${prefix}/source/zlib.h")
    foreach(file win32/zlib1.rc contrib/CMakeLists.txt doc/rfc1950.txt doc/rfc1951.txt doc/rfc1952.txt)
      file(APPEND "${prefix}/source/${file}" "")  # Debian's archive lacks it, and zlib's CMakeLists.txt names it
    endforeach()
  endif()
  file(REMOVE_RECURSE "${prefix}/archive")
  set(arguments -G "${CMAKE_GENERATOR}" -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM} ${toolchain} ${arguments})  # pip has another ninja each time
  foreach(command "-S;${prefix}/source;-B;${prefix}/build;${arguments}" "--build;${prefix}/build" "--install;${prefix}/build")
    execute_process(COMMAND "${CMAKE_COMMAND}" ${command} OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE failed)
    file(APPEND "${prefix}/log" "${log}")
    if(failed)
      set(${variable} "it does not compile, see ${prefix}/log" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(WRITE "${prefix}/made" "${made}")
endfunction()

# One static library, of the first archive that can be had and compiled: jaxdali_codec(NAME LOCAL LIBRARY LICENSES [ARGUMENTS ...] ARCHIVES
# ADDRESS[#FOLDER] SHA256 ...). FOLDER is where the library's CMakeLists.txt is, if not at the top. LOCAL is an archive that is taken instead, or "".
# Sets NAME_FOUND, NAME_INCLUDE and NAME_LIBRARY, or NAME_PROBLEM. A wheel gets the files LICENSES of the archive (patterns).
function(jaxdali_codec name local library licenses)
  cmake_parse_arguments(PARSE_ARGV 4 codec "" "" "ARGUMENTS;ARCHIVES")
  set(prefix "${CMAKE_BINARY_DIR}/codecs/${name}")
  set(${name}_FOUND FALSE PARENT_SCOPE)
  set(problem "none of its archives can be downloaded")
  if(local)
    set(codec_ARCHIVES "${local}" "")
  endif()
  while(codec_ARCHIVES)
    list(POP_FRONT codec_ARCHIVES address sha256)
    string(REGEX MATCH "#(.*)$" folder "${address}")
    string(REPLACE "#" "/" folder "${folder}")
    string(REGEX REPLACE "#.*$" "" address "${address}")
    if(local)
      get_filename_component(archive "${local}" ABSOLUTE)
    else()
      jaxdali_download(archive "${address}" ${sha256})
      if(NOT archive)
        continue()
      endif()
    endif()
    jaxdali_compile(problem ${name} "${archive}" "${folder}" ${codec_ARGUMENTS})
    if(problem)
      message(STATUS "jaxdali: ${archive}: ${problem}")
      continue()
    endif()
    list(TRANSFORM licenses PREPEND "${prefix}/source/")
    file(GLOB licenses ${licenses})
    jaxdali_licenses(${name} ${licenses})
    set(${name}_FOUND TRUE PARENT_SCOPE)
    set(${name}_INCLUDE "${prefix}/include" PARENT_SCOPE)
    set(${name}_LIBRARY "${prefix}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}${library}${CMAKE_STATIC_LIBRARY_SUFFIX}" PARENT_SCOPE)
    return()
  endwhile()
  set(${name}_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# Goes on without a codec, or ends where all are required: jaxdali_without(LIBRARY PROBLEM COST PACKAGE).
function(jaxdali_without library problem cost package)
  if(JAXDALI_REQUIRE_CODECS)
    message(FATAL_ERROR "${library}: ${problem}")
  endif()
  message(NOTICE "-- Without ${library} (${problem}), ${cost}. To mend it: apt install ${package}, and install again.")
endfunction()

if(JPEG_FOUND)
  target_link_libraries(jaxdali_jpeg INTERFACE JPEG::JPEG)
else()
  set(jpeg_arguments -DENABLE_SHARED=OFF -DENABLE_STATIC=ON -DWITH_TURBOJPEG=OFF -DWITH_TOOLS=OFF -DWITH_TESTS=OFF -DWITH_JPEG8=ON)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i[3-6]86)$")
    find_program(JAXDALI_NASM NAMES nasm yasm)
    if(JAXDALI_NASM)
      list(APPEND jpeg_arguments -DCMAKE_ASM_NASM_COMPILER=${JAXDALI_NASM} -DREQUIRE_SIMD=ON)
    else()
      message(NOTICE "-- Without nasm, libjpeg-turbo takes about three times as long for what it decodes. "
                     "To mend it: apt install libjpeg62-turbo-dev (or nasm), and install again.")
      list(APPEND jpeg_arguments -DWITH_SIMD=OFF)
    endif()
  endif()
  jaxdali_codec(jaxdali_libjpeg "${JAXDALI_JPEG_TARBALL}" jpeg "LICENSE.md;README.ijg" ARGUMENTS ${jpeg_arguments} ARCHIVES
    https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/3.1.3/libjpeg-turbo-3.1.3.tar.gz
    075920b826834ac4ddf97661cc73491047855859affd671d52079c6867c1c6c0
    ${debian}/libj/libjpeg-turbo/libjpeg-turbo_3.1.3.orig.tar.gz
    3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5
    "${pypi}/90/64/da60f0ba80570f9a36c9b6e055f4364bda2c547715296d5773d2ea6d5a60/simplejpeg-1.9.0.tar.gz#lib/libjpeg-turbo-3.1.2"
    5ac7d9489eeb812c2e7ea5c283994a29d9fefdfe5ed7b86c09d485e0dd366689)
  if(NOT jaxdali_libjpeg_FOUND)
    message(FATAL_ERROR "libjpeg-turbo is needed: ${jaxdali_libjpeg_PROBLEM}. Install it (apt install libjpeg62-turbo-dev) "
                        "or name a local archive (-DJAXDALI_JPEG_TARBALL=...).")
  endif()
  target_include_directories(jaxdali_jpeg SYSTEM INTERFACE "${jaxdali_libjpeg_INCLUDE}")
  target_link_libraries(jaxdali_jpeg INTERFACE "${jaxdali_libjpeg_LIBRARY}")
endif()

# libpng, and zlib for it.
if(PNG_FOUND)
  target_link_libraries(jaxdali_png INTERFACE PNG::PNG)
  set(JAXDALI_LIBPNG ON)
else()
  if(NOT JAXDALI_BUNDLED_CODECS)
    find_package(ZLIB QUIET)
  endif()
  set(png_arguments -DPNG_SHARED=OFF -DPNG_STATIC=ON -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF -DPNG_TOOLS=OFF -DPNG_FRAMEWORK=OFF)
  if(ZLIB_FOUND)
    set(zlib ZLIB::ZLIB)
  else()
    jaxdali_codec(jaxdali_zlib "${JAXDALI_ZLIB_TARBALL}" z LICENSE
      ARGUMENTS -DZLIB_BUILD_EXAMPLES=OFF -DZLIB_BUILD_TESTING=OFF -DZLIB_BUILD_SHARED=OFF ARCHIVES
      https://github.com/madler/zlib/releases/download/v1.3.2/zlib-1.3.2.tar.gz
      bb329a0a2cd0274d05519d61c667c062e06990d72e125ee2dfa8de64f0119d16
      ${debian}/z/zlib/zlib_1.3.dfsg+really1.3.2.orig.tar.gz
      7b6903eb019983987b7112eccf90f1703f1c6c0e0cede36564bf611d19ca579d)
    set(zlib "${jaxdali_zlib_LIBRARY}")
    list(APPEND png_arguments -DZLIB_ROOT=${CMAKE_BINARY_DIR}/codecs/jaxdali_zlib -DZLIB_LIBRARY=${zlib}
         -DZLIB_INCLUDE_DIR=${jaxdali_zlib_INCLUDE}
         -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON)  # before a zlib.h of the compiler's system folders
  endif()
  if(ZLIB_FOUND OR jaxdali_zlib_FOUND)
    # A fault of 1.6.58 and all before is published (CVE-2026-46675).
    jaxdali_codec(jaxdali_libpng "${JAXDALI_PNG_TARBALL}" png16 "LICENSE*" ARGUMENTS ${png_arguments} ARCHIVES
      https://downloads.sourceforge.net/project/libpng/libpng16/1.6.59/libpng-1.6.59.tar.xz
      d80dd2a38a37f803cb9b6ac7b14bd6e74ddc3b654780a8380bdf93523fdb4389
      ${debian}/libp/libpng1.6/libpng1.6_1.6.59.orig.tar.gz
      2540302a1844ad2b2b501977abecfa850f265f97b78f065a712ab4074a89f5b5)
    set(problem "${jaxdali_libpng_PROBLEM}")
  else()
    set(problem "zlib: ${jaxdali_zlib_PROBLEM}")
  endif()
  if(jaxdali_libpng_FOUND)
    target_include_directories(jaxdali_png SYSTEM INTERFACE "${jaxdali_libpng_INCLUDE}")
    target_link_libraries(jaxdali_png INTERFACE "${jaxdali_libpng_LIBRARY}" ${zlib})
    if(UNIX)
      target_link_libraries(jaxdali_png INTERFACE m)
    endif()
    set(JAXDALI_LIBPNG ON)
  else()
    jaxdali_without(libpng "${problem}" "Pillow decodes PNG in more than twice the time, and imagecodecs files of 16 bits" libpng-dev)
  endif()
endif()
if(JAXDALI_LIBPNG)
  target_compile_definitions(jaxdali_png INTERFACE JAXDALI_LIBPNG)
endif()

# libdeflate. Of no use without libpng, which decodes the files that the decoder with libdeflate refuses.
if(NOT JAXDALI_BUNDLED_CODECS)
  find_path(JAXDALI_DEFLATE_INCLUDE libdeflate.h)
  find_library(JAXDALI_DEFLATE_LIBRARY deflate)
endif()
if(JAXDALI_DEFLATE_INCLUDE AND JAXDALI_DEFLATE_LIBRARY)
  target_include_directories(jaxdali_png SYSTEM INTERFACE "${JAXDALI_DEFLATE_INCLUDE}")
  target_link_libraries(jaxdali_png INTERFACE "${JAXDALI_DEFLATE_LIBRARY}")
  set(JAXDALI_LIBDEFLATE ON)
elseif(JAXDALI_LIBPNG)
  # 1.25 does not compile with glibc 2.43 or newer, those before it not with GCC 16.
  jaxdali_codec(jaxdali_libdeflate "${JAXDALI_DEFLATE_TARBALL}" deflate COPYING
    ARGUMENTS -DLIBDEFLATE_BUILD_SHARED_LIB=OFF -DLIBDEFLATE_BUILD_GZIP=OFF -DLIBDEFLATE_COMPRESSION_SUPPORT=OFF ARCHIVES
    https://github.com/ebiggers/libdeflate/archive/refs/tags/v1.26.tar.gz
    bba03fffc5538576213675ce6968fcff6ce2e67d82e4d5febea2d05f9f13cf85
    "${pypi}/99/37/6822da3fcc811eb6839f4c1165407c4f23580e6b29ea29509c9544f4e604/deflate-0.9.0.tar.gz#libdeflate"  # 1.26
    962e0a6f1ea3a94b900a8ea0ce138fa92bfcbafda5b86367104a259ffcd3462b
    ${debian}/libd/libdeflate/libdeflate_1.25.orig.tar.xz
    aff01dcf6ccfd2b4615bcfcf02ef34f52a7965018c0202110fb005eb6007fc33)
  if(jaxdali_libdeflate_FOUND)
    target_include_directories(jaxdali_png SYSTEM INTERFACE "${jaxdali_libdeflate_INCLUDE}")
    target_link_libraries(jaxdali_png INTERFACE "${jaxdali_libdeflate_LIBRARY}")
    set(JAXDALI_LIBDEFLATE ON)
  else()
    jaxdali_without(libdeflate "${jaxdali_libdeflate_PROBLEM}" "decoding PNG takes twice as long" libdeflate-dev)
  endif()
endif()
if(JAXDALI_LIBDEFLATE)
  target_compile_definitions(jaxdali_png INTERFACE JAXDALI_LIBDEFLATE)
endif()

# libwebp. Only its decoder is used.
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
  jaxdali_codec(jaxdali_libwebp "${JAXDALI_WEBP_TARBALL}" webpdecoder "COPYING;PATENTS" ARGUMENTS
    -DBUILD_SHARED_LIBS=OFF -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF -DWEBP_BUILD_DWEBP=OFF -DWEBP_BUILD_GIF2WEBP=OFF
    -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF -DWEBP_BUILD_WEBPINFO=OFF -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF
    -DWEBP_BUILD_LIBWEBPMUX=OFF ARCHIVES
    https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-1.6.0.tar.gz
    e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564
    ${debian}/libw/libwebp/libwebp_1.6.0.orig.tar.gz
    e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564)
  if(jaxdali_libwebp_FOUND)
    target_include_directories(jaxdali_webp SYSTEM INTERFACE "${jaxdali_libwebp_INCLUDE}")
    target_link_libraries(jaxdali_webp INTERFACE "${jaxdali_libwebp_LIBRARY}")
    set(JAXDALI_WEBP ON)
  else()
    jaxdali_without(libwebp "${jaxdali_libwebp_PROBLEM}" "Pillow decodes WebP, more slowly" libwebp-dev)
  endif()
endif()
if(JAXDALI_WEBP)
  target_compile_definitions(jaxdali_webp INTERFACE JAXDALI_WEBP)
endif()
