#include "formats/dcp/object_cache.h"

#include <optional>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::dcp {
namespace {

ItemBytes Item(std::string_view text, EncodingId encoding = 0) {
  const ByteSpan bytes = AsBytes(text);
  return {.encoding = encoding, .bytes = Bytes(bytes.begin(), bytes.end())};
}

RenderedObject Number(const char* json) {
  return {.type = "float", .json = json, .warnings = {}, .held = {}, .numbers = {}};
}

TEST(ObjectCacheTest, KnowsAnItemByAllOfItsBytesAndItsEncoding) {
  ObjectCache cache;
  EXPECT_FALSE(cache.Find(Item("one")));
  cache.Add(Item("one"), Number("1.0"));
  cache.Add(Item("two"), Number("2.0"));
  const std::optional<RenderedObject> found = cache.Find(Item("one"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->type, "float");
  EXPECT_EQ(found->json, "1.0");
  EXPECT_FALSE(cache.Find(Item("onf"))) << "a bit is flipped";
  EXPECT_FALSE(cache.Find(Item("on")));
  EXPECT_FALSE(cache.Find(Item("one", 1))) << "the same bytes say something else";
}

TEST(ObjectCacheTest, KeepsNothingThatNamesAnotherObject) {
  ObjectCache cache;
  RenderedObject warned = Number("1.0");
  warned.warnings.emplace_back().tensor = "optimizer.lr";
  cache.Add(Item("one"), warned);
  EXPECT_FALSE(cache.Find(Item("one")));
}

TEST(ObjectCacheTest, IsBounded) {
  ObjectCache cache;
  int kept = 0;
  for (int i = 0; i < 100'000; ++i) cache.Add(Item(std::to_string(i)), Number("1.0"));
  for (int i = 0; i < 100'000; ++i) kept += cache.Find(Item(std::to_string(i))) ? 1 : 0;
  EXPECT_GT(kept, 100);
  EXPECT_LT(kept, 10'000);
}

}  // namespace
}  // namespace ckpt::dcp
