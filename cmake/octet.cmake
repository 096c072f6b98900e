# SPDX-License-Identifier: Apache-2.0
# Sources of one library share the code that headers of LibTorch, fmt and JSON make, which is most of what compiling them takes. Not for
# kernels, engines and decoders: how the compiler inlines their loops shall not depend on their neighbours. `together` sources are
# compiled as one.
function(octet_unity target together)
  if(OCTET_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${together})
  endif()
endfunction()

# octet_library(name SOURCES ... DEPENDS ...): one static library a layer, sources named. TOGETHER n: so many of them are compiled as one,
# by default 8; where LibTorch's headers are most of compiling eight, more.
function(octet_library name)
  cmake_parse_arguments(A "" "TOGETHER" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${A_DEPENDS} PRIVATE ${A_PRIVATE_DEPENDS})
  if(NOT A_TOGETHER)
    set(A_TOGETHER 8)
  endif()
  if(NOT name MATCHES "kernels|engine|cuda|data")
    octet_unity(${name} ${A_TOGETHER})
  endif()
endfunction()

# octet_test(name SOURCES ... DEPENDS ...): one GoogleTest program a layer, one ctest entry a test case. Those that the
# filter EMULATED selects run once more, with instructions of AMX and those that the processor lacks emulated
# (tests/x86_emulator). SHARDS n: all cases in n entries, for programs with LibTorch, which takes half a second to load. TOGETHER n: so
# many sources are compiled as one, by default 8; where LibTorch's headers are two thirds of compiling eight, more.
function(octet_test name)
  cmake_parse_arguments(A "" "LABELS;EMULATED;SHARDS;TOGETHER" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  if(NOT A_TOGETHER)
    set(A_TOGETHER 8)
  endif()
  octet_unity(${name} ${A_TOGETHER})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPENDS} octet_test_source_dir GTest::gtest GTest::gtest_main)
  set(labels)
  if(A_LABELS)
    set(labels LABELS ${A_LABELS})
  endif()
  # OpenMP threads that spin while they wait make LibTorch many times slower when tests share the cores.
  set(passive OMP_WAIT_POLICY=passive)
  if(A_SHARDS GREATER 1)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/one_thread.cpp)
  endif()
  if(A_SHARDS)
    # TORCH_FR_BUFFER_SIZE: ranks that are threads of one process (tests/trainers/ranks.h).
    math(EXPR last "${A_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.${shard} COMMAND ${name})
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900 COST 100 ${labels}
        ENVIRONMENT "${passive};TORCH_FR_BUFFER_SIZE=0;GTEST_BRIEF=1;GTEST_TOTAL_SHARDS=${A_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  else()
    gtest_discover_tests(${name} PROPERTIES TIMEOUT 300 ${labels} ENVIRONMENT ${passive} DISCOVERY_TIMEOUT 60)
  endif()
  if(A_EMULATED AND TARGET x86_emulator)
    gtest_discover_tests(${name} TEST_PREFIX emulated. TEST_LIST ${name}_emulated DISCOVERY_TIMEOUT 60
      TEST_FILTER ${A_EMULATED}
      PROPERTIES TIMEOUT 300 ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:x86_emulator>)
  endif()
endfunction()

# octet_gpu_test(...): an octet_test whose cases need a GPU. Label gpu; without one they are counted as skipped
# (OCTET_NEEDS_GPU in tests/cuda/gpu.h). One entry a program: tools/lab/gpu/tests.py runs and times them on GPU machines.
function(octet_gpu_test name)
  octet_test(${name} ${ARGN} LABELS gpu SHARDS 1)
endfunction()

# The CUDA runtime of all device code: the shared one that LibTorch uses, or, in a runner without LibTorch, a static one.
if(OCTET_CUDA)
  add_library(octet_cudart INTERFACE)
  target_link_libraries(octet_cudart INTERFACE $<IF:$<BOOL:${OCTET_TRAINING}>,CUDA::cudart,CUDA::cudart_static>)
  target_compile_definitions(octet_cudart INTERFACE OCTET_CUDA=1)
  set(CMAKE_CUDA_RUNTIME_LIBRARY $<IF:$<BOOL:${OCTET_TRAINING}>,Shared,Static>)
endif()
