# SPDX-License-Identifier: Apache-2.0
# Toolchain for aarch64 from another machine (cmake --preset arm64): Debian's cross compiler, the libraries that
# tools/arm64_sysroot.sh fetched, and qemu, under which CMake runs the tests. QEMU_CPU names its processor: cortex-a53, cortex-a76, max.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(OCTET_ARM64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../.deps/arm64 CACHE PATH "Folder that tools/arm64_sysroot.sh made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OCTET_ARM64_SYSROOT)
get_filename_component(CMAKE_SYSROOT ${OCTET_ARM64_SYSROOT} REALPATH)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "${CMAKE_SYSROOT} is no sysroot for arm64: run tools/arm64_sysroot.sh, or set OCTET_ARM64_SYSROOT")
endif()
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# What nothing calls is left out: boards have little room.
set(CMAKE_CXX_FLAGS_INIT "-ffunction-sections -fdata-sections")
# Programs are at fixed addresses: a table of relocations, 44 KB of octet's 2 MB, is not needed. The library has one.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--gc-sections -no-pie")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
find_program(OCTET_QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64)
if(OCTET_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${OCTET_QEMU_AARCH64} -L ${CMAKE_SYSROOT})
endif()
