# Functions that tests/CMakeLists.txt uses to turn folders of sources into CTest entries.

# test_support: what conformance tests share, on top of the case model of `tilewise verify`. It speaks to the library
# through the C ABI only, so whoever links it links the shared library.
function(tilewise_add_support)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/support/*.cc)
  add_library(test_support STATIC ${sources})
  target_include_directories(test_support PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(test_support PRIVATE tilewise_flags PUBLIC tilewise_tools GTest::gmock)
endfunction()

# tilewise_add_gtests(<folder> SHARDS <n> LINK <target>): <folder>_tests from <folder>/*_test.cc.
# Tests find repository files (fixtures) through TILEWISE_SOURCE_DIR.
function(tilewise_add_gtests folder)
  cmake_parse_arguments(arg "" "SHARDS" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  set(program ${folder}_tests)
  add_executable(${program} ${sources})
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${program} PRIVATE TILEWISE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${program} PRIVATE tilewise_flags ${arg_LINK} GTest::gmock
                                           GTest::gtest_main)
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${folder}.${shard} COMMAND ${program} --gtest_brief=1)
    set_tests_properties(${folder}.${shard} PROPERTIES TIMEOUT 900 ENVIRONMENT
      "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# The contract of bits, the census and a part of the matrix once more for every instruction set of the CPU backend;
# where the machine lacks one, its tests are skipped.
function(tilewise_add_isa_tests)
  foreach(isa scalar sse4 avx2 avx3 amx)
    add_test(NAME conformance.isa.${isa} COMMAND conformance_tests --gtest_brief=1
      "--gtest_filter=Isa*:Bits*:CensusByHand*:Blocks/Census*/0:Blocks/Matrix*/?:*B64*")
    set_tests_properties(conformance.isa.${isa} PROPERTIES TIMEOUT 900 ENVIRONMENT
      "TILEWISE_CPU_ISA=${isa}")
  endforeach()
endfunction()

# The same program against the CUDA backend. Where there is no device ctest counts it as skipped, unless
# TILEWISE_REQUIRE_GPU=1, which makes it fail.
function(tilewise_add_cuda_tests)
  set(last 3)
  foreach(shard RANGE ${last})
    set(name conformance.cuda.${shard})
    add_test(NAME ${name} COMMAND conformance_tests --gtest_brief=1)
    math(EXPR shards "${last} + 1")
    set_tests_properties(${name} PROPERTIES TIMEOUT 900
      SKIP_REGULAR_EXPRESSION "not run on CUDA: "
      ENVIRONMENT "TILEWISE_TEST_BACKEND=cuda;GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
