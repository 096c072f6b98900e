# SPDX-License-Identifier: Apache-2.0
# Sets OCTET_KERNEL_SOURCES, a hash of all sources under kernels/. Choices of kernels are kept under this hash (src/engine/cuda/choice.cpp).
# When a kernel changes, CMake configures again, and only what is compiled with the hash is compiled again for it.
file(GLOB_RECURSE kernel_sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  kernels/*.cpp kernels/*.cu kernels/*.cuh kernels/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_sources})
set(kernel_hashes "")
foreach(source IN LISTS kernel_sources)
  file(SHA256 ${PROJECT_SOURCE_DIR}/${source} hash)
  string(APPEND kernel_hashes "${source} ${hash}\n")
endforeach()
string(SHA256 OCTET_KERNEL_SOURCES "${kernel_hashes}")

# octet_instantiations(variable header list kernel declaration): writes one CUDA source for each number of the array `list` in `header`
# (a line `list[] = {0, 1, 2}`), and sets `variable` to their paths. Each source includes `kernel` and instantiates the template
# `declaration`, with the number in place of @. So kernels with many template arguments compile in parallel.
function(octet_instantiations variable header list kernel declaration)
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} line REGEX "${list}\\[\\] = {[0-9, ]+}")
  string(REGEX REPLACE ".*{([0-9, ]+)}.*" "\\1" numbers "${line}")
  string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
  string(REGEX REPLACE ".* ([a-z_]+)<@>.*" "\\1" name "${declaration}")
  if(NOT numbers)
    message(FATAL_ERROR "${header} has no line `${list}[] = {numbers}`")
  endif()
  set(sources "")
  foreach(number IN LISTS numbers)
    string(REPLACE "@" "${number}" instance "${declaration}")
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cu)
    file(CONFIGURE OUTPUT ${source} CONTENT
      "#include \"${kernel}\"\n\nnamespace octet::kernels {\ntemplate ${instance};\n}  // namespace octet::kernels\n")
    list(APPEND sources ${source})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
