# SPDX-License-Identifier: Apache-2.0
# Target WebP::webp: libwebp of the distribution (libwebp-dev), which brings no CMake package. Sets octet_webp_problem, "" when it
# is found; octetTraining.cmake, which is installed beside this file, tells it to its user.
find_path(OCTET_WEBP_INCLUDE_DIR webp/decode.h)
find_library(OCTET_WEBP_LIBRARY webp)
mark_as_advanced(OCTET_WEBP_INCLUDE_DIR OCTET_WEBP_LIBRARY)
set(octet_webp_problem)
if(NOT OCTET_WEBP_INCLUDE_DIR OR NOT OCTET_WEBP_LIBRARY)
  set(octet_webp_problem "octet reads WebP images with libwebp, which CMake does not find: install libwebp-dev")
elseif(NOT TARGET WebP::webp)
  add_library(WebP::webp UNKNOWN IMPORTED)
  set_target_properties(WebP::webp PROPERTIES
    IMPORTED_LOCATION ${OCTET_WEBP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OCTET_WEBP_INCLUDE_DIR})
endif()
