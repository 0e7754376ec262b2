// A checkpoint of ranks that saved without collectives, made of checkpoints that each stand for
// what one of them saved.
#ifndef CKPT_TESTS_TESTING_RANKS_ALONE_H_
#define CKPT_TESTS_TESTING_RANKS_ALONE_H_

#include <cstddef>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/io/path.h"
#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {

// REQUIRES: each of `ranks`, fewer than ten, is a DCP of one data file. A rank names its file by
// its number, and its metadata beside it.
inline void JoinRanks(const std::vector<Path>& ranks, const Path& target) {
  const std::string usual = "__0_0.distcp";
  boost::filesystem::create_directories(target);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string prefix = "__" + std::to_string(rank);
    const std::string own = prefix + "_0.distcp";
    boost::filesystem::copy_file(ranks[rank] / usual, target / own);
    const auto read = ReadSmallFile(PosixStorage(), ranks[rank] / ".metadata", 1 << 20);
    ASSERT_THAT(read, IsOk());
    std::string metadata = *read;
    for (std::size_t at = metadata.find(usual); at != std::string::npos;
         at = metadata.find(usual, at + 1)) {
      metadata.replace(at, usual.size(), own);
    }
    ASSERT_THAT(WriteSmallFile(PosixStorage(), target / (prefix + ".metadata"), AsBytes(metadata)),
                IsOk());
  }
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_RANKS_ALONE_H_
