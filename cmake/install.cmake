# cmake --install: the library with headers, CMake package and Python module (component runtime), and the program
# (component runner). cpack -G DEB makes a Debian package of both; without LibTorch only, which no package brings.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
install(TARGETS octet_runtime EXPORT octetTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT runtime)
install(DIRECTORY include/octet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
install(DIRECTORY tools/python/octet DESTINATION lib/python3/dist-packages COMPONENT runtime
  FILES_MATCHING PATTERN *.py)
install(EXPORT octetTargets NAMESPACE octet:: DESTINATION ${package_dir} COMPONENT runtime)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/octetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/octetConfig.cmake ${PROJECT_BINARY_DIR}/octetConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
install(TARGETS octet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runner)

if(NOT OCTET_TRAINING)
  set(CPACK_PACKAGE_NAME octet)
  set(CPACK_PACKAGE_CONTACT "the octet authors <octet@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs int8 vision networks, with the same bytes on every engine")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # and ldconfig after installing
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-numpy)
  include(CPack)
endif()
