// What a step asks of the CUDA driver once the run has begun: no memory, no wait, and no copy that
// could wait.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/device/cuda/call_record.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using ::testing::AllOf;
using testing::CallRecord;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::RecordedCalls;
using testing::SmallMoe;
using testing::SmallRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kRecordedSteps = 4;

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Why a step must not call the function; empty if it may.
std::string_view FaultOf(std::string_view function) {
  constexpr std::array kMemory = {"Malloc",       "MemAlloc",       "HostAlloc",      "Free",
                                  "HostRegister", "HostUnregister", "MemCreate",      "MemRelease",
                                  "MemMap",       "MemUnmap",       "AddressReserve", "ArrayCreate",
                                  "ArrayDestroy"};
  // Each of them takes memory of the driver, and the last may wait for the device.
  constexpr std::array kObjects = {"EventCreate", "EventDestroy", "StreamCreate", "StreamDestroy",
                                   "ModuleLoad",  "ModuleUnload", "LibraryLoad",  "LibraryUnload"};
  const auto has = [&](std::string_view part) { return Has(function, part); };
  if (std::ranges::any_of(kMemory, has)) return "takes or gives back memory";
  if (std::ranges::any_of(kObjects, has)) return "makes or destroys an object of the driver";
  if (has("Synchronize")) return "waits";
  if ((has("Memcpy") || has("Memset")) && !has("Async")) return "may wait until the copy is over";
  return {};
}

// RankTrainer::Collect waits for the event of a step that was enqueued before, and then reads its
// report from pinned memory. It does so once a step.
constexpr std::array<std::string_view, 2> kAllowed = {
    "cudaEventSynchronize",
    "cuEventSynchronize",  // what the runtime's call may ask of the driver
};

std::vector<std::string> FaultsOf(const RecordedCalls& calls) {
  std::vector<std::string> faults;
  for (const auto& [function, count] : calls.counts) {
    const std::string_view fault = FaultOf(function);
    if (fault.empty()) continue;
    if (std::ranges::find(kAllowed, function) != kAllowed.end() && count <= kRecordedSteps)
      continue;
    faults.push_back(function + " " + std::string(fault) + ", " + std::to_string(count) + " times");
  }
  return faults;
}

// Layers without experts. With heads of 64 cuDNN computes their attention, with others this
// program's own kernels.
TrainConfig DenseRun(std::int64_t head_dim) {
  constexpr std::int64_t kMicroBatches = 2;
  TrainConfig config = SmallRun(SmallMoe(), kMicroBatches);
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 256;
  config.model.kv_channels = head_dim;
  config.model.moe.reset();
  config.model.is_moe_layer.assign(config.model.is_moe_layer.size(), false);
  config.seq_length = 64;
  config.precision.compute = config.precision.grad_comm = DType::kBfloat16;
  return config;
}

std::vector<HostMicroBatch> BatchesOf(const TrainConfig& config) {
  HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = 1, .seq = config.seq_length};
  batch.tokens.resize(static_cast<std::size_t>(config.seq_length));
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    batch.tokens[t] =
        static_cast<std::int32_t>(t) % static_cast<std::int32_t>(config.model.vocab_size);
  }
  batch.labels = batch.tokens;
  return std::vector(static_cast<std::size_t>(config.num_micro_batches()), batch);
}

Status TrainRecorded(const TrainConfig& config, HostGroup& world, RecordedCalls& calls) {
  CKPT_ASSIGN_OR_RETURN(const Backend backend,
                        MakeBackend({.name = "cuda", .compute = config.precision.compute}, world));
  CKPT_ASSIGN_OR_RETURN(const auto trainer, RankTrainer::Create(config, world,
                                                                {.device = backend.device.get(),
                                                                 .ops = backend.ops.get()}));
  CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
  EXPECT_EQ(trainer->max_in_flight(), 2);
  const std::vector<HostMicroBatch> batches = BatchesOf(config);
  CKPT_RETURN_IF_ERROR(trainer->Enqueue(batches, {}));
  CKPT_RETURN_IF_ERROR(trainer->Enqueue(batches, {}));
  CKPT_RETURN_IF_ERROR(trainer->Collect().status());
  CKPT_ASSIGN_OR_RETURN(const auto record, CallRecord::Start());
  for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
    CKPT_RETURN_IF_ERROR(trainer->Enqueue(batches, {}));
    CKPT_RETURN_IF_ERROR(trainer->Collect().status());
  }
  calls = record->Finish();
  for (const void* const host : calls.host_memory) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, host), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost) << "a copy of memory that is not pinned";
  }
  return trainer->Collect().status();
}

// The calls of kRecordedSteps steps that follow the first two, each enqueued before the one in
// front of it is collected.
Result<RecordedCalls> RecordSteps(const TrainConfig& config) {
  RecordedCalls calls;
  CKPT_RETURN_IF_ERROR(
      RunRanks(1, [&](HostGroup& world) -> Status { return TrainRecorded(config, world, calls); }));
  return calls;
}

TEST(CudaCallsTest, AStepNeitherAllocatesNorWaits) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  for (const std::int64_t head_dim : {64, 6}) {
    SCOPED_TRACE(::testing::Message() << "heads of " << head_dim);
    const auto calls = RecordSteps(DenseRun(head_dim));
    ASSERT_THAT(calls, IsOk());
    EXPECT_THAT(FaultsOf(*calls), IsEmpty());
    // The record is one of whole steps.
    const auto& counts = calls->counts;
    EXPECT_TRUE(counts.contains("cudaEventSynchronize") &&
                counts.at("cudaEventSynchronize") == kRecordedSteps);
    const auto launches = std::accumulate(
        counts.begin(), counts.end(), std::int64_t{0}, [](std::int64_t sum, const auto& call) {
          return sum + (Has(call.first, "LaunchKernel") ? call.second : 0);
        });
    EXPECT_GE(launches, kRecordedSteps * 20);
    EXPECT_THAT(calls->host_memory.size(), Ge(4U * kRecordedSteps));
  }
}

// The record sees what it is there to see.
TEST(CudaCallsTest, FindsPlantedCalls) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // the device is set up before the record begins
  auto record = CallRecord::Start();
  ASSERT_THAT(record, IsOk());
  void* memory = nullptr;
  std::int64_t value = 0;
  ASSERT_EQ(cudaMalloc(&memory, sizeof value), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&value, memory, sizeof value, cudaMemcpyDeviceToHost, cudaStreamLegacy),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  const RecordedCalls calls = (*record)->Finish();
  const std::vector<std::string> faults = FaultsOf(calls);
  for (const char* const planted : {"cudaMalloc ", "cudaMemcpy ", "cudaStreamSynchronize ",
                                    "cudaDeviceSynchronize ", "cudaFree "}) {
    EXPECT_THAT(faults, Contains(AllOf(HasSubstr(planted), HasSubstr("1 times"))));
  }
  EXPECT_THAT(calls.host_memory, ::testing::ElementsAre(&value));
  ASSERT_EQ(cudaMalloc(&memory, sizeof value), cudaSuccess);  // behind the record
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(CudaCallsTest, KnowsCallsByTheirNames) {
  for (const char* const forbidden :
       {"cudaMalloc", "cudaMallocAsync", "cuMemAlloc", "cuMemAllocFromPoolAsync", "cudaFreeHost",
        "cuMemHostAlloc", "cudaHostRegister", "cuMemCreate", "cudaDeviceSynchronize",
        "cuCtxSynchronize", "cuStreamSynchronize", "cudaMemcpy", "cudaMemcpyToSymbol",
        "cuMemcpyDtoH", "cudaMemset", "cuMemsetD8", "cudaEventCreateWithFlags",
        "cuModuleLoadData"}) {
    EXPECT_FALSE(FaultOf(forbidden).empty()) << forbidden;
  }
  for (const char* const harmless :
       {"cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaMemcpyAsync", "cuMemcpyHtoDAsync",
        "cudaMemsetAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaMemGetInfo",
        "cuMemGetAllocationGranularity", "cudaGetDevice"}) {
    EXPECT_TRUE(FaultOf(harmless).empty()) << harmless << " " << FaultOf(harmless);
  }
  // A second wait in a step is one too many.
  const RecordedCalls waits = {.counts = {{"cudaEventSynchronize", kRecordedSteps}},
                               .host_memory = {}};
  EXPECT_THAT(FaultsOf(waits), IsEmpty());
  EXPECT_THAT(
      FaultsOf({.counts = {{"cudaEventSynchronize", kRecordedSteps + 1}}, .host_memory = {}}),
      ::testing::ElementsAre("cudaEventSynchronize waits, 5 times"));
}

}  // namespace
}  // namespace ckpt
