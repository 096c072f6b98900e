# SPDX-License-Identifier: Apache-2.0
# Imported target octet_torch: LibTorch's CPU libraries, and with OCTET_CUDA its CUDA libraries too. find_package(Torch) insists on nvcc
# for a CUDA wheel and takes over architectures and flags; this does not.
include(${CMAKE_CURRENT_LIST_DIR}/torch_libraries.cmake)
octet_torch_libraries(${OCTET_TORCH_DIR} ${OCTET_CUDA})
if(octet_torch_problem)
  message(FATAL_ERROR "${octet_torch_problem}. Run tools/setup.sh, or point -DOCTET_TORCH_DIR= at the torch folder of torch==2.11.0 "
                      "(with OCTET_CUDA of the CUDA wheel), or build without: -DOCTET_TRAINING=OFF, -DOCTET_CUDA=OFF")
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "The training side needs GCC, whose OpenMP runtime LibTorch uses; here is ${CMAKE_CXX_COMPILER_ID}. Set "
                      "-DCMAKE_CXX_COMPILER=g++, or build without training: -DOCTET_TRAINING=OFF")
endif()
add_library(octet_torch INTERFACE)
target_include_directories(octet_torch SYSTEM INTERFACE ${OCTET_TORCH_DIR}/include ${OCTET_TORCH_DIR}/include/torch/csrc/api/include)
# torch/include brings an fmt of its own that shadows the system's; header-only, neither needs the other's library.
target_compile_definitions(octet_torch INTERFACE FMT_HEADER_ONLY)
# LibTorch's headers then include the operators that they use, not all 2,000: a third less to compile.
target_compile_definitions(octet_torch INTERFACE AT_PER_OPERATOR_HEADERS)
if(OCTET_CUDA)
  target_include_directories(octet_torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(octet_torch INTERFACE OCTET_CUDA=1)
endif()
target_link_options(octet_torch INTERFACE ${octet_torch_link_options})
target_link_libraries(octet_torch INTERFACE ${octet_torch_link_libraries})
