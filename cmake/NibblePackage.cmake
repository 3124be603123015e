# Installation, the Debian package and the relocatable tarball. The program finds its data by its own
# place: <folder of the binary>/../share/nibble, so the build folder gets the same layout.
include(GNUInstallDirs)

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/nibble/models)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/models/shakespeare
     ${CMAKE_BINARY_DIR}/share/nibble/models/shakespeare SYMBOLIC)

if(TARGET nibble)
  install(TARGETS nibble RUNTIME DESTINATION bin COMPONENT nibble)
  # Shell completion is written by the program itself, so that it cannot fall behind.
  if(NOT CMAKE_CROSSCOMPILING)
    install(CODE "
      set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\")
      function(nibble_completion shell file)
        get_filename_component(folder \"\${share}/\${file}\" DIRECTORY)
        file(MAKE_DIRECTORY \"\${folder}\")
        execute_process(COMMAND \"$<TARGET_FILE:nibble>\" completion \${shell}
                        OUTPUT_FILE \"\${share}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
      endfunction()
      nibble_completion(bash bash-completion/completions/nibble)
      nibble_completion(zsh zsh/site-functions/_nibble)
      nibble_completion(fish fish/vendor_completions.d/nibble.fish)
    " COMPONENT nibble)
  endif()
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/shakespeare DESTINATION share/nibble/models
        COMPONENT nibble)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT nibble)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT nibble
        FILES_MATCHING PATTERN "*.md")

set(CPACK_PACKAGE_NAME nibble)
set(CPACK_PACKAGE_VENDOR "the nibble authors")
set(CPACK_PACKAGE_CONTACT "the nibble authors <nibble@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "Runs, measures and converts language models in GGUF and safetensors
files on x86-64 and ARM64 processors. A small Shakespeare model for a first try is included.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};nibble;nibble;/")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-pip")
set(CPACK_GENERATOR "DEB;TGZ")
# The tarball is relocatable: bin and share lie side by side below one folder, without /usr.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/cpack_per_generator.cmake)
file(WRITE ${CPACK_PROJECT_CONFIG_FILE} "
if(CPACK_GENERATOR STREQUAL \"TGZ\")
  set(CPACK_PACKAGING_INSTALL_PREFIX \"/\")
endif()
")
include(CPack)
