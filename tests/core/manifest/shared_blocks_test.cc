#include "core/manifest/internal/shared_blocks.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <latch>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr SharedBlocks::Name kSomeBlock = {.file = 1, .block = 0};

// Copies a byte of a block of four.
Status CopyByte(SharedBlocks& blocks, std::function<Status(MutableByteSpan)> read, std::byte& out) {
  const SharedBlocks::Source source = {
      .size_bytes = 4, .is_checked = [] { return false; }, .read = std::move(read)};
  return blocks.CopyPart(kSomeBlock, source, 2, {&out, 1}).status();
}

Status ReadSevens(MutableByteSpan whole) {
  std::ranges::fill(whole, std::byte{7});
  return OkStatus();
}

// Memory may run out in a read, and whoever waits for the block must not wait for ever.
TEST(SharedBlocksTest, AReadThatThrowsFailsAndLeavesTheBlockToTheNext) {
  SharedBlocks blocks;
  std::latch reads(2);
  Status first;
  {
    const std::jthread reader([&] {
      std::byte unused{};
      first = CopyByte(
          blocks,
          [&](MutableByteSpan) -> Status {
            reads.arrive_and_wait();
            throw std::bad_alloc();
          },
          unused);
    });
    reads.arrive_and_wait();
    // Most often this one waits for the read above.
    std::byte unused{};
    EXPECT_THAT(
        CopyByte(
            blocks, [](MutableByteSpan) -> Status { throw std::runtime_error("bug"); }, unused),
        FailsWith(ErrorKind::kInternal));
  }
  EXPECT_THAT(first, FailsWith(ErrorKind::kSystem));
  std::byte byte{};
  EXPECT_THAT(CopyByte(blocks, ReadSevens, byte), IsOk());
  EXPECT_EQ(byte, std::byte{7});
}

TEST(SharedBlocksTest, ABlockIsReadOnce) {
  SharedBlocks blocks;
  int reads = 0;
  const auto read = [&](MutableByteSpan whole) {
    ++reads;
    return ReadSevens(whole);
  };
  std::byte byte{};
  EXPECT_THAT(CopyByte(blocks, read, byte), IsOk());
  EXPECT_THAT(CopyByte(blocks, read, byte), IsOk());
  EXPECT_EQ(reads, 1);
}

}  // namespace
}  // namespace ckpt
