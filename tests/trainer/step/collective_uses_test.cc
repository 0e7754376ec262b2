// What a run asks of its collectives: the memory that calls will use, which NCCL registers with the
// driver, and how often the host reads counts of rows (docs/adr/0011).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "tests/testing/forwarding_device.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/device/collectives.h"
#include "trainer/rehearsal/idle_group.h"

namespace ckpt {
namespace {

using testing::IsOk;
using testing::OnMesh;
using testing::RunOptions;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using namespace trainer;  // NOLINT(google-build-using-namespace)

// What one rank's collectives were told, and what their calls used.
struct Uses {
  int registered = 0;  // arrays
  int inside = 0;      // operands that lie in one of them
  int outside = 0;
  int reads = 0;  // of counts
  int exchanges = 0;
};

class NotedCollectives final : public Collectives {
 public:
  NotedCollectives(std::unique_ptr<Collectives> target, Uses& uses)
      : Collectives(MakeIdleGroup(target->rank(), target->size())),
        target_(std::move(target)),
        uses_(uses) {}

  void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) override {
    Note({shard, full});
    target_->AllGather(queue, shard, full);
  }
  void GatherShards(Queue& queue, const Tensor& shard, const Tensor& full,
                    const Event& ready) override {
    Note({shard, full});
    target_->GatherShards(queue, shard, full, ready);
  }
  void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard, GradWrite write,
                         std::span<const ShardRows> rows) override {
    Note({full, shard});
    target_->ReduceScatterInto(queue, full, shard, write, rows);
  }
  [[nodiscard]] bool LeavesSquares() const override { return target_->LeavesSquares(); }
  void ScatterParts(Queue& queue, const Tensor& full, std::span<const Tensor> terms) override {
    Note({full});
    Note(terms);
    target_->ScatterParts(queue, full, terms);
  }
  Result<std::vector<Tensor>> Views(const Tensor& array) override { return target_->Views(array); }
  void AwaitWriters(Queue& queue, const Event& written) override {
    target_->AwaitWriters(queue, written);
  }
  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) override {
    Note({data});
    target_->AllReduce(queue, data, op);
  }
  RowCounts ReadCounts(Queue& queue, const Tensor& counts) override {
    ++uses_.reads;
    return target_->ReadCounts(queue, counts);
  }
  void AllToAll(Queue& queue, std::span<const RowTransfer> transfers, const RowCounts& send_rows,
                const RowCounts& receive_rows) override {
    ++uses_.exchanges;
    for (const RowTransfer& transfer : transfers) Note({transfer.send, transfer.receive});
    target_->AllToAll(queue, transfers, send_rows, receive_rows);
  }
  [[nodiscard]] std::uint64_t num_calls() const override { return target_->num_calls(); }
  void AwaitReaders(Queue& queue, std::uint64_t calls) override {
    target_->AwaitReaders(queue, calls);
  }
  void Register(const Buffer& memory) override {
    if (memory.size_bytes() > 0) {
      registered_.emplace_back(memory.data(), memory.size_bytes());
      ++uses_.registered;
    }
    target_->Register(memory);
  }
  void Leave() override { target_->Leave(); }

 private:
  void Note(std::span<const Tensor> operands) {
    if (size() == 1) return;
    for (const Tensor& operand : operands) {
      const bool is_inside = std::ranges::any_of(registered_, [&](ByteSpan memory) {
        return operand.bytes() >= memory.data() &&
               operand.bytes() + operand.size_bytes() <= memory.data() + memory.size();
      });
      ++(is_inside ? uses_.inside : uses_.outside);
    }
  }
  void Note(std::initializer_list<Tensor> operands) {
    Note(std::span(operands.begin(), operands.size()));
  }

  const std::unique_ptr<Collectives> target_;
  Uses& uses_;
  std::vector<ByteSpan> registered_;
};

// In the order in which SplitWorld makes them.
constexpr std::string_view kPurposes[] = {
    "gather shard",        "gather expert shard", "gather outer", "reduce shard",
    "reduce expert shard", "reduce outer",        "expert",       "world"};

class NotedDevice final : public testing::ForwardingDevice {
 public:
  // `uses`: of each purpose.
  NotedDevice(std::unique_ptr<Device> target, std::vector<Uses>& uses)
      : ForwardingDevice(std::move(target)), uses_(uses) {
    uses_.reserve(std::size(kPurposes));
  }

  Result<std::unique_ptr<Collectives>> MakeCollectives(std::unique_ptr<HostGroup> group) override {
    CKPT_CHECK(uses_.size() < std::size(kPurposes));
    CKPT_ASSIGN_OR_RETURN(auto collectives, ForwardingDevice::MakeCollectives(std::move(group)));
    return std::unique_ptr<Collectives>(
        std::make_unique<NotedCollectives>(std::move(collectives), uses_.emplace_back()));
  }

 private:
  std::vector<Uses>& uses_;
};

// What each rank asks of the collectives of each purpose in two steps.
std::vector<std::vector<Uses>> UsesOf(const TrainConfig& config) {
  std::mutex mutex;
  std::vector<std::vector<Uses>> of_ranks(static_cast<std::size_t>(config.mesh.world_size));
  std::size_t next = 0;
  const RunOptions options = {.wrap_device = [&](std::unique_ptr<Device> device) {
    const std::lock_guard lock(mutex);
    return std::make_unique<NotedDevice>(std::move(device), of_ranks[next++]);
  }};
  EXPECT_THAT(Train(config, options), IsOk());
  for (std::vector<Uses>& uses : of_ranks) {
    EXPECT_EQ(uses.size(), std::size(kPurposes));
    uses.resize(std::size(kPurposes));
  }
  return of_ranks;
}

// With one and with several micro-batches, in bfloat16 and float32: weights, gradients, terms of
// two ranks, and the copies in which sums are sent.
TEST(CollectiveUsesTest, RegisteredMemoryIsWhatWeightsAndGradientsAreSentFromAndTo) {
  for (const int world_size : {2, 8}) {
    for (const Sharding sharding : {Sharding::kOptimGrads, Sharding::kOptimGradsParams}) {
      for (const int micro_batches : {1, 2}) {
        for (const DType compute : {DType::kFloat32, DType::kBfloat16}) {
          SCOPED_TRACE(::testing::Message()
                       << world_size << " ranks, " << ShardingName(sharding) << ", "
                       << micro_batches << " micro-batches, " << DTypeName(compute));
          MeshConfig mesh = {.world_size = world_size, .expert_parallel = 2, .sharding = sharding};
          if (world_size == 8) {
            mesh.num_instances = 2;
            if (sharding == Sharding::kOptimGradsParams) mesh.outer = OuterSharding::kOptim;
          }
          TrainConfig config = OnMesh(SmallRun(SmallMoe(), micro_batches * world_size), mesh);
          config.precision.compute = config.precision.grad_comm = compute;
          for (const std::vector<Uses>& uses : UsesOf(config)) {
            for (std::size_t i = 0; i < uses.size(); ++i) {
              SCOPED_TRACE(kPurposes[i]);
              const bool is_of_params = i < 6;
              if (is_of_params) {
                EXPECT_EQ(uses[i].outside, 0);
              } else {
                EXPECT_EQ(uses[i].registered, 0);
                EXPECT_GT(uses[i].outside, 0);
              }
            }
            EXPECT_GT(uses[3].inside, 0);
          }
        }
      }
    }
  }
}

// To the experts and back, forward and backward, rows go by counts that were read once.
TEST(CollectiveUsesTest, CountsAreReadOnceARouting) {
  constexpr int kMicroBatches = 3;
  constexpr int kSteps = 2;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    TrainConfig config =
        OnMesh(SmallRun(SmallMoe(), 2 * kMicroBatches), {.world_size = 2, .expert_parallel = 2});
    config.recompute = recompute;
    const std::vector<bool>& is_moe = config.model.is_moe_layer;
    const auto routings =
        static_cast<int>(std::ranges::count(is_moe, true)) * kMicroBatches * kSteps;
    ASSERT_GT(routings, 0);
    for (const std::vector<Uses>& uses : UsesOf(config)) {
      const Uses& expert = uses[6];
      EXPECT_EQ(expert.reads, 2 * routings);  // rows to send, and to receive
      // What is computed again is sent to the experts again.
      EXPECT_EQ(expert.exchanges, (recompute == Recompute::kNone ? 4 : 5) * routings);
    }
  }
}

}  // namespace
}  // namespace ckpt
