#include "trainer/data/internal/indexed_dataset.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/data/indexed_dataset_writer.h"
#include "tests/trainer/data/token_type_names.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;
constexpr std::int64_t kAnyToken = std::int64_t{1} << 31;

std::string BytesOf(Storage& storage, const Path& path) {
  return ReadSmallFile(storage, path, 1 << 20).value();
}

TEST(IndexedDatasetTest, ReadsWhatWasWrittenInEveryType) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (const auto& [type, name] : kTokenTypes) {
    SCOPED_TRACE(name);
    const testing::TempDir folder;
    const Path prefix = folder.path() / "corpus";
    auto writer = IndexedDatasetWriter::Create(PosixStorage(), prefix, type);
    ASSERT_THAT(writer, IsOk());
    std::vector<Tokens> documents(40);
    for (Tokens& document : documents) {
      for (std::uint64_t sequences = rng() % 4; sequences > 0; --sequences) {
        Tokens sequence(rng() % 50);
        for (std::int32_t& token : sequence) token = static_cast<std::int32_t>(rng() % 128);
        ASSERT_THAT((*writer)->AddSequence(sequence), IsOk());
        document.insert(document.end(), sequence.begin(), sequence.end());
      }
      (*writer)->EndDocument();
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());

    const auto dataset = IndexedDataset::Open(PosixStorage(), prefix, 128);
    ASSERT_THAT(dataset, IsOk());
    ASSERT_EQ((*dataset)->num_documents(), 40);
    for (std::int64_t d = 0; d < 40; ++d) {
      const Tokens& want = documents[static_cast<std::size_t>(d)];
      ASSERT_EQ((*dataset)->DocumentLength(d), static_cast<std::int64_t>(want.size()));
      const auto begin = static_cast<std::int64_t>(rng() % (want.size() + 1));
      Tokens out(rng() % (want.size() - static_cast<std::size_t>(begin) + 1));
      ASSERT_THAT((*dataset)->ReadTokens(d, begin, out), IsOk());
      ASSERT_EQ(out, Tokens(want.begin() + begin,
                            want.begin() + begin + static_cast<std::ptrdiff_t>(out.size())));
    }
  }
}

// The index that Megatron's builder makes of the same documents.
TEST(IndexedDatasetTest, WritesTheBytesOfTheOriginal) {
  const auto storage = MakeMemoryStorage();
  auto writer = IndexedDatasetWriter::Create(*storage, "/a", TokenType::kUint16).value();
  ASSERT_THAT(writer->AddDocument(Tokens{1, 2, 3}), IsOk());
  ASSERT_THAT(writer->AddSequence(Tokens{4, 5}), IsOk());
  ASSERT_THAT(writer->AddSequence(Tokens{}), IsOk());
  writer->EndDocument();
  writer->EndDocument();
  ASSERT_THAT(writer->Finish(), IsOk());
  constexpr char kIndex[] =
      "MMIDIDX\0\0"
      "\x01\0\0\0\0\0\0\0"
      "\x08"
      "\x03\0\0\0\0\0\0\0"
      "\x04\0\0\0\0\0\0\0"
      "\x03\0\0\0\x02\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x0A\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
  EXPECT_EQ(BytesOf(*storage, "/a.idx"), std::string(kIndex, sizeof(kIndex) - 1));
  EXPECT_EQ(BytesOf(*storage, "/a.bin"), std::string("\1\0\2\0\3\0\4\0\5\0", 10));
}

TEST(IndexedDatasetTest, RefusesATokenOutsideTheVocabulary) {
  const auto storage = MakeMemoryStorage();
  auto writer = IndexedDatasetWriter::Create(*storage, "/a", TokenType::kInt32).value();
  ASSERT_THAT(writer->AddDocument(Tokens{1, 99, 100, -1}), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  const auto dataset = IndexedDataset::Open(*storage, "/a", 100).value();
  Tokens out(2);
  EXPECT_THAT(dataset->ReadTokens(0, 0, out), IsOk());
  EXPECT_THAT(out, ElementsAre(1, 99));
  const Status high = dataset->ReadTokens(0, 1, out);
  ASSERT_THAT(high, FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(high.first().file, HasSubstr("a.bin [8, +4)"));
  Tokens last(1);
  EXPECT_THAT(dataset->ReadTokens(0, 3, last), FailsWith(ErrorKind::kOutOfRange));
}

TEST(IndexedDatasetTest, RefusesFilesThatDoNotBelongTogether) {
  const auto storage = MakeMemoryStorage();
  auto writer = IndexedDatasetWriter::Create(*storage, "/a", TokenType::kInt32).value();
  ASSERT_THAT(writer->AddDocument(Tokens{1, 2}), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  ASSERT_THAT(storage->OpenForUpdate("/a.bin").value()->Resize(7), IsOk());
  EXPECT_THAT(IndexedDataset::Open(*storage, "/a", kAnyToken), FailsWith(ErrorKind::kOutOfRange));
  ASSERT_THAT(storage->RemoveAll("/a.bin"), IsOk());
  EXPECT_THAT(IndexedDataset::Open(*storage, "/a", kAnyToken), FailsWith(ErrorKind::kNotFound));
}

TEST(IndexedDatasetWriterTest, RefusesATokenThatTheTypeDoesNotHold) {
  const auto storage = MakeMemoryStorage();
  struct {
    TokenType type;
    std::int32_t token;
  } const cases[] = {{TokenType::kUint8, 256}, {TokenType::kUint8, -1},
                     {TokenType::kInt8, 128},  {TokenType::kInt16, 32'768},
                     {TokenType::kUint16, -1}, {TokenType::kUint16, 65'536}};
  int number = 0;
  for (const auto& c : cases) {
    const Path prefix = "/d" + std::to_string(number++);
    auto writer = IndexedDatasetWriter::Create(*storage, prefix, c.type).value();
    EXPECT_THAT(writer->AddDocument(Tokens{c.token}), FailsWith(ErrorKind::kOutOfRange)) << c.token;
  }
}

TEST(IndexedDatasetWriterTest, OverwritesNothingAndShowsNothingUnfinished) {
  const auto storage = MakeMemoryStorage();
  auto writer = IndexedDatasetWriter::Create(*storage, "/a", TokenType::kInt32).value();
  ASSERT_THAT(writer->AddDocument(Tokens{1}), IsOk());
  EXPECT_THAT(IndexedDataset::Open(*storage, "/a", kAnyToken), FailsWith(ErrorKind::kNotFound));
  ASSERT_THAT(writer->Finish(), IsOk());
  EXPECT_THAT(IndexedDataset::Open(*storage, "/a", kAnyToken), IsOk());
  EXPECT_THAT(IndexedDatasetWriter::Create(*storage, "/a", TokenType::kInt32),
              FailsWith(ErrorKind::kAlreadyExists));
}

}  // namespace
}  // namespace ckpt::trainer
