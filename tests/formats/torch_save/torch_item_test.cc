#include "formats/torch_save/torch_item.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "formats/pickle/reader.h"
#include "formats/zip/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using testing::IsOk;

TEST(TorchItemTest, PicklesATensorAsTorchDoes) {
  // The 150 bytes of data.pkl of torch.ones(2): docs/formats/torch_save.md.
  const TensorItem item(DType::kFloat32, Dims{2});
  EXPECT_EQ(item.payload_offset(), 704u);
  EXPECT_EQ(item.payload_bytes(), 8u);
  EXPECT_EQ(item.size_bytes(), 1577u);
  const ByteSpan pickle = ByteSpan(item.head()).subspan(64, 150);
  EXPECT_EQ(Crc32(pickle), 0xb4401400u);
}

TEST(TorchItemTest, HeadPayloadAndTailAreAnArchive) {
  for (const auto& [dtype, shape] : std::vector<std::pair<DType, Dims>>{
           {DType::kBfloat16, {3, 5}},
           {DType::kFloat8E4m3fn, {70'000}},
           {DType::kInt64, {}},
           {DType::kFloat32, {0, 4}},
           {DType::kUint16, {2, 1, 1, 3, 1}},
       }) {
    const TensorItem item(dtype, shape);
    const Bytes payload(item.payload_bytes(), std::byte{7});
    Bytes bytes = item.head();
    EXPECT_EQ(bytes.size() % 64, 0u);
    Append(ByteSpan(payload), bytes);
    Append(ByteSpan(item.Tail(Crc32(payload))), bytes);
    EXPECT_EQ(bytes.size(), item.size_bytes());
    const std::uint64_t size = bytes.size();
    const Result<zip::Archive> archive =
        zip::Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
    ASSERT_THAT(archive, IsOk());
    for (const zip::Record& record : archive->records())
      EXPECT_THAT(archive->Verify(record), IsOk());
    EXPECT_EQ(archive->Find("data/0")->offset_bytes, item.payload_offset());
  }
}

TEST(TorchItemTest, PicklesSizesOfEveryWidth) {
  // Nobody has such tensors in memory: only the pickle is looked at.
  constexpr std::int64_t kOne = 1;
  const std::vector<std::pair<std::int64_t, std::uint64_t>> cases = {
      {1, 2},          {255, 2},
      {256, 3},        {65535, 3},
      {65536, 5},      {(kOne << 31) - 1, 5},
      {kOne << 31, 7}, {(kOne << 39) - 1, 7},
      {kOne << 39, 8}, {kOne << 55, 10},
      {kOne << 61, 10}};
  std::uint64_t frame = 0;  // of the pickle around its two sizes
  for (const auto& [size, bytes] : cases) {
    const TensorItem item(DType::kUint8, Dims{size});
    const auto parsed = pickle::ParsePickle(ByteSpan(item.head()).subspan(64), "data.pkl");
    ASSERT_THAT(parsed, IsOk());
    const pickle::Graph& graph = parsed->graph;
    const auto args = graph.items(graph.args(parsed->root));
    EXPECT_EQ(graph.integer(graph.items(args[2])[0]), size);
    EXPECT_EQ(graph.integer(graph.items(graph.persistent_id(args[0]))[4]), size);
    if (frame == 0) frame = parsed->end - 2 * bytes;
    EXPECT_EQ(parsed->end, frame + 2 * bytes) << size;
  }
}

TEST(TorchItemTest, ObjectItemHoldsThePickle) {
  Bytes bytes = ObjectItem(AsBytes("\x80\x02N."));
  const std::uint64_t size = bytes.size();
  const Result<zip::Archive> archive =
      zip::Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
  ASSERT_THAT(archive, IsOk());
  const Result<Bytes> pickle = archive->Read(*archive->Find("data.pkl"), 100);
  ASSERT_THAT(pickle, IsOk());
  EXPECT_EQ(AsText(*pickle), "\x80\x02N.");
}

}  // namespace
}  // namespace ckpt::torch_save
