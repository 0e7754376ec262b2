# Headers that nearly every file includes, parsed once: half of a cold build was parsing them.
#
#   ckpt_precompile(ckpt_core_io library)   std, fmt, Boost.Filesystem's path
#   ckpt_precompile(test_core_io test)      the same and GoogleTest
#
# Sources still include what they use: the clang presets (tidy, fuzz, coverage) build without this, and the header checks
# (CMAKE_VERIFY_INTERFACE_HEADER_SETS) too, so that a forgotten include fails there.

include_guard(GLOBAL)

set(CKPT_PRECOMPILED_library
  <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <functional> <limits> <map> <memory> <mutex> <optional> <random> <set>
  <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <boost/filesystem/path.hpp>)
set(CKPT_PRECOMPILED_test ${CKPT_PRECOMPILED_library} <gmock/gmock.h> <gtest/gtest.h>)

# Packages whose headers these are. GCC takes a precompiled header only where all macros are defined as they were when it
# was made, so every user gets their definitions.
set(CKPT_PRECOMPILED_PACKAGES_library fmt::fmt Boost::filesystem Boost::headers)
set(CKPT_PRECOMPILED_PACKAGES_test ${CKPT_PRECOMPILED_PACKAGES_library} GTest::gmock)

# Tests are compiled more often than they are run.
add_library(ckpt_optimize_tests INTERFACE)
target_compile_options(ckpt_optimize_tests INTERFACE $<$<CONFIG:Release,Sanitize>:-O0>)
set(CKPT_PRECOMPILED_OPTIONS_test ckpt_optimize_tests)

# ckpt_precompile(<target> library|test): the target's sources start from that header.
function(ckpt_precompile target kind)
  target_link_libraries(${target} PRIVATE ${CKPT_PRECOMPILED_OPTIONS_${kind}})
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(maker ckpt_precompiled_${kind})
  if(NOT TARGET ${maker})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${maker}.cc CONTENT "// Carries a precompiled header.\n")
    add_library(${maker} OBJECT ${CMAKE_BINARY_DIR}/${maker}.cc)
    target_link_libraries(${maker} PRIVATE ckpt_warnings ckpt_sanitizers ${CKPT_PRECOMPILED_OPTIONS_${kind}}
                          ${CKPT_PRECOMPILED_PACKAGES_${kind}})
    target_precompile_headers(${maker} PRIVATE ${CKPT_PRECOMPILED_${kind}})
  endif()
  foreach(package IN LISTS CKPT_PRECOMPILED_PACKAGES_${kind})
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${package},INTERFACE_COMPILE_DEFINITIONS>)
  endforeach()
  target_precompile_headers(${target} REUSE_FROM ${maker})
endfunction()
