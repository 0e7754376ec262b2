#include "formats/dcp/internal/item_framing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "formats/dcp/source.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using testing::IsOk;

// Cases of one torch whose items are contiguous, so that ours must be equal to them.
class ItemFramingGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, ItemFramingGoldenTest,
                         ::testing::Values("dtypes", "shapes", "sharded"),
                         [](const auto& name) { return name.param; });

TEST_P(ItemFramingGoldenTest, FramesTensorsAsTorchDoes) {
  const testing::GoldenCase golden = testing::LoadGolden("dcp", GetParam());
  const auto source = dcp::Source::Open(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  const TorchItemFraming framing;
  for (const GlobalTensor& tensor : index.tensors()) {
    for (const Chunk& chunk : index.chunks(tensor)) {
      SCOPED_TRACE(tensor.key);
      const Box box = index.box(chunk);
      const Result<StoredArray> array = (*source)->Locate(tensor, chunk);
      ASSERT_THAT(array, IsOk());
      if (array->strides != ContiguousStrides(box.sizes)) continue;
      const ItemSize size = MeasureItem(tensor.dtype, box.sizes);
      EXPECT_EQ(size.size_bytes, chunk.size_bytes);
      EXPECT_EQ(chunk.offset_bytes + size.payload_offset, array->offset_bytes);

      const TargetTensor target = {.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape};
      const WriteItem item = {.tensor = 0,
                              .file = 0,
                              .box = box,
                              .offset_bytes = 0,
                              .payload_offset = size.payload_offset,
                              .payload_bytes = size.payload_bytes,
                              .size_bytes = size.size_bytes};
      const Bytes head = framing.Head(target, item);
      Bytes stored(size.payload_offset);
      ASSERT_THAT(array->file->ReadAt(chunk.offset_bytes, stored), IsOk());
      EXPECT_EQ(AsText(head), AsText(stored));
      EXPECT_EQ(framing.Tail(target, item, 0).size(),
                size.size_bytes - size.payload_offset - size.payload_bytes);
    }
  }
}

}  // namespace
}  // namespace ckpt::dcp
