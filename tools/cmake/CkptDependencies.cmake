# Third-party packages, found once. All come from the distribution; a missing one is a configure error.

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(CLI11 2 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
if(CKPT_WITH_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface alone
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
endif()
if(CKPT_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
