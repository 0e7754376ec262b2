#include "trainer/data/open_source.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/bytes.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/data/indexed_dataset_writer.h"
#include "trainer/data/byte_tokenizer.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kNo = kNoLabel;

class OpenSourceTest : public ::testing::Test {
 protected:
  // A file of these lines, opened in the order of its lines.
  Result<std::unique_ptr<SequenceSource>> Open(DataKind kind, std::string_view content,
                                               std::int64_t seq_length,
                                               LongExamples long_examples = LongExamples::kRefuse,
                                               bool pack = true) {
    EXPECT_THAT(storage_->RemoveAll("/data"), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, "/data", AsBytes(content)), IsOk());
    return OpenSource(*storage_, {.path = "/data",
                                  .kind = kind,
                                  .seq_length = seq_length,
                                  .vocab_size = kByteVocabSize,
                                  .shuffle = false,
                                  .pack = pack,
                                  .long_examples = long_examples,
                                  .pad_token = 257});
  }

  const std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

constexpr std::string_view kThreeExamples = R"({"input_ids": [1, 2, 3, 4]}
{"input_ids": [11, 12, 13], "labels": [-100, -100, 13]}

{"input_ids": [21, 22, 23, 24, 25], "loss_mask": [1, 0, 0, 1, 1]}
)";

TEST_F(OpenSourceTest, PackingKeepsLabelsWithinTheirExample) {
  // Places 3, 2 and 4 in sequences of 5: the first two share one.
  const auto source = Open(DataKind::kTokenExamples, kThreeExamples, 5);
  ASSERT_THAT(source, IsOk());
  const Sequence shared = *(*source)->Read(0);
  EXPECT_THAT(shared.tokens, ElementsAre(1, 2, 3, 11, 12));
  EXPECT_THAT(shared.labels, ElementsAre(2, 3, 4, kNo, 13));
  EXPECT_THAT(shared.positions, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(shared.lengths, ElementsAre(3, 2));
  const Sequence padded = *(*source)->Read(1);
  EXPECT_THAT(padded.tokens, ElementsAre(21, 22, 23, 24, 257));
  EXPECT_THAT(padded.labels, ElementsAre(kNo, kNo, 24, 25, kNo));
  EXPECT_THAT(padded.positions, ElementsAre(0, 1, 2, 3, kPaddingPosition));
  EXPECT_THAT(padded.lengths, ElementsAre(4));
  EXPECT_EQ(*(*source)->Read(2), shared);  // the next epoch
}

TEST_F(OpenSourceTest, WithoutPackingEveryExampleHasASequence) {
  const auto source =
      Open(DataKind::kTokenExamples, kThreeExamples, 4, LongExamples::kRefuse, false);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->Read(0)->tokens, ElementsAre(1, 2, 3, 257));
  EXPECT_THAT((*source)->Read(1)->tokens, ElementsAre(11, 12, 257, 257));
  EXPECT_THAT((*source)->Read(1)->labels, ElementsAre(kNo, 13, kNo, kNo));
}

TEST_F(OpenSourceTest, LongExamplesAreNamedOrTruncated) {
  const auto refused = Open(DataKind::kTokenExamples, kThreeExamples, 3);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kOutOfRange));
  EXPECT_EQ(refused.status().first().file, "/data:4");  // the blank line counts
  const auto truncated = Open(DataKind::kTokenExamples, kThreeExamples, 3, LongExamples::kTruncate);
  ASSERT_THAT(truncated, IsOk());
  EXPECT_THAT((*truncated)->Read(2)->tokens, ElementsAre(21, 22, 23));
  EXPECT_THAT((*truncated)->Read(2)->labels, ElementsAre(kNo, kNo, 24));
}

TEST_F(OpenSourceTest, PromptsAndMessagesAreLearnedWhereTheAnswerIs) {
  const auto prompts = Open(DataKind::kPrompts, R"({"prompt": "ab", "completion": "c"})", 6);
  ASSERT_THAT(prompts, IsOk());
  EXPECT_THAT((*prompts)->Read(0)->tokens,
              ElementsAre('a', 'b', 'c', kBytePad, kBytePad, kBytePad));
  EXPECT_THAT((*prompts)->Read(0)->labels, ElementsAre(kNo, 'c', kByteEos, kNo, kNo, kNo));
  const auto messages =
      Open(DataKind::kMessages, R"({"messages": [{"role": "assistant", "content": "x"}]})", 12);
  ASSERT_THAT(messages, IsOk());
  EXPECT_THAT((*messages)->Read(0)->labels,
              ElementsAre(kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, 'x', kByteEos));
}

TEST_F(OpenSourceTest, DocumentsAreCutIntoWindows) {
  const auto text = Open(DataKind::kText, "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n", 2);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT((*text)->Read(0)->tokens, ElementsAre('a', 'b'));
  EXPECT_THAT((*text)->Read(0)->labels, ElementsAre('b', kByteEos));
  EXPECT_THAT((*text)->Read(1)->tokens, ElementsAre(kByteEos, 'c'));
  const auto tokens =
      Open(DataKind::kTokenDocuments, "{\"input_ids\": [1]}\n{\"input_ids\": [2, 3]}\n", 2);
  ASSERT_THAT(tokens, IsOk());
  EXPECT_THAT((*tokens)->Read(0)->tokens, ElementsAre(1, 2));
  EXPECT_THAT(Open(DataKind::kTokenDocuments, kThreeExamples, 2), FailsWith(ErrorKind::kBadItem));
}

TEST_F(OpenSourceTest, IndexedAndJsonlDocumentsAreTheSameSequences) {
  auto writer = IndexedDatasetWriter::Create(*storage_, "/corpus", TokenType::kUint16).value();
  std::string lines;
  for (std::int32_t d = 0; d < 150; ++d) {
    const std::vector<std::int32_t> document(static_cast<std::size_t>(d % 7 + 1), d);
    ASSERT_THAT(writer->AddDocument(document), IsOk());
    lines += "{\"input_ids\": [";
    for (std::size_t i = 0; i < document.size(); ++i)
      lines += (i == 0 ? "" : ",") + std::to_string(d);
    lines += "]}\n";
  }
  ASSERT_THAT(writer->Finish(), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, "/corpus.jsonl", AsBytes(lines)), IsOk());
  DataConfig config = {.path = "/corpus", .seq_length = 16, .vocab_size = 150, .seed = 3};
  const auto indexed = OpenSource(*storage_, config);
  ASSERT_THAT(indexed, IsOk());
  config.path = "/corpus.jsonl";
  config.kind = DataKind::kTokenDocuments;
  const auto jsonl = OpenSource(*storage_, config);
  ASSERT_THAT(jsonl, IsOk());
  for (std::int64_t g = 0; g < 100; ++g) ASSERT_EQ(*(*indexed)->Read(g), *(*jsonl)->Read(g)) << g;
  config.vocab_size = 149;
  EXPECT_THAT(OpenSource(*storage_, config), FailsWith(ErrorKind::kOutOfRange));
}

TEST_F(OpenSourceTest, ManyThreadsReadTheSame) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) {
    lines += R"({"prompt": ")" + std::string(static_cast<std::size_t>(i % 60), 'p') +
             R"(", "completion": ")" + std::to_string(i) + "\"}\n";
  }
  const auto source = Open(DataKind::kPrompts, lines, 64);
  ASSERT_THAT(source, IsOk());
  std::vector<Sequence> want;
  for (std::int64_t g = 0; g < 200; ++g) want.push_back(*(*source)->Read(g));
  std::vector<std::vector<Sequence>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : got) {
      threads.emplace_back([&] {
        for (std::int64_t g = 0; g < 200; ++g) mine.push_back(*(*source)->Read(g));
      });
    }
  }
  for (const auto& mine : got) EXPECT_EQ(mine, want);
}

TEST_F(OpenSourceTest, BadLinesAreFoundWhenTheFileIsOpened) {
  const auto source = Open(DataKind::kText, "{\"text\": \"a\"}\n{\"text\": 1}\n", 1);
  ASSERT_THAT(source, FailsWith(ErrorKind::kBadItem));
  EXPECT_EQ(source.status().first().file, "/data:2");
  EXPECT_THAT(source.status().ToString(), HasSubstr("\"text\""));
}

TEST_F(OpenSourceTest, AFileThatChangesIsNoticed) {
  const auto source = Open(DataKind::kPrompts, R"({"prompt": "ab", "completion": "c"})", 6);
  ASSERT_THAT(source, IsOk());
  const std::string other = R"({"prompt": "a", "completion":  "c"})";
  ASSERT_THAT(storage_->OpenForUpdate("/data").value()->WriteAt(0, AsBytes(other)), IsOk());
  const auto read = (*source)->Read(0);
  ASSERT_THAT(read, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_EQ(read.status().first().file, "/data:1");
}

TEST_F(OpenSourceTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(Open(DataKind::kPrompts, "\n\n", 4), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(Open(DataKind::kText, R"({"text": "a"})", 0), FailsWith(ErrorKind::kUsage));
  DataConfig config = {
      .path = "/data", .kind = DataKind::kText, .seq_length = 1, .vocab_size = 257};
  EXPECT_THAT(OpenSource(*storage_, config),
              FailsWith(ErrorKind::kUsage));  // no room for the end token and padding
  config.vocab_size = 259;  // bytes are not the first tokens of any other vocabulary
  EXPECT_THAT(OpenSource(*storage_, config), FailsWith(ErrorKind::kUsage));
  config = {.path = "/absent", .kind = DataKind::kText, .seq_length = 1, .vocab_size = 258};
  EXPECT_THAT(OpenSource(*storage_, config), FailsWith(ErrorKind::kNotFound));
  ASSERT_THAT(storage_->RemoveAll("/data"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, "/data", AsBytes(kThreeExamples)), IsOk());
  config = {.path = "/data",
            .kind = DataKind::kTokenExamples,
            .seq_length = 9,
            .vocab_size = 30,
            .pad_token = 30};
  EXPECT_THAT(OpenSource(*storage_, config), FailsWith(ErrorKind::kUsage));
}

TEST_F(OpenSourceTest, CountsWhatTruncationLeavesOut) {
  const auto source = Open(DataKind::kTokenExamples,
                           "{\"input_ids\": [1, 2, 3, 4]}\n"
                           "{\"input_ids\": [1, 2, 3, 4, 5], \"loss_mask\": [0, 0, 0, 0, 1]}\n"
                           "{\"input_ids\": [1, 2, 3, 4], \"loss_mask\": [0, 0, 0, 0]}\n"
                           "{\"input_ids\": [1, 2, 3, 4], \"loss_mask\": [1, 0, 0, 0]}\n",
                           3, LongExamples::kTruncate);
  ASSERT_THAT(source, IsOk());
  const SourceFacts facts = (*source)->facts();
  EXPECT_EQ(facts.examples, 4);
  EXPECT_EQ(facts.truncated, 1);
  EXPECT_EQ(facts.unlabelled, 3);  // the first token is not a label
}

TEST_F(OpenSourceTest, RefusesExamplesOfWhichNothingIsLearned) {
  const auto masked = Open(DataKind::kTokenExamples,
                           R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, -100, -100]})", 5);
  ASSERT_THAT(masked, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(masked.status().ToString(), HasSubstr("no token of the file would be learned"));
  const auto cut_off = Open(DataKind::kPrompts, R"({"prompt": "a long one", "completion": "b"})", 4,
                            LongExamples::kTruncate);
  ASSERT_THAT(cut_off, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(cut_off.status().ToString(), HasSubstr("none in 1 examples, 1 of them truncated"));
  EXPECT_THAT(cut_off.status().ToString(), HasSubstr("larger seq_length"));
}

TEST_F(OpenSourceTest, KnowsItsDataBySizesLengthAndOrder) {
  const auto identity = [](const auto& source) {
    EXPECT_THAT(source, IsOk());
    return source.ok() ? (*source)->facts().identity : std::string();
  };
  EXPECT_EQ(identity(Open(DataKind::kTokenExamples, kThreeExamples, 5)),
            "3 examples of 12 tokens in sequences of 5, packed, in their own order");
  EXPECT_EQ(identity(Open(DataKind::kText, R"({"text": "abcdef"})", 3)),
            "1 documents of 7 tokens in sequences of 3, in their own order");
  DataConfig config = {.path = "/data",
                       .kind = DataKind::kText,
                       .seq_length = 3,
                       .vocab_size = kByteVocabSize,
                       .seed = 7};
  EXPECT_EQ(identity(OpenSource(*storage_, config)),
            "1 documents of 7 tokens in sequences of 3, shuffled by seed 7");
}

}  // namespace
}  // namespace ckpt::trainer
