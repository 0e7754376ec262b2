#include "tests/reliability/crash_storage.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace ckpt::testing {
namespace {

using Kind = StorageOp::Kind;

// Absolute, without "." and without a slash at its end.
Path Normal(const Path& path) {
  Path normal = (Path("/") / path.relative_path()).lexically_normal();
  while (normal.has_parent_path() && (normal.filename() == "." || normal.filename().empty())) {
    normal = normal.parent_path();
  }
  return normal;
}

void HashNode(const DiskImage& image, NodeId id, const std::string& prefix, Hasher& hasher) {
  const DiskImage::Node& node = image.node(id);
  std::optional<Hash128>& hash = node.content->hash;
  if (!hash) hash = HashXxh3(node.bytes());
  hasher.Update(AsBytes(prefix + (node.is_directory ? "/\n" : "\n")));
  hasher.Update(std::as_bytes(std::span(&*hash, 1)));
  for (const auto& [name, child] : node.entries)
    HashNode(image, child, prefix + "/" + name, hasher);
}

}  // namespace

DiskImage::Node& DiskImage::Make(NodeId id, bool is_directory) {
  if (id >= nodes_.size()) nodes_.resize(id + 1);
  nodes_[id].is_directory = is_directory;
  return nodes_[id];
}

Bytes& DiskImage::BytesOf(NodeId file) {
  std::shared_ptr<Content>& content = Make(file, false).content;
  if (content.use_count() > 1) content = std::make_shared<Content>(*content);
  content->hash.reset();
  return content->bytes;
}

bool DiskImage::Apply(const StorageOp& op) {
  const auto holds = [this](NodeId directory, const std::string& name, NodeId child) {
    if (directory >= nodes_.size()) return false;  // what made it did not happen
    const auto& entries = nodes_[directory].entries;
    const auto it = entries.find(name);
    return it != entries.end() && it->second == child;
  };
  switch (op.kind) {
    case Kind::kWrite: {
      Bytes& bytes = BytesOf(op.node);
      const std::uint64_t end = op.offset + op.bytes.size();
      if (bytes.size() < end) bytes.resize(end);
      std::copy(op.bytes.begin(), op.bytes.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(op.offset));
      return true;
    }
    case Kind::kResize:
      BytesOf(op.node).resize(op.offset);
      return true;
    case Kind::kLink:
      Make(op.child, op.child_is_directory);
      Make(op.node, true);
      return nodes_[op.node].entries.emplace(op.name, op.child).second;
    case Kind::kUnlink:
      if (!holds(op.node, op.name, op.child)) return false;
      nodes_[op.node].entries.erase(op.name);
      return true;
    case Kind::kMove:
      if (!holds(op.node, op.name, op.child) || op.other_node >= nodes_.size()) return false;
      if (!nodes_[op.other_node].entries.emplace(op.other_name, op.child).second) return false;
      nodes_[op.node].entries.erase(op.name);
      return true;
    case Kind::kExchange:
      if (!holds(op.node, op.name, op.child)) return false;
      if (!holds(op.other_node, op.other_name, op.other_child)) return false;
      nodes_[op.node].entries[op.name] = op.other_child;
      nodes_[op.other_node].entries[op.other_name] = op.child;
      return true;
    case Kind::kSync:
    case Kind::kFailedSync:
    case Kind::kSyncDirectory:
      return true;
  }
  return false;
}

std::optional<NodeId> DiskImage::Find(const Path& path) const {
  NodeId at = kRootNode;
  for (const Path& part : Normal(path)) {
    if (part == "/") continue;
    const auto it = nodes_[at].entries.find(part.string());
    if (it == nodes_[at].entries.end()) return std::nullopt;
    at = it->second;
  }
  return at;
}

std::string DiskImage::HashTree(const Path& directory) const {
  Hasher hasher(HashAlgorithm::kXxh3);
  if (const auto id = Find(directory)) HashNode(*this, *id, "", hasher);
  return hasher.Finish();
}

class CrashStorage::File final : public WritableFile {
 public:
  File(CrashStorage& storage, NodeId node, std::string name)
      : storage_(storage), node_(node), name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
    if (bytes.empty()) return OkStatus();
    return storage_.Do({.kind = Kind::kWrite,
                        .node = node_,
                        .offset = offset,
                        .bytes = Bytes(bytes.begin(), bytes.end())});
  }
  Status Resize(std::uint64_t size_bytes) override {
    return storage_.Do({.kind = Kind::kResize, .node = node_, .offset = size_bytes});
  }
  void StartWriteback(std::uint64_t /*offset*/, std::uint64_t /*length*/) override {}
  Status Sync() override {
    const std::lock_guard lock(storage_.mutex_);
    const bool fails = storage_.fail_sync_ == storage_.syncs_++;
    CKPT_RETURN_IF_ERROR(
        storage_.Do({.kind = fails ? Kind::kFailedSync : Kind::kSync, .node = node_}));
    return fails ? ErrnoError(EIO, "fsync", name_) : OkStatus();
  }
  Status Lock() override {
    const std::lock_guard lock(storage_.mutex_);
    if (storage_.image_.Find(name_) != node_) return ErrnoError(ENOENT, "lock", name_);
    if (!storage_.locks_[node_].expired()) {
      return Error(ErrorKind::kAlreadyExists, "another run is writing this file").File(name_);
    }
    token_ = std::make_shared<const char>('\0');
    storage_.locks_[node_] = token_;
    return OkStatus();
  }
  Status Close() override {
    token_.reset();
    return OkStatus();
  }

 private:
  std::shared_ptr<const void> token_;  // of its lock
  CrashStorage& storage_;
  NodeId node_;
  std::string name_;
};

Status CrashStorage::Do(StorageOp op) {
  const std::lock_guard lock(mutex_);
  if (stop_at_ && ops_.size() >= *stop_at_) {
    return Error(ErrorKind::kIo, "the process has ended").File("/");
  }
  CKPT_CHECK(image_.Apply(op));
  ops_.push_back(std::move(op));
  return OkStatus();
}

Result<NodeId> CrashStorage::FindFile(const Path& path, std::string_view verb) const {
  const std::optional<NodeId> id = image_.Find(path);
  if (!id) return ErrnoError(ENOENT, verb, path.string());
  if (image_.node(*id).is_directory) return ErrnoError(EISDIR, verb, path.string());
  return *id;
}

Result<NodeId> CrashStorage::FindDirectory(const Path& path, std::string_view verb) const {
  const std::optional<NodeId> id = image_.Find(path);
  if (!id) return ErrnoError(ENOENT, verb, path.string());
  if (!image_.node(*id).is_directory) return ErrnoError(ENOTDIR, verb, path.string());
  return *id;
}

Result<std::shared_ptr<const ReadableFile>> CrashStorage::Open(const Path& path) {
  const std::lock_guard lock(mutex_);
  CKPT_ASSIGN_OR_RETURN(const NodeId id, FindFile(path, "open"));
  const std::shared_ptr<DiskImage::Content>& content = image_.node(id).content;
  return MakeMemoryFile(path.string(), std::shared_ptr<const Bytes>(content, &content->bytes));
}

Result<std::unique_ptr<WritableFile>> CrashStorage::Create(const Path& path) {
  const std::lock_guard lock(mutex_);
  const Path normal = Normal(path);
  if (image_.Find(normal)) return ErrnoError(EEXIST, "create", path.string());
  CKPT_ASSIGN_OR_RETURN(const NodeId parent, FindDirectory(normal.parent_path(), "create"));
  const NodeId child = image_.num_nodes();
  CKPT_RETURN_IF_ERROR(Do({.kind = Kind::kLink,
                           .node = parent,
                           .name = normal.filename().string(),
                           .child = child,
                           .child_is_directory = false}));
  return std::unique_ptr<WritableFile>(std::make_unique<File>(*this, child, path.string()));
}

Result<std::unique_ptr<WritableFile>> CrashStorage::OpenForUpdate(const Path& path) {
  const std::lock_guard lock(mutex_);
  CKPT_ASSIGN_OR_RETURN(const NodeId id, FindFile(path, "open for writing"));
  return std::unique_ptr<WritableFile>(std::make_unique<File>(*this, id, path.string()));
}

Result<FileStat> CrashStorage::Stat(const Path& path) {
  const std::lock_guard lock(mutex_);
  const std::optional<NodeId> id = image_.Find(path);
  if (!id) return FileStat{};
  const DiskImage::Node& node = image_.node(*id);
  return FileStat{.type = node.is_directory ? FileType::kDirectory : FileType::kRegular,
                  .size_bytes = node.bytes().size()};
}

Result<std::vector<DirectoryEntry>> CrashStorage::List(const Path& directory) {
  const std::lock_guard lock(mutex_);
  CKPT_ASSIGN_OR_RETURN(const NodeId id, FindDirectory(directory, "list"));
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : image_.node(id).entries) {
    entries.push_back(
        {.name = name,
         .type = image_.node(child).is_directory ? FileType::kDirectory : FileType::kRegular});
  }
  return entries;
}

Status CrashStorage::MakeDirectories(const Path& directory) {
  const std::lock_guard lock(mutex_);
  const Path normal = Normal(directory);
  if (image_.Find(normal)) return FindDirectory(normal, "create directory").status();
  CKPT_RETURN_IF_ERROR(MakeDirectories(normal.parent_path()));
  CKPT_ASSIGN_OR_RETURN(const NodeId parent,
                        FindDirectory(normal.parent_path(), "create directory"));
  return Do({.kind = Kind::kLink,
             .node = parent,
             .name = normal.filename().string(),
             .child = image_.num_nodes(),
             .child_is_directory = true});
}

Status CrashStorage::Rename(const Path& from, const Path& to) {
  const std::lock_guard lock(mutex_);
  const Path source = Normal(from);
  const Path target = Normal(to);
  if (image_.Find(target)) return ErrnoError(EEXIST, "rename to " + to.string(), from.string());
  const std::optional<NodeId> child = image_.Find(source);
  if (!child) return ErrnoError(ENOENT, "rename", from.string());
  CKPT_ASSIGN_OR_RETURN(const NodeId source_parent, FindDirectory(source.parent_path(), "rename"));
  CKPT_ASSIGN_OR_RETURN(const NodeId target_parent, FindDirectory(target.parent_path(), "rename"));
  return Do({.kind = Kind::kMove,
             .node = source_parent,
             .name = source.filename().string(),
             .child = *child,
             .other_node = target_parent,
             .other_name = target.filename().string()});
}

Status CrashStorage::Exchange(const Path& a, const Path& b) {
  const std::lock_guard lock(mutex_);
  const Path here = Normal(a);
  const Path there = Normal(b);
  const std::optional<NodeId> child = image_.Find(here);
  const std::optional<NodeId> other = image_.Find(there);
  if (!child || !other) return ErrnoError(ENOENT, "exchange", (child ? b : a).string());
  CKPT_ASSIGN_OR_RETURN(const NodeId parent, FindDirectory(here.parent_path(), "exchange"));
  CKPT_ASSIGN_OR_RETURN(const NodeId other_parent, FindDirectory(there.parent_path(), "exchange"));
  return Do({.kind = Kind::kExchange,
             .node = parent,
             .name = here.filename().string(),
             .child = *child,
             .other_node = other_parent,
             .other_name = there.filename().string(),
             .other_child = *other});
}

Status CrashStorage::RemoveAll(const Path& path) {
  const std::lock_guard lock(mutex_);
  const Path normal = Normal(path);
  const std::optional<NodeId> id = image_.Find(normal);
  if (!id) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const NodeId parent, FindDirectory(normal.parent_path(), "remove"));
  return Remove(parent, normal.filename().string(), *id);
}

// Bottom up, as the system calls go.
Status CrashStorage::Remove(NodeId parent, const std::string& name, NodeId child) {
  const std::map<std::string, NodeId> entries = image_.node(child).entries;
  for (const auto& [inner, grandchild] : entries) {
    CKPT_RETURN_IF_ERROR(Remove(child, inner, grandchild));
  }
  return Do({.kind = Kind::kUnlink, .node = parent, .name = name, .child = child});
}

Status CrashStorage::RemoveEmptyDirectory(const Path& directory) {
  const std::lock_guard lock(mutex_);
  const Path normal = Normal(directory);
  CKPT_ASSIGN_OR_RETURN(const NodeId id, FindDirectory(normal, "remove directory"));
  if (!image_.node(id).entries.empty()) {
    return ErrnoError(EEXIST, "remove directory", directory.string());
  }
  CKPT_ASSIGN_OR_RETURN(const NodeId parent,
                        FindDirectory(normal.parent_path(), "remove directory"));
  return Remove(parent, normal.filename().string(), id);
}

Result<std::unique_ptr<DirectoryLock>> CrashStorage::Lock(const Path& directory) {
  class Held final : public DirectoryLock {
   public:
    explicit Held(std::shared_ptr<const void> token) : token_(std::move(token)) {}

   private:
    std::shared_ptr<const void> token_;
  };
  const std::lock_guard lock(mutex_);
  const std::optional<NodeId> id = image_.Find(directory);
  if (!id) return ErrnoError(ENOENT, "lock", directory.string());
  if (!image_.node(*id).is_directory || !locks_[*id].expired()) {
    return Error(ErrorKind::kAlreadyExists, "another run is writing this target")
        .File(directory.string());
  }
  const auto token = std::make_shared<const char>('\0');
  locks_[*id] = token;
  return std::unique_ptr<DirectoryLock>(std::make_unique<Held>(token));
}

Status CrashStorage::SyncDirectory(const Path& directory) {
  const std::lock_guard lock(mutex_);
  CKPT_ASSIGN_OR_RETURN(const NodeId id, FindDirectory(directory, "fsync directory"));
  return Do({.kind = Kind::kSyncDirectory, .node = id});
}

}  // namespace ckpt::testing
