// Checkpoints that real software wrote, each with an account of what is in it.
#ifndef CKPT_TESTS_TESTING_GOLDEN_H_
#define CKPT_TESTS_TESTING_GOLDEN_H_

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gtest/gtest.h>

#include "core/io/path.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"

namespace ckpt::testing {

// $CKPT_GOLDEN_DIR, else the full collection beside the source tree, else the selection inside it.
inline Path GoldenDir() {
  if (const char* dir = std::getenv("CKPT_GOLDEN_DIR")) return dir;
  const Path full = Path(CKPT_SOURCE_DIR) / "../shared/golden";
  return boost::filesystem::exists(full) ? full : Path(CKPT_SOURCE_DIR) / "tests/golden";
}

// Cases of a group ("hf", "dcp/broken") in name order. No case is a failure: a test that loops over
// none asserts nothing.
inline std::vector<std::string> GoldenCases(const std::string& group) {
  const Path directory = GoldenDir() / group;
  std::vector<std::string> names;
  if (const auto entries = PosixStorage().List(directory); entries.ok()) {
    for (const DirectoryEntry& entry : *entries) {
      if (boost::filesystem::exists(directory / entry.name / "expected.json")) {
        names.push_back(entry.name);
      }
    }
  }
  EXPECT_FALSE(names.empty()) << directory;
  return names;
}

// Whether the tree has the case: the full collection has every one. For tests of what no case of
// the selection shows, which are skipped without it.
inline bool HasGolden(const std::string& group, const std::string& name) {
  const bool is_there = boost::filesystem::exists(GoldenDir() / group / name);
  EXPECT_TRUE(is_there ||
              boost::filesystem::equivalent(GoldenDir(), Path(CKPT_SOURCE_DIR) / "tests/golden"))
      << group << "/" << name;
  return is_there;
}

// Those of these cases that the tree has: the full collection has all of them, the selection inside
// the source tree at least one.
inline std::vector<std::string> GoldenCases(const std::string& group,
                                            const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (HasGolden(group, name)) found.push_back(name);
  }
  EXPECT_FALSE(found.empty()) << group;
  return found;
}

// Published models that the trainer computes. By name, not by asking the trainer: the list is made
// when a program starts, once for each of its tests, and no model may leave it unseen.
inline std::vector<std::string> TrainedModels() {
  std::vector<std::string> names = GoldenCases("hf");
  std::erase_if(names, [](const std::string& name) {
    return name.starts_with("gptoss") || name.starts_with("olmoe");
  });
  return names;
}

struct GoldenTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string sha256;
};

// The parts of expected.json that every group has.
struct GoldenCase {
  Path directory;
  Path path;  // what to open
  std::string format;
  std::map<std::string, GoldenTensor> tensors;
  std::string kind;      // of broken cases: the error that each affected entry must give
  std::string severity;  // "refuse" or "warn"
  std::vector<std::string> affected;
};

// Fails the running test and returns an empty case if expected.json cannot be read.
inline GoldenCase LoadGolden(const std::string& group, const std::string& name) {
  GoldenCase golden;
  golden.directory = GoldenDir() / group / name;
  const auto text = ReadSmallFile(PosixStorage(), golden.directory / "expected.json", 256ULL << 20);
  if (!text.ok()) {
    ADD_FAILURE() << text.status().ToString();
    return golden;
  }
  const auto json = JsonDocument::Parse(*text, "expected.json");
  if (!json.ok()) {
    ADD_FAILURE() << json.status().ToString();
    return golden;
  }
  const auto text_at = [](const JsonCursor& object, const char* key) {
    const auto found = object.Find(key);
    return found ? found->Text().value() : std::string();
  };
  const JsonCursor root = json->root();
  golden.format = text_at(root, "format");
  golden.path = golden.directory / text_at(root, "path");
  golden.kind = text_at(root, "kind");
  golden.severity = text_at(root, "severity");
  if (const auto affected = root.Find("affected")) {
    const auto items = affected->Items();
    for (const JsonCursor& item : *items) golden.affected.push_back(item.Text().value());
  }
  if (const auto tensors = root.Find("tensors")) {
    const auto members = tensors->Members();
    for (const auto& [key, value] : *members) {
      golden.tensors[key] = {.dtype = text_at(value, "dtype"),
                             .shape = value.At("shape").value().Int64Array().value(),
                             .sha256 = text_at(value, "sha256")};
    }
  }
  return golden;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_GOLDEN_H_
