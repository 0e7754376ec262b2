#include "core/checkpoint/read.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

// A source whose chunks are strided arrays in memory files.
class MemorySource final : public CheckpointSource {
 public:
  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor&, const Chunk& chunk) const override {
    return arrays_[chunk.offset_bytes];  // the chunk's number stands in its offset
  }
  Result<RenderedObject> ReadObject(const ObjectEntry&) const override {
    return Error(ErrorKind::kNotFound, "no objects");
  }
  Result<std::uint64_t> FileSize(FileId) const override { return std::uint64_t{0}; }
  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

  std::uint64_t Add(StoredArray array) {
    arrays_.push_back(std::move(array));
    return arrays_.size() - 1;
  }
  void Build(IndexBuilder builder) {
    auto index = builder.Build();
    EXPECT_THAT(index, IsOk());
    index_ = std::move(index).value();
  }

 private:
  CheckpointIndex index_;
  std::vector<StoredArray> arrays_;
};

// Every chunk is decoded into 100 bytes of memory, whose life is watched.
class DecodingSource final : public CheckpointSource {
 public:
  DecodingSource(int tensors, int chunks) {
    IndexBuilder builder;
    const FileId file = builder.AddFile("f");
    const EncodingId encoding = builder.AddEncoding("zstd");
    for (int t = 0; t < tensors; ++t) {
      builder.AddTensor("t" + std::to_string(t), DType::kUint8, {chunks});
      for (int c = 0; c < chunks; ++c) {
        builder.AddChunk({.offsets = {c}, .sizes = {1}}, file, encoding, 0, 1);
      }
    }
    auto index = builder.Build();
    EXPECT_THAT(index, IsOk());
    index_ = *std::move(index);
  }
  const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor&, const Chunk&) const override {
    StoredArray array;
    array.file = MakeMemoryFile("decoded", Bytes(100));
    array.strides = {1};
    array.resident_bytes = 100;
    decoded_.push_back(array.file);
    return array;
  }
  Result<RenderedObject> ReadObject(const ObjectEntry&) const override {
    return Error(ErrorKind::kNotFound, "no objects");
  }
  Result<std::uint64_t> FileSize(FileId) const override { return std::uint64_t{0}; }
  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

  std::size_t num_decoded() const { return decoded_.size(); }
  std::size_t num_alive() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(decoded_, [](const auto& file) { return !file.expired(); }));
  }

 private:
  CheckpointIndex index_;
  mutable std::vector<std::weak_ptr<const ReadableFile>> decoded_;
};

// A tensor that is made of many others keeps no more of them than one.
TEST(LocatedChunksTest, KeepsItsBudgetOverAllTensors) {
  const DecodingSource source(10, 5);
  const CheckpointIndex& index = source.index();
  LocatedChunks chunks(source, 350);
  for (const GlobalTensor& tensor : index.tensors()) {
    for (const Chunk& chunk : index.chunks(tensor)) {
      ASSERT_THAT(chunks.Locate(tensor, chunk), IsOk());
      EXPECT_LE(source.num_alive(), 3U);
    }
  }
  EXPECT_EQ(source.num_decoded(), 50U);
  const GlobalTensor& last = index.tensors().back();
  for (const Chunk& chunk : index.chunks(last).last(3)) {
    ASSERT_THAT(chunks.Locate(last, chunk), IsOk());
  }
  EXPECT_EQ(source.num_decoded(), 50U) << "the most recent ones are there";
  chunks.Clear();
  EXPECT_EQ(source.num_alive(), 0U);
}

TEST(LocatedChunksTest, KeepsOneItemHoweverLarge) {
  const DecodingSource source(1, 2);
  const GlobalTensor& tensor = source.index().tensors()[0];
  LocatedChunks chunks(source, 10);
  const auto array = chunks.Locate(tensor, source.index().chunks(tensor)[0]);
  ASSERT_THAT(array, IsOk());
  EXPECT_EQ((*array)->file->size_bytes(), 100U);
  ASSERT_THAT(chunks.Locate(tensor, source.index().chunks(tensor)[0]), IsOk());
  EXPECT_EQ(source.num_decoded(), 1U);
}

// Element `i` of the logical tensor holds the 16-bit number i.
Bytes Logical(std::int64_t count) {
  Bytes bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(i & 0xFF));
    bytes.push_back(static_cast<std::byte>(i >> 8));
  }
  return bytes;
}

// A chunk of the logical tensor stored with `order` as its dims' storage order.
StoredArray Store(DimsView shape, const Box& box, const std::vector<std::size_t>& order,
                  std::uint64_t lead) {
  StoredArray array;
  array.dtype = DType::kInt16;
  array.offset_bytes = lead;
  array.strides.resize(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    array.strides[order[i]] = step;
    step *= box.sizes[order[i]];
  }
  Bytes bytes(lead + static_cast<std::uint64_t>(step) * 2);
  const Dims global = ContiguousStrides(shape);
  const Dims local = ContiguousStrides(box.sizes);
  for (std::int64_t i = 0; i < step; ++i) {
    std::int64_t value = 0;
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::int64_t index = i / local[d] % box.sizes[d];
      value += (box.offsets[d] + index) * global[d];
      at += index * array.strides[d];
    }
    bytes[lead + static_cast<std::uint64_t>(at) * 2] = static_cast<std::byte>(value & 0xFF);
    bytes[lead + static_cast<std::uint64_t>(at) * 2 + 1] = static_cast<std::byte>(value >> 8);
  }
  array.file = MakeMemoryFile("chunk", std::move(bytes));
  return array;
}

TEST(Read, AnyChunkingAndStorageOrderGivesTheSameTensor) {
  std::mt19937_64 rng(5);
  const Dims shape = {9, 7, 5};
  for (int round = 0; round < 100; ++round) {
    MemorySource source;
    IndexBuilder builder;
    builder.AddTensor("t", DType::kInt16, shape);
    const FileId file = builder.AddFile("f");
    const EncodingId raw = builder.AddEncoding("raw");
    // A grid of random cuts in two dims, one box listed twice.
    const auto cut0 = static_cast<std::int64_t>(rng() % 10);
    const auto cut2 = static_cast<std::int64_t>(rng() % 6);
    for (int twice = 0; twice < 2; ++twice) {
      for (const auto& [o0, s0] : {std::pair(std::int64_t{0}, cut0), std::pair(cut0, 9 - cut0)}) {
        for (const auto& [o2, s2] : {std::pair(std::int64_t{0}, cut2), std::pair(cut2, 5 - cut2)}) {
          const Box box{{o0, 0, o2}, {s0, 7, s2}};
          if (IsEmpty(box) || (twice == 1 && o0 != 0)) continue;
          std::vector<std::size_t> order = {0, 1, 2};
          std::shuffle(order.begin(), order.end(), rng);
          builder.AddChunk(box, file, raw, source.Add(Store(shape, box, order, rng() % 50)), 0);
        }
      }
    }
    source.Build(std::move(builder));
    const GlobalTensor& tensor = source.index().tensors()[0];
    Bytes all;
    ASSERT_THAT(StreamTensor(source, tensor, 64,
                             [&](ByteSpan block) {
                               Append(block, all);
                               return OkStatus();
                             }),
                IsOk());
    EXPECT_EQ(all, Logical(9 * 7 * 5));
    const auto digest = DigestTensor(source, tensor, HashAlgorithm::kSha256, 1000);
    ASSERT_THAT(digest, IsOk());
    EXPECT_EQ(*digest, HashHex(HashAlgorithm::kSha256, Logical(9 * 7 * 5)));
  }
}

TEST(PlanReads, TheirBytesAreCountedWithoutThem) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 500; ++round) {
    StridedCopy copy{.loops = {}, .run_bytes = 1 + rng() % 100};
    const bool interleaves = round % 4 == 0;
    std::uint64_t span = copy.run_bytes;
    for (std::size_t d = rng() % 4; d > 0; --d) {
      const std::uint64_t gap = interleaves || rng() % 3 == 0 ? rng() % 200'000 : rng() % 50;
      const std::int64_t step = static_cast<std::int64_t>(span + gap);
      copy.loops.insert(copy.loops.begin(), {.extent = static_cast<std::int64_t>(2 + rng() % 20),
                                             .src_step = rng() % 10 == 0 ? 0 : step,
                                             .dst_step = step});
      span = copy.SourceSpan();
    }
    if (interleaves && copy.loops.size() > 1) copy.loops.front().dst_step = 1;
    const std::uint64_t scratch = 100 + rng() % 1'000'000;
    std::uint64_t bytes = 0;
    ASSERT_THAT(PlanReads(copy, scratch,
                          [&](const FileRead& read) {
                            bytes += read.SizeBytes();
                            return OkStatus();
                          }),
                IsOk());
    EXPECT_EQ(BytesOfReads(copy, scratch), bytes) << round;
  }
}

// Two matrices that are transposed into the even and odd columns of one: whatever the budget, a
// read has the same rows of both.
TEST(PlanReads, ElementsThatBecomeNeighboursAreReadTogether) {
  constexpr std::int64_t kNumRows = 300;
  constexpr std::int64_t kNumColumns = 500;
  constexpr std::int64_t kNumElements = kNumRows * kNumColumns;
  const StridedCopy copy = {
      .loops = {{.extent = 2, .src_step = 2 * kNumElements, .dst_step = 2},
                {.extent = kNumRows, .src_step = 2 * kNumColumns, .dst_step = 4},
                {.extent = kNumColumns, .src_step = 2, .dst_step = 4 * kNumRows}},
      .run_bytes = 2};
  std::vector<std::uint16_t> file(2 * kNumElements);
  std::iota(file.begin(), file.end(), std::uint16_t{0});
  const auto bytes = std::as_bytes(std::span(file));
  for (const std::uint64_t scratch : {std::uint64_t{150'000}, std::uint64_t{300'000}}) {
    std::vector<std::uint16_t> out(2 * kNumElements);
    std::uint64_t bytes_read = 0;
    ASSERT_THAT(PlanReads(copy, scratch,
                          [&](const FileRead& read) {
                            EXPECT_EQ(read.num_ranges, 2);
                            EXPECT_LE(read.SizeBytes(), scratch);
                            bytes_read += read.SizeBytes();
                            Bytes window;
                            for (std::int64_t i = 0; i < read.num_ranges; ++i) {
                              const ByteSpan range =
                                  bytes.subspan(read.offset_bytes +
                                                    static_cast<std::uint64_t>(i * read.range_step),
                                                read.range_bytes);
                              window.insert(window.end(), range.begin(), range.end());
                            }
                            CopyStrided(read.copy, window.data(),
                                        std::as_writable_bytes(std::span(out)).data());
                            return OkStatus();
                          }),
                IsOk());
    std::vector<std::uint16_t> expected(out.size());
    CopyStrided(copy, bytes.data(), std::as_writable_bytes(std::span(expected)).data());
    EXPECT_EQ(out, expected);
    EXPECT_EQ(bytes_read, bytes.size());
    EXPECT_EQ(BytesOfReads(copy, scratch), bytes.size());
  }
  // Where a row of each does not fit, the matrices are read one after the other.
  EXPECT_EQ(BytesOfReads(copy, 1500), bytes.size());
}

TEST(Read, AHoleIsAnError) {
  MemorySource source;
  IndexBuilder builder;
  builder.AddTensor("t", DType::kInt16, {4, 2});
  const Box box{{0, 0}, {3, 2}};
  builder.AddChunk(box, builder.AddFile("f"), builder.AddEncoding("raw"),
                   source.Add(Store(Dims{4, 2}, box, {0, 1}, 0)), 0);
  source.Build(std::move(builder));
  Bytes out(16);
  EXPECT_THAT(ReadBox(source, source.index().tensors()[0], WholeBox(Dims{4, 2}), out, 100),
              FailsWith(ErrorKind::kCoverage));
}

TEST(Read, ResolvesByteOrderNegativeAndConjugate) {
  MemorySource source;
  IndexBuilder builder;
  builder.AddTensor("t", DType::kComplex32, {1});
  StoredArray array;
  array.dtype = DType::kComplex32;
  array.strides = {1};
  array.byte_swapped = true;
  array.negated = true;
  array.conjugated = true;
  array.file =
      MakeMemoryFile("f", {std::byte{0x3C}, std::byte{0x00}, std::byte{0x40}, std::byte{0x01}});
  builder.AddChunk(Box{{0}, {1}}, builder.AddFile("f"), builder.AddEncoding("raw"),
                   source.Add(array), 4);
  source.Build(std::move(builder));
  Bytes out(4);
  ASSERT_THAT(ReadBox(source, source.index().tensors()[0], WholeBox(Dims{1}), out, 100), IsOk());
  // Minus the conjugate: the real part changes sign, the imaginary one does so twice.
  EXPECT_EQ(HexOf(out), "00bc0140");
}

// torch._neg_view of integers: their two's complement, in whichever byte order they are stored.
TEST(ReadBoxTest, NegatesIntegers) {
  struct Case {
    DType dtype;
    bool swapped;
    Bytes stored;
    std::string negated;
  };
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes all;
    for (const int value : values) all.push_back(static_cast<std::byte>(value));
    return all;
  };
  for (const Case& test :
       {Case{DType::kInt8, false, bytes({1, 0, 0x80, 0xFF}), "ff008001"},
        Case{DType::kUint8, false, bytes({1, 2}), "fffe"},
        Case{DType::kInt16, false, bytes({0x00, 0x01, 0, 0}), "00ff0000"},
        Case{DType::kInt32, true, bytes({0, 0, 0, 3}), "fdffffff"},
        Case{DType::kInt64, false, bytes({2, 0, 0, 0, 0, 0, 0, 0}), "feffffffffffffff"}}) {
    MemorySource source;
    IndexBuilder builder;
    const auto elems = static_cast<std::int64_t>(test.stored.size() / ElementBytes(test.dtype));
    builder.AddTensor("n", test.dtype, Dims{elems});
    StoredArray array;
    array.dtype = test.dtype;
    array.strides = {1};
    array.byte_swapped = test.swapped;
    array.negated = true;
    array.file = MakeMemoryFile("f", test.stored);
    builder.AddChunk(Box{{0}, {elems}}, builder.AddFile("f"), builder.AddEncoding("raw"),
                     source.Add(array), test.stored.size());
    source.Build(std::move(builder));
    Bytes out(test.stored.size());
    ASSERT_THAT(ReadBox(source, source.index().tensors()[0], WholeBox(Dims{elems}), out, 100),
                IsOk());
    EXPECT_EQ(HexOf(out), test.negated) << DTypeName(test.dtype);
  }
}

TEST(Digest, OfTheCheckpointFollowsTheDocumentedLines) {
  std::vector<TensorDigest> digests = {{"b", DType::kFloat32, {2, 3}, "22"},
                                       {"a", DType::kBfloat16, {}, "11"}};
  std::string lines(
      "a\0bfloat16\0\0"
      "11\n",
      15);
  lines += std::string(
      "b\0float32\0"
      "2,3\0"
      "22\n",
      17);
  EXPECT_EQ(CombineDigests(digests, HashAlgorithm::kSha256),
            HashHex(HashAlgorithm::kSha256, AsBytes(lines)));
}

}  // namespace
}  // namespace ckpt
