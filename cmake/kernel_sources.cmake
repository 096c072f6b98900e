# OCTET_KERNEL_SOURCES: a hash of all sources under kernels/, of which the kept choices of kernels are (remembered_choice.cpp).
# A changed kernel configures anew, and only what is compiled with the hash is compiled again for it.
file(GLOB_RECURSE kernel_sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  kernels/*.cpp kernels/*.cu kernels/*.cuh kernels/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_sources})
set(kernel_hashes "")
foreach(source IN LISTS kernel_sources)
  file(SHA256 ${PROJECT_SOURCE_DIR}/${source} hash)
  string(APPEND kernel_hashes "${source} ${hash}\n")
endforeach()
string(SHA256 OCTET_KERNEL_SOURCES "${kernel_hashes}")
