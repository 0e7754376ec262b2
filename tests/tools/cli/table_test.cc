#include "tools/cli/table.h"

#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({{"KEY"}, {"SIZE", Align::kRight}, {"FILE"}});
  table.AddRow({"a", "10 B", "x"});
  table.AddRow({"longer", "1 B", "yy"});
  EXPECT_EQ(table.Format(),
            "KEY     SIZE  FILE\n"
            "a       10 B  x\n"
            "longer   1 B  yy\n");
}

TEST(TableTest, CountsCodePoints) {
  Table table({{"K"}, {"V"}});
  table.AddRow({"é", "1"});
  EXPECT_EQ(table.Format(), "K  V\né  1\n");
}

TEST(TableTest, EscapesControls) {
  Table table({{"K"}});
  table.AddRow({"a\nb"});
  EXPECT_EQ(table.Format(), "K\na\\x0ab\n");
}

}  // namespace
}  // namespace ckpt::cli
