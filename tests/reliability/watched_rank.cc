#include "tests/reliability/watched_rank.h"

#include <utility>

namespace ckpt::testing {

using Kind = RankCall::Kind;

template <typename Call>
auto WatchedRank::Make(Kind kind, const Path& path, const Call& call) -> decltype(call()) {
  RankCall announced = {.kind = kind, .file = path.filename().string()};
  if (kind == Kind::kWrite && is_watched_) announced.number = ++writes_;
  CKPT_RETURN_IF_ERROR(Announce(announced));
  auto result = call();
  announced.is_over = true;
  CKPT_RETURN_IF_ERROR(Announce(std::move(announced)));
  return result;
}

class WatchedRank::WatchedStorage final : public Storage {
 public:
  WatchedStorage(Storage& behind, WatchedRank& rank) : behind_(behind), rank_(rank) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.Open(path);
  }
  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    return rank_.Make(Kind::kCreate, path, [&] { return Wrap(behind_.Create(path), path); });
  }
  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return Wrap(behind_.OpenForUpdate(path), path);
  }
  Result<FileStat> Stat(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.Stat(path);
  }
  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.List(directory);
  }
  Status MakeDirectories(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.MakeDirectories(directory);
  }
  Status Rename(const Path& from, const Path& to) override {
    return rank_.Make(Kind::kRename, to, [&] { return behind_.Rename(from, to); });
  }
  Status Exchange(const Path& a, const Path& b) override {
    return rank_.Make(Kind::kRename, b, [&] { return behind_.Exchange(a, b); });
  }
  Status RemoveAll(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.RemoveAll(path);
  }
  Status RemoveEmptyDirectory(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.RemoveEmptyDirectory(directory);
  }
  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override {
    return rank_.Make(Kind::kLock, directory, [&] { return behind_.Lock(directory); });
  }
  Status SyncDirectory(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(Alive());
    return behind_.SyncDirectory(directory);
  }

 private:
  class File final : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> behind, Path path, WatchedStorage& storage)
        : behind_(std::move(behind)), path_(std::move(path)), storage_(storage) {}
    [[nodiscard]] const std::string& name() const override { return behind_->name(); }
    Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
      return storage_.rank_.Make(Kind::kWrite, path_,
                                 [&] { return behind_->WriteAt(offset, bytes); });
    }
    Status Resize(std::uint64_t size_bytes) override {
      CKPT_RETURN_IF_ERROR(storage_.Alive());
      return behind_->Resize(size_bytes);
    }
    void StartWriteback(std::uint64_t offset, std::uint64_t length) override {
      behind_->StartWriteback(offset, length);
    }
    Status Sync() override {
      CKPT_RETURN_IF_ERROR(storage_.Alive());
      return behind_->Sync();
    }
    Status Lock() override {
      CKPT_RETURN_IF_ERROR(storage_.Alive());
      return behind_->Lock();
    }
    Status Close() override {
      CKPT_RETURN_IF_ERROR(storage_.Alive());
      return behind_->Close();
    }

   private:
    std::unique_ptr<WritableFile> behind_;
    const Path path_;
    WatchedStorage& storage_;
  };

  Result<std::unique_ptr<WritableFile>> Wrap(Result<std::unique_ptr<WritableFile>> file,
                                             const Path& path) {
    if (!file.ok()) return file;
    return std::unique_ptr<WritableFile>(
        std::make_unique<File>(std::move(file).value(), path, *this));
  }
  [[nodiscard]] Status Alive() const {
    if (!rank_.is_dead()) return OkStatus();
    return Error(ErrorKind::kCancelled, "the rank is dead");
  }

  Storage& behind_;
  WatchedRank& rank_;
};

class WatchedRank::WatchedWorld final : public trainer::HostGroup {
 public:
  WatchedWorld(trainer::HostGroup& behind, WatchedRank& rank) : behind_(behind), rank_(rank) {}
  WatchedWorld(std::unique_ptr<trainer::HostGroup> separate, WatchedRank& rank)
      : separate_(std::move(separate)), behind_(*separate_), rank_(rank) {
    rank_.separate_ = separate_.get();
  }
  ~WatchedWorld() override {
    if (separate_) rank_.separate_ = nullptr;
  }
  WatchedWorld(const WatchedWorld&) = delete;
  WatchedWorld& operator=(const WatchedWorld&) = delete;

  [[nodiscard]] int rank() const override { return behind_.rank(); }
  [[nodiscard]] int size() const override { return behind_.size(); }
  Status Exchange(ByteSpan mine, MutableByteSpan all) override {
    RankCall call = {.kind = Kind::kExchange};
    if (rank_.is_watched_) call.number = ++rank_.exchanges_;
    CKPT_RETURN_IF_ERROR(rank_.Announce(call));
    CKPT_RETURN_IF_ERROR(behind_.Exchange(mine, all));
    call.is_over = true;
    return rank_.Announce(std::move(call));
  }
  Status ExchangeParts(ByteSpan full, const UseParts& use) override {
    return behind_.ExchangeParts(full, use);
  }
  Status ExchangeRows(const trainer::RowExchange& rows) override {
    return behind_.ExchangeRows(rows);
  }
  Status Barrier() override { return behind_.Barrier(); }
  Result<std::shared_ptr<trainer::RankShared>> Share(
      std::shared_ptr<trainer::RankShared> mine) override {
    return behind_.Share(std::move(mine));
  }
  Result<std::unique_ptr<trainer::HostGroup>> Split(int color, int key) override {
    return behind_.Split(color, key);
  }
  Result<std::unique_ptr<trainer::HostGroup>> Separate() override {
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<trainer::HostGroup> separate, behind_.Separate());
    return std::unique_ptr<trainer::HostGroup>(
        std::make_unique<WatchedWorld>(std::move(separate), rank_));
  }
  void Abort(const Status& why) override { behind_.Abort(why); }
  [[nodiscard]] bool abort_ends_processes() const override {
    return behind_.abort_ends_processes();
  }

 private:
  const std::unique_ptr<trainer::HostGroup> separate_;
  trainer::HostGroup& behind_;
  WatchedRank& rank_;
};

WatchedRank::WatchedRank(Storage& storage, trainer::HostGroup& world, DiesAt dies_at)
    : behind_(world),
      dies_at_(std::move(dies_at)),
      storage_(std::make_unique<WatchedStorage>(storage, *this)),
      world_(std::make_unique<WatchedWorld>(world, *this)) {}

WatchedRank::~WatchedRank() = default;

void WatchedRank::Die() {
  if (is_dead_.exchange(true)) return;
  const Status why =
      Error(ErrorKind::kCancelled, "rank " + std::to_string(behind_.rank()) + " died");
  behind_.Abort(why);
  if (trainer::HostGroup* const separate = separate_) separate->Abort(why);
}

Status WatchedRank::Announce(RankCall call) {
  if (is_watched_ && !is_dead_ && dies_at_(call)) Die();
  if (!is_dead_) return OkStatus();
  return Error(ErrorKind::kCancelled, "the rank is dead");
}

}  // namespace ckpt::testing
