# The CUDA toolkit, cuDNN, and what is headers alone: cuDNN's frontend, CUTLASS and NCCL. `tools/dev/setup --cuda` brings what is
# missing: headers, and the toolkit where there is no nvcc in CUDACXX, on the path or in /usr/local/cuda.
#
# Kernels are compiled for one architecture, Hopper with its own instructions unless CMAKE_CUDA_ARCHITECTURES says otherwise.

include_guard(GLOBAL)

set(CKPT_CUDA_DIR "$ENV{HOME}/.cache/ckptkit/cuda" CACHE PATH "Where tools/dev/setup --cuda puts what it brings")
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin ${CKPT_CUDA_DIR}/toolkit/bin NO_CMAKE_SYSTEM_PATH)
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
# The kernels compute with bfloat16, and what code a GPU needs is decided for one architecture.
string(REGEX MATCH "^[0-9]+" cuda_capability "${CMAKE_CUDA_ARCHITECTURES}")
if(NOT CMAKE_CUDA_ARCHITECTURES MATCHES "^[0-9]+[af]?$" OR cuda_capability LESS 80)
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\": set it to one architecture from 80 on, as 90a for Hopper GPUs")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")
find_package(CUDAToolkit 13.0 REQUIRED)

find_library(CKPT_CUDNN cudnn REQUIRED HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(CKPT_CUDNN_FRONTEND cudnn_frontend.h REQUIRED HINTS ${CKPT_CUDA_DIR}/include)
add_library(ckpt_cudnn INTERFACE)
add_library(ckpt::cudnn ALIAS ckpt_cudnn)
target_include_directories(ckpt_cudnn SYSTEM INTERFACE ${CKPT_CUDNN_FRONTEND} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(ckpt_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
target_link_libraries(ckpt_cudnn INTERFACE ${CKPT_CUDNN} CUDA::cudart_static CUDA::nvrtc)

# NCCL is loaded by runs of several processes; building needs its header alone.
find_path(CKPT_NCCL nccl.h REQUIRED HINTS ${CUDAToolkit_INCLUDE_DIRS})
add_library(ckpt_nccl INTERFACE)
add_library(ckpt::nccl ALIAS ckpt_nccl)
target_include_directories(ckpt_nccl SYSTEM INTERFACE ${CKPT_NCCL})

find_path(CKPT_CUTLASS cutlass/cutlass.h REQUIRED HINTS ${CKPT_CUDA_DIR}/cutlass_library/source/include)
add_library(ckpt_cutlass INTERFACE)
add_library(ckpt::cutlass ALIAS ckpt_cutlass)
target_include_directories(ckpt_cutlass SYSTEM INTERFACE ${CKPT_CUTLASS})
