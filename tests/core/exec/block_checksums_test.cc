#include "core/exec/block_checksums.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/manifest/manifest.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

Bytes RandomBytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

BlockChecksums DirectBlocks(const Bytes& file) {
  BlockChecksums blocks;
  for (std::size_t at = 0; at < file.size(); at += kManifestBlockBytes) {
    const ByteSpan block =
        ByteSpan(file).subspan(at, std::min<std::size_t>(kManifestBlockBytes, file.size() - at));
    blocks.crc32c.push_back(Crc32c(block));
    blocks.crc32.push_back(Crc32(block));
  }
  return blocks;
}

TEST(BlockChecksums, PartsInAnyOrderGiveTheChecksumsOfTheWhole) {
  const Bytes file = RandomBytes(3 * kManifestBlockBytes + 12345, 1);
  std::mt19937_64 rng(2);
  std::vector<std::size_t> cuts = {0, file.size()};
  for (int i = 0; i < 20; ++i) cuts.push_back(rng() % file.size());
  std::sort(cuts.begin(), cuts.end());
  std::vector<ChecksumPiece> pieces;
  for (std::size_t i = cuts.size() - 1; i-- > 0;) {  // back to front
    ChecksumStream stream(cuts[i]);
    ByteSpan part = ByteSpan(file).subspan(cuts[i], cuts[i + 1] - cuts[i]);
    const std::size_t half = part.size() / 2;
    stream.Update(part.first(half));
    stream.Update(part.subspan(half));
    pieces.insert(pieces.end(), stream.pieces().begin(), stream.pieces().end());
  }
  const auto blocks = CombineChecksums(pieces, file.size());
  ASSERT_THAT(blocks, IsOk());
  EXPECT_EQ(*blocks, DirectBlocks(file));
}

TEST(BlockChecksums, GapsCountAsZeros) {
  Bytes file(2 * kManifestBlockBytes + 100);
  const Bytes part = RandomBytes(500, 3);
  const std::size_t at = kManifestBlockBytes - 200;
  std::copy(part.begin(), part.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  ChecksumStream stream(at);
  stream.Update(part);
  const auto blocks = CombineChecksums(stream.pieces(), file.size());
  ASSERT_THAT(blocks, IsOk());
  EXPECT_EQ(*blocks, DirectBlocks(file));
}

TEST(BlockChecksums, RefusesOverlapAndPiecesOutside) {
  ChecksumStream a(10);
  a.Update(Bytes(20));
  ChecksumStream b(15);
  b.Update(Bytes(20));
  std::vector<ChecksumPiece> both = a.pieces();
  both.insert(both.end(), b.pieces().begin(), b.pieces().end());
  EXPECT_THAT(CombineChecksums(both, 100), FailsWith(ErrorKind::kInternal));
  EXPECT_THAT(CombineChecksums(b.pieces(), 30), FailsWith(ErrorKind::kInternal));
}

TEST(BlockChecksums, EmptyFileHasNoBlocks) {
  const auto blocks = CombineChecksums({}, 0);
  ASSERT_THAT(blocks, IsOk());
  EXPECT_EQ(*blocks, BlockChecksums());
}

}  // namespace
}  // namespace ckpt
