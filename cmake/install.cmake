# SPDX-License-Identifier: Apache-2.0
# cmake --install: the library with headers, CMake package and Python module (component runtime), the program (component
# runner), and the training side (component training). cpack -G DEB makes a Debian package of the first two; without LibTorch only,
# which no package brings.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
install(TARGETS octet_runtime EXPORT octetTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT runtime)
install(FILES include/octet/octet.h include/octet/octet.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octet COMPONENT runtime)
install(DIRECTORY tools/python/octet DESTINATION lib/python3/dist-packages COMPONENT runtime
  FILES_MATCHING PATTERN *.py)
install(EXPORT octetTargets NAMESPACE octet:: DESTINATION ${package_dir} COMPONENT runtime)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/octetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/octetConfig.cmake ${PROJECT_BINARY_DIR}/octetConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
install(FILES LICENSE NOTICE docs/THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES cmake/debian_copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
install(TARGETS octet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runner)

# The static libraries of this tree that a target is made of.
function(octet_static_parts target result)
  set(parts ${${result}})
  get_target_property(dependencies ${target} LINK_LIBRARIES)
  foreach(part ${target} ${dependencies})
    if(NOT TARGET ${part} OR part IN_LIST parts)
      continue()
    endif()
    get_target_property(kind ${part} TYPE)
    get_target_property(imported ${part} IMPORTED)
    if(kind STREQUAL STATIC_LIBRARY AND NOT imported)
      list(APPEND parts ${part})
      if(NOT part STREQUAL target)
        octet_static_parts(${part} parts)
      endif()
    endif()
  endforeach()
  set(${result} ${parts} PARENT_SCOPE)
endfunction()

# octet::training is one archive: a shared library it cannot be, as Debian's libprotobuf-lite.a is not made for those, and what it
# is made of is nobody's business. protobuf goes with it: the code that protoc wrote wants this very version.
if(OCTET_TRAINING)
  set(training_parts)
  octet_static_parts(octet_training training_parts)
  set(script "CREATE installed/liboctet_training.a\n")  # relative paths: ar's scripts cannot quote
  foreach(part ${training_parts})
    string(APPEND script "ADDLIB $<PATH:RELATIVE_PATH,$<TARGET_FILE:${part}>,${PROJECT_BINARY_DIR}>\n")
  endforeach()
  file(GENERATE OUTPUT installed/liboctet_training.mri CONTENT "${script}SAVE\nEND\n")
  set(archive ${PROJECT_BINARY_DIR}/installed/liboctet_training.a)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} -M < installed/liboctet_training.mri
    DEPENDS ${training_parts} ${PROJECT_BINARY_DIR}/installed/liboctet_training.mri
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  add_custom_target(octet_training_archive ALL DEPENDS ${archive})
  octet_torch_version(${OCTET_TORCH_DIR} octet_torch_built_with)
  file(RELATIVE_PATH octet_training_libraries /${package_dir} /${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH octet_training_include /${package_dir} /${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(cmake/octetTraining.cmake.in ${PROJECT_BINARY_DIR}/octetTraining.cmake @ONLY)
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT training)
  if(OCTET_ONNX)
    install(FILES ${protobuf_lite} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME liboctet_training_protobuf.a COMPONENT training)
  endif()
  install(FILES include/octet/training.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octet COMPONENT training)
  install(FILES ${PROJECT_BINARY_DIR}/octetTraining.cmake cmake/torch_libraries.cmake cmake/webp.cmake DESTINATION ${package_dir} COMPONENT training)
endif()

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
  if(EXISTS ${CMAKE_SYSROOT}/shlibs)  # cross-built: the packages of this machine are others, tools/arm64_sysroot.sh noted the target's
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
    file(STRINGS ${CMAKE_SYSROOT}/shlibs needed REGEX "^lib(c|gcc_s|stdc\\+\\+|fmt|jpeg|png16|pugixml|webp|yaml-cpp|z) ")
    list(TRANSFORM needed REPLACE "^[^ ]+ [^ ]+ (.*)$" "\\1")
    list(JOIN needed ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
  endif()
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # and ldconfig after installing
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-numpy)
  include(CPack)
endif()
