// Every call that reads fails in turn, in every format: an error of the system, never one about the
// bytes, and never other tensors or values. Torch's own shapes of each format; writers are in
// errno_test.cc.
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/checkpoint/digest.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kBudgetBytes = 1 << 16;

// Counts reading calls of a storage and of its files, and fails one.
class ReadFaults {
 public:
  explicit ReadFaults(int fail_at) : fail_at_(fail_at) {}
  Status Next(const std::string& name) {
    if (calls_++ != fail_at_) return OkStatus();
    return Error(ErrorKind::kIo, "injected fault").File(name);
  }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  int fail_at_;
  int calls_ = 0;
};

class FaultyFile final : public ReadableFile {
 public:
  FaultyFile(std::shared_ptr<const ReadableFile> behind, ReadFaults& faults)
      : behind_(std::move(behind)), faults_(faults) {}
  std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  const std::string& name() const override { return behind_->name(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    CKPT_RETURN_IF_ERROR(faults_.Next(name()));
    return behind_->ReadAt(offset, out);
  }
  Result<std::unique_ptr<FileView>> View() const override {
    CKPT_RETURN_IF_ERROR(faults_.Next(name()));
    return behind_->View();
  }

 private:
  std::shared_ptr<const ReadableFile> behind_;
  ReadFaults& faults_;
};

// Nobody writes through it.
class FaultyReads final : public ForwardingStorage {
 public:
  FaultyReads(Storage& behind, ReadFaults& faults) : ForwardingStorage(behind), faults_(faults) {}
  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_RETURN_IF_ERROR(faults_.Next(path.string()));
    CKPT_ASSIGN_OR_RETURN(auto file, behind().Open(path));
    return std::shared_ptr<const ReadableFile>(
        std::make_shared<FaultyFile>(std::move(file), faults_));
  }
  Result<FileStat> Stat(const Path& path) override {
    CKPT_RETURN_IF_ERROR(faults_.Next(path.string()));
    return behind().Stat(path);
  }
  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(faults_.Next(directory.string()));
    return behind().List(directory);
  }

 private:
  ReadFaults& faults_;
};

// Key → digest or rendered object; an error where there is one.
using Reading = std::map<std::string, Result<std::string>>;

Result<Reading> Read(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(storage, path));
  const CheckpointSource& source = *opened.source;
  Reading reading;
  for (const Problem& problem : source.index().problems()) {
    if (problem.severity == Severity::kError) reading.emplace("", Status(problem));
  }
  for (const GlobalTensor& tensor : source.index().tensors()) {
    reading.emplace(tensor.key, DigestTensor(source, tensor, HashAlgorithm::kXxh3, kBudgetBytes));
  }
  for (const ObjectEntry& object : source.index().objects()) {
    Result<RenderedObject> rendered = source.ReadObject(object);
    if (rendered.ok()) {
      reading.emplace(object.key, rendered->json);
    } else {
      reading.emplace(object.key, rendered.status());
    }
  }
  return reading;
}

struct Case {
  const char* name;
  const char* group;
  const char* golden;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class ReadFaultsTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, ReadFaultsTest,
    ::testing::Values(Case{"Dcp", "dcp", "sharded"}, Case{"DcpZstd", "dcp", "zstd"},
                      Case{"DcpSafetensors", "dcp", "hf_plain"},
                      Case{"DcpSafetensorsConsolidated", "dcp", "hf_consolidated"},
                      Case{"TorchDist", "torch_dist", "hand_grid_core016"},
                      Case{"TorchSave", "dcp", "pt_nested"},
                      Case{"TorchSaveNumpy", "dcp", "pt_numpy"},
                      Case{"TorchSaveLegacy", "dcp", "pt_legacy"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ReadFaultsTest, AreErrorsOfTheSystem) {
  const GoldenCase golden = LoadGolden(GetParam().group, GetParam().golden);
  Suite suite(fmt::format("failing reads, {}", GetParam().name));
  const Result<Reading> expected = Read(PosixStorage(), golden.path);
  ASSERT_THAT(expected, IsOk());
  for (int call = 0;; ++call) {
    ReadFaults faults(call);
    FaultyReads storage(PosixStorage(), faults);
    const Result<Reading> reading = Read(storage, golden.path);
    if (faults.calls() <= call) break;  // there is no such call
    suite.Count();
    const std::string where = fmt::format("call {}", call);
    if (!reading.ok()) {
      if (reading.status().kind() != ErrorKind::kIo) {
        suite.Fail(where + ": the error blames the bytes: " + reading.status().ToString());
      }
      continue;
    }
    int errors = 0;
    for (const auto& [key, value] : *reading) {
      if (!value.ok()) {
        ++errors;
        if (value.status().kind() != ErrorKind::kIo) {
          suite.Fail(where + ": the error blames the bytes: " + value.status().ToString());
        }
      } else if (const auto old = expected->find(key);
                 old == expected->end() || !old->second.ok() || *old->second != *value) {
        suite.Fail(fmt::format("{}: another value of {}", where, key));
      }
    }
    if (errors == 0 && reading->size() != expected->size()) suite.Fail(where + ": fewer entries");
    if (errors == 0) suite.Fail(where + ": nobody noticed");
  }
}

}  // namespace
}  // namespace ckpt::testing
