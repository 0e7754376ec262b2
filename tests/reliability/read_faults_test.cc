// Every call that reads fails in turn, in every format: an error of the system, never one about the
// bytes, and never other tensors or values. Other software's shapes of each format where there are
// any; writers are in errno_test.cc.
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
#include "tests/reliability/small_foreign.h"
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
  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
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

// What is read, and where it lies.
struct Specimen {
  std::unique_ptr<Storage> memory = MakeMemoryStorage();
  Storage* storage = &PosixStorage();
  Path path;
};

struct Case {
  const char* name;
  std::function<void(Specimen&)> make;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

std::function<void(Specimen&)> Golden(const char* group, const char* golden) {
  return [=](Specimen& specimen) { specimen.path = LoadGolden(group, golden).path; };
}

// One of the goldens that are kept here alone.
std::function<void(Specimen&)> Kept(const char* path) {
  return [=](Specimen& specimen) { specimen.path = Path(CKPT_SOURCE_DIR) / "tests/golden" / path; };
}

// What only other software writes.
std::function<void(Specimen&)> Foreign(Status (*write)(Storage&, const Path&)) {
  return [=](Specimen& specimen) {
    specimen.storage = specimen.memory.get();
    specimen.path = "/specimen";
    ASSERT_THAT(write(*specimen.storage, specimen.path), IsOk());
  };
}

// As Megatron-Bridge keeps it, with run_config.yaml and train_state.pt.
void MakeBridgeTree(Specimen& specimen) {
  specimen.storage = specimen.memory.get();
  specimen.path = "/specimen";
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/source", {.hidden = 16, .has_tokenizer = true}),
              IsOk());
  ConvertOptions options = HfToTorchDist("/source", specimen.path);
  options.to.forms["tree"] = "megatron-bridge";
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
}

void MakeCompressedHdf5(Specimen& specimen) {
  specimen.storage = specimen.memory.get();
  specimen.path = "/specimen.h5";
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/source", {.hidden = 16}), IsOk());
  ConvertOptions options = ConvertTo("hdf5", "/source", specimen.path);
  options.zstd_level = 3;
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
}

void MakeLink(Specimen& specimen) {
  specimen.storage = specimen.memory.get();
  specimen.path = "/specimen.h5";
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/source", {.hidden = 16}), IsOk());
  ConvertOptions options = ConvertTo("hdf5", "/source", specimen.path);
  options.link = true;
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
}

class ReadFaultsTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, ReadFaultsTest,
    ::testing::Values(
        Case{"Dcp", Golden("dcp", "sharded")}, Case{"DcpZstd", Golden("dcp", "zstd")},
        Case{"DcpSafetensors", Golden("dcp", "hf_plain")},
        Case{"DcpSafetensorsConsolidated", Golden("dcp", "hf_consolidated")},
        Case{"TorchDist", Golden("torch_dist", "hand_grid_core016")},
        Case{"BridgeTree", MakeBridgeTree}, Case{"Zarr", Foreign(WriteSmallZarr)},
        Case{"MegatronOptimizer", Foreign(WriteSmallMegatronRun)},
        Case{"TorchRepository", Foreign(WriteSmallTorchRepository)},
        Case{"Fsdp2Run", Golden("dcp", "tp_adamw_t24")}, Case{"Hdf5Link", MakeLink},
        Case{"MegatronRanks", Kept("mp_rank/tp2_pp2")}, Case{"VerlRanks", Kept("verl/optimizer")},
        Case{"Hdf5", Kept("hdf5/earliest.h5")}, Case{"Hdf5Latest", Kept("hdf5/latest.h5")},
        Case{"Hdf5Virtual", Kept("hdf5/virtual_latest.h5")},
        Case{"Hdf5Compressed", MakeCompressedHdf5}, Case{"TorchSave", Golden("dcp", "pt_nested")},
        Case{"TorchSaveNumpy", Golden("dcp", "pt_numpy")},
        Case{"TorchSaveLegacy", Golden("dcp", "pt_legacy")}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ReadFaultsTest, AreErrorsOfTheSystem) {
  Specimen specimen;
  GetParam().make(specimen);
  ASSERT_FALSE(HasFatalFailure());
  Suite suite(fmt::format("failing reads, {}", GetParam().name));
  const Result<Reading> expected = Read(*specimen.storage, specimen.path);
  ASSERT_THAT(expected, IsOk());
  for (int call = 0;; ++call) {
    ReadFaults faults(call);
    FaultyReads storage(*specimen.storage, faults);
    const Result<Reading> reading = Read(storage, specimen.path);
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
