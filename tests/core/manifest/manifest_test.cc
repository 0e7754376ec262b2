#include "core/manifest/manifest.h"

#include <new>
#include <stop_token>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/run_root.h"

namespace ckpt {
namespace {

using testing::DescribeContent;
using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::kRunRoot;

Manifest Example() {
  Manifest manifest;
  manifest.tool = "ckptkit 0.1.0";
  manifest.files = {DescribeContent("../latest_checkpointed_iteration.txt", AsBytes("release")),
                    DescribeContent("a/b.bin", AsBytes("hello")), DescribeContent("empty", {}),
                    DescribeContent("p", AsBytes("hello"))};
  manifest.parity = {{.parity_file = "p", .members = {"a/b.bin", "empty"}}};
  manifest.tensors = {{"w", HashHex(HashAlgorithm::kXxh3, AsBytes("x"))}};
  manifest.origin = ManifestOrigin{
      .format = "hf",
      .shards = {{.file = "model.safetensors",
                  .metadata = {{{"format", "pt"}}},
                  .tensors = {"w", "v"}},
                 {.file = "bare.safetensors", .metadata = std::nullopt, .tensors = {}}},
      .dropped = {"lm_head.weight"},
      .choices = {{"family", "llama"}}};
  return manifest;
}

TEST(Manifest, ReadsBackWhatItWrote) {
  EXPECT_THAT(ParseManifest(SerializeManifest(Example()), "m"), IsOkAndHolds(Example()));
}

TEST(Manifest, ReadsBackThatItHasACopy) {
  Manifest manifest = Example();
  manifest.has_copy = true;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest), "m"), IsOkAndHolds(manifest));
}

TEST(Manifest, PutsFilesAndTensorsInOrder) {
  Manifest shuffled = Example();
  std::swap(shuffled.files[0], shuffled.files[2]);
  EXPECT_EQ(SerializeManifest(shuffled), SerializeManifest(Example()));
}

TEST(Manifest, NoticesEveryFlippedBit) {
  const std::string text = SerializeManifest(Example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ASSERT_FALSE(ParseManifest(damaged, "m").ok()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(Manifest, NoticesEveryCut) {
  const std::string text = SerializeManifest(Example());
  for (std::size_t length = 0; length < text.size(); ++length) {
    ASSERT_FALSE(ParseManifest(std::string_view(text).substr(0, length), "m").ok()) << length;
  }
}

TEST(Manifest, SaysThatItsOwnChecksumDiffers) {
  std::string text = SerializeManifest(Example());
  text.replace(text.find("hf"), 2, "xx");
  EXPECT_THAT(ParseManifest(text, "m"), FailsWith(ErrorKind::kChecksum));
}

TEST(Manifest, RefusesALaterVersion) {
  std::string text = SerializeManifest(Example());
  text.replace(text.find(":1,"), 3, ":2,");
  EXPECT_THAT(ParseManifest(text, "m"), FailsWith(ErrorKind::kUnsupported));
}

// A reader that trusted such groups would rebuild a file of other bytes, or of another length.
TEST(Manifest, RefusesParityGroupsThatCannotBe) {
  const std::string text = SerializeManifest(Example());
  const std::string good = R"("members":[["a/b.bin","empty"]])";
  ASSERT_NE(text.find(good), std::string::npos);
  for (const std::string bad :
       {R"("members":[["a/b.bin","nobody"]])", R"("members":[["a/b.bin","a/b.bin"]])",
        R"("members":[["a/b.bin","p"]])", R"("members":[["empty"]])", R"("members":[])",
        R"("members":[["a/b.bin","../latest_checkpointed_iteration.txt"]])"}) {
    std::string damaged = text;
    damaged.replace(damaged.find(good), good.size(), bad);
    // Signed anew: this is about what the text says.
    const std::size_t digest = damaged.find(R"("self":")") + 8;
    damaged.replace(digest, 32, std::string(32, '0'));
    damaged.replace(digest, 32, HashHex(HashAlgorithm::kXxh3, AsBytes(damaged)));
    EXPECT_THAT(ParseManifest(damaged, "m"), FailsWith(ErrorKind::kBadMetadata)) << bad;
  }
}

// The hex strings of blocks are one per file: 8 digits a MiB, so a terabyte needs 8 MB.
TEST(Manifest, IsSmall) {
  Manifest manifest;
  ManifestFile file{.name = "f", .size_bytes = 1000 * kManifestBlockBytes, .block_crc32c = {}};
  file.block_crc32c.assign(1000, 0x12345678);
  manifest.files = {file};
  EXPECT_LT(SerializeManifest(manifest).size(), 8 * 1000 + 300U);
}

class VerifyManifestTest : public ::testing::Test {
 protected:
  VerifyManifestTest() : storage_(MakeMemoryStorage()), content_(2 * kManifestBlockBytes + 5) {
    for (std::size_t i = 0; i < content_.size(); ++i)
      content_[i] = static_cast<std::byte>(i * 7 >> 3);
    EXPECT_THAT(storage_->MakeDirectories("/base/release"), IsOk());
    Write("/base/latest_checkpointed_iteration.txt", AsBytes("release"));
    Write("/base/release/data", content_);
    Write("/base/release/ckptkit.json", AsBytes("{}"));
    manifest_.files = {DescribeContent("../latest_checkpointed_iteration.txt", AsBytes("release")),
                       DescribeContent("data", content_)};
  }

  void Write(const Path& path, ByteSpan bytes) {
    EXPECT_THAT(storage_->RemoveAll(path), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, path, bytes), IsOk());
  }

  std::vector<Problem> Verify(int threads = 1) {
    Result<std::vector<Problem>> problems =
        VerifyManifest(*storage_, "/base/release", manifest_, kRunRoot, {.threads = threads});
    EXPECT_THAT(problems, IsOk());
    return problems.ok() ? *problems : std::vector<Problem>();
  }

  std::unique_ptr<Storage> storage_;
  Bytes content_;
  Manifest manifest_;
};

MATCHER_P2(IsProblem, kind, file, "") { return arg.kind == kind && arg.file == file; }

TEST_F(VerifyManifestTest, FindsNothingWrongWithIntactFiles) {
  EXPECT_THAT(Verify(), ::testing::IsEmpty());
}

TEST_F(VerifyManifestTest, NamesTheBlockOfAFlippedBit) {
  content_[kManifestBlockBytes + 3] ^= std::byte{1};
  content_.back() ^= std::byte{0x80};
  Write("/base/release/data", content_);
  EXPECT_THAT(Verify(3),
              ::testing::ElementsAre(IsProblem(ErrorKind::kChecksum, "data [1048576, +1048576)"),
                                     IsProblem(ErrorKind::kChecksum, "data [2097152, +5)")));
}

TEST_F(VerifyManifestTest, FindsTheFlippedBit) {
  content_[kManifestBlockBytes + 3] ^= std::byte{0x20};
  Write("/base/release/data", content_);
  const Result<Damage> damage = FindDamage(*storage_, "/base/release", manifest_, kRunRoot);
  ASSERT_THAT(damage, IsOk());
  ASSERT_EQ(damage->blocks.size(), 1U);
  EXPECT_EQ(damage->blocks[0].block, 1U);
  EXPECT_EQ(damage->blocks[0].flip,
            (FlippedBit{.offset_bytes = kManifestBlockBytes + 3, .bit = 5}));
  EXPECT_EQ(Verify()[0].message, "bit 5 of byte 1048579 is flipped");
}

TEST_F(VerifyManifestTest, LooksAtWhatIsLeftOfATruncatedFile) {
  content_[0] ^= std::byte{1};
  Write("/base/release/data", ByteSpan(content_).first(kManifestBlockBytes + 7));
  const Result<Damage> damage = FindDamage(*storage_, "/base/release", manifest_, kRunRoot);
  ASSERT_THAT(damage, IsOk());
  EXPECT_THAT(damage->files, ::testing::ElementsAre(
                                 DamagedFile{.file = 1, .size_bytes = kManifestBlockBytes + 7}));
  ASSERT_EQ(damage->blocks.size(), 3U);
  EXPECT_TRUE(damage->blocks[0].flip.has_value());
  EXPECT_EQ(damage->blocks[1], (DamagedBlock{.file = 1, .block = 1}));
  EXPECT_EQ(damage->blocks[2], (DamagedBlock{.file = 1, .block = 2}));
  EXPECT_THAT(Verify(),
              ::testing::ElementsAre(IsProblem(ErrorKind::kTruncated, "data"),
                                     IsProblem(ErrorKind::kChecksum, "data [0, +1048576)")));
}

TEST_F(VerifyManifestTest, TellsTruncatedFromGrown) {
  Write("/base/release/data", ByteSpan(content_).first(content_.size() - 1));
  EXPECT_THAT(Verify(), ::testing::ElementsAre(IsProblem(ErrorKind::kTruncated, "data")));
  content_.push_back(std::byte{0});
  Write("/base/release/data", content_);
  EXPECT_THAT(Verify(), ::testing::ElementsAre(IsProblem(ErrorKind::kSizeMismatch, "data")));
}

TEST_F(VerifyManifestTest, ReportsMissingAndUnknownFiles) {
  EXPECT_THAT(storage_->RemoveAll("/base/release/data"), IsOk());
  Write("/base/release/other", AsBytes("x"));
  const std::vector<Problem> problems = Verify();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kMissingFile, "data"),
                                               IsProblem(ErrorKind::kLeftover, "other")));
  EXPECT_EQ(problems[1].severity, Severity::kWarning);
}

TEST_F(VerifyManifestTest, OnlyWarnsOfATrackerThatTrainingRewrote) {
  const std::string tracker = "../latest_checkpointed_iteration.txt";
  for (const std::string text : {"1200", " 7\n", "release\n"}) {
    Write("/base/latest_checkpointed_iteration.txt", AsBytes(text));
    const std::vector<Problem> problems = Verify();
    ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kValueMismatch, tracker)));
    EXPECT_EQ(problems[0].severity, Severity::kWarning);
  }
  EXPECT_THAT(storage_->RemoveAll("/base/latest_checkpointed_iteration.txt"), IsOk());
  const std::vector<Problem> problems = Verify();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kValueMismatch, tracker)));
  EXPECT_EQ(problems[0].severity, Severity::kWarning);
}

// A file that moves with the tracker is compared as long as the tracker is as it was.
TEST_F(VerifyManifestTest, KnowsTheFileThatMovesWithTheTracker) {
  manifest_.files.insert(manifest_.files.begin() + 1,
                         DescribeContent("../latest_train_state.pt", AsBytes("state")));
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest_), "m"), IsOkAndHolds(manifest_));
  EXPECT_THAT(Verify(), ::testing::IsEmpty());  // a copy of the directory lacks it
  Write("/base/latest_train_state.pt", AsBytes("state"));
  EXPECT_THAT(Verify(), ::testing::IsEmpty());
  Write("/base/latest_train_state.pt", AsBytes("stats"));
  EXPECT_THAT(Verify(), ::testing::ElementsAre(
                            IsProblem(ErrorKind::kChecksum, "../latest_train_state.pt [0, +5)")));
  Write("/base/latest_checkpointed_iteration.txt", AsBytes("1200"));
  EXPECT_THAT(Verify(), ::testing::ElementsAre(IsProblem(ErrorKind::kValueMismatch,
                                                         "../latest_checkpointed_iteration.txt")));
}

// Else a manifest could have any file beside the checkpoint read, and repaired.
TEST_F(VerifyManifestTest, RefusesAnotherFileOutsideTheCheckpoint) {
  manifest_.files[0].name = "../other.txt";
  const Result<Damage> damage = FindDamage(*storage_, "/base/release", manifest_, kRunRoot);
  ASSERT_FALSE(damage.ok());
  EXPECT_EQ(damage.status().kind(), ErrorKind::kBadMetadata);
  EXPECT_THAT(damage.status().ToString(), ::testing::HasSubstr("../other.txt"));
}

// The k-th call that looks at the disk fails.
class FailingStorage final : public ForwardingStorage {
 public:
  FailingStorage(Storage& behind, int fail_at) : ForwardingStorage(behind), left_(fail_at) {}
  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Next());
    return behind().Open(path);
  }
  Result<FileStat> Stat(const Path& path) override {
    CKPT_RETURN_IF_ERROR(Next());
    return behind().Stat(path);
  }
  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(Next());
    return behind().List(directory);
  }
  bool has_failed() const { return left_ < 0; }

 private:
  Status Next() { return left_-- == 0 ? Error(ErrorKind::kIo, "injected") : OkStatus(); }
  int left_;
};

TEST_F(VerifyManifestTest, JudgesNothingThatItCannotRead) {
  int calls = 0;
  for (bool has_failed = true; has_failed; ++calls) {
    FailingStorage failing(*storage_, calls);
    const auto problems = VerifyManifest(failing, "/base/release", manifest_, kRunRoot);
    has_failed = failing.has_failed();
    if (has_failed) {
      EXPECT_THAT(problems, FailsWith(ErrorKind::kIo)) << "call " << calls;
    } else {
      EXPECT_THAT(problems, IsOkAndHolds(::testing::IsEmpty()));
    }
  }
  EXPECT_GT(calls, 4);
}

TEST_F(VerifyManifestTest, SaysThatMemoryRanOut) {
  for (const int threads : {1, 3}) {
    const VerifyOptions options = {.threads = threads,
                                   .on_progress = [](std::uint64_t) { throw std::bad_alloc(); }};
    EXPECT_THAT(VerifyManifest(*storage_, "/base/release", manifest_, kRunRoot, options),
                FailsWith(ErrorKind::kSystem));
  }
}

TEST_F(VerifyManifestTest, StopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  const VerifyOptions options = {.stop = stop.get_token()};
  EXPECT_THAT(VerifyManifest(*storage_, "/base/release", manifest_, kRunRoot, options),
              FailsWith(ErrorKind::kCancelled));
}

TEST_F(VerifyManifestTest, LeavesBlocksToWhoeverReadsThem) {
  const VerifyOptions options = {
      .leaves_blocks = [](std::string_view file) { return file == "data"; }};
  content_[5] ^= std::byte{1};
  Write("/base/release/data", content_);
  EXPECT_THAT(VerifyManifest(*storage_, "/base/release", manifest_, kRunRoot, options),
              IsOkAndHolds(::testing::IsEmpty()));
  Write("/base/release/data", ByteSpan(content_).first(content_.size() - 1));
  EXPECT_THAT(VerifyManifest(*storage_, "/base/release", manifest_, kRunRoot, options),
              IsOkAndHolds(::testing::ElementsAre(IsProblem(ErrorKind::kTruncated, "data"))));
}

TEST_F(VerifyManifestTest, CoversTheTracker) {
  Write("/base/latest_checkpointed_iteration.txt", AsBytes("releasf"));
  EXPECT_THAT(Verify(), ::testing::ElementsAre(IsProblem(
                            ErrorKind::kChecksum, "../latest_checkpointed_iteration.txt [0, +7)")));
}

}  // namespace
}  // namespace ckpt
