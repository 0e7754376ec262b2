// Files of random bytes in memory, covered by a manifest with parity: something to damage and
// repair.
#ifndef CKPT_TESTS_CORE_REPAIR_SPECIMEN_H_
#define CKPT_TESTS_CORE_REPAIR_SPECIMEN_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/manifest.h"
#include "core/repair/parity.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"

namespace ckpt::testing {

inline constexpr std::uint64_t kDefaultSeed = 20;

inline Bytes RandomBytes(std::size_t size, std::mt19937_64& rng) {
  Bytes bytes(size);
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), size - at));
  }
  return bytes;
}

using Contents = std::map<std::string, Bytes>;

class Specimen {
 public:
  // `group_size` 0: no parity.
  Specimen(Contents contents, std::size_t group_size)
      : storage_(MakeMemoryStorage()), contents_(std::move(contents)) {
    for (const auto& [name, content] : contents_) {
      Put(name, content);
      manifest_.files.push_back(DescribeContent(name, content));
    }
    if (group_size == 0) return;
    const auto parity =
        WriteParity(*storage_, directory(), manifest_.files, {.group_size = group_size});
    EXPECT_THAT(parity, IsOk());
    for (const ManifestFile& file : parity->files) {
      manifest_.files.push_back(file);
      contents_[file.name] = Read(directory() / file.name);
    }
    manifest_.parity = parity->groups;
    std::sort(manifest_.files.begin(), manifest_.files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  static Path directory() { return "/run/checkpoint"; }
  Storage& storage() { return *storage_; }
  const Manifest& manifest() const { return manifest_; }
  // As written, parity files included.
  const Contents& contents() const { return contents_; }

  void Put(const std::string& name, ByteSpan content) {
    const Path path = directory() / name;
    EXPECT_THAT(storage_->RemoveAll(path), IsOk());
    EXPECT_THAT(storage_->MakeDirectories(path.parent_path()), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, path, content), IsOk());
  }
  void Remove(const std::string& name) {
    EXPECT_THAT(storage_->RemoveAll(directory() / name), IsOk());
  }
  void Restore() {
    for (const auto& [name, content] : contents_) Put(name, content);
  }
  Bytes Read(const Path& path) {
    const auto text = ReadSmallFile(*storage_, path, std::uint64_t{1} << 30);
    EXPECT_THAT(text, IsOk());
    const ByteSpan bytes = text.ok() ? AsBytes(*text) : ByteSpan();
    return {bytes.begin(), bytes.end()};
  }
  Contents ReadAll(const Path& from) {
    Contents all;
    const auto names = ListRecursively(*storage_, from);
    EXPECT_THAT(names, IsOk());
    for (const std::string& name : *names) all[name] = Read(from / name);
    return all;
  }

 private:
  std::unique_ptr<Storage> storage_;
  Contents contents_;
  Manifest manifest_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_CORE_REPAIR_SPECIMEN_H_
