#include "trainer/params/piece_rows.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Parameters of several blocks and of less than one, with a gap between two.
class PieceRowsTest : public ::testing::TestWithParam<std::tuple<int, QueueMode>> {
 protected:
  PieceRowsTest()
      : device_(MakeHostDevice({.queues = std::get<1>(GetParam())})),
        ops_(MakeHostOps({})),
        queue_(device_->MakeQueue("compute")) {
    for (const auto& [rows, row_elems] :
         {std::pair{1500, 1000}, {3, 7}, {1, 1}, {2, 300'000}, {40, 64}}) {
      specs_.push_back({.name = "p" + std::to_string(specs_.size()),
                        .shape = {rows + 10, row_elems},
                        .init = {}});
      shapes_.emplace_back(rows, row_elems);
    }
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const auto [rows, row_elems] = shapes_[i];
      pieces_.push_back({.spec = &specs_[i],
                         .row_begin = 4,
                         .rows = rows,
                         .row_elems = row_elems,
                         .main_offset = offset});
      offset += rows * row_elems + (i == 1 ? 5 : 0);
    }
    elems_ = offset;
  }

  // A number that bfloat16 holds, told by parameter, row and column.
  static float ValueOf(const ParamSpec& spec, std::int64_t row, std::int64_t column) {
    return static_cast<float>((spec.name.back() * 31 + row * 7 + column * 3) % 251);
  }

  static Status FillRow(const ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                        std::span<float> values) {
    const auto row_elems = static_cast<std::int64_t>(values.size()) / rows;
    for (std::int64_t i = 0; i < rows * row_elems; ++i) {
      values[static_cast<std::size_t>(i)] = ValueOf(spec, row_begin + i / row_elems, i % row_elems);
    }
    return OkStatus();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Queue> queue_;
  std::vector<ParamSpec> specs_;
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes_;
  std::vector<ParamPiece> pieces_;
  std::int64_t elems_ = 0;
};

TEST_P(PieceRowsTest, EveryRowGetsItsValues) {
  const int threads = std::get<0>(GetParam());
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    PieceRows rows(*ops_, *device_);
    const auto size_bytes = static_cast<std::uint64_t>(elems_) * ElementBytes(dtype);
    const auto memory = device_->Allocate(size_bytes, MemoryUse::kWeights);
    ASSERT_THAT(memory, IsOk());
    const Tensor array(memory->data(), dtype, {elems_});
    ASSERT_THAT(rows.Fill(pieces_, array, FillRow, *queue_, threads), IsOk());
    std::int64_t wrong = 0;
    for (const ParamPiece& piece : pieces_) {
      for (std::int64_t i = 0; i < piece.rows * piece.row_elems; ++i) {
        float value = 0;
        if (dtype == DType::kFloat32) {
          value = array.as<float>()[piece.main_offset + i];
        } else {
          const std::uint32_t bits = std::uint32_t{array.as<std::uint16_t>()[piece.main_offset + i]}
                                     << 16U;
          std::memcpy(&value, &bits, sizeof(value));
        }
        wrong += value != ValueOf(*piece.spec, 4 + i / piece.row_elems, i % piece.row_elems);
      }
    }
    EXPECT_EQ(wrong, 0) << DTypeName(dtype);
    EXPECT_EQ(*array.Rows(pieces_[2].main_offset - 1, 1).bytes(), std::byte{0});  // the gap
  }
}

TEST_P(PieceRowsTest, AFailureEndsIt) {
  const auto memory =
      device_->Allocate(static_cast<std::uint64_t>(elems_) * sizeof(float), MemoryUse::kWeights);
  ASSERT_THAT(memory, IsOk());
  PieceRows rows(*ops_, *device_);
  const auto fill = [](const ParamSpec& spec, std::int64_t row_begin, std::int64_t count,
                       std::span<float> values) -> Status {
    if (spec.name == "p3") return Error(ErrorKind::kIo, "gone");
    return FillRow(spec, row_begin, count, values);
  };
  EXPECT_THAT(rows.Fill(pieces_, Tensor(memory->data(), DType::kFloat32, {elems_}), fill, *queue_,
                        std::get<0>(GetParam())),
              FailsWith(ErrorKind::kIo));
}

INSTANTIATE_TEST_SUITE_P(Threads, PieceRowsTest,
                         ::testing::Combine(::testing::Values(1, 2, 7),
                                            ::testing::Values(QueueMode::kInline,
                                                              QueueMode::kThreads)));

}  // namespace
}  // namespace ckpt::trainer
