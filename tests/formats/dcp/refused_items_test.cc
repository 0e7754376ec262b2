// Items that are not what `.metadata` says, in folders that torch never writes.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/units.h"
#include "core/io/memory_storage.h"
#include "formats/dcp/source.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"
#include "tests/formats/dcp/metadata_pickle.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::MetadataPickle;

class RefusedItemsTest : public ::testing::Test {
 protected:
  // A folder of `.metadata` and `__0_0.distcp`, opened.
  void Open(const MetadataPickle& metadata, ByteSpan data) {
    storage_ = MakeMemoryStorage();
    ASSERT_THAT(storage_->MakeDirectories("/ck"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/ck/.metadata", metadata.Write()), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/ck/__0_0.distcp", data), IsOk());
    auto source = dcp::Source::Open(*storage_, "/ck");
    ASSERT_THAT(source, IsOk());
    source_ = *std::move(source);
  }

  // The first chunk of "w".
  Result<StoredArray> Locate() {
    const GlobalTensor* const tensor = source_->index().FindTensor("w");
    EXPECT_NE(tensor, nullptr);
    Result<StoredArray> array = source_->Locate(*tensor, source_->index().chunks(*tensor)[0]);
    EXPECT_TRUE(array.ok() || array.status().first().tensor == "w");
    return array;
  }

  Result<RenderedObject> ReadObject() {
    const ObjectEntry* const object = source_->index().FindObject("o");
    EXPECT_NE(object, nullptr);
    Result<RenderedObject> rendered = source_->ReadObject(*object);
    EXPECT_TRUE(rendered.ok() || rendered.status().first().tensor == "o");
    return rendered;
  }

  std::unique_ptr<Storage> storage_;
  std::unique_ptr<dcp::Source> source_;
};

// Chunks lie in what Locate would read, yet nothing is delivered of a tensor that has an error.
TEST_F(RefusedItemsTest, ATensorWithAnErrorIsNotDelivered) {
  Open({.chunks = {{{{0}, {2}}, 0, 700}, {{{1}, {2}}, 0, 700}}}, Bytes(1100));
  EXPECT_THAT(Locate(), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(ReadObject(), FailsWith(ErrorKind::kBadItem)) << "read, but there is no archive";
}

TEST_F(RefusedItemsTest, AShortFileLooksCutOff) {
  Open({}, Bytes(1099));
  EXPECT_THAT(Locate(), FailsWith(ErrorKind::kBadItem)) << "all of it is there";
  const Result<RenderedObject> object = ReadObject();
  ASSERT_THAT(object, FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(object.status().first().actual, HasSubstr("1099 bytes"));
  EXPECT_THAT(source_->FileSize(0), IsOkAndHolds(1099U));
}

TEST_F(RefusedItemsTest, ARangeOverAnotherIsWrongByItself) {
  Open({.chunks = {{{{0}, {2}}, 0, 701}}}, Bytes(100));
  EXPECT_THAT(Locate(), FailsWith(ErrorKind::kOutOfRange));
}

// An item may be smaller than its chunk, since a tensor may repeat its elements; from 1 GiB on it
// must not be much smaller.
TEST_F(RefusedItemsTest, AHugeChunkNeedsMoreThanNothing) {
  const std::int64_t least_elems = (std::int64_t{1} << 28) + 16;
  // What passes is read: zeros are not an archive.
  struct Case {
    std::int64_t num_elems;
    std::int64_t item_bytes;
    ErrorKind kind;
  };
  for (const Case& c : {Case{std::int64_t{1} << 28, 1, ErrorKind::kTruncated},
                        Case{(std::int64_t{1} << 28) + 1, 1, ErrorKind::kResource},
                        Case{least_elems, (1 << 24) + 1, ErrorKind::kTruncated},
                        Case{least_elems, 1 << 24, ErrorKind::kResource}}) {
    Open({.shape = {c.num_elems},
          .chunks = {{{{0}, {c.num_elems}}, 0, c.item_bytes}},
          .object = {{}, 0, 0}},
         Bytes(static_cast<std::size_t>(c.item_bytes)));
    EXPECT_THAT(Locate(), FailsWith(c.kind)) << c.num_elems << " " << c.item_bytes;
  }
}

TEST_F(RefusedItemsTest, AnArchiveOfAnotherTensorIsNoItemOfThisOne) {
  const auto archive = [](DType dtype, const Dims& shape) {
    const torch_save::TensorItem item(dtype, shape);
    Bytes bytes = item.head();
    bytes.resize(bytes.size() + item.payload_bytes());
    Append(item.Tail(0), bytes);
    return bytes;
  };
  struct Case {
    Bytes item;
    ErrorKind kind;
  };
  // Zeros have a checksum other than 0: the last case gets as far as the payload.
  for (const Case& c : {Case{archive(DType::kFloat32, {1}), ErrorKind::kShapeMismatch},
                        Case{archive(DType::kInt32, {2}), ErrorKind::kDtypeMismatch},
                        Case{torch_save::ObjectItem(AsBytes("\x80\x02N.")), ErrorKind::kBadItem},
                        Case{archive(DType::kFloat32, {2}), ErrorKind::kChecksum}}) {
    const auto size = static_cast<std::int64_t>(c.item.size());
    Open({.chunks = {{{{0}, {2}}, 0, size}}, .object = {{}, 0, size}}, c.item);
    EXPECT_THAT(Locate(), FailsWith(c.kind));
  }
}

// Two floats in the attribute `_tensor` of a tensor of this class.
Bytes WrappedItem(std::string_view module, std::string_view name) {
  pickle::PickleWriter out(pickle::Dialect::kWeightsOnly);
  const Dims two = {2};
  const Dims one = {1};
  out.Global("torch._tensor", "_rebuild_from_type_v2").BeginTuple();
  out.Global("torch._utils", "_rebuild_wrapper_subclass").Global(module, name);
  out.BeginTuple().Global(module, name).Global("torch", "float32").IntTuple(two).EndTuple();
  out.BeginDict().Text("_tensor").Global("torch._utils", "_rebuild_tensor_v2").BeginTuple();
  out.BeginTuple().Text("storage").Global("torch", "FloatStorage").Text("0").Text("cpu").Int(2);
  out.EndTuple().PersistentId().Int(0).IntTuple(two).IntTuple(one).Bool(false).None();
  out.EndTuple().Reduce().EndDict().EndTuple().Reduce();
  const std::vector<Bytes> storages = {Bytes(8)};
  return torch_save::ObjectItem(out.Take(), storages);
}

// `.metadata` tells nothing of a tensor's class. One of torchao's is known to hold the weight.
TEST_F(RefusedItemsTest, OfATensorOfAnotherClassOnlyOneIsKnown) {
  const auto open = [&](std::string_view module, std::string_view name) {
    const Bytes item = WrappedItem(module, name);
    const auto size = static_cast<std::int64_t>(item.size());
    Open({.chunks = {{{{0}, {2}}, 0, size}}, .object = {{}, 0, size}}, item);
  };
  open("torchao.float8.fsdp_utils", "WeightWithDynamicFloat8CastTensor");
  EXPECT_THAT(Locate(), IsOk());
  open("torchao.float8.float8_training_tensor", "Float8TrainingTensor");
  const Result<StoredArray> other = Locate();
  ASSERT_THAT(other, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(other.status().first().actual, HasSubstr("Float8TrainingTensor"));
}

TEST_F(RefusedItemsTest, RanksMayRepeatAnItemButNotContradictIt) {
  const auto twice = [](std::int64_t second_offset) {
    MetadataPickle metadata;
    metadata.chunks.push_back(metadata.chunks[0]);
    metadata.chunks[1].offset_bytes = second_offset;
    return metadata;
  };
  Open(twice(0), Bytes(1100));
  EXPECT_EQ(source_->index().FindTensor("w")->num_chunks, 2U);
  ASSERT_THAT(storage_->RemoveAll("/ck/.metadata"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, "/ck/.metadata", twice(1).Write()), IsOk());
  const auto refused = dcp::Source::Open(*storage_, "/ck");
  ASSERT_THAT(refused, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(refused.status().first().message, "two storage entries for the same chunk");
  EXPECT_EQ(refused.status().first().tensor, "w");
}

}  // namespace
}  // namespace ckpt
