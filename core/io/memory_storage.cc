#include "core/io/memory_storage.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/mutex.h"

namespace ckpt {
namespace {

// The content of a file, shared by the directory entry and every open handle.
struct Content {
  Mutex mutex;
  Bytes bytes CKPT_GUARDED_BY(mutex);
  bool is_locked CKPT_GUARDED_BY(mutex) = false;
};

class OpenedMemoryFile final : public ReadableFile {
 public:
  OpenedMemoryFile(std::string name, std::shared_ptr<Content> content)
      : name_(std::move(name)), content_(std::move(content)) {
    const MutexLock lock(content_->mutex);
    size_ = content_->bytes.size();
  }

  [[nodiscard]] std::uint64_t size_bytes() const override { return size_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    const MutexLock lock(content_->mutex);
    if (!RangeFits(offset, out.size(), std::min<std::uint64_t>(size_, content_->bytes.size()))) {
      return Error(ErrorKind::kTruncated, "read past the end of the file")
          .File(DescribeRange(name_, offset, out.size()))
          .Actual(fmt::format("{} bytes", size_));
    }
    if (!out.empty()) std::memcpy(out.data(), content_->bytes.data() + offset, out.size());
    return OkStatus();
  }

  Result<std::unique_ptr<FileView>> View() const override {
    Bytes copy(size_);
    CKPT_RETURN_IF_ERROR(ReadAt(0, copy));
    return MakeMemoryFile(name_, std::move(copy))->View();
  }

 private:
  std::string name_;
  std::shared_ptr<Content> content_;
  std::uint64_t size_ = 0;
};

class WritableMemoryFile final : public WritableFile {
 public:
  // `is_named`: whether the name still leads to this content.
  WritableMemoryFile(std::string name, std::shared_ptr<Content> content,
                     std::function<bool()> is_named)
      : name_(std::move(name)), content_(std::move(content)), is_named_(std::move(is_named)) {}
  WritableMemoryFile(const WritableMemoryFile&) = delete;
  WritableMemoryFile& operator=(const WritableMemoryFile&) = delete;
  ~WritableMemoryFile() override { Unlock(); }

  [[nodiscard]] const std::string& name() const override { return name_; }
  Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
    if (bytes.empty()) return OkStatus();
    const MutexLock lock(content_->mutex);
    const std::uint64_t end = offset + bytes.size();
    if (content_->bytes.size() < end) content_->bytes.resize(end);
    std::memcpy(content_->bytes.data() + offset, bytes.data(), bytes.size());
    return OkStatus();
  }
  Status Resize(std::uint64_t size_bytes) override {
    const MutexLock lock(content_->mutex);
    content_->bytes.resize(size_bytes);
    return OkStatus();
  }
  void StartWriteback(std::uint64_t /*offset*/, std::uint64_t /*length*/) override {}
  Status Sync() override { return OkStatus(); }
  Status Lock() override {
    if (!is_named_()) return ErrnoError(ENOENT, "lock", name_);
    const MutexLock lock(content_->mutex);
    if (content_->is_locked && !has_lock_) {
      return Error(ErrorKind::kAlreadyExists, "another run is writing this file").File(name_);
    }
    content_->is_locked = has_lock_ = true;
    return OkStatus();
  }
  Status Close() override {
    Unlock();
    return OkStatus();
  }

 private:
  void Unlock() {
    if (!std::exchange(has_lock_, false)) return;
    const MutexLock lock(content_->mutex);
    content_->is_locked = false;
  }

  bool has_lock_ = false;
  std::string name_;
  std::shared_ptr<Content> content_;
  std::function<bool()> is_named_;
};

class MemoryDirectoryLock final : public DirectoryLock {
 public:
  explicit MemoryDirectoryLock(std::shared_ptr<const void> token) : token_(std::move(token)) {}

 private:
  std::shared_ptr<const void> token_;
};

class MemoryStorage final : public Storage {
 public:
  MemoryStorage() { nodes_.emplace("/", nullptr); }

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<Content> content, FindFile(path, "open"));
    return std::shared_ptr<const ReadableFile>(
        std::make_shared<OpenedMemoryFile>(path.string(), std::move(content)));
  }

  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    const MutexLock lock(mutex_);
    const std::string key = Key(path);
    if (nodes_.contains(key)) return ErrnoError(EEXIST, "create", path.string());
    if (!IsDirectory(Parent(key))) return ErrnoError(ENOENT, "create", path.string());
    auto content = std::make_shared<Content>();
    nodes_.emplace(key, content);
    return Writable(path, std::move(content));
  }

  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<Content> content, FindFile(path, "open for writing"));
    return Writable(path, std::move(content));
  }

  Result<FileStat> Stat(const Path& path) override {
    const MutexLock lock(mutex_);
    const auto it = nodes_.find(Key(path));
    if (it == nodes_.end()) return FileStat{};
    if (it->second == nullptr) return FileStat{.type = FileType::kDirectory};
    const MutexLock content_lock(it->second->mutex);
    return FileStat{.type = FileType::kRegular, .size_bytes = it->second->bytes.size()};
  }

  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    const MutexLock lock(mutex_);
    const std::string key = Key(directory);
    if (!IsDirectory(key)) return ErrnoError(ENOENT, "list", directory.string());
    std::vector<DirectoryEntry> entries;
    const std::string prefix = key == "/" ? key : key + "/";
    for (auto it = nodes_.upper_bound(prefix); it != nodes_.end() && it->first.starts_with(prefix);
         ++it) {
      const std::string rest = it->first.substr(prefix.size());
      if (rest.find('/') != std::string::npos) continue;
      entries.push_back(
          {.name = rest,
           .type = it->second == nullptr ? FileType::kDirectory : FileType::kRegular});
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  Status MakeDirectories(const Path& directory) override {
    const MutexLock lock(mutex_);
    for (std::string key = Key(directory); !nodes_.contains(key); key = Parent(key)) {
      nodes_.emplace(key, nullptr);
    }
    return OkStatus();
  }

  Status Rename(const Path& from, const Path& to) override {
    const MutexLock lock(mutex_);
    if (nodes_.contains(Key(to)))
      return ErrnoError(EEXIST, "rename to " + to.string(), from.string());
    if (!IsDirectory(Parent(Key(to)))) {
      return ErrnoError(ENOENT, "rename to " + to.string(), from.string());
    }
    return Move(Key(from), Key(to));
  }

  Status Exchange(const Path& a, const Path& b) override {
    const MutexLock lock(mutex_);
    for (const Path& one : {a, b}) {
      if (!nodes_.contains(Key(one))) return ErrnoError(ENOENT, "exchange", one.string());
    }
    const std::string aside = "//exchange";
    CKPT_RETURN_IF_ERROR(Move(Key(a), aside));
    CKPT_RETURN_IF_ERROR(Move(Key(b), Key(a)));
    return Move(aside, Key(b));
  }

  Status RemoveAll(const Path& path) override {
    const MutexLock lock(mutex_);
    const std::string key = Key(path);
    std::erase_if(nodes_, [&](const auto& node) {
      return node.first == key || node.first.starts_with(key + "/");
    });
    return OkStatus();
  }

  Status RemoveEmptyDirectory(const Path& directory) override {
    const MutexLock lock(mutex_);
    const std::string key = Key(directory);
    if (!IsDirectory(key)) return ErrnoError(ENOENT, "remove directory", directory.string());
    const std::string inside = key + "/";
    const auto next = nodes_.upper_bound(inside);
    if (next != nodes_.end() && next->first.starts_with(inside)) {
      return ErrnoError(EEXIST, "remove directory", directory.string());
    }
    nodes_.erase(key);
    return OkStatus();
  }

  // The lock stays with the name, not with a directory that is renamed.
  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override {
    const MutexLock lock(mutex_);
    const std::string key = Key(directory);
    if (!nodes_.contains(key)) return ErrnoError(ENOENT, "lock", directory.string());
    if (!IsDirectory(key) || !locks_[key].expired()) {
      return Error(ErrorKind::kAlreadyExists, "another run is writing this target")
          .File(directory.string());
    }
    const auto token = std::make_shared<const char>('\0');
    locks_[key] = token;
    return std::unique_ptr<DirectoryLock>(std::make_unique<MemoryDirectoryLock>(token));
  }

  Status SyncDirectory(const Path& /*directory*/) override { return OkStatus(); }

 private:
  std::unique_ptr<WritableFile> Writable(const Path& path, std::shared_ptr<Content> content) {
    const auto is_named = [this, key = Key(path), content] {
      const MutexLock lock(mutex_);
      const auto found = nodes_.find(key);
      return found != nodes_.end() && found->second == content;
    };
    return std::make_unique<WritableMemoryFile>(path.string(), std::move(content), is_named);
  }
  static std::string Key(const Path& path) {
    // Two slashes at the beginning would name a host, and `..` does not lead out of it.
    const Path absolute = path.is_absolute() ? path : Path("/") / path;
    std::string key = absolute.lexically_normal().string();
    while (key.size() > 1 && (key.back() == '/' || key.ends_with("/."))) key.pop_back();
    return key;
  }
  static std::string Parent(const std::string& key) {
    const std::size_t slash = key.rfind('/');
    return slash == 0 ? "/" : key.substr(0, slash);
  }
  [[nodiscard]] bool IsDirectory(const std::string& key) const CKPT_REQUIRES(mutex_) {
    const auto it = nodes_.find(key);
    return it != nodes_.end() && it->second == nullptr;
  }
  Result<std::shared_ptr<Content>> FindFile(const Path& path, std::string_view verb) {
    const MutexLock lock(mutex_);
    const auto it = nodes_.find(Key(path));
    if (it == nodes_.end()) return ErrnoError(ENOENT, verb, path.string());
    if (it->second == nullptr) return ErrnoError(EISDIR, verb, path.string());
    return it->second;
  }
  Status Move(const std::string& from, const std::string& to) CKPT_REQUIRES(mutex_) {
    if (!nodes_.contains(from)) return ErrnoError(ENOENT, "rename", from);
    std::map<std::string, std::shared_ptr<Content>> moved;
    for (const auto& [key, content] : nodes_) {
      if (key == from || key.starts_with(from + "/")) moved[to + key.substr(from.size())] = content;
    }
    std::erase_if(nodes_, [&](const auto& node) {
      return node.first == from || node.first.starts_with(from + "/");
    });
    nodes_.merge(moved);
    return OkStatus();
  }

  Mutex mutex_;
  // Absolute path → content. A directory has none.
  std::map<std::string, std::shared_ptr<Content>> nodes_ CKPT_GUARDED_BY(mutex_);
  // Absolute path → a pointer that lives as long as the lock is held.
  std::map<std::string, std::weak_ptr<const void>> locks_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Storage> MakeMemoryStorage() { return std::make_unique<MemoryStorage>(); }

}  // namespace ckpt
