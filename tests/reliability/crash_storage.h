// Storage in memory that remembers every operation, so that a test can tell what a power failure
// would have left.
#ifndef CKPT_TESTS_RELIABILITY_CRASH_STORAGE_H_
#define CKPT_TESTS_RELIABILITY_CRASH_STORAGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/io/storage.h"

namespace ckpt::testing {

// Number of a file or directory, whatever its name. Never given twice.
using NodeId = std::uint32_t;
inline constexpr NodeId kRootNode = 0;

// A step that a file system can take or leave as a whole; only a write can be torn.
struct StorageOp {
  enum class Kind : std::uint8_t {
    kWrite,          // `bytes` at `offset` of the file `node`
    kResize,         // the file `node` to `offset` bytes
    kSync,           // what was done to the file `node` is durable
    kFailedSync,     // it never will be, whatever later syncs say
    kLink,           // `child` under `name` in the directory `node`
    kUnlink,         // the opposite
    kMove,           // `child` from `name` in `node` to `other_name` in `other_node`
    kExchange,       // `child` there and `other_child` here change places
    kSyncDirectory,  // the entries of the directory `node` are durable
  };
  Kind kind = Kind::kSync;
  NodeId node = kRootNode;
  std::string name = {};
  NodeId child = 0;
  bool child_is_directory = false;
  NodeId other_node = kRootNode;
  std::string other_name = {};
  NodeId other_child = 0;
  std::uint64_t offset = 0;
  Bytes bytes = {};
};

// Files and directories at one moment. A value; copies share the contents that neither changes.
class DiskImage {
 public:
  // What a file holds.
  struct Content {
    Bytes bytes = {};
    std::optional<Hash128> hash = {};  // once somebody asked
  };
  struct Node {
    bool is_directory = false;
    std::map<std::string, NodeId> entries = {};
    std::shared_ptr<Content> content = std::make_shared<Content>();

    [[nodiscard]] const Bytes& bytes() const { return content->bytes; }
  };

  DiskImage() { nodes_.push_back({.is_directory = true}); }

  // False, and nothing happens, if it cannot be: an entry that it needs is not there, or one is in
  // its way.
  bool Apply(const StorageOp& op);

  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] NodeId num_nodes() const { return static_cast<NodeId>(nodes_.size()); }
  [[nodiscard]] std::optional<NodeId> Find(const Path& path) const;
  // XXH3 of every name and content below the directory; of nothing for one that is not there.
  [[nodiscard]] std::string HashTree(const Path& directory) const;

 private:
  Node& Make(NodeId id, bool is_directory);
  // To be changed, with effect on no other image.
  Bytes& BytesOf(NodeId file);

  std::vector<Node> nodes_;
};

// Thread-safety: calls come one after the other, from any thread; image() and ops() belong to one
// thread, while no other is in a call.
class CrashStorage final : public Storage {
 public:
  explicit CrashStorage(DiskImage image = {}) : image_(std::move(image)) {}

  [[nodiscard]] const DiskImage& image() const { return image_; }
  // Everything that was done since the image given at first.
  [[nodiscard]] const std::vector<StorageOp>& ops() const { return ops_; }

  // From operation number `op` on everything fails that would change something: the process has
  // been killed, in effect. Nothing: no end.
  void StopAt(std::optional<std::size_t> op) { stop_at_ = op; }
  // The sync number `sync` of a file, counted from 0, fails.
  void FailSync(std::optional<int> sync) { fail_sync_ = sync; }
  [[nodiscard]] int syncs() const { return syncs_; }

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override;
  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override;
  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override;
  Result<FileStat> Stat(const Path& path) override;
  Result<std::vector<DirectoryEntry>> List(const Path& directory) override;
  Status MakeDirectories(const Path& directory) override;
  Status Rename(const Path& from, const Path& to) override;
  Status Exchange(const Path& a, const Path& b) override;
  Status RemoveAll(const Path& path) override;
  Status RemoveEmptyDirectory(const Path& directory) override;
  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override;
  Status SyncDirectory(const Path& directory) override;

 private:
  class File;

  // Does and records it.
  Status Do(StorageOp op);
  Result<NodeId> FindFile(const Path& path, std::string_view verb) const;
  Result<NodeId> FindDirectory(const Path& path, std::string_view verb) const;
  Status Remove(NodeId parent, const std::string& name, NodeId child);

  std::recursive_mutex mutex_;  // some calls are made of others
  DiskImage image_;
  std::vector<StorageOp> ops_;
  std::optional<std::size_t> stop_at_;
  std::optional<int> fail_sync_;
  int syncs_ = 0;
  // Held as long as the lock lives.
  std::map<NodeId, std::weak_ptr<const void>> locks_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_CRASH_STORAGE_H_
