// Several processes carry out one plan, each its own items; together they leave what one would.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/memory_source.h"
#include "core/exec/block_checksums.h"
#include "core/exec/executor.h"
#include "core/exec/plan_share.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;

constexpr int kWriters = 3;
constexpr std::int64_t kSharedCols = 5;

// Ten tensors; the rows of tensor t lie in files that differ from tensor to tensor. File 3, with a
// literal, is not the writer's own.
class SharedExecutionTest : public ::testing::Test {
 protected:
  SharedExecutionTest() {
    std::mt19937_64 rng(11);
    std::vector<MemoryTensor> tensors;
    for (int f = 0; f < kWriters; ++f) {
      plan_.write.files.push_back({.name = "data-" + std::to_string(f)});
    }
    for (std::uint32_t t = 0; t < 10; ++t) {
      const std::int64_t rows = 2 + t;
      const Dims shape = {rows, kSharedCols};
      MemoryTensor tensor = {
          .key = "t" + std::to_string(t), .dtype = DType::kUint8, .shape = shape, .values = {}};
      for (std::int64_t i = 0; i < rows * kSharedCols; ++i) {
        tensor.values.push_back(static_cast<std::byte>(rng()));
      }
      tensors.push_back(std::move(tensor));
      plan_.write.tensors.push_back(
          {.key = "t" + std::to_string(t), .dtype = DType::kUint8, .shape = shape});
      plan_.recipes.push_back(
          {.nests = {layout::IdentityNest(t, shape)}, .source_dtype = DType::kUint8});
      // Tensors 0, 3, 6, 9 are whole in one file.
      const std::int64_t cut = t % 3 == 0 ? rows : rows / 2;
      AddItem(t, t % kWriters, 0, cut);
      if (cut < rows) AddItem(t, (t + 1) % kWriters, cut, rows);
    }
    plan_.write.files.push_back({.name = "index", .size_bytes = 4});
    const ByteSpan text = AsBytes("text");
    plan_.write.literals.push_back({.file = kWriters, .bytes = Bytes(text.begin(), text.end())});
    EXPECT_THAT(storage_->MakeDirectories("/from"), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, "/from/side", AsBytes("side file")), IsOk());
    plan_.write.copies.push_back({.from = "/from/side", .name = "assets/side"});
    source_ = MakeMemorySource(std::move(tensors)).value();
  }

  void AddItem(std::uint32_t tensor, std::uint32_t file, std::int64_t begin, std::int64_t end) {
    const auto bytes = static_cast<std::uint64_t>((end - begin) * kSharedCols);
    std::uint64_t& size = plan_.write.files[file].size_bytes;
    plan_.write.items.push_back(
        {.tensor = tensor,
         .file = file,
         .box = {.offsets = {begin, 0}, .sizes = {end - begin, kSharedCols}},
         .offset_bytes = size,
         .payload_offset = size,
         .payload_bytes = bytes,
         .size_bytes = bytes});
    size += bytes;
  }

  Result<ExecuteResult> Write(Storage& storage, const Path& directory, std::vector<bool> own) {
    CKPT_RETURN_IF_ERROR(storage_->MakeDirectories(directory));
    ExecuteOptions options;
    if (!own.empty()) {
      options.share = {.files = own, .items = {}};
      for (const WriteItem& item : plan_.write.items) {
        options.share->items.push_back(own[item.file]);
      }
    }
    return Execute(plan_, *source_, storage, directory, options);
  }
  // The same tensors in one file behind a literal, item by item.
  void PutAllIntoOneFile() {
    plan_.write.literals.front().file = 0;
    std::uint64_t size = plan_.write.literals.front().bytes.size();
    for (WriteItem& item : plan_.write.items) {
      item.file = 0;
      item.offset_bytes = item.payload_offset = size;
      size += item.size_bytes;
    }
    plan_.write.files = {{.name = "all", .size_bytes = size}};
  }
  // Writer w has data file w; the first has the index too.
  static std::vector<bool> FilesOf(int writer) {
    std::vector<bool> own(kWriters + 1);
    own[static_cast<std::size_t>(writer)] = true;
    own[kWriters] = writer == 0;
    return own;
  }

  std::map<std::string, std::string> ReadAll(const Path& directory) {
    std::map<std::string, std::string> contents;
    const std::vector<std::string> names = ListRecursively(*storage_, directory).value();
    for (const std::string& name : names) {
      if (name == kJournalName) continue;
      contents[name] = ReadSmallFile(*storage_, directory / name, 1 << 20).value();
    }
    return contents;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  ConversionPlan plan_;
  std::unique_ptr<CheckpointSource> source_;
};

TEST_F(SharedExecutionTest, LeavesTheFilesOfOneExecution) {
  const auto whole = Write(*storage_, "/whole", {});
  ASSERT_THAT(whole, IsOk());
  std::map<std::string, ManifestFile> accounts;
  std::map<std::size_t, std::string> digests;
  for (int writer = kWriters - 1; writer >= 0; --writer) {
    const auto part = Write(*storage_, "/shared", FilesOf(writer));
    ASSERT_THAT(part, IsOk());
    for (const ManifestFile& file : part->files) {
      EXPECT_TRUE(accounts.emplace(file.name, file).second) << file.name << " twice";
    }
    ASSERT_EQ(part->tensor_xxh3.size(), plan_.write.tensors.size());
    for (std::size_t t = 0; t < part->tensor_xxh3.size(); ++t) {
      if (!part->tensor_xxh3[t].empty()) digests[t] = part->tensor_xxh3[t];
    }
  }
  EXPECT_EQ(ReadAll("/shared"), ReadAll("/whole"));
  ASSERT_EQ(accounts.size(), whole->files.size());
  for (const ManifestFile& file : whole->files) EXPECT_EQ(accounts[file.name], file);
  // Whole in one file or in none: a digest of a part would be taken for the tensor's.
  EXPECT_EQ(digests.size(), 4U);
  for (const auto& [tensor, digest] : digests) {
    EXPECT_EQ(tensor % 3, 0U);
    EXPECT_EQ(digest, whole->tensor_xxh3[tensor]);
  }
}

TEST_F(SharedExecutionTest, WritesNothingThatIsNotItsOwn) {
  ASSERT_THAT(Write(*storage_, "/one", FilesOf(1)), IsOk());
  const auto files = ReadAll("/one");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.begin()->first, "data-1");
  EXPECT_THAT(storage_->Stat("/one/.ckptkit-journal")->type, FileType::kMissing);
  const auto nothing = Write(*storage_, "/none", std::vector<bool>(kWriters + 1));
  ASSERT_THAT(nothing, IsOk());
  EXPECT_THAT(nothing->files, IsEmpty());
  EXPECT_EQ(nothing->bytes_written, 0U);
  EXPECT_THAT(ReadAll("/none"), IsEmpty());
}

TEST_F(SharedExecutionTest, TakesSideFilesWithTheFirstFile) {
  for (int writer = 0; writer < kWriters; ++writer) {
    const Path directory = "/run-" + std::to_string(writer);
    ASSERT_THAT(Write(*storage_, directory, FilesOf(writer)), IsOk());
    EXPECT_EQ(ReadAll(directory).contains("assets/side"), writer == 0);
  }
}

TEST_F(SharedExecutionTest, FillsOneFileTogether) {
  PutAllIntoOneFile();
  const auto whole = Write(*storage_, "/whole", {});
  ASSERT_THAT(whole, IsOk());
  std::vector<int> writers;
  for (std::size_t i = 0; i < plan_.write.items.size(); ++i) {
    writers.push_back(static_cast<int>(i % kWriters));
  }
  const std::vector<FileMaker> makers = MakersOfFiles(plan_.write, writers);
  ASSERT_EQ(makers.size(), 1U);
  EXPECT_TRUE(makers.front().is_filled_by_many);
  EXPECT_EQ(makers.front().process, 0);
  ASSERT_THAT(storage_->MakeDirectories("/shared"), IsOk());
  ASSERT_THAT(storage_->Create("/shared/all").value()->Resize(whole->files[0].size_bytes), IsOk());

  std::optional<BlockChecksums> joined;
  for (int writer = kWriters - 1; writer >= 0; --writer) {
    PlanShare share = ShareOf(plan_.write, writers, makers, writer);
    share.open[0] = storage_->OpenForUpdate("/shared/all").value();
    const auto part = Execute(plan_, *source_, *storage_, "/shared", {.share = std::move(share)});
    ASSERT_THAT(part, IsOk());
    ASSERT_EQ(part->files.size(), writer == 0 ? 2U : 1U);  // the side file is the maker's
    const ManifestFile& file = part->files.front();
    const BlockChecksums sums = {.crc32c = file.block_crc32c, .crc32 = file.block_crc32};
    joined = joined ? JoinParts(*joined, sums, file.size_bytes) : sums;
    EXPECT_NE(sums.crc32c, whole->files[0].block_crc32c);
  }
  EXPECT_EQ(ReadAll("/shared"), ReadAll("/whole"));
  EXPECT_EQ(joined->crc32c, whole->files[0].block_crc32c);
  EXPECT_EQ(joined->crc32, whole->files[0].block_crc32);
}

// A job that started while a process of the one before was still about to write.
class RestartedJob final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;

  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, ForwardingStorage::Create(path));
    CKPT_RETURN_IF_ERROR(RemoveAll(path.parent_path()));
    CKPT_RETURN_IF_ERROR(MakeDirectories(path.parent_path()));
    CKPT_RETURN_IF_ERROR(WriteSmallFile(behind(), path, AsBytes("the new job's")));
    return file;
  }
};

TEST_F(SharedExecutionTest, WritesIntoNoFileOfALaterJob) {
  RestartedJob restarted(*storage_);
  (void)Write(restarted, "/run", FilesOf(1));
  EXPECT_THAT(ReadSmallFile(*storage_, "/run/data-1", 100), IsOkAndHolds("the new job's"));
}

TEST_F(SharedExecutionTest, TakesNoFileOfAnotherJobForItsOwn) {
  ASSERT_THAT(storage_->MakeDirectories("/run"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, "/run/data-1", AsBytes("the old job's")), IsOk());
  EXPECT_THAT(Write(*storage_, "/run", FilesOf(1)), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(ReadSmallFile(*storage_, "/run/data-1", 100), IsOkAndHolds("the old job's"));
}

TEST_F(SharedExecutionTest, ReportsTheFaultOfAnyCall) {
  for (int call = 0;; ++call) {
    testing::FaultStorage broken(*storage_, call);
    ASSERT_THAT(storage_->RemoveAll("/broken"), IsOk());
    const auto written = Write(broken, "/broken", FilesOf(0));
    if (broken.calls() <= call) {
      EXPECT_THAT(written, IsOk());
      EXPECT_GE(call, 10);
      break;
    }
    EXPECT_THAT(written, FailsWith(ErrorKind::kIo)) << "call " << call;
  }
}

}  // namespace
}  // namespace ckpt
