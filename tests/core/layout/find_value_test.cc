#include "core/layout/find_value.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>

namespace ckpt::layout {
namespace {

using ::testing::Optional;
using ::testing::Pointee;

TEST(FindValueTest, FindsValuesOfTheKindThatIsAskedFor) {
  const Configuration config = {{"float", 2.0}, {"int", 2}, {"null", {}}, {"text", "2"}};
  EXPECT_THAT(FindInt(config, "int"), Optional(2));
  EXPECT_THAT(FindFloat(config, "float"), Optional(2.0));
  EXPECT_THAT(FindText(config, "text"), Pointee(std::string("2")));
  for (const char* const name : {"absent", "float", "null", "text"}) {
    EXPECT_EQ(FindInt(config, name), std::nullopt) << name;
  }
  for (const char* const name : {"absent", "int", "null", "text"}) {
    EXPECT_EQ(FindFloat(config, name), std::nullopt) << name;
  }
  for (const char* const name : {"absent", "float", "int", "null"}) {
    EXPECT_EQ(FindText(config, name), nullptr) << name;
  }
}

}  // namespace
}  // namespace ckpt::layout
