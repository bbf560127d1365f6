# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` gives: headers, the library, the command, and the two ways to find them, CMake's and pkg-config's. Both work from
# wherever the prefix is moved to. A wheel takes none of it (python/CMakeLists.txt has its own component).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gnomon)
install(TARGETS gnomon EXPORT gnomon ARCHIVE COMPONENT library INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/gnomon DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(EXPORT gnomon FILE gnomon-targets.cmake NAMESPACE gnomon:: DESTINATION ${package_dir} COMPONENT library)

file(CONFIGURE OUTPUT gnomon-config.cmake @ONLY CONTENT [[
include(CMakeFindDependencyMacro)
find_dependency(HWY)
include(${CMAKE_CURRENT_LIST_DIR}/gnomon-targets.cmake)
]])
# Below 1.0 a minor version may change the API.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/gnomon-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gnomon-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/gnomon-config-version.cmake
        DESTINATION ${package_dir} COMPONENT library)

# A C compiler does not add the C++ standard library that the static library needs: stdc++ or c++, as this build's compiler links it.
set(standard_library ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER standard_library INCLUDE REGEX "^(std)?c\\+\\+$")
list(REMOVE_DUPLICATES standard_library)
file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/gnomon.pc.in gnomon.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gnomon.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)

if(TARGET gnomon_cli)
  install(TARGETS gnomon_cli RUNTIME COMPONENT command)
endif()
