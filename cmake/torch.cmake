# Imported target octet_torch: LibTorch's CPU libraries, and with OCTET_CUDA its CUDA libraries too. find_package(Torch) insists on nvcc
# for a CUDA wheel and takes over architectures and flags; this does not.
set(torch_lib ${OCTET_TORCH_DIR}/lib)
if(NOT EXISTS ${torch_lib}/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch at ${OCTET_TORCH_DIR}. Run tools/setup.sh, or point -DOCTET_TORCH_DIR= at the torch folder of "
                      "torch==2.11.0, or build without training: -DOCTET_TRAINING=OFF")
endif()
# libtorch_cpu of the CUDA wheel needs libcudart and libcupti at run time: from a CUDA toolkit or the small wheels beside torch.
set(torch_rpath ${torch_lib})
set(cuda_home $ENV{CUDA_HOME})
if(NOT cuda_home)
  set(cuda_home /usr/local/cuda)
endif()
# Where the wheels of NVIDIA's libraries lie: beside torch, or where tools/setup.sh puts them.
file(GLOB nvidia_wheels ${OCTET_TORCH_DIR}/../nvidia/*/lib ${PROJECT_SOURCE_DIR}/.deps/nvidia/*/lib)
foreach(folder ${nvidia_wheels} ${cuda_home}/lib64 ${cuda_home}/extras/CUPTI/lib64)
  if(EXISTS ${folder})
    get_filename_component(folder ${folder} REALPATH)
    list(APPEND torch_rpath ${folder})
  endif()
endforeach()
add_library(octet_torch INTERFACE)
target_include_directories(octet_torch SYSTEM INTERFACE ${OCTET_TORCH_DIR}/include ${OCTET_TORCH_DIR}/include/torch/csrc/api/include)
# torch/include brings an fmt of its own that shadows the system's; header-only, neither needs the other's library.
target_compile_definitions(octet_torch INTERFACE FMT_HEADER_ONLY)
foreach(folder ${torch_rpath})
  target_link_options(octet_torch INTERFACE LINKER:-rpath,${folder} LINKER:-rpath-link,${folder})
endforeach()
set(torch_libraries ${torch_lib}/libc10.so ${torch_lib}/libtorch_cpu.so)
# Octet's own loops run on LibTorch's threads (src/model/parallel.h): the one OpenMP runtime in the process is LibTorch's libgomp, which
# wheels bring and other builds take from the system.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "The training side needs GCC, whose OpenMP runtime LibTorch uses; here is ${CMAKE_CXX_COMPILER_ID}. Set "
                      "-DCMAKE_CXX_COMPILER=g++, or build without training: -DOCTET_TRAINING=OFF")
endif()
file(GLOB torch_gomp ${torch_lib}/libgomp*.so*)
if(torch_gomp)
  list(GET torch_gomp 0 torch_gomp)
else()
  set(torch_gomp gomp)
endif()
list(APPEND torch_libraries ${torch_gomp})
if(OCTET_CUDA)
  if(NOT EXISTS ${torch_lib}/libtorch_cuda.so)
    message(FATAL_ERROR "${OCTET_TORCH_DIR} has no libtorch_cuda.so. Remove the folder and run tools/setup.sh, name the torch folder of "
                        "the CUDA wheel torch==2.11.0 in -DOCTET_TORCH_DIR=, or build for the CPU: -DOCTET_CUDA=OFF")
  endif()
  list(APPEND torch_libraries ${torch_lib}/libc10_cuda.so ${torch_lib}/libtorch_cuda.so)
  target_include_directories(octet_torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(octet_torch INTERFACE OCTET_CUDA=1)
endif()
# --no-as-needed: backends register themselves when they are loaded, even if octet names no symbol of theirs.
target_link_libraries(octet_torch INTERFACE -Wl,--no-as-needed ${torch_libraries} -Wl,--as-needed)
