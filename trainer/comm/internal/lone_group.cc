#include "trainer/comm/internal/lone_group.h"

#include "core/base/check.h"
#include "trainer/comm/internal/copy_bytes.h"

namespace ckpt::trainer {
namespace {

class LoneGroup final : public HostGroup {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }

  Status Exchange(ByteSpan mine, MutableByteSpan all) override {
    CKPT_CHECK(mine.size() == all.size());
    CopyBytes(mine.data(), all.data(), mine.size());
    return OkStatus();
  }
  Status ExchangeParts(ByteSpan full, const UseParts& use) override {
    const std::byte* const part = full.data();
    use({&part, 1}, 0, full.size());
    return OkStatus();
  }
  Status ExchangeRows(const RowExchange& rows) override {
    const RowExchange* const all = &rows;
    return ReceiveRows(0, rows, {&all, 1});
  }
  Status Barrier() override { return OkStatus(); }
  Result<std::shared_ptr<RankShared>> Share(std::shared_ptr<RankShared> mine) override {
    return mine;
  }
  Result<std::unique_ptr<HostGroup>> Split(int /*color*/, int /*key*/) override {
    return MakeLoneGroup();
  }
  Result<std::unique_ptr<HostGroup>> Separate() override { return MakeLoneGroup(); }
  [[nodiscard]] bool abort_ends_processes() const override { return false; }
  void Abort(const Status& /*why*/) override {}  // nobody else waits
};

}  // namespace

std::unique_ptr<HostGroup> MakeLoneGroup() { return std::make_unique<LoneGroup>(); }

}  // namespace ckpt::trainer
