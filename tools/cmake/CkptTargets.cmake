# One CMake target per folder, its edges declared once.
#
#   ckpt_library(core/tensor HDRS box.h SRCS box.cc DEPS ckpt::core_base PRIVATE_DEPS fmt::fmt)
#
# makes `ckpt_core_tensor` and the alias `ckpt::core_tensor`. Headers go into a file set, so the build compiles each one
# alone (CMAKE_VERIFY_INTERFACE_HEADER_SETS). The edges are recorded for tests/hygiene, which fails on an include that
# follows none of them, and on an edge that no include follows: every include is written from the root, so the include path
# cannot catch a wrong edge by itself.

include_guard(GLOBAL)
include(CkptPrecompiled)

add_library(ckpt_warnings INTERFACE)
target_compile_options(ckpt_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  $<$<BOOL:${CKPT_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 reports false positives of these inside inlined std::string and std::vector code at -O2.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-maybe-uninitialized>
  # In a unity build each .cc file is an included file, where GCC takes its private types for those of a header.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>>)

add_library(ckpt_sanitizers INTERFACE)
if(CKPT_SANITIZE)
  target_compile_options(ckpt_sanitizers INTERFACE -fsanitize=${CKPT_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(ckpt_sanitizers INTERFACE -fsanitize=${CKPT_SANITIZE})
endif()
if(CKPT_BUILD_FUZZERS)
  # libFuzzer sees only the branches of code that reports them.
  target_compile_options(ckpt_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(ckpt_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
endif()

set_property(GLOBAL PROPERTY CKPT_LAYERING "")

# ckpt_library(<folder> [NEEDS <option>] [HDRS ...] [SRCS ...] [DEPS ...] [PRIVATE_DEPS ...])
#   NEEDS         without this option no target is made, and nothing is linked to it; the edges are recorded all the same
#   HDRS          headers for other folders; those of internal/ are sources
#   DEPS          targets whose headers HDRS include
#   PRIVATE_DEPS  targets whose headers the sources alone include
function(ckpt_library folder)
  cmake_parse_arguments(ARG "" "NEEDS" "HDRS;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  list(JOIN ARG_DEPS " " public)
  list(JOIN ARG_PRIVATE_DEPS " " private)
  list(JOIN ARG_HDRS " " headers)
  set_property(GLOBAL APPEND_STRING PROPERTY CKPT_LAYERING "${folder}|${public}|${private}|${headers}\n")
  string(REPLACE "/" "_" name ${folder})
  string(REPLACE "-" "_" name ${name})
  if(ARG_NEEDS AND NOT ${ARG_NEEDS})
    set_property(GLOBAL APPEND PROPERTY CKPT_ABSENT ckpt::${name})
    return()
  endif()
  get_property(absent GLOBAL PROPERTY CKPT_ABSENT)
  if(absent)
    list(REMOVE_ITEM ARG_DEPS ${absent})
    list(REMOVE_ITEM ARG_PRIVATE_DEPS ${absent})
  endif()
  set(target ckpt_${name})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ckpt_warnings ${ARG_PRIVATE_DEPS})
    ckpt_precompile(${target} library)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(ckpt::${name} ALIAS ${target})
  # Headers of kernels are C++ for nvcc alone, which compiles them with the kernels.
  list(FILTER ARG_HDRS EXCLUDE REGEX "\\.cuh$")
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${ARG_HDRS})
  target_link_libraries(${target} ${scope} ckpt_sanitizers ${ARG_DEPS})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# Writes <build>/layering.txt, read by tests/hygiene: one line a folder, `folder|public dep dep|private dep dep|header header`.
function(ckpt_write_layering_manifest)
  get_property(text GLOBAL PROPERTY CKPT_LAYERING)
  file(WRITE ${CMAKE_BINARY_DIR}/layering.txt "${text}")
endfunction()
