#include "core/checkpoint/memory_source.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/tensor/box.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

MemoryTensor Tensor(std::string key, Dims shape, std::string_view values) {
  const ByteSpan bytes = AsBytes(values);
  return {.key = std::move(key),
          .dtype = DType::kUint8,
          .shape = std::move(shape),
          .values = Bytes(bytes.begin(), bytes.end())};
}

TEST(MemorySourceTest, HoldsWholeTensors) {
  std::vector<MemoryTensor> tensors;
  tensors.push_back(Tensor("b", {2, 3}, "abcdef"));
  tensors.push_back(Tensor("a", {}, "x"));
  const auto source = MakeMemorySource(std::move(tensors));
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  const GlobalTensor* const tensor = index.FindTensor("b");
  ASSERT_NE(tensor, nullptr);
  const auto array = (*source)->Locate(*tensor, index.chunks(*tensor).front());
  ASSERT_THAT(array, IsOk());
  EXPECT_EQ(array->strides, (Dims{3, 1}));
  Bytes part(2);
  ASSERT_THAT(array->file->ReadAt(array->offset_bytes + 3, part), IsOk());
  EXPECT_EQ(AsText(part), "de");
}

TEST(MemorySourceTest, RefusesValuesThatDoNotFillTheShape) {
  std::vector<MemoryTensor> tensors;
  tensors.push_back(Tensor("a", {2, 3}, "abcde"));
  EXPECT_THAT(MakeMemorySource(std::move(tensors)), FailsWith(ErrorKind::kSizeMismatch));
}

TEST(MemorySourceTest, RefusesAKeyTwice) {
  std::vector<MemoryTensor> tensors;
  tensors.push_back(Tensor("a", {1}, "x"));
  tensors.push_back(Tensor("a", {1}, "y"));
  EXPECT_THAT(MakeMemorySource(std::move(tensors)), FailsWith(ErrorKind::kBadMetadata));
}

// A tensor of four rows of two bytes: rows 2 and 3 behind byte 4 of another process's memory.
CheckpointIndex IndexOfHalves(std::uint64_t offset) {
  IndexBuilder builder;
  const EncodingId raw = builder.AddEncoding("raw");
  builder.AddTensor("t", DType::kUint8, {4, 2});
  builder.AddChunk(Box{.offsets = {0, 0}, .sizes = {2, 2}}, builder.AddFile("here"), raw, offset,
                   4);
  builder.AddChunk(Box{.offsets = {2, 0}, .sizes = {2, 2}}, builder.AddFile("there"), raw, 4, 4);
  return builder.Build().value();
}

TEST(PartialSourceTest, LocatesWhatIsHereAndSaysWhatIsNot) {
  const auto memory = std::make_shared<Bytes>(6, std::byte{'-'});
  const auto source =
      MakePartialSource(IndexOfHalves(2), {MakeMemoryFile("here", memory), nullptr});
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  const GlobalTensor& tensor = index.tensors().front();
  const auto array = (*source)->Locate(tensor, index.chunks(tensor)[0]);
  ASSERT_THAT(array, IsOk());
  EXPECT_EQ(array->offset_bytes, 2U);
  EXPECT_THAT((*source)->FileSize(0), IsOkAndHolds(6));
  // What the memory is filled with later is what is read.
  (*memory)[2] = std::byte{'x'};
  Bytes first(1);
  ASSERT_THAT(array->file->ReadAt(array->offset_bytes, first), IsOk());
  EXPECT_EQ(AsText(first), "x");

  const auto absent = (*source)->Locate(tensor, index.chunks(tensor)[1]);
  ASSERT_THAT(absent, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(absent.status().problems().front().file, "there");
  EXPECT_EQ(absent.status().problems().front().tensor, "t");
  EXPECT_THAT((*source)->FileSize(1), FailsWith(ErrorKind::kMissingFile));
}

TEST(PartialSourceTest, RefusesAChunkPastItsMemory) {
  const auto make = [](std::uint64_t offset, std::size_t size) {
    return MakePartialSource(IndexOfHalves(offset), {MakeMemoryFile("here", Bytes(size)), nullptr});
  };
  EXPECT_THAT(make(2, 6), IsOk());
  EXPECT_THAT(make(2, 5), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(make(UINT64_MAX - 1, 6), FailsWith(ErrorKind::kOutOfRange));
}

}  // namespace
}  // namespace ckpt
