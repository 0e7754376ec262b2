// What the documents show is what the code does.
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/example.h"
#include "trainer/data/internal/indexed_dataset.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::IsOk;

// The fenced blocks of this language.
std::vector<std::string> Blocks(const char* document, const std::string& language) {
  const std::string text =
      ReadSmallFile(PosixStorage(), Path(CKPT_SOURCE_DIR) / document, 1 << 20).value();
  const std::string fence = "```" + language + "\n";
  std::vector<std::string> blocks;
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at)) {
    at += fence.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

Bytes FromHex(const std::string& hex) {
  static const std::regex kByte("[0-9a-f]{2}");
  Bytes bytes;
  for (std::sregex_iterator it(hex.begin(), hex.end(), kByte), end; it != end; ++it) {
    bytes.push_back(static_cast<std::byte>(std::stoi(it->str(), nullptr, 16)));
  }
  return bytes;
}

TEST(DocumentsTest, TheIndexedDatasetOfTheFormatIsRead) {
  const auto blocks = Blocks("docs/formats/indexed_dataset.md", "hex");
  ASSERT_EQ(blocks.size(), 2U);
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(WriteSmallFile(*storage, "/a.bin", FromHex(blocks[0])), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/a.idx", FromHex(blocks[1])), IsOk());
  const auto dataset = IndexedDataset::Open(*storage, "/a", 6);
  ASSERT_THAT(dataset, IsOk());
  std::vector<std::vector<std::int32_t>> documents;
  for (std::int64_t d = 0; d < (*dataset)->num_documents(); ++d) {
    documents.emplace_back(static_cast<std::size_t>((*dataset)->DocumentLength(d)));
    ASSERT_THAT((*dataset)->ReadTokens(d, 0, documents.back()), IsOk());
  }
  EXPECT_EQ(documents, (std::vector<std::vector<std::int32_t>>{{1, 2, 3}, {4, 5}, {}}));
}

TEST(DocumentsTest, EveryLineOfTheGuideIsAnExample) {
  const auto lines = Blocks("docs/guides/data.md", "json");
  ASSERT_EQ(lines.size(), 6U);
  for (const std::string& line : lines) {
    const auto has = [&](std::string_view field) { return line.find(field) != std::string::npos; };
    const ExampleKind kind = has("\"text\"")     ? ExampleKind::kText
                             : has("\"prompt\"") ? ExampleKind::kPrompt
                             : has("messages")   ? ExampleKind::kMessages
                                                 : ExampleKind::kTokens;
    EXPECT_THAT(ParseExample(line, "guide", {.kind = kind, .vocab_size = 50'000}), IsOk()) << line;
  }
}

}  // namespace
}  // namespace ckpt::trainer
