# Whether this machine can build the CUDA backend: off by default where there is no nvcc, so that the
# CPU library builds anywhere.
find_program(TILEWISE_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(TILEWISE_NVCC)
  set(tilewise_has_nvcc ON)
else()
  set(tilewise_has_nvcc OFF)
endif()
option(TILEWISE_CUDA "Build the CUDA backend (needs nvcc 12.8 or newer)" ${tilewise_has_nvcc})

# Bodies for sm_80 are compiled three times: code for 8.x, PTX for what comes, code for Hopper.
set(TILEWISE_CUDA_ARCHITECTURES 80 90a-real CACHE STRING "CUDA architectures, as CMake names them")
