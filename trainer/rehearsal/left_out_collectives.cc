#include "trainer/rehearsal/left_out_collectives.h"

#include <utility>

#include "trainer/rehearsal/idle_group.h"

namespace ckpt::trainer {
namespace {

class LeftOutCollectives final : public Collectives {
 public:
  explicit LeftOutCollectives(std::unique_ptr<Collectives> before)
      : Collectives(MakeIdleGroup(before->rank(), before->size())), before_(std::move(before)) {}

  void AllGather(Queue& /*queue*/, const Tensor& /*shard*/, const Tensor& /*full*/) override {}
  void GatherShards(Queue& queue, const Tensor& /*shard*/, const Tensor& /*full*/,
                    const Event& ready) override {
    queue.Wait(ready);
  }
  void ReduceScatterInto(Queue& /*queue*/, const Tensor& /*full*/, const Tensor& /*shard*/,
                         GradWrite /*write*/, std::span<const ShardRows> /*rows*/) override {}
  [[nodiscard]] bool LeavesSquares() const override { return before_->LeavesSquares(); }
  void ScatterParts(Queue& /*queue*/, const Tensor& /*full*/,
                    std::span<const Tensor> /*terms*/) override {}
  void AllReduce(Queue& /*queue*/, const Tensor& /*data*/, ReduceOp /*op*/) override {}
  void AllToAll(Queue& /*queue*/, std::span<const RowTransfer> /*transfers*/,
                const RowCounts& /*send_rows*/, const RowCounts& /*receive_rows*/) override {}

  [[nodiscard]] std::uint64_t num_calls() const override { return before_->num_calls(); }
  void AwaitReaders(Queue& queue, std::uint64_t calls) override {
    before_->AwaitReaders(queue, calls);
  }
  void Leave() override { before_->Leave(); }

 private:
  const std::unique_ptr<Collectives> before_;
};

}  // namespace

std::unique_ptr<Collectives> LeaveOut(std::unique_ptr<Collectives> collectives) {
  return std::make_unique<LeftOutCollectives>(std::move(collectives));
}

}  // namespace ckpt::trainer
