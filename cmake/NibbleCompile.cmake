# Flags that hold for every target. -ffp-contract=off: GCC would otherwise fuse intrinsics, and the
# same bits must come out on every instruction set (docs/architecture.md, idea 3).
add_library(nibble_flags INTERFACE)
target_compile_options(nibble_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off
                       -fno-math-errno -fvisibility=hidden)
target_include_directories(nibble_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False positives of GCC 12 in std::vector and std::string at -O2.
  target_compile_options(nibble_flags INTERFACE -Wno-stringop-overflow -Wno-array-bounds
                         -Wno-restrict -Wno-maybe-uninitialized -Wno-psabi)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of GCC 12's library calls std::get_temporary_buffer.
  target_compile_options(nibble_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(NIBBLE_SANITIZE)
  target_compile_options(nibble_flags INTERFACE -fsanitize=${NIBBLE_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(nibble_flags INTERFACE -fsanitize=${NIBBLE_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(Threads REQUIRED)
if(CMAKE_CROSSCOMPILING)
  # A cross build has no packages of the other machine: header-only libraries come from this one's,
  # by links, because /usr/include itself would bring this machine's C library along.
  foreach(library fmt hwy)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
    file(CREATE_LINK /usr/include/${library} ${CMAKE_BINARY_DIR}/include/${library} SYMBOLIC)
  endforeach()
  include_directories(SYSTEM ${CMAKE_BINARY_DIR}/include)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
else()
  find_package(fmt REQUIRED)
endif()
