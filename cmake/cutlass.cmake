# SPDX-License-Identifier: Apache-2.0
# Imported target octet_cutlass: CUTLASS's headers, of a wheel or of a checkout of its repository.
if(NOT OCTET_CUDA)
  message(FATAL_ERROR "OCTET_CUTLASS is device code: add -DOCTET_CUDA=ON (preset cuda), or leave it out")
endif()
find_path(OCTET_CUTLASS_DIR include/cutlass/cutlass.h NO_DEFAULT_PATH
  PATHS ${PROJECT_SOURCE_DIR}/.deps/cutlass_library/source
  DOC "Folder with CUTLASS's include/ and tools/util/include/ (wheel nvidia-cutlass==4.2.0.0: cutlass_library/source)")
if(NOT EXISTS ${OCTET_CUTLASS_DIR}/include/cutlass/cutlass.h)
  message(FATAL_ERROR "No include/cutlass/cutlass.h in OCTET_CUTLASS_DIR '${OCTET_CUTLASS_DIR}', which engine cutlass needs. "
    "Fetch it: .deps/venv/bin/python -m pip install --no-deps --no-compile --target .deps nvidia-cutlass==4.2.0.0, "
    "name its folder: -DOCTET_CUTLASS_DIR=, or leave -DOCTET_CUTLASS=ON out")
endif()
add_library(octet_cutlass INTERFACE)
target_include_directories(octet_cutlass SYSTEM INTERFACE ${OCTET_CUTLASS_DIR}/include ${OCTET_CUTLASS_DIR}/tools/util/include)
