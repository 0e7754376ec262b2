// One bit flips, anywhere. With a manifest of ours every flip is found and placed, and no reader
// gets another value; without one the reader refuses, or reads the same, or the format has nothing
// that could tell.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/registry.h"
#include "tests/reliability/small_foreign.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kBudgetBytes = 1 << 20;
constexpr std::uint64_t kMaxFileBytes = 1 << 24;
// Bits of metadata that the short set flips, about.
constexpr std::size_t kShortFlips = 10'000;

// What a reader gets: everything that it could take for true.
struct Reading {
  Status status;                              // of opening and validating
  std::size_t num_warnings = 0;               // of validating
  std::string index;                          // hash of keys, types, shapes, chunks and extents
  std::map<std::string, std::string> values;  // of each tensor and object: a digest, or the error
  std::set<std::string> errors;               // which of `values` are errors
};

std::string HashIndex(const CheckpointIndex& index) {
  std::string text;
  for (const GlobalTensor& tensor : index.tensors()) {
    text += fmt::format("{} {} {}\n", tensor.key, DTypeName(tensor.dtype),
                        fmt::join(tensor.shape, ","));
    for (const Chunk& chunk : index.chunks(tensor)) {
      text += fmt::format(" [{}] [{}] {} {} {} {}\n", fmt::join(index.offsets(chunk), ","),
                          fmt::join(index.sizes(chunk), ","), index.files()[chunk.file],
                          index.encoding(chunk), chunk.offset_bytes, chunk.size_bytes);
    }
  }
  for (const ObjectEntry& object : index.objects()) {
    text += fmt::format("{} {} {} {}\n", object.key, index.files()[object.file],
                        object.offset_bytes, object.size_bytes);
  }
  return HashHex(HashAlgorithm::kXxh3, AsBytes(text));
}

// The first error among findings, if any.
Status FirstError(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    if (problem.severity == Severity::kError) return Status(problem);
  }
  return OkStatus();
}

Reading Read(Storage& storage, const Path& path) {
  Reading reading;
  const Result<OpenedCheckpoint> opened = OpenCheckpoint(storage, path);
  if (!opened.ok()) {
    reading.status = opened.status();
    return reading;
  }
  const CheckpointSource& source = *opened->source;
  const std::vector<Problem> problems = ValidateIndex(source);
  reading.num_warnings = problems.size();
  reading.status = FirstError(problems);
  if (!reading.status.ok()) return reading;
  reading.index = HashIndex(source.index());
  const auto add = [&reading](const std::string& key, const Result<std::string>& value) {
    if (!value.ok()) reading.errors.insert(key);
    reading.values[key] = value.ok() ? *value : value.status().ToString();
  };
  for (const GlobalTensor& tensor : source.index().tensors()) {
    add(tensor.key, DigestTensor(source, tensor, HashAlgorithm::kXxh3, kBudgetBytes));
  }
  for (const ObjectEntry& object : source.index().objects()) {
    const Result<RenderedObject> rendered = source.ReadObject(object);
    if (rendered.ok()) {
      add(object.key, rendered->type + rendered->json);
    } else {
      add(object.key, rendered.status());
    }
  }
  return reading;
}

// Bytes that hold nothing but elements of tensors.
struct Payload {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::set<std::string> tensors = {};
};

// A small checkpoint in memory.
struct Specimen {
  std::unique_ptr<Storage> storage = MakeMemoryStorage();
  Path path;                                     // what is opened
  Path directory;                                // what its manifest is relative to
  std::map<Path, std::string> files = {};        // all of them, as they were
  std::map<Path, std::vector<Payload>> payload;  // by file
};

struct FlipCase {
  const char* name;
  std::function<void(Specimen&)> make;
  bool has_manifest = false;
  // Parameters share the buffers of an optimizer, which have one checksum each. What they hold is
  // left out with a warning if it is not proved to be the model's.
  bool has_buffers = false;
  bool has_checksums = false;  // of all elements: none that changed is read
  std::size_t share = 1;  // of the short set's flips one in so many, where a reading takes long
};
void PrintTo(const FlipCase& test, std::ostream* os) { *os << test.name; }

void CopyGolden(const std::string& group, const std::string& name, Specimen& specimen) {
  const GoldenCase golden = LoadGolden(group, name);
  const bool is_file = PosixStorage().Stat(golden.path)->type == FileType::kRegular;
  const Path from = is_file ? golden.path.parent_path() : golden.path;
  const auto tree = ReadTree(PosixStorage(), from);
  ASSERT_THAT(tree, IsOk());
  for (const auto& [file, content] : *tree) {
    if (is_file && file != golden.path.filename().string()) continue;
    const Path to = Path("/specimen") / file;
    ASSERT_THAT(specimen.storage->MakeDirectories(to.parent_path()), IsOk());
    ASSERT_THAT(WriteSmallFile(*specimen.storage, to, AsBytes(content)), IsOk());
  }
  specimen.path = is_file ? Path("/specimen") / golden.path.filename() : Path("/specimen");
}

std::function<void(Specimen&)> Golden(const std::string& group, const std::string& name) {
  return [=](Specimen& specimen) { CopyGolden(group, name, specimen); };
}

// A folder of the goldens that are kept here alone.
std::function<void(Specimen&)> Folder(const std::string& name) {
  return [=](Specimen& specimen) {
    const auto tree = ReadTree(PosixStorage(), Path(CKPT_SOURCE_DIR) / "tests/golden" / name);
    ASSERT_THAT(tree, IsOk());
    for (const auto& [file, content] : *tree) {
      const Path to = Path("/specimen") / file;
      ASSERT_THAT(specimen.storage->MakeDirectories(to.parent_path()), IsOk());
      ASSERT_THAT(WriteSmallFile(*specimen.storage, to, AsBytes(content)), IsOk());
    }
    specimen.path = "/specimen";
  };
}

// What only other software writes.
std::function<void(Specimen&)> Foreign(Status (*write)(Storage&, const Path&)) {
  return [=](Specimen& specimen) {
    ASSERT_THAT(write(*specimen.storage, "/specimen"), IsOk());
    specimen.path = "/specimen";
  };
}

void MakeFsdp(Specimen& specimen, std::optional<int> zstd_level) {
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/source", {.hidden = 16}), IsOk());
  ConvertOptions options = HfToFsdp("/source", "/specimen");
  options.zstd_level = zstd_level;
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
  specimen.path = "/specimen";
}

void MakeRepository(Specimen& specimen) {
  MakeFsdp(specimen, std::nullopt);
  ASSERT_THAT(Convert(*specimen.storage, FsdpToHf("/specimen", "/repository")), IsOk());
  specimen.path = "/repository";
}

// As Megatron-Bridge keeps it, with run_config.yaml, train_state.pt and tokenizer/.
void MakeBridgeTree(Specimen& specimen, bool keeps_manifest) {
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/source", {.hidden = 16, .has_tokenizer = true}),
              IsOk());
  ConvertOptions options = HfToTorchDist("/source", "/specimen");
  options.to.forms["tree"] = "megatron-bridge";
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
  specimen.path = "/specimen";
  const Path release = specimen.path / "release";
  for (const char* name : {"run_config.yaml", "train_state.pt", "tokenizer/tokenizer.json"}) {
    ASSERT_EQ(specimen.storage->Stat(release / name)->type, FileType::kRegular) << name;
  }
  if (keeps_manifest) return;
  ASSERT_THAT(specimen.storage->RemoveAll(release / std::string(kManifestName)), IsOk());
}

void MakeForeignRepository(Specimen& specimen) {
  ASSERT_THAT(WriteSmallModel(*specimen.storage, "/specimen", {.hidden = 16}), IsOk());
  specimen.path = "/specimen";
}

// How the one file of a format is made.
struct FileForm {
  std::optional<int> zstd_level = {};
  int files = 0;
  bool is_linked = false;  // then its source is part of the specimen
};

void MakeFile(const std::string& format, Specimen& specimen, const FileForm& form) {
  const Path source = form.is_linked ? "/specimen/source" : "/source";
  ASSERT_THAT(WriteSmallModel(*specimen.storage, source, {.hidden = 16}), IsOk());
  ASSERT_THAT(specimen.storage->MakeDirectories("/specimen"), IsOk());
  ConvertOptions options = ConvertTo(format, source, "/specimen/model");
  options.zstd_level = form.zstd_level;
  options.files = form.files;
  options.link = form.is_linked;
  ASSERT_THAT(Convert(*specimen.storage, options), IsOk());
  specimen.path = "/specimen/model";
}

std::vector<FlipCase> Cases() {
  return {
      {"OurRepository", MakeRepository, true},
      {"OurFsdpDtensor", [](Specimen& s) { MakeFsdp(s, std::nullopt); }, true},
      {"OurCompressed", [](Specimen& s) { MakeFsdp(s, 3); }, true},
      {"OurBridgeTree", [](Specimen& s) { MakeBridgeTree(s, true); }, true},
      {"BridgeTree", [](Specimen& s) { MakeBridgeTree(s, false); }},
      {"Repository", MakeForeignRepository},
      {"Dcp", Golden("dcp", "sharded_tensor")},
      {"DcpSafetensors", Golden("dcp", "hf_plain")},
      {"TorchDist", Golden("torch_dist", "hand_dtypes_core019")},
      {"TorchSave", Golden("dcp", "pt_nested")},
      {.name = "Hdf5", .make = [](Specimen& s) { MakeFile("hdf5", s, {}); }, .has_checksums = true},
      {.name = "Hdf5Compressed",
       .make = [](Specimen& s) { MakeFile("hdf5", s, {.zstd_level = 3}); },
       .has_checksums = true},
      {.name = "OurTorchSave",
       .make = [](Specimen& s) { MakeFile("torch_save", s, {}); },
       .has_checksums = true},
      {"MegatronRanks", Folder("mp_rank/tp2_pp2")},
      {"VerlRanks", Folder("verl/optimizer")},
      {"Zarr", Foreign(WriteSmallZarr)},
      {.name = "MegatronOptimizer", .make = Foreign(WriteSmallMegatronRun), .has_buffers = true},
      {"TorchRepository", Foreign(WriteSmallTorchRepository)},
      {.name = "Fsdp2Run", .make = Golden("dcp", "tp_adamw_t24"), .share = 8},
      {.name = "Hdf5Virtual",
       .make = [](Specimen& s) { MakeFile("hdf5", s, {.files = 2}); },
       .has_checksums = true},
      {"Hdf5Link", [](Specimen& s) { MakeFile("hdf5", s, {.is_linked = true}); }},
      {"TorchSaveLegacy", Golden("dcp", "pt_legacy")},
  };
}

class BitFlipTest : public ::testing::TestWithParam<FlipCase> {
 protected:
  void SetUp() override {
    GetParam().make(specimen_);
    ASSERT_FALSE(HasFatalFailure());
    expected_ = Read(storage(), specimen_.path);
    ASSERT_THAT(expected_.status, IsOk());
    const auto opened = OpenCheckpoint(storage(), specimen_.path);
    ASSERT_THAT(opened, IsOk());
    specimen_.directory = opened->path;
    const bool is_file = storage().Stat(specimen_.path)->type == FileType::kRegular;
    const Path root = is_file ? specimen_.path.parent_path() : specimen_.path;
    const auto tree = ReadTree(storage(), root);
    ASSERT_THAT(tree, IsOk());
    for (const auto& [name, content] : *tree) specimen_.files[root / name] = content;
    FindPayload(*opened->source, is_file ? root : opened->path);
  }

  Storage& storage() { return *specimen_.storage; }

  // Where elements lie. Of encoded items the whole item counts.
  void FindPayload(const CheckpointSource& source, const Path& directory) {
    const CheckpointIndex& index = source.index();
    for (const GlobalTensor& tensor : index.tensors()) {
      for (const Chunk& chunk : index.chunks(tensor)) {
        const auto array = source.Locate(tensor, chunk);
        ASSERT_THAT(array, IsOk());
        Payload payload{.begin = chunk.offset_bytes, .end = chunk.offset_bytes + chunk.size_bytes};
        if (array->resident_bytes == 0) {
          std::int64_t elements = NumElements(index.sizes(chunk)) == 0 ? 0 : 1;
          for (std::size_t d = 0; elements > 0 && d < array->strides.size(); ++d) {
            elements += array->strides[d] * (index.sizes(chunk)[d] - 1);
          }
          payload.begin = array->offset_bytes;
          payload.end =
              payload.begin + static_cast<std::uint64_t>(elements) * ElementBytes(array->dtype);
        }
        payload.tensors.insert(tensor.key);
        specimen_.payload[directory / index.files()[chunk.file]].push_back(payload);
      }
    }
  }

  // The tensors that the byte belongs to; none if it is metadata.
  [[nodiscard]] std::set<std::string> TensorsAt(const Path& file, std::uint64_t offset) const {
    std::set<std::string> keys;
    const auto of_file = specimen_.payload.find(file);
    if (of_file == specimen_.payload.end()) return keys;
    for (const Payload& payload : of_file->second) {
      if (offset < payload.begin || offset >= payload.end) continue;
      keys.insert(payload.tensors.begin(), payload.tensors.end());
    }
    return keys;
  }

  // A bit of a file.
  struct Bit {
    Path file;
    std::uint64_t offset = 0;
    int bit = 0;
  };
  void Put(const Bit& at, bool flipped) {
    std::byte value{static_cast<unsigned char>(specimen_.files.at(at.file)[at.offset])};
    if (flipped) value ^= std::byte{1} << at.bit;
    auto file = storage().OpenForUpdate(at.file);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(at.offset, ByteSpan(&value, 1)), IsOk());
  }

  // Bytes of metadata, or of payload.
  [[nodiscard]] std::vector<Bit> Bytes(bool of_payload) const {
    std::vector<Bit> bytes;
    for (const auto& [file, content] : specimen_.files) {
      for (std::uint64_t offset = 0; offset < content.size(); ++offset) {
        if (TensorsAt(file, offset).empty() != of_payload) bytes.push_back({file, offset, 0});
      }
    }
    return bytes;
  }

  // Every error and warning that the manifest's check gives, or that of the manifest itself.
  Status CompareWithManifest() {
    const Path path = specimen_.directory / std::string(kManifestName);
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage(), path, kMaxFileBytes));
    CKPT_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, std::string(kManifestName)));
    CKPT_ASSIGN_OR_RETURN(std::vector<Problem> problems,
                          VerifyManifest(storage(), specimen_.directory, manifest, KnownRunRoot()));
    return Status(std::move(problems));
  }

  // The manifest must find the flip, in this file, around this byte.
  void CheckPlaced(const Bit& at, const std::string& where, Suite& suite) {
    const Status status = CompareWithManifest();
    const std::string name = at.file.filename().string();
    if (status.ok()) {
      suite.Fail(where + ": not found");
    } else if (status.problems().size() != 1 ||
               status.first().file.find(name) == std::string::npos) {
      suite.Fail(where + ": placed elsewhere: " + status.ToString());
    }
  }

  // A reader who compares with the manifest gets the values that were written, or errors.
  void CheckNoOtherValue(const Reading& reading, const std::string& where, Suite& suite) {
    if (!reading.status.ok()) return;
    if (reading.index != expected_.index) suite.Fail(where + ": reads another index");
    for (const auto& [key, value] : expected_.values) {
      const auto found = reading.values.find(key);
      const bool is_there = found != reading.values.end();
      if (is_there && (found->second == value || reading.errors.contains(key))) continue;
      suite.Fail(fmt::format("{}: reads another {}", where, key));
    }
  }

  // Values change, or cannot be read, only where the flip is. Returns whether any does: bits
  // between the elements of a strided tensor, or that a zstd frame does not use, change nothing.
  bool CheckValues(const Reading& reading, const std::set<std::string>& tensors,
                   const std::string& where, Suite& suite) {
    bool is_seen = false;
    if (GetParam().has_buffers && reading.num_warnings > expected_.num_warnings) return true;
    for (const auto& [key, value] : reading.values) {
      const bool differs = value != expected_.values.at(key);
      is_seen = is_seen || differs;
      const bool is_refused = GetParam().has_buffers && reading.errors.contains(key);
      if (differs && !tensors.contains(key) && !is_refused) {
        suite.Fail(fmt::format("{}: changes {}", where, key));
      }
      if (differs && GetParam().has_checksums && !reading.errors.contains(key)) {
        suite.Fail(fmt::format("{}: reads another {}", where, key));
      }
    }
    return is_seen;
  }

  Specimen specimen_;
  Reading expected_;
};

INSTANTIATE_TEST_SUITE_P(Formats, BitFlipTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(BitFlipTest, InMetadataIsFoundOrChangesNothing) {
  Suite suite(fmt::format("bit flips in metadata, {}", GetParam().name));
  const std::vector<Bit> bytes = Bytes(false);
  std::uint64_t refused = 0;
  std::uint64_t same = 0;
  std::uint64_t unprotected = 0;
  // An odd step comes by every bit of a byte.
  const std::size_t step = IsLongRun() ? 1 : bytes.size() * 8 * GetParam().share / kShortFlips | 1U;
  for (std::size_t n = 0; n < bytes.size() * 8; n += step) {
    Bit at = bytes[n / 8];
    at.bit = static_cast<int>(n % 8);
    const std::string where = fmt::format("{} byte {} bit {}", at.file.string(), at.offset, at.bit);
    Put(at, true);
    suite.Count();
    if (GetParam().has_manifest) CheckPlaced(at, where, suite);
    // A checksum does not mind which bit of a byte it is: one of each is read.
    if (!GetParam().has_manifest || n % 8 == n / 8 % 8) {
      const Reading reading = Read(storage(), specimen_.path);
      if (!reading.status.ok() || !reading.errors.empty() ||
          reading.num_warnings > expected_.num_warnings) {
        ++refused;
      } else if (reading.index == expected_.index && reading.values == expected_.values) {
        ++same;
      } else {
        ++unprotected;
      }
      if (GetParam().has_manifest) CheckNoOtherValue(reading, where, suite);
    }
    Put(at, false);
  }
  suite.Note(fmt::format("{} refused, {} read the same, {} no checksum of the format covers",
                         refused, same, unprotected));
  EXPECT_THAT(Read(storage(), specimen_.path).values, ::testing::ContainerEq(expected_.values));
}

TEST_P(BitFlipTest, InPayloadTouchesTheRightTensorAlone) {
  Suite suite(fmt::format("bit flips in payload, {}", GetParam().name));
  std::mt19937_64 rng(TestSeed(kDefaultSeed));
  const std::vector<Bit> bytes = Bytes(true);
  ASSERT_FALSE(bytes.empty());
  const std::size_t flips = IsLongRun() ? 50'000 : 4'000 / GetParam().share;
  std::uint64_t unused = 0;
  for (std::size_t n = 0; n < flips; ++n) {
    Bit at = bytes[rng() % bytes.size()];
    at.bit = static_cast<int>(rng() % 8);
    const std::string where = fmt::format("{} byte {} bit {}", at.file.string(), at.offset, at.bit);
    Put(at, true);
    suite.Count();
    const std::set<std::string> tensors = TensorsAt(at.file, at.offset);
    const Reading reading = Read(storage(), specimen_.path);
    if (GetParam().has_manifest) {
      CheckPlaced(at, where, suite);
      CheckNoOtherValue(reading, where, suite);
      // The block may hold the header, too, which then cannot be read either.
      const bool is_refused =
          !reading.status.ok() || std::ranges::includes(reading.errors, tensors);
      if (!is_refused) suite.Fail(where + ": is read");
    } else if (!reading.status.ok()) {
      suite.Fail(where + ": " + reading.status.ToString());
    } else if (!CheckValues(reading, tensors, where, suite)) {
      ++unused;
    }
    Put(at, false);
  }
  suite.Note(fmt::format("{} in bits that no value uses", unused));
}

}  // namespace
}  // namespace ckpt::testing
