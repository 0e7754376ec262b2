#include "trainer/data/line_index.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/bytes.h"
#include "core/io/memory_storage.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

std::shared_ptr<const ReadableFile> FileOf(std::string_view text) {
  const ByteSpan bytes = AsBytes(text);
  return MakeMemoryFile("data.jsonl", Bytes(bytes.begin(), bytes.end()));
}

struct Seen {
  std::string text;
  std::int64_t number;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* os) {
  *os << seen.number << ": " << seen.text.substr(0, 40);
}

// What the pass shows, which must be what every line reads as afterwards.
std::vector<Seen> LinesOf(std::string_view text) {
  std::vector<Seen> seen;
  const auto index = LineIndex::Build(FileOf(text), [&](const Line& line) {
    seen.push_back({line.text, line.number});
    return OkStatus();
  });
  EXPECT_THAT(index, IsOk());
  EXPECT_EQ(index->num_lines(), static_cast<std::int64_t>(seen.size()));
  for (std::size_t i = seen.size(); i-- > 0;) {
    const auto line = index->Read(static_cast<std::int64_t>(i));
    EXPECT_THAT(line, IsOk());
    EXPECT_EQ((Seen{line->text, line->number}), seen[i]);
  }
  return seen;
}

TEST(LineIndexTest, PassesOverBlankLinesAndCountsThem) {
  EXPECT_EQ(LinesOf("\n \t\na\n\r\n\nb\r\nc"), (std::vector<Seen>{{"a", 3}, {"b\r", 6}, {"c", 7}}));
  EXPECT_EQ(LinesOf("a\n"), (std::vector<Seen>{{"a", 1}}));
  EXPECT_TRUE(LinesOf("").empty());
  EXPECT_TRUE(LinesOf("\n\n").empty());
}

TEST(LineIndexTest, FindsEveryLineOfALargeFile) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  std::string text;
  std::vector<Seen> want;
  std::int64_t number = 0;
  while (text.size() < (5U << 20)) {
    ++number;
    // Mostly short, some empty, some longer than a block of reading.
    const std::size_t length = rng() % 100 == 0 ? rng() % 1'500'000 : rng() % 4000;
    const std::string line(rng() % 8 == 0 ? 0 : length, static_cast<char>('a' + rng() % 26));
    if (!line.empty()) want.push_back({line, number});
    text += line + "\n";
  }
  EXPECT_EQ(LinesOf(text), want);
  EXPECT_EQ(LinesOf(text.substr(0, text.size() - 1)), want);
}

TEST(LineIndexTest, ReadsASmallFileOnceForAllOfItsLines) {
  const auto memory = MakeMemoryStorage();
  ckpt::testing::CountingStorage storage(*memory);
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i) + "\n";
  ASSERT_THAT(WriteSmallFile(*memory, "/data.jsonl", AsBytes(text)), IsOk());
  const auto file = storage.Open("/data.jsonl");
  ASSERT_THAT(file, IsOk());
  const auto index = LineIndex::Build(*file, [](const Line&) { return OkStatus(); });
  ASSERT_THAT(index, IsOk());
  const std::uint64_t once = storage.bytes_read();
  EXPECT_EQ(once, text.size());
  for (std::int64_t i = 0; i < 1000; ++i) {
    const auto line = index->Read(i * 12'347 % 50'000);
    ASSERT_THAT(line, IsOk());
    EXPECT_EQ(line->text, std::to_string(i * 12'347 % 50'000));
  }
  // Blocks may overlap by the line in which one ends.
  EXPECT_LE(storage.bytes_read() - once, text.size() + text.size() / 10);
}

TEST(LineIndexTest, RefusesALineWithoutEnd) {
  const std::string endless(kMaxLineBytes + 2, 'x');
  const auto index =
      LineIndex::Build(FileOf("a\n" + endless), [](const Line&) { return OkStatus(); });
  ASSERT_THAT(index, FailsWith(ErrorKind::kResource));
  EXPECT_EQ(index.status().first().file, "data.jsonl:2");
}

TEST(LineIndexTest, StopsAtTheVisitorsError) {
  int visited = 0;
  const auto index = LineIndex::Build(FileOf("a\nb\nc\n"), [&](const Line&) {
    return ++visited == 2 ? Error(ErrorKind::kBadItem, "no") : OkStatus();
  });
  EXPECT_THAT(index, FailsWith(ErrorKind::kBadItem));
  EXPECT_EQ(visited, 2);
}

}  // namespace
}  // namespace ckpt::trainer
