# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for arm64 with Debian's compiler, and runs what was built under qemu. tools/test-arm64 unpacks arm64 packages into
# GNOMON_ARM64_ROOT and tells qemu where libraries are; the C and C++ libraries are the cross compiler's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GNOMON_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${GNOMON_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# gmp.h, which mpfr.h includes, is in a folder that only a native compiler searches. Without -Wno-psabi GCC notes at each pair of doubles
# that GCC 9 passed it otherwise.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${GNOMON_ARM64_ROOT}/usr/include/aarch64-linux-gnu -Wno-psabi")
