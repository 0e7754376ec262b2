// A disk that returns another byte than was written: whichever it is, someone notices.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/executor.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

constexpr std::uint64_t kHeadBytes = 3;
constexpr std::uint64_t kTailBytes = sizeof(std::uint32_t);
constexpr std::uint64_t kLiteralBytes = 5;

// Each payload stands behind the tensor's key, and before its CRC-32.
class KeyAndCrc final : public ItemFraming {
 public:
  [[nodiscard]] Bytes Head(const TargetTensor& tensor, const WriteItem& /*item*/) const override {
    const ByteSpan key = AsBytes(tensor.key);
    return {key.begin(), key.end()};
  }
  [[nodiscard]] Bytes Tail(const TargetTensor& /*tensor*/, const WriteItem& /*item*/,
                           std::uint32_t payload_crc32) const override {
    Bytes tail(kTailBytes);
    StoreLe(payload_crc32, tail.data());
    return tail;
  }
  [[nodiscard]] bool needs_crc32() const override { return true; }
};

// Flips a bit of one byte of the files with such names, where they are read.
class LyingStorage final : public ForwardingStorage {
 public:
  LyingStorage(Storage& behind, std::uint64_t byte, std::string files)
      : ForwardingStorage(behind), byte_(byte), files_(std::move(files)) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, behind().Open(path));
    Bytes content(file->size_bytes());
    CKPT_RETURN_IF_ERROR(file->ReadAt(0, content));
    if (path.string().ends_with(files_) && byte_ < content.size()) content[byte_] ^= std::byte{1};
    return MakeMemoryFile(path.string(), std::move(content));
  }

 private:
  const std::uint64_t byte_;
  const std::string files_;
};

// A literal, and two tensors, one with two items.
class ReadBackTest : public ::testing::Test {
 protected:
  ReadBackTest() {
    const Dims shape = {2, 3};
    std::vector<MemoryTensor> tensors;
    Bytes literal(kLiteralBytes, std::byte{7});
    plan_.write.literals = {{.file = 0, .offset_bytes = 0, .bytes = std::move(literal)}};
    for (std::uint32_t t = 0; t < 2; ++t) {
      const std::string key = "t_" + std::to_string(t);
      tensors.push_back(
          {.key = key, .dtype = DType::kUint8, .shape = shape, .values = Bytes(6, std::byte{9})});
      plan_.write.tensors.push_back({.key = key, .dtype = DType::kUint8, .shape = shape});
      plan_.recipes.push_back(
          {.nests = {layout::IdentityNest(t, shape)}, .source_dtype = DType::kUint8});
      const std::int64_t rows = t == 0 ? 2 : 1;
      for (std::int64_t row = 0; row < 2; row += rows) {
        AddItem(t, {.offsets = {row, 0}, .sizes = {rows, 3}});
      }
    }
    plan_.write.files = {{.name = "data", .size_bytes = end_}};
    plan_.write.framing = std::make_shared<KeyAndCrc>();
    source_ = MakeMemorySource(std::move(tensors)).value();
  }

  void AddItem(std::uint32_t tensor, Box box) {
    const auto payload = static_cast<std::uint64_t>(NumElements(box.sizes));
    plan_.write.items.push_back({.tensor = tensor,
                                 .box = std::move(box),
                                 .offset_bytes = end_,
                                 .payload_offset = end_ + kHeadBytes,
                                 .payload_bytes = payload,
                                 .size_bytes = kHeadBytes + payload + kTailBytes});
    end_ += plan_.write.items.back().size_bytes;
  }

  // `lies_about`: the end of the files' names.
  [[nodiscard]] Result<ExecuteResult> Run(std::uint64_t lying_byte,
                                          std::string lies_about = "data") const {
    const std::unique_ptr<Storage> memory = MakeMemoryStorage();
    EXPECT_THAT(memory->MakeDirectories("/to"), IsOk());
    EXPECT_THAT(WriteSmallFile(*memory, "/beside", Bytes(4)), IsOk());
    LyingStorage storage(*memory, lying_byte, std::move(lies_about));
    return Execute(plan_, *source_, storage, "/to",
                   {.reads_back = true, .read_later = read_later_});
  }

  std::uint64_t end_ = kLiteralBytes;
  ConversionPlan plan_;
  std::set<std::size_t> read_later_;
  std::unique_ptr<CheckpointSource> source_;
};

TEST_F(ReadBackTest, AcceptsWhatWasWritten) {
  const auto result = Run(end_);
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->is_read_back);
}

TEST_F(ReadBackTest, NoticesEveryByte) {
  for (std::uint64_t byte = 0; byte < end_; ++byte) {
    EXPECT_THAT(Run(byte), FailsWith(ErrorKind::kValueMismatch)) << byte;
  }
}

// Who reads elements later is told which; all around them is read back.
TEST_F(ReadBackTest, LeavesElementsToWhoReadsThemLater) {
  read_later_ = {1};
  std::set<std::uint64_t> left;
  for (const WriteItem& item : plan_.write.items) {
    if (item.tensor != 1) continue;
    for (std::uint64_t at = 0; at < item.payload_bytes; ++at) left.insert(item.payload_offset + at);
  }
  for (std::uint64_t byte = 0; byte < end_; ++byte) {
    const auto result = Run(byte);
    EXPECT_EQ(result.ok(), left.contains(byte)) << byte;
    if (!result.ok()) continue;
    EXPECT_EQ(result->read_later, read_later_);
  }
}

// What is written last, because it depends on the rest.
TEST_F(ReadBackTest, NoticesLateBytes) {
  const std::uint64_t late = end_;
  plan_.write.files[0].size_bytes = late + 2;
  plan_.write.late_bytes = {.files = {0}, .encode = [late](const auto&, const auto&) {
                              return std::vector<WriteLiteral>{{0, late, Bytes(2)}};
                            }};
  EXPECT_THAT(Run(late + 2), IsOk());
  EXPECT_THAT(Run(late + 1), FailsWith(ErrorKind::kValueMismatch));
}

TEST_F(ReadBackTest, NoticesSideFiles) {
  plan_.write.copies = {{.from = "/beside", .name = "copied"}};
  EXPECT_THAT(Run(4, "copied"), IsOk());
  const auto result = Run(3, "copied");
  ASSERT_THAT(result, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_EQ(result.status().first().file, "/to/copied [0, +4)");
  EXPECT_EQ(result.status().first().expected, "crc32c " + Hex32(Crc32c(Bytes(4))));
  EXPECT_THAT(result.status().first().actual, ::testing::StartsWith("crc32c "));
}

}  // namespace
}  // namespace ckpt
