# The objects of the CUDA backend, added to tilewise_objects. The runtime is linked statically: it
# looks for the driver when it is first used, so the library loads on machines without one.
set(CMAKE_CUDA_COMPILER ${TILEWISE_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${TILEWISE_CUDA_ARCHITECTURES})
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB cuda_units CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu
     ${PROJECT_SOURCE_DIR}/src/cuda/instances/*.cu)
file(GLOB cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cc)
list(FILTER cuda_host EXCLUDE REGEX "/absent\\.cc$")

add_library(tilewise_cuda OBJECT ${cuda_units} ${cuda_host})
target_include_directories(tilewise_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(tilewise_cuda PRIVATE tilewise_flags tilewise_cuda_flags CUDA::cudart_static)
set_target_properties(tilewise_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
                                               CUDA_VISIBILITY_PRESET hidden)
