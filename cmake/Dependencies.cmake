# SPDX-License-Identifier: Apache-2.0
# Everything comes from the system; a missing package is answered with its Debian name instead of CMake's long complaint.

function(gnomon_require NAME FOUND DEBIAN_PACKAGE)
  if(NOT FOUND)
    message(FATAL_ERROR "${NAME} was not found. On Debian: apt-get install ${DEBIAN_PACKAGE} (tools/setup installs all of them).")
  endif()
endfunction()

# A macro, so that what a package defines stays visible to the caller.
macro(gnomon_find NAME DEBIAN_PACKAGE)
  find_package(${NAME} QUIET ${ARGN})
  gnomon_require(${NAME} "${${NAME}_FOUND}" ${DEBIAN_PACKAGE})
endmacro()
