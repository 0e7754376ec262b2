// Rows of a model's tensors, read a few at a time.
#include "converters/verbs/weight_reader.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

#include "converters/families/known_namings.h"
#include "core/io/memory_storage.h"
#include "core/tensor/shape.h"
#include "tests/reliability/small_model.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::CountingStorage;
using testing::IsOk;

TEST(WeightReaderTest, LocatesATensorOnceForAllOfItsRows) {
  const std::unique_ptr<Storage> disk = MakeMemoryStorage();
  ASSERT_THAT(testing::WriteSmallModel(*disk, "/hf", {}), IsOk());
  ASSERT_THAT(testing::Convert(*disk, testing::HfToFsdp("/hf", "/run")), IsOk());
  CountingStorage counting(*disk);
  OpenModelOptions options;
  options.open.verify = false;
  const auto model = OpenModel(counting, "/run", options);
  ASSERT_THAT(model, IsOk());
  auto reader = WeightReader::Open(*model, kTrainerNaming, {}, 1 << 20);
  ASSERT_THAT(reader, IsOk());

  for (const TargetTensor& tensor : reader->view().tensors) {
    if (tensor.shape.size() != 2) continue;
    std::vector<float> row(static_cast<std::size_t>(tensor.shape[1]));
    const auto read = [&](std::int64_t begin) {
      const std::uint64_t before = counting.bytes_read();
      EXPECT_THAT(reader->ReadRows(tensor.key, begin, 1, row), IsOk());
      return counting.bytes_read() - before;
    };
    EXPECT_GT(read(0), row.size() * ElementBytes(tensor.dtype)) << tensor.key;
    EXPECT_EQ(read(0), row.size() * ElementBytes(tensor.dtype)) << tensor.key;
  }
}

}  // namespace
}  // namespace ckpt
