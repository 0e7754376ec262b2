// Errors of the driver are a Status, and what they do not touch goes on.
#include "trainer/device/cuda/cuda_device.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/device_values.h"
#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::ReadValues;
using testing::WriteValues;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
    Result<std::unique_ptr<Device>> device = MakeCudaDevice(0);
    ASSERT_THAT(device.status(), IsOk());
    device_ = std::move(device).value();
  }

  // Whether values still come and go.
  void ExpectWorks() {
    const std::unique_ptr<Queue> queue = device_->MakeQueue("works");
    Result<Buffer> buffer = device_->Allocate(12, MemoryUse::kOther);
    ASSERT_THAT(buffer.status(), IsOk());
    const Tensor tensor(buffer->data(), DType::kFloat32, {3});
    const std::vector<double> values = {1, -2, 3};
    WriteValues(*device_, *queue, values, tensor);
    EXPECT_EQ(ReadValues(*device_, *queue, tensor), values);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, MoreMemoryThanThereIsIsAnError) {
  constexpr std::uint64_t kPetabyte = std::uint64_t{1} << 50;
  const Result<Buffer> buffer = device_->Allocate(kPetabyte, MemoryUse::kOther);
  EXPECT_THAT(buffer.status(), FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(buffer.status().ToString(), HasSubstr(std::to_string(kPetabyte)));
  ExpectWorks();
}

TEST_F(CudaDeviceTest, ACopyThatTheDriverRefusesFailsItsQueueAlone) {
  const std::unique_ptr<Queue> queue = device_->MakeQueue("refused");
  std::vector<float> host(3);
  device_->CopyToHost(*queue, Tensor(nullptr, DType::kFloat32, {3}), host.data());
  EXPECT_FALSE(queue->Synchronize().ok());
  ExpectWorks();
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsAnError) {
  EXPECT_FALSE(MakeCudaDevice(NumCudaDevices()).ok());
}

}  // namespace
}  // namespace ckpt::trainer
