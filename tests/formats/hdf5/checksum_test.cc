// The CRC-32 of a data set: what is written, and what a reader finds by it.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/codec/zstd.h"
#include "core/io/memory_storage.h"
#include "core/plan/plan_check.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/structure_file.h"
#include "formats/hdf5/internal/structure_writer.h"
#include "formats/hdf5/internal/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Path kSummed = "/d/out.h5";
constexpr std::uint64_t kMostBytes = 1 << 20;

// Byte i of the payload of item n.
std::byte PayloadByte(std::size_t item, std::uint64_t i) {
  return static_cast<std::byte>(item * 37 + i * 11 + 1);
}

WeightsRequest SomeRequest() {
  WeightsRequest request;
  request.tensors = {{.key = "a", .dtype = DType::kFloat32, .shape = {20, 3}},
                     {.key = "b/c", .dtype = DType::kBfloat16, .shape = {7}},
                     {.key = "empty", .dtype = DType::kFloat16, .shape = {3, 0}},
                     {.key = "one", .dtype = DType::kInt64, .shape = {}}};
  request.known_tensors = {{.key = "step",
                            .dtype = DType::kUint8,
                            .shape = {3},
                            .values = {std::byte{5}, std::byte{6}, std::byte{7}}}};
  request.carried_objects = {{.key = "o", .type = "list", .json = "[1, 2]"}};
  request.origin = R"({"an": "account"})";
  request.file_name = kSummed.filename().string();
  return request;
}

class ChecksumTest : public ::testing::Test {
 protected:
  ChecksumTest() { EXPECT_THAT(storage_->MakeDirectories(kSummed.parent_path()), IsOk()); }

  void Put(const Path& file, ByteSpan content) {
    EXPECT_THAT(storage_->RemoveAll(file), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, file, content), IsOk());
  }
  std::string Get(const Path& file) { return ReadSmallFile(*storage_, file, kMostBytes).value(); }

  // Writes what the plan says, as the executor does.
  WritePlan Write(WeightsRequest request) {
    auto planned = PlanHdf5(std::move(request));
    EXPECT_THAT(planned, IsOk());
    WritePlan plan = std::move(planned->plan);
    EXPECT_THAT(CheckWritePlan(plan), IsOk());
    std::vector<Bytes> files;
    for (const WriteFile& file : plan.files) files.emplace_back(file.size_bytes);
    const auto put = [&](std::uint32_t file, std::uint64_t at, const Bytes& bytes) {
      Bytes& to = files[file];
      to.resize(std::max<std::size_t>(to.size(), at + bytes.size()));
      std::ranges::copy(bytes, to.begin() + static_cast<std::ptrdiff_t>(at));
    };
    std::vector<WrittenItem> written;
    for (std::size_t n = 0; n < plan.items.size(); ++n) {
      const WriteItem& item = plan.items[n];
      Bytes payload;
      for (std::uint64_t i = 0; i < item.payload_bytes; ++i) payload.push_back(PayloadByte(n, i));
      const bool uses_crc32 = plan.late_bytes && plan.late_bytes->uses_crc32;
      const std::uint32_t crc32 = uses_crc32 ? Crc32(payload) : 0;
      std::uint64_t at = item.payload_offset;
      if (plan.compression) {
        at = files[item.file].size();
        if (!item.is_plain) payload = ZstdCompress(payload, plan.compression->zstd_level);
      }
      put(item.file, at, payload);
      written.push_back({.extent = {at, payload.size()}, .payload_crc32 = crc32});
    }
    for (const WriteLiteral& literal : plan.literals) {
      put(literal.file, literal.offset_bytes, literal.bytes);
    }
    if (plan.late_bytes) {
      for (const WriteLiteral& literal : plan.late_bytes->encode(plan, written)) {
        put(literal.file, literal.offset_bytes, literal.bytes);
      }
    }
    for (std::size_t f = 0; f < files.size(); ++f) {
      Put(kSummed.parent_path() / plan.files[f].name, files[f]);
    }
    return plan;
  }

  std::unique_ptr<CheckpointSource> Open() {
    auto source = OpenSource(*storage_, kSummed);
    EXPECT_THAT(source, IsOk());
    return source.ok() ? std::move(source).value() : nullptr;
  }

  // A file with these data sets, whose 16 bytes of elements are at 64.
  std::unique_ptr<CheckpointSource> OpenSets(const std::vector<NewDataSet>& sets) {
    const NewStructure structure = EncodeStructure({kTensorsGroup, kObjectsGroup}, sets, 128);
    Bytes file = structure.superblock;
    file.resize(128);
    Append(structure.tail, file);
    Put(kSummed, file);
    return Open();
  }

  // The keys of the tensors and objects that cannot be read.
  std::vector<std::string> Unreadable() {
    std::vector<std::string> keys;
    const std::unique_ptr<CheckpointSource> source = Open();
    if (source == nullptr) return {"all"};
    for (const GlobalTensor& tensor : source->index().tensors()) {
      for (const Chunk& chunk : source->index().chunks(tensor)) {
        const auto array = source->Locate(tensor, chunk);
        if (array.ok()) continue;
        EXPECT_THAT(array, FailsWith(ErrorKind::kChecksum));
        const Problem& problem = array.status().first();
        EXPECT_EQ(problem.tensor, tensor.key);
        EXPECT_THAT(problem.file, HasSubstr(std::string(source->index().files()[chunk.file])));
        if (keys.empty() || keys.back() != tensor.key) keys.push_back(tensor.key);
      }
    }
    for (const ObjectEntry& object : source->index().objects()) {
      const auto rendered = source->ReadObject(object);
      if (rendered.ok()) continue;
      EXPECT_THAT(rendered, FailsWith(ErrorKind::kChecksum));
      EXPECT_EQ(rendered.status().first().tensor, object.key);
      keys.push_back(object.key);
    }
    return keys;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// In one file and in several.
TEST_F(ChecksumTest, EveryDataSetHasThatOfItsBytes) {
  for (const int files : {1, 3}) {
    SCOPED_TRACE(files);
    WeightsRequest request = SomeRequest();
    request.files = files;
    Write(std::move(request));
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    const CheckpointIndex& index = source->index();
    std::size_t num_chunks = 0;
    for (const GlobalTensor& tensor : index.tensors()) {
      for (const Chunk& chunk : index.chunks(tensor)) {
        const std::string content =
            Get(kSummed.parent_path() / std::string(index.files()[chunk.file]));
        EXPECT_EQ(StatedCrc32(*source, chunk),
                  Crc32(AsBytes(content).subspan(chunk.offset_bytes, chunk.size_bytes)))
            << tensor.key;
        ++num_chunks;
      }
    }
    EXPECT_EQ(num_chunks, files == 1 ? 4 : 6);  // of a, three parts
    EXPECT_EQ(source->protection(), Protection::kCrc32);
    EXPECT_THAT(source->VerifyRest(), IsOk());
    EXPECT_THAT(ValidateIndex(*source), IsEmpty());
    EXPECT_THAT(index.objects(), SizeIs(1)) << "the attribute is no object";
    EXPECT_THAT(Unreadable(), IsEmpty());
  }
}

TEST_F(ChecksumTest, AFlippedBitOfATensorIsFoundAndNamed) {
  for (const int files : {1, 3}) {
    WeightsRequest request = SomeRequest();
    request.files = files;
    Write(std::move(request));
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    const CheckpointIndex& index = source->index();
    for (const GlobalTensor& tensor : index.tensors()) {
      for (const Chunk& chunk : index.chunks(tensor)) {
        const Path file = kSummed.parent_path() / std::string(index.files()[chunk.file]);
        const std::string whole = Get(file);
        for (std::uint64_t i = 0; i < chunk.size_bytes; ++i) {
          std::string damaged = whole;
          damaged[chunk.offset_bytes + i] ^= static_cast<char>(1U << i % 8);
          Put(file, AsBytes(damaged));
          EXPECT_EQ(Unreadable(), std::vector{tensor.key}) << files << " " << i;
        }
        Put(file, AsBytes(whole));
      }
    }
  }
}

TEST_F(ChecksumTest, AFlippedBitOfATextIsFound) {
  Write(SomeRequest());
  const std::string whole = Get(kSummed);
  std::string damaged = whole;
  damaged[whole.find("[1, 2]") + 1] ^= 2;
  Put(kSummed, AsBytes(damaged));
  EXPECT_EQ(Unreadable(), std::vector<std::string>{"o"});
  damaged = whole;
  damaged[whole.find("account")] ^= 2;
  Put(kSummed, AsBytes(damaged));
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  const Status rest = source->VerifyRest();
  ASSERT_THAT(rest, FailsWith(ErrorKind::kChecksum));
  const std::string origin = SomeRequest().origin;
  EXPECT_EQ(rest.first().expected, Hex32(Crc32(AsBytes(origin))));
  EXPECT_NE(rest.first().actual, rest.first().expected);
  EXPECT_THAT(ReadOwnManifest(*source), FailsWith(ErrorKind::kChecksum));
}

// A frame has a checksum of its own; what is too small for frames has the attribute.
TEST_F(ChecksumTest, OfACompressedFileFindsAFlippedBit) {
  WeightsRequest request = SomeRequest();
  request.zstd_level = 3;
  Write(std::move(request));
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->protection(), Protection::kCrc32) << "every byte has one or the other";
  const CheckpointIndex& index = source->index();
  for (const char* const key : {"one", "step", "a", "b/c"}) {
    SCOPED_TRACE(key);
    const GlobalTensor& tensor = *index.FindTensor(key);
    const Chunk& chunk = index.chunks(tensor).front();
    const bool is_frame = index.encoding(chunk) == "zstd";
    EXPECT_EQ(is_frame, std::string(key) == "a" || std::string(key) == "b/c");
    EXPECT_EQ(StatedCrc32(*source, chunk).has_value(), !is_frame);
    const std::string whole = Get(kSummed);
    std::string damaged = whole;
    damaged[chunk.offset_bytes + chunk.size_bytes - 1] ^= 1;
    Put(kSummed, AsBytes(damaged));
    EXPECT_EQ(Unreadable(), std::vector<std::string>{key});
    Put(kSummed, AsBytes(whole));
  }
}

// Processes that fill a file together do not know the checksums of each other's bytes.
TEST_F(ChecksumTest, AFileOfSeveralProcessesHasNoneOfTensors) {
  WeightsRequest request = SomeRequest();
  request.is_shared = true;
  const WritePlan plan = Write(std::move(request));
  EXPECT_FALSE(plan.late_bytes);
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  const auto has_checksum = [&](const auto& item) { return source->HasChecksum(item); };
  for (const char* const key : {"a", "b/c"}) {
    const GlobalTensor& tensor = *source->index().FindTensor(key);
    EXPECT_TRUE(std::ranges::none_of(source->index().chunks(tensor), has_checksum)) << key;
  }
  EXPECT_TRUE(std::ranges::all_of(source->index().objects(), has_checksum));
  EXPECT_THAT(Unreadable(), IsEmpty());
}

TEST_F(ChecksumTest, AFileWithoutIsReadAsBefore) {
  const NewDataSet set{.group = kTensorsGroup,
                       .name = "w",
                       .dtype = DType::kUint8,
                       .shape = {16},
                       .attributes = {{kKeyAttribute, "w"}},
                       .at = 64};
  const auto source = OpenSets({set});
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->protection(), Protection::kNone);
  EXPECT_THAT(Unreadable(), IsEmpty());
}

TEST_F(ChecksumTest, AnAttributeOfAnotherTypeIsAnError) {
  const auto source = OpenSets({{.group = kTensorsGroup,
                                 .name = "w",
                                 .dtype = DType::kUint8,
                                 .shape = {16},
                                 .attributes = {{kCrc32Attribute, "ecbb4b55"}},
                                 .at = 64}});
  ASSERT_NE(source, nullptr);
  const auto problems = ValidateIndex(*source);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kBadMetadata);
  EXPECT_EQ(problems[0].severity, Severity::kError);
  EXPECT_EQ(problems[0].tensor, "w");
  EXPECT_THAT(problems[0].message, HasSubstr("crc32"));
}

// As a program leaves it that copies our file and stores its data sets anew.
TEST_F(ChecksumTest, OfADataSetInPiecesSaysNothing) {
  const auto source =
      OpenSets({{.group = kTensorsGroup,
                 .name = "w",
                 .dtype = DType::kUint8,
                 .shape = {16},
                 .attributes = {{kKeyAttribute, "w"}},
                 .chunks = NewChunks{.rows = 16,
                                     .extents = {{.offset_bytes = 64, .size_bytes = 16}},
                                     .zstd_level = 3},
                 .crc32 = 1}});
  ASSERT_NE(source, nullptr);
  EXPECT_THAT(ValidateIndex(*source), IsEmpty());
  EXPECT_EQ(source->protection(), Protection::kNone);
}

// Of a file that somebody else wrote, the attribute is an object like any other.
TEST_F(ChecksumTest, InAFileThatIsNotOursIsAnObject) {
  const NewDataSet set{.group = kTensorsGroup,
                       .name = "w",
                       .dtype = DType::kUint8,
                       .shape = {16},
                       .attributes = {{kKeyAttribute, "w"}},
                       .at = 64,
                       .crc32 = 1};
  ASSERT_NE(OpenSets({set}), nullptr);
  EXPECT_EQ(Unreadable(), std::vector<std::string>{"w"});
  std::string content = Get(kSummed);
  // The root group is the last header. It ends with a checksum.
  const std::size_t header = content.rfind("OHDR");
  const std::size_t name = content.find(kLayoutAttribute, header);
  ASSERT_NE(name, std::string::npos);
  content[name] = 'C';
  constexpr std::size_t kHeadBytes = 10;
  const std::size_t size =
      kHeadBytes + LoadLe<std::uint32_t>(AsBytes(content).data() + header + kHeadBytes - 4);
  Bytes sum;
  AppendLe(Lookup3(AsBytes(content).subspan(header, size)), sum);
  content.replace(header + size, sum.size(), AsText(sum));
  Put(kSummed, AsBytes(content));
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  EXPECT_FALSE(source->HasChecksum(source->index().chunks().front()));
  EXPECT_THAT(Unreadable(), IsEmpty());
  const ObjectEntry* const object = source->index().FindObject("tensors/w@crc32");
  ASSERT_NE(object, nullptr);
  const auto rendered = source->ReadObject(*object);
  ASSERT_THAT(rendered, IsOk());
  EXPECT_EQ(rendered->json, "1");
}

}  // namespace
}  // namespace ckpt::hdf5
