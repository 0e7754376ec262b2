// Memory runs out at every allocation of every parser: an error or std::bad_alloc, which the
// caller's seam turns into one; never a crash, a leak, or another answer.
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/task_pool.h"
#include "core/io/posix_storage.h"
#include "core/layout/layout_table.h"
#include "core/manifest/manifest.h"
#include "core/manifest/manifest_text.h"
#include "formats/dcp/metadata.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/torch_save/internal/legacy_stream.h"
#include "formats/torch_save/torch_container.h"
#include "formats/zip/reader.h"
#include "tests/reliability/allocation_faults.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxInputBytes = 1 << 24;

// A number that says what was read, or the error.
using Parse = std::function<Result<std::uint64_t>(const Bytes& input)>;

struct Parser {
  const char* name;
  Path directory;      // of the inputs, good ones and bad ones
  std::string prefix;  // of their names
  Parse parse;
};
void PrintTo(const Parser& parser, std::ostream* os) { *os << parser.name; }

std::shared_ptr<const ReadableFile> AsFile(const Bytes& input) {
  return MakeMemoryFile("input", input);
}

Result<std::uint64_t> ReadPickle(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto parsed, pickle::ParsePickle(input, "input"));
  CKPT_ASSIGN_OR_RETURN(const auto rendered,
                        pickle::RenderObject(parsed.graph, parsed.root, "input", "key", {}));
  return std::uint64_t{parsed.graph.size()};
}

Result<std::uint64_t> ReadZip(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto archive, zip::Archive::Open(AsFile(input), 0, input.size()));
  return archive.records().size();
}

Result<std::uint64_t> ReadTorchFile(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto container, torch_save::OpenTorchFile(AsFile(input)));
  return container.storages.size();
}

Result<std::uint64_t> ReadLegacy(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto container, torch_save::OpenLegacyStream(AsFile(input)));
  return container.storages.size();
}

Result<std::uint64_t> ReadDcpMetadata(const Bytes& input) {
  IndexBuilder builder;
  const std::vector<dcp::MetadataFile> files = {{.name = "input", .bytes = input}};
  CKPT_RETURN_IF_ERROR(dcp::ReadMetadata(files, builder).status());
  CKPT_ASSIGN_OR_RETURN(const CheckpointIndex index, builder.Build());
  return index.tensors().size() + index.chunks().size();
}

Result<std::uint64_t> ReadSafetensorsHeader(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto header, safetensors::ReadHeader(*AsFile(input)));
  return header.tensors.size();
}

Result<std::uint64_t> ReadIndexJson(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const auto index, safetensors::ParseShardedIndex(AsText(input), "input"));
  return index.weight_map.size();
}

Result<std::uint64_t> ReadManifest(const Bytes& input) {
  CKPT_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(AsText(input), "input"));
  return manifest.files.size() + manifest.tensors.size();
}

const Path kFamilies = Path(CKPT_SOURCE_DIR) / "converters/families";

Result<std::uint64_t> ReadLayoutTable(const Bytes& input) {
  const auto include = [](std::string_view name) {
    return ReadSmallFile(PosixStorage(), kFamilies / std::string(name), kMaxInputBytes);
  };
  CKPT_ASSIGN_OR_RETURN(const auto table,
                        layout::ParseLayoutTable(AsText(input), "input", include));
  return table.logicals.size();
}

Path Corpus(const std::string& name) { return Path(CKPT_SOURCE_DIR) / "tests/fuzz/corpus" / name; }

std::vector<Parser> Parsers() {
  return {
      {"Pickle", Corpus("pickle"), "", ReadPickle},
      {"Zip", Corpus("torch_file"), "", ReadZip},
      {"TorchFile", Corpus("torch_file"), "", ReadTorchFile},
      {"LegacyStream", Corpus("torch_file"), "pt_legacy", ReadLegacy},
      {"DcpMetadata", Corpus("dcp_metadata"), "", ReadDcpMetadata},
      {"SafetensorsHeader", Corpus("safetensors_header"), "", ReadSafetensorsHeader},
      {"IndexJson", Corpus("sharded_index"), "", ReadIndexJson},
      {"Manifest", Corpus("manifest"), "", ReadManifest},
      {"LayoutTable", kFamilies, "decoder.layout", ReadLayoutTable},
      {"LayoutTableOfState", kFamilies, "training_state.layout", ReadLayoutTable},
  };
}

// What one run came to.
struct Outcome {
  bool threw = false;
  Status status;
  std::uint64_t value = 0;
};

Outcome Try(const Parser& parser, const Bytes& input) {
  Outcome outcome;
  try {
    Result<std::uint64_t> result = parser.parse(input);
    if (result.ok()) {
      outcome.value = *result;
    } else {
      outcome.status = std::move(result).status();
    }
  } catch (const std::bad_alloc&) {
    outcome.threw = true;
  }
  return outcome;
}

class AllocationTest : public ::testing::TestWithParam<Parser> {};

INSTANTIATE_TEST_SUITE_P(Parsers, AllocationTest, ::testing::ValuesIn(Parsers()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AllocationTest, FailingAnywhereIsAnErrorAndLeaksNothing) {
  const std::int64_t max_points = IsLongRun() ? 1'000'000 : 1'500;
  Suite suite(fmt::format("failing allocation, {}", GetParam().name));
  std::int64_t allocations = 0;
  const auto entries = PosixStorage().List(GetParam().directory);
  ASSERT_THAT(entries, IsOk());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular || !entry.name.starts_with(GetParam().prefix)) continue;
    // It takes all the time that it may, every time.
    if (entry.name == "metadata_bomb") continue;
    const Path path = GetParam().directory / entry.name;
    const auto text = ReadSmallFile(PosixStorage(), path, kMaxInputBytes);
    ASSERT_THAT(text, IsOk());
    Bytes input;
    Append(*text, input);
    (void)Try(GetParam(), input);  // what is made once for the whole program
    Outcome expected;
    std::int64_t count = 0;
    {
      const AllocationFaults counter({});
      expected = Try(GetParam(), input);
      count = AllocationFaults::asked();
    }
    ASSERT_FALSE(expected.threw);
    allocations += count;
    const std::int64_t step = (count + max_points - 1) / max_points;
    for (std::int64_t at = 0; at < count; at += step) {
      for (const bool is_sticky : {false, true}) {
        std::int64_t leaked = 0;
        bool differs = false;
        bool is_wrong_kind = false;
        {
          const AllocationFaults faults({.at = at, .is_sticky = is_sticky});
          {
            const Outcome outcome = Try(GetParam(), input);
            const bool gave_up = outcome.threw || (!outcome.status.ok() && expected.status.ok());
            differs = !gave_up && (outcome.value != expected.value ||
                                   outcome.status.ok() != expected.status.ok());
            is_wrong_kind =
                gave_up && !outcome.threw && outcome.status.kind() != ErrorKind::kSystem;
          }
          leaked = AllocationFaults::live();
        }
        suite.Count();
        const std::string where =
            fmt::format("{}: allocation {} of {}", path.filename().string(), at, count);
        if (leaked != 0) suite.Fail(fmt::format("{}: {} allocations leaked", where, leaked));
        if (differs) suite.Fail(where + ": another answer");
        if (is_wrong_kind) suite.Fail(where + ": the error blames the bytes");
      }
    }
  }
  suite.Note(fmt::format("{} allocations", allocations));
}

// The seam of all threads: what a task throws becomes an error, on whichever thread it runs.
TEST(TaskPoolAllocationTest, TurnsMemoryThatRanOutIntoAnError) {
  Suite suite("failing allocation, task pool");
  for (const int threads : {1, 4}) {
    for (std::int64_t at = 0; at < 64; ++at) {
      for (const bool is_sticky : {false, true}) {
        bool threw = false;
        Status status;
        {
          const AllocationFaults faults({.at = at, .is_sticky = is_sticky});
          try {
            status = RunTasks(16, threads, {}, [](std::size_t task, std::size_t) {
              const std::vector<std::string> texts(2, std::string(100 + task, 'x'));
              return texts.size() == 2 ? OkStatus() : Error(ErrorKind::kInternal, "lost");
            });
          } catch (const std::bad_alloc&) {
            threw = true;  // no memory for the error itself: the program's own seam
          }
        }
        suite.Count();
        if (!threw && !status.ok() && status.kind() != ErrorKind::kSystem) {
          suite.Fail(status.ToString());
        }
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::testing
