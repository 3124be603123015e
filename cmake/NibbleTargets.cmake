# nibble_library(NAME [DIR folder] [DEPS other folders] [LIBS external] [PRIVATE_LIBS external]
#                [ALONE files] [TEST_SHARDS n])
#
# One library nibble_<NAME> from every .cc of the folder that is no test, and, when tests are built,
# one executable <NAME>_test from its *_test.cc. DEPS name folders of src/; tools/check_borders.py
# holds the includes against the order of docs/architecture.md. With NIBBLE_UNITY the compiler takes
# six sources at a time, which halves its work, except those named in ALONE (or "*" for all): their
# local names clash with others', or a pimpl of theirs holds types of an anonymous namespace.
function(nibble_library NAME)
  cmake_parse_arguments(ARG "" "DIR;TEST_SHARDS" "DEPS;LIBS;PRIVATE_LIBS;EXCLUDE;TEST_LIBS;ALONE"
                        ${ARGN})
  if(NOT ARG_DIR)
    set(ARG_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  foreach(pattern ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "${pattern}")
    list(FILTER tests EXCLUDE REGEX "${pattern}")
  endforeach()

  if(sources)
    add_library(nibble_${NAME} STATIC ${sources})
    set(scope PUBLIC)
    if(NIBBLE_UNITY AND NOT ARG_ALONE STREQUAL "*")
      set_target_properties(nibble_${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
      set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  else()
    add_library(nibble_${NAME} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(nibble_${NAME} ${scope} nibble_flags fmt::fmt ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(nibble_${NAME} ${scope} nibble_${dep})
  endforeach()
  # Coverage, or the fuzzer is blind to what its inputs reach: in all but what only computes.
  if(NIBBLE_FUZZ AND sources AND NOT NAME MATCHES "^(format|kernels|model|quantize)$")
    target_compile_options(nibble_${NAME} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(sources AND ARG_PRIVATE_LIBS)
    target_link_libraries(nibble_${NAME} PRIVATE ${ARG_PRIVATE_LIBS})
  endif()

  if(NIBBLE_TESTS AND tests)
    nibble_test(${NAME}_test SOURCES ${tests} DEPS ${NAME} LIBS ${ARG_TEST_LIBS}
                SHARDS ${ARG_TEST_SHARDS})
  endif()
endfunction()

# nibble_test(NAME SOURCES ... DEPS folders [LIBS external] [SHARDS n])
#
# With SHARDS a slow build (emulated, or with a sanitizer) runs the program as that many tests, so that
# ctest -j fills every processor. Each runs under a name of its own, a link, after which GoogleTest
# names its report.
function(nibble_test NAME)
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE nibble_flags nibble_test_support ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${NAME} PRIVATE nibble_${dep})
  endforeach()
  if(ARG_SHARDS AND (CMAKE_CROSSCOMPILING OR NIBBLE_SANITIZE))
    math(EXPR last "${ARG_SHARDS} - 1")
    foreach(index RANGE ${last})
      set(shard ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${NAME}.shard${index})
      add_custom_command(TARGET ${NAME} POST_BUILD
                         COMMAND ${CMAKE_COMMAND} -E create_symlink ${NAME} ${shard})
      add_test(NAME ${NAME}.shard${index} COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} ${shard})
      set_tests_properties(${NAME}.shard${index} PROPERTIES TIMEOUT 900 ENVIRONMENT
                           "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    add_test(NAME ${NAME} COMMAND ${NAME})
    set_tests_properties(${NAME} PROPERTIES TIMEOUT 900)
  endif()
endfunction()

# nibble_isa_objects(TARGET ISA SOURCES...): compiles sources once for one instruction set. The
# macro NIBBLE_ISA_NS names the namespace that all their code lives in; their objects must hold no
# weak symbol outside it (tools/check_isa_symbols.py), or the linker could pick an AVX-512 copy of
# an inline function for a machine without it.
function(nibble_isa_objects TARGET ISA)
  set(flags_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt -mmovbe -mpclmul -maes)
  set(flags_avxvnni ${flags_avx2} -mavxvnni)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl
      -mprefer-vector-width=512)
  set(flags_avx512vnni ${flags_avx512} -mavx512vnni -mavx512vbmi)
  set(flags_neon -march=armv8.2-a+dotprod+fp16)
  add_library(${TARGET} OBJECT ${ARGN})
  target_link_libraries(${TARGET} PRIVATE nibble_flags)
  target_compile_options(${TARGET} PRIVATE ${flags_${ISA}} -O3)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes the deliberately undefined operands of its own intrinsics for mistakes.
    target_compile_options(${TARGET} PRIVATE -Wno-uninitialized)
  endif()
  target_compile_definitions(${TARGET} PRIVATE NIBBLE_ISA_NS=isa_${ISA} HWY_COMPILE_ONLY_STATIC)
endfunction()
