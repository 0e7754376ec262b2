// Runs `ckpt-inspect diff --json`, and flips bits of what it compares.
#ifndef CKPT_TESTS_TOOLS_CKPT_INSPECT_DIFF_ANSWER_H_
#define CKPT_TESTS_TOOLS_CKPT_INSPECT_DIFF_ANSWER_H_

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/source.h"
#include "core/json/json_reader.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {

using cli::ExitCode;

// One member of "different".
struct Entry {
  std::string key;
  std::string what;
  std::int64_t differing = 0;
  Dims first_index;
  std::string bits_a;
  std::string bits_b;
  std::string stored_b;  // B's own key of the element
  Dims index_b;
};

struct Answer {
  ExitCode exit = ExitCode::kFailed;
  bool equal = false;
  std::string compared;
  std::int64_t tensors = 0;
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  std::vector<Entry> different;
  std::size_t problems = 0;
  bool training_state = false;
  std::vector<std::string> not_compared;
  std::string text;
};

inline std::vector<std::string> Texts(const JsonCursor& array) {
  std::vector<std::string> texts;
  const auto items = array.Items();
  for (const JsonCursor& item : *items) texts.push_back(item.Text().value());
  return texts;
}

inline Answer Diff(const Path& a, const Path& b, std::vector<std::string> more = {}) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams{.out = out, .err = err};
  std::vector<std::string> args = {"diff", a.string(), b.string(), "--json"};
  args.insert(args.end(), more.begin(), more.end());
  Answer answer;
  answer.exit = RunInspect(args, PosixStorage(), streams);
  answer.text = out.text();
  const auto document = JsonDocument::Parse(out.text(), "diff");
  EXPECT_THAT(document, ::ckpt::testing::IsOk());
  if (!document.ok() || answer.exit > ExitCode::kDifferent) {
    ADD_FAILURE() << out.text();
    return answer;
  }
  const JsonCursor root = document->root();
  answer.equal = root.At("equal")->Bool().value();
  answer.compared = root.At("compared")->Text().value();
  answer.tensors = root.At("tensors")->Int64().value();
  answer.only_a = Texts(*root.At("only_a"));
  answer.only_b = Texts(*root.At("only_b"));
  if (answer.compared == "as models") {
    answer.training_state = root.At("training_state")->Bool().value();
  }
  if (answer.compared == "as models" || root.Find("not_compared")) {
    answer.not_compared = Texts(*root.At("not_compared"));
  }
  answer.problems = root.At("problems")->Items()->size();
  const auto different = root.At("different")->Items();
  for (const JsonCursor& item : *different) {
    Entry entry{.key = item.At("key")->Text().value(),
                .what = item.At("what")->Text().value(),
                .differing = item.At("differing")->Int64().value(),
                .first_index = {},
                .bits_a = {},
                .bits_b = {},
                .stored_b = {},
                .index_b = {}};
    if (item.At("first_index")->kind() == JsonKind::kArray) {
      entry.first_index = item.At("first_index")->Int64Array().value();
      entry.bits_a = item.At("bits_a")->Text().value();
      entry.bits_b = item.At("bits_b")->Text().value();
      if (item.At("stored_b")->kind() == JsonKind::kObject) {
        entry.stored_b = item.At("stored_b")->At("key")->Text().value();
        entry.index_b = item.At("stored_b")->At("index")->Int64Array().value();
      }
    }
    answer.different.push_back(std::move(entry));
  }
  EXPECT_EQ(answer.exit, answer.equal ? ExitCode::kDone : ExitCode::kDifferent);
  return answer;
}

inline void FlipBit(const Path& file, std::uint64_t offset, int bit) {
  std::fstream stream(file.string(), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(static_cast<char>(byte ^ (1 << bit)));
  ASSERT_TRUE(stream.good()) << file;
}

// Where the element in the middle of a chunk lies.
struct Place {
  Path file;
  std::uint64_t offset = 0;
  std::string key;
  Dims index;
};

inline Result<Place> PlaceIn(const Path& path, std::size_t position) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(PosixStorage(), path));
  const CheckpointIndex& index = opened.source->index();
  const GlobalTensor& tensor = index.tensors()[position];
  const Chunk& chunk = index.chunks(tensor).back();
  CKPT_ASSIGN_OR_RETURN(const StoredArray array, opened.source->Locate(tensor, chunk));
  Place place{.file = array.file->name(),
              .offset = array.offset_bytes,
              .key = tensor.key,
              .index = Dims(index.offsets(chunk).begin(), index.offsets(chunk).end())};
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const std::int64_t middle = index.sizes(chunk)[d] / 2;
    place.index[d] += middle;
    place.offset +=
        static_cast<std::uint64_t>(middle * array.strides[d]) * ElementBytes(tensor.dtype);
  }
  return place;
}

}  // namespace ckpt::inspect

#endif  // CKPT_TESTS_TOOLS_CKPT_INSPECT_DIFF_ANSWER_H_
