# Every compiler and linker flag of the project, once. Targets of ours link `tilewise_flags` (own
# code, warnings are errors); nothing else in the build sets a flag.

set(TILEWISE_SANITIZE "" CACHE STRING
    "Sanitizers to build with: empty, \"address,undefined\" or \"thread\"")
# Off in the sanitizer presets: instrumented code makes g++ see uninitialised values that are none.
option(TILEWISE_WERROR "Warnings are errors" ON)
option(TILEWISE_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# assert() is for states that only a fault of ours can reach: off in Release, on wherever we look for
# faults (RelWithDebInfo, Debug, sanitizers).
foreach(lang C CXX)
  set(CMAKE_${lang}_FLAGS_RELEASE "-O3 -DNDEBUG")
  set(CMAKE_${lang}_FLAGS_RELWITHDEBINFO "-O3 -g1")
  set(CMAKE_${lang}_FLAGS_DEBUG "-O0 -g")
endforeach()

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(tilewise_flags INTERFACE)
# No contraction behind our back: the bits of a fold must not depend on what the optimiser fuses.
# Fused multiply-adds that we want are written as such. Never -ffast-math: -inf and NaN have meaning.
target_compile_options(tilewise_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wsign-conversion>
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${TILEWISE_WERROR}>>:-Werror>)

# The same for nvcc. ptxas warnings (spills in hot kernels, C75xx) are errors as well.
add_library(tilewise_cuda_flags INTERFACE)
target_compile_options(tilewise_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off
    --expt-relaxed-constexpr -Xptxas=--warn-on-spills,--warn-on-local-memory-usage>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TILEWISE_WERROR}>>:-Werror=all-warnings
    -Xptxas=-Werror>)

if(TILEWISE_SANITIZE)
  # Everything in the build, C included, so that the runtime is linked once and shadow state agrees.
  add_compile_options(-fsanitize=${TILEWISE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -O1 -g1 -UNDEBUG)
  add_link_options(-fsanitize=${TILEWISE_SANITIZE})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
if(TILEWISE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# One unit set is compiled for a CPU that the build machine need not have; CPUID decides at run time
# whether its functions are called. Only these files, since inline functions that a header shares with
# other units would carry the wider instructions there (tests/abi/no_weak_symbols.sh looks).
set(tilewise_amx_flags "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  # g++ 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a fault.
  set(tilewise_amx_flags -Wno-uninitialized -Wno-maybe-uninitialized -mamx-tile -mamx-bf16 -mavx512f
      -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vbmi -mfma)
endif()
