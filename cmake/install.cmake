# What `cmake --install` puts where: library, headers, CMake package, pkg-config file. The folder is
# relocatable: nothing in it names the prefix.
include(CMakePackageConfigHelpers)

install(TARGETS tilewise EXPORT tilewise-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/tilewise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(tilewise_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tilewise)
install(EXPORT tilewise-targets NAMESPACE tilewise:: DESTINATION ${tilewise_package_dir})
configure_package_config_file(cmake/tilewise-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/tilewise-config.cmake
  INSTALL_DESTINATION ${tilewise_package_dir})
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/tilewise-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tilewise-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tilewise-config-version.cmake
  DESTINATION ${tilewise_package_dir})

file(RELATIVE_PATH tilewise_pc_to_prefix
  ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tilewise.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tilewise.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tilewise.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
