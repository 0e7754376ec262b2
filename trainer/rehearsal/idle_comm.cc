#include "trainer/rehearsal/idle_comm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::trainer {
namespace {

class IdleComm final : public Communicator {
 public:
  IdleComm(int rank, int size) : rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void AllGather(Queue& /*queue*/, const Tensor& /*shard*/, const Tensor& /*full*/) override {}
  void ReduceScatter(Queue& /*queue*/, const Tensor& /*full*/, const Tensor& /*shard*/) override {}
  void AllReduce(Queue& /*queue*/, const Tensor& /*data*/, ReduceOp /*op*/) override {}
  void AllToAll(Queue& /*queue*/, const Tensor& /*send*/,
                std::span<const std::int64_t> /*send_rows*/, const Tensor& /*receive*/,
                std::span<const std::int64_t> /*receive_rows*/) override {}

  Status Exchange(ByteSpan mine, MutableByteSpan all) override {
    for (std::size_t begin = 0; begin < all.size(); begin += mine.size()) {
      std::ranges::copy(mine, all.subspan(begin).begin());
    }
    return OkStatus();
  }
  Status Barrier() override { return OkStatus(); }

  Result<std::unique_ptr<Communicator>> Split(int /*color*/, int /*key*/) override {
    return Error(ErrorKind::kInternal, "a rehearsal cannot split groups");
  }
  void Abort(const Status& /*why*/) override {}

 private:
  const int rank_;
  const int size_;
};

}  // namespace

std::unique_ptr<Communicator> MakeIdleComm(int rank, int size) {
  return std::make_unique<IdleComm>(rank, size);
}

}  // namespace ckpt::trainer
