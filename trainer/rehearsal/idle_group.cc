#include "trainer/rehearsal/idle_group.h"

#include <algorithm>
#include <cstddef>

namespace ckpt::trainer {
namespace {

class IdleGroup final : public HostGroup {
 public:
  IdleGroup(int rank, int size) : rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  Status Exchange(ByteSpan mine, MutableByteSpan all) override {
    for (std::size_t begin = 0; begin < all.size(); begin += mine.size()) {
      std::ranges::copy(mine, all.subspan(begin).begin());
    }
    return OkStatus();
  }
  Status ExchangeParts(ByteSpan /*full*/, const UseParts& /*use*/) override { return Refuse(); }
  Status ExchangeRows(const RowExchange& /*rows*/) override { return Refuse(); }
  Status Barrier() override { return OkStatus(); }
  Result<std::shared_ptr<RankShared>> Share(std::shared_ptr<RankShared> /*mine*/) override {
    return Refuse();
  }
  Result<std::unique_ptr<HostGroup>> Split(int /*color*/, int /*key*/) override { return Refuse(); }
  Result<std::unique_ptr<HostGroup>> Separate() override { return Refuse(); }
  [[nodiscard]] bool abort_ends_processes() const override { return false; }
  void Abort(const Status& /*why*/) override {}

 private:
  static Status Refuse() {
    return Error(ErrorKind::kInternal, "a rehearsal has no other ranks to exchange this with");
  }

  const int rank_;
  const int size_;
};

}  // namespace

std::unique_ptr<HostGroup> MakeIdleGroup(int rank, int size) {
  return std::make_unique<IdleGroup>(rank, size);
}

}  // namespace ckpt::trainer
