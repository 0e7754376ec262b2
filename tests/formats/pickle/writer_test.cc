// What the writer writes, read back; and that it is as short as a pickler's.
#include "formats/pickle/writer.h"

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::IsOk;
using namespace std::string_literals;

TEST(PickleWriterTest, IntegersAreAsShortAsTheyGet) {
  // Bytes between PROTO and STOP.
  const std::vector<std::pair<std::int64_t, std::size_t>> cases = {
      {0, 2},
      {255, 2},
      {256, 3},
      {65535, 3},
      {65536, 5},
      {-1, 5},
      {std::numeric_limits<std::int32_t>::max(), 5},
      {std::numeric_limits<std::int32_t>::min(), 5},
      {std::int64_t{1} << 31, 7},  // five bytes, lest the sign bit be set
      {-(std::int64_t{1} << 31) - 1, 7},
      {std::int64_t{1} << 39, 8},
      {std::numeric_limits<std::int64_t>::max(), 10},
      {std::numeric_limits<std::int64_t>::min(), 10},
  };
  for (const auto& [value, size] : cases) {
    PickleWriter writer(Dialect::kProtocol4);
    writer.Int(value);
    EXPECT_EQ(writer.size_bytes(), 2 + size) << value;
    const auto parsed = ParsePickle(writer.Take(), "p");
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->graph.integer(parsed->root), value);
  }
}

TEST(PickleWriterTest, TextIsAsShortAsItsDialectAllows) {
  const auto size = [](Dialect dialect, std::size_t length) {
    PickleWriter writer(dialect);
    writer.Text(std::string(length, 'x'));
    return writer.size_bytes() - 2 - length;
  };
  EXPECT_EQ(size(Dialect::kProtocol4, 255), 2U);
  EXPECT_EQ(size(Dialect::kProtocol4, 256), 5U);
  EXPECT_EQ(size(Dialect::kWeightsOnly, 1), 5U);
}

TEST(PickleWriterTest, NumbersMoreThan256ThingsInEveryDialect) {
  for (const Dialect dialect : {Dialect::kWeightsOnly, Dialect::kProtocol4}) {
    PickleWriter writer(dialect);
    writer.BeginList();
    for (int i = 0; i < 300; ++i) writer.SharedText("text " + std::to_string(i));
    for (int i = 0; i < 300; ++i) writer.SharedText("text " + std::to_string(i));
    writer.EndList();
    const auto parsed = ParsePickle(writer.Take(), "p");
    ASSERT_THAT(parsed, IsOk());
    const auto items = parsed->graph.items(parsed->root);
    ASSERT_EQ(items.size(), 600U);
    for (std::size_t i = 0; i < 300; ++i) {
      EXPECT_EQ(items[i], items[300 + i]) << "written once, recalled afterwards";
      EXPECT_EQ(parsed->graph.text(items[i]), "text " + std::to_string(i));
    }
  }
}

TEST(PickleWriterTest, SlotsAndTuplesAreAsShortAsTheyGet) {
  PickleWriter writer(Dialect::kWeightsOnly);
  const auto grows_by = [&](const auto& write) {
    const std::size_t before = writer.size_bytes();
    write();
    return writer.size_bytes() - before;
  };
  writer.None();
  for (int i = 0; i < 256; ++i) EXPECT_EQ(grows_by([&] { writer.Memoize(); }), 2U);
  EXPECT_EQ(grows_by([&] { writer.Memoize(); }), 5U);
  EXPECT_EQ(grows_by([&] { writer.Recall(255); }), 2U);
  EXPECT_EQ(grows_by([&] { writer.Recall(256); }), 5U);
  const std::vector<std::int64_t> ones(4, 1);
  for (std::size_t n = 0; n <= 4; ++n) {
    EXPECT_EQ(grows_by([&] { writer.IntTuple(std::span(ones).first(n)); }),
              2 * n + (n == 4 ? 2 : 1));
  }
}

TEST(PickleWriterTest, ClassesOfOneNameStayApart) {
  PickleWriter writer(Dialect::kWeightsOnly);
  writer.BeginList().Global("a", "C").Global("b", "C").Global("a", "D").Global("b", "C").EndList();
  const auto parsed = ParsePickle(writer.Take(), "p");
  ASSERT_THAT(parsed, IsOk());
  std::vector<std::string> names;
  for (const NodeId item : parsed->graph.items(parsed->root)) {
    names.push_back(parsed->graph.QualifiedName(item));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("a.C", "b.C", "a.D", "b.C"));
}

}  // namespace
}  // namespace ckpt::pickle
