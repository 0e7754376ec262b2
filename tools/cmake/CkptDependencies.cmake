# Third-party packages, found once. All come from the distribution; a missing one is a configure error.

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(CLI11 2 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(HDF5 REQUIRED hdf5-serial)
# The archive: the shared library brings thirty others (curl, Kerberos, LDAP, …), and every program would start in twice the
# time.
find_library(CKPT_HDF5_ARCHIVE libhdf5.a REQUIRED HINTS ${HDF5_LIBRARY_DIRS})
find_library(CKPT_SZIP_ARCHIVE libsz.a REQUIRED)
find_library(CKPT_AEC_ARCHIVE libaec.a REQUIRED)
find_package(ZLIB REQUIRED)
add_library(ckpt_hdf5_library INTERFACE)
add_library(Hdf5::Archive ALIAS ckpt_hdf5_library)
target_include_directories(ckpt_hdf5_library SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(ckpt_hdf5_library INTERFACE ${CKPT_HDF5_ARCHIVE} ${CKPT_SZIP_ARCHIVE} ${CKPT_AEC_ARCHIVE} ZLIB::ZLIB
                      ${CMAKE_DL_LIBS} m)
# Not by its own package file: that one asks for OpenCL's headers, which products on processors do not need.
find_path(CKPT_DNNL_HEADERS oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(CKPT_DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${CKPT_DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CKPT_DNNL_HEADERS})
find_package(OpenMP REQUIRED COMPONENTS CXX)  # for omp_set_num_threads: dnnl runs products on its threads
if(CKPT_WITH_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface alone
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
endif()
if(CKPT_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(CKPT_WITH_CUDA)
  include(CkptCuda)
endif()
