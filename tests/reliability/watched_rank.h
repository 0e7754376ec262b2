// A rank that is watched from outside: every call it makes of its storage and its group is
// announced before and after, and from some moment on it may be dead.
#ifndef CKPT_TESTS_RELIABILITY_WATCHED_RANK_H_
#define CKPT_TESTS_RELIABILITY_WATCHED_RANK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/io/storage.h"
#include "trainer/comm/host_group.h"

namespace ckpt::testing {

// A call that changes files, or the `number`-th exchange.
struct RankCall {
  enum class Kind : std::uint8_t { kExchange, kLock, kCreate, kWrite, kRename };
  Kind kind = Kind::kExchange;
  bool is_over = false;
  int number = 0;         // of exchanges and writes, from 1 when the watch began
  std::string file = {};  // of a call of the storage

  friend bool operator==(const RankCall&, const RankCall&) = default;
};

// One rank's life. A dead rank's calls do nothing and fail, and its world learns that it is gone,
// as from a process that ended. Thread-safety: the rank's threads.
class WatchedRank {
 public:
  // Whether the rank dies at this call.
  using DiesAt = std::function<bool(const RankCall& call)>;

  // `storage` and `world` outlive it.
  WatchedRank(Storage& storage, trainer::HostGroup& world, DiesAt dies_at);
  ~WatchedRank();

  [[nodiscard]] Storage& storage() { return *storage_; }
  [[nodiscard]] trainer::HostGroup& world() { return *world_; }
  // From now on calls are counted and may be the last ones.
  void Watch() { is_watched_ = true; }
  void Die();
  [[nodiscard]] bool is_dead() const { return is_dead_; }

 private:
  class WatchedStorage;
  class WatchedWorld;
  friend class WatchedStorage;
  friend class WatchedWorld;

  // Errors: kCancelled (the rank is dead).
  Status Announce(RankCall call);
  // Announces, makes and announces again a call of the storage.
  template <typename Call>
  auto Make(RankCall::Kind kind, const Path& path, const Call& call) -> decltype(call());

  trainer::HostGroup& behind_;
  std::atomic<trainer::HostGroup*> separate_ = nullptr;  // the group that the saves use
  const DiesAt dies_at_;
  std::atomic<bool> is_watched_ = false;
  std::atomic<bool> is_dead_ = false;
  std::atomic<int> exchanges_ = 0;
  std::atomic<int> writes_ = 0;
  const std::unique_ptr<Storage> storage_;
  const std::unique_ptr<trainer::HostGroup> world_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_WATCHED_RANK_H_
