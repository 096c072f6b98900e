# SPDX-License-Identifier: Apache-2.0
# What a program of octet's training side takes from LibTorch; for octet's own build (torch.cmake), and installed for others'.

# The version of LibTorch in a folder, without what stands behind its "+"; "" where none can be read.
function(octet_torch_version dir result)
  set(text)
  if(EXISTS ${dir}/version.py)  # a wheel
    file(STRINGS ${dir}/version.py text REGEX "^__version__ *=")
  elseif(EXISTS ${dir}/build-version)  # a LibTorch
    file(STRINGS ${dir}/build-version text LIMIT_COUNT 1)
  endif()
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${text}")
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Sets octet_torch_problem, or "" and octet_torch_link_libraries and octet_torch_link_options.
function(octet_torch_libraries dir cuda)
  set(lib ${dir}/lib)
  set(problem)
  if(NOT EXISTS ${lib}/libtorch_cpu.so)
    set(problem "No LibTorch at ${dir}")
  elseif(cuda AND NOT EXISTS ${lib}/libtorch_cuda.so)
    set(problem "${dir} has no libtorch_cuda.so")
  endif()
  set(octet_torch_problem "${problem}" PARENT_SCOPE)
  # libtorch_cpu of the CUDA wheel needs libcudart and libcupti at run time: from a CUDA toolkit or the small wheels beside torch.
  set(cuda_home $ENV{CUDA_HOME})
  if(NOT cuda_home)
    set(cuda_home /usr/local/cuda)
  endif()
  # Where the wheels of NVIDIA's libraries lie: beside torch, or where tools/setup.sh puts them.
  file(GLOB nvidia_wheels ${dir}/../nvidia/*/lib ${PROJECT_SOURCE_DIR}/.deps/nvidia/*/lib)
  set(options LINKER:-rpath,${lib} LINKER:-rpath-link,${lib})
  foreach(folder ${nvidia_wheels} ${cuda_home}/lib64 ${cuda_home}/extras/CUPTI/lib64)
    if(EXISTS ${folder})
      get_filename_component(folder ${folder} REALPATH)
      list(APPEND options LINKER:-rpath,${folder} LINKER:-rpath-link,${folder})
    endif()
  endforeach()
  # Octet's own loops run on LibTorch's threads (src/train/model/threads.h): the one OpenMP runtime in the process is LibTorch's libgomp,
  # which wheels bring and other builds take from the system.
  file(GLOB gomp ${lib}/libgomp*.so*)
  if(gomp)
    list(GET gomp 0 gomp)
  else()
    set(gomp gomp)
  endif()
  set(libraries ${lib}/libc10.so ${lib}/libtorch_cpu.so ${gomp})
  if(cuda)
    list(APPEND libraries ${lib}/libc10_cuda.so ${lib}/libtorch_cuda.so)
  endif()
  # --no-as-needed: backends register themselves when they are loaded, even if octet names no symbol of theirs.
  set(octet_torch_link_libraries -Wl,--no-as-needed ${libraries} -Wl,--as-needed PARENT_SCOPE)
  set(octet_torch_link_options ${options} PARENT_SCOPE)
endfunction()
