// What files of other programs have and ours have not. What h5py makes is in tests/interop.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/checkpoint/validate.h"
#include "core/codec/zstd.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "formats/hdf5/internal/attribute.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/encode_type.h"
#include "formats/hdf5/internal/filters.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_heaps.h"
#include "formats/hdf5/internal/piece_bytes.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/structure_file.h"
#include "formats/hdf5/internal/structure_writer.h"
#include "formats/hdf5/internal/tail.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ckpt::testing::IsOkAndHolds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Path kForeign = "/d/f.h5";
constexpr std::uint64_t kPayloadAt = 64;

// Makes the last four of `size` bytes their checksum again.
void SumAgain(std::string& content, std::size_t at, std::size_t size) {
  Bytes sum;
  AppendLe(Lookup3(AsBytes(content).subspan(at, size - kChecksumBytes)), sum);
  content.replace(at + size - sum.size(), sum.size(), AsText(sum));
}

// An object header of version 2.
void SumHeaderAgain(std::string& content, std::size_t at) {
  constexpr std::size_t kHeadBytes = 10;
  const auto size = LoadLe<std::uint32_t>(AsBytes(content).data() + at + kHeadBytes - 4);
  SumAgain(content, at, kHeadBytes + size + kChecksumBytes);
}

void Put64(std::string& content, std::size_t at, std::uint64_t number) {
  Bytes bytes;
  AppendLe(number, bytes);
  content.replace(at, bytes.size(), AsText(bytes));
}

class ForeignFileTest : public ::testing::Test {
 protected:
  ForeignFileTest() { EXPECT_THAT(storage_->MakeDirectories(kForeign.parent_path()), IsOk()); }

  // The elements of Bytes16.
  static Bytes Sixteen() {
    Bytes bytes;
    for (std::uint8_t i = 64; i < 80; ++i) AppendLe(i, bytes);
    return bytes;
  }

  // A file of ours with these data sets, which get their keys, and, at 64, this payload.
  static std::string OursWith(std::vector<NewDataSet> sets, const Bytes& payload = Sixteen()) {
    for (NewDataSet& set : sets) set.attributes.emplace_back(kKeyAttribute, set.name);
    return FileWith(sets, payload);
  }

  static std::string FileWith(const std::vector<NewDataSet>& sets, const Bytes& payload) {
    const std::uint64_t tail_at = AlignUp(kPayloadAt + payload.size(), std::uint64_t{64});
    const NewStructure structure = EncodeStructure({kTensorsGroup, kObjectsGroup}, sets, tail_at);
    std::string content(AsText(structure.superblock));
    content.resize(kPayloadAt);
    content.append(AsText(payload));
    content.resize(tail_at);
    return content.append(AsText(structure.tail));
  }

  // Takes away what says that it is ours. The root group is the last header.
  static std::string ForeignWith(const std::vector<NewDataSet>& sets,
                                 const Bytes& payload = Sixteen()) {
    std::string content = FileWith(sets, payload);
    const std::size_t root = content.rfind("OHDR");
    content[content.find(kLayoutAttribute, root)] = 'C';
    SumHeaderAgain(content, root);
    return content;
  }

  // Gives the first data set another element type, of the same size.
  static void Retype(std::string& content, DType from, const Bytes& to) {
    const std::size_t header = content.find("OHDR");
    const std::size_t type = content.find(AsText(EncodeType(from)), header);
    ASSERT_NE(type, std::string::npos);
    content.replace(type, to.size(), AsText(to));
    SumHeaderAgain(content, header);
  }

  static NewDataSet Bytes16(const std::string& name) {
    return {.group = kTensorsGroup, .name = name, .dtype = DType::kUint8, .shape = {16}, .at = 64};
  }

  // One dim, chunks of two elements. Those that have no frame were never written.
  static NewDataSet Pairs(DType dtype, std::int64_t count, std::vector<ItemExtent> frames) {
    return {.group = kTensorsGroup,
            .name = "t",
            .dtype = dtype,
            .shape = {count},
            .chunks = NewChunks{.rows = 2, .extents = std::move(frames), .zstd_level = 3}};
  }

  static ItemExtent AddFrame(ByteSpan elements, Tail& payload) {
    const Bytes frame = ZstdCompress(elements, 3);
    return {.offset_bytes = payload.Add(frame), .size_bytes = frame.size()};
  }

  // "type json" of an object, or what is wrong with it.
  static std::string ValueOf(const CheckpointSource& source, std::string_view key) {
    const ObjectEntry* const object = source.index().FindObject(key);
    if (object == nullptr) return "absent";
    const auto rendered = source.ReadObject(*object);
    return rendered.ok() ? rendered->type + " " + rendered->json : rendered.status().ToString();
  }

  Result<std::unique_ptr<CheckpointSource>> Open(std::string_view content) {
    EXPECT_THAT(storage_->RemoveAll(kForeign), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, kForeign, AsBytes(content)), IsOk());
    return OpenSource(*storage_, kForeign);
  }

  std::vector<Problem> ProblemsOf(std::string_view content) {
    const auto source = Open(content);
    return source.ok() ? ValidateIndex(**source) : source.status().problems();
  }

  static std::string Golden(const std::string& name) {
    const Path path = Path(CKPT_SOURCE_DIR) / "tests/golden/hdf5" / name;
    return ReadSmallFile(PosixStorage(), path, 1 << 20).value();
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// Its headers and its tables of links have no checksums.
TEST_F(ForeignFileTest, AFlippedBitHidesNoDataSetOfAnOldFile) {
  const std::string whole = Golden("earliest.h5");
  const auto count = [](const CheckpointSource& source) {
    const auto is_data_set = [](const ObjectEntry& object) {
      return object.key.find('@') == std::string::npos;
    };
    return source.index().tensors().size() +
           static_cast<std::size_t>(std::ranges::count_if(source.index().objects(), is_data_set));
  };
  const auto intact = Open(whole);
  ASSERT_THAT(intact, IsOk());
  const std::size_t expected = count(**intact);
  std::set<std::string> known;
  for (const Problem& problem : (*intact)->index().problems()) known.insert(Describe(problem));
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 67) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const auto source = Open(flipped);
    if (!source.ok()) continue;
    const auto is_new = [&](const Problem& problem) { return !known.contains(Describe(problem)); };
    if (std::ranges::any_of((*source)->index().problems(), is_new)) continue;
    EXPECT_EQ(count(**source), expected) << fmt::format("bit {} of byte {}", bit % 8, bit / 8);
  }
}

// So early versions of the HDF5 library wrote it.
TEST_F(ForeignFileTest, AHeaderThatCountsWrongIsReadWithAWarning) {
  std::string content = Golden("earliest.h5");
  const auto intact = Open(content);
  ASSERT_THAT(intact, IsOk());
  const std::size_t num_tensors = (*intact)->index().tensors().size();
  constexpr std::size_t kRootAddressAt = 64;  // in the superblock
  const auto root = LoadLe<std::uint64_t>(AsBytes(content).data() + kRootAddressAt);
  ++content[root + 2];
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().tensors(), SizeIs(num_tensors));
  EXPECT_TRUE(std::ranges::any_of((*source)->index().problems(), [](const Problem& p) {
    return p.severity == Severity::kWarning && p.message.find("miscounted") != std::string::npos;
  }));
}

TEST_F(ForeignFileTest, AnObjectThatIsNeitherAGroupNorADataSetIsNamed) {
  std::string content = ForeignWith({Bytes16("v"), Bytes16("w")});
  constexpr std::uint8_t kLayout = 8;
  std::size_t message = content.find("OHDR") + 10;  // behind the prefix
  while (static_cast<std::uint8_t>(content[message]) != kLayout) {
    message += std::size_t{4} + LoadLe<std::uint16_t>(AsBytes(content).data() + message + 1);
  }
  content[message] = 0;
  SumHeaderAgain(content, content.find("OHDR"));
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().tensors(), SizeIs(1));
  EXPECT_THAT((*source)->index().CheckDeliverable("tensors/v"), FailsWith(ErrorKind::kBadMetadata));
}

TEST_F(ForeignFileTest, ADataSetOfOursWithoutItsKeyIsAnError) {
  const std::vector<Problem> problems = ProblemsOf(FileWith({Bytes16("w")}, Sixteen()));
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kBadMetadata);
  EXPECT_EQ(problems[0].tensor, "w");
}

TEST_F(ForeignFileTest, WhatIsNotUnderstoodIsNamedAndTheRestIsRead) {
  std::string content = Golden("earliest.h5");
  // The bias of the only float of 16 bits: no machine has such a one.
  const std::string_view half("\x10\0\x0a\x05\0\x0a\x0f\0\0\0", 10);
  const std::size_t at = content.find(half);
  ASSERT_NE(at, std::string::npos);
  content[at + 6] = 0x0e;
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  EXPECT_NE((*source)->index().FindTensor("a"), nullptr);
  EXPECT_NE((*source)->index().FindObject("deep/er/f16"), nullptr);
  EXPECT_THAT((*source)->index().CheckDeliverable("deep/er/f16"),
              FailsWith(ErrorKind::kUnsupported));
}

TEST_F(ForeignFileTest, AnAttributeThatCannotBeReadHidesNothingElse) {
  std::string content = Golden("earliest.h5");
  const std::size_t name = content.find(std::string_view("numbers\0", 8));
  ASSERT_NE(name, std::string::npos);
  content[name + 8] = 0x1f;  // its type is of class 15
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  EXPECT_NE(index.FindTensor("a"), nullptr);
  EXPECT_NE(index.FindObject("@text"), nullptr);
  EXPECT_THAT(index.CheckDeliverable("@numbers"), FailsWith(ErrorKind::kBadMetadata));
}

// Or a damaged file of ours would be read as one of another program.
TEST_F(ForeignFileTest, TheAttributeThatMarksOursMustBeRead) {
  std::string content = OursWith({Bytes16("w")});
  const std::size_t root = content.rfind("OHDR");
  const std::size_t name = content.find(kLayoutAttribute, root);
  content[name + sizeof(kLayoutAttribute)] = 0x1f;
  SumHeaderAgain(content, root);
  EXPECT_THAT(Open(content), FailsWith(ErrorKind::kBadMetadata));
}

TEST_F(ForeignFileTest, ADataSetComesBeforeAnAttributeOfItsKey) {
  NewDataSet set = Bytes16("w");
  set.attributes = {{"b", "one"}, {"c", "two"}};
  const auto source = Open(ForeignWith({set, Bytes16("w@b")}));
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  EXPECT_THAT(index.tensors(), SizeIs(2));
  EXPECT_THAT(index.CheckDeliverable("tensors/w@b"), IsOk());
  EXPECT_NE(index.FindObject("tensors/w@c"), nullptr);
  const auto warned = std::ranges::find(index.problems(), "tensors/w@b", &Problem::tensor);
  ASSERT_NE(warned, index.problems().end());
  EXPECT_EQ(warned->severity, Severity::kWarning);
}

TEST_F(ForeignFileTest, AttributesOfTextsAreObjects) {
  const auto source = Open(ForeignWith({{.group = kObjectsGroup,
                                         .name = "t",
                                         .shape = {},
                                         .attributes = {{"language", "en"}},
                                         .text = "hello"}}));
  ASSERT_THAT(source, IsOk());
  EXPECT_NE((*source)->index().FindObject("objects/t"), nullptr);
  EXPECT_NE((*source)->index().FindObject("objects/t@language"), nullptr);
}

TEST_F(ForeignFileTest, TextsInChunksAreReadWithThoseThatWereNeverWritten) {
  Tail payload(kPayloadAt);
  const ItemExtent first = AddFrame(AsBytes(std::string_view("ab\0\0cdef", 8)), payload);
  const ItemExtent second = AddFrame(AsBytes(std::string_view("g\0\0\0hi\0\0", 8)), payload);
  std::string content = ForeignWith({Pairs(DType::kUint32, 5, {first, second})}, payload.Take());
  Retype(content, DType::kUint32, EncodeTextType(4));
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  EXPECT_EQ(ValueOf(**source, "tensors/t"), R"(list ["ab","cdef","g","hi",""])");
  const CheckpointIndex& index = (*source)->index();
  EXPECT_EQ(index.encodings()[index.FindObject("tensors/t")->encoding], "zstd");
  EXPECT_EQ((*source)->protection(), Protection::kCrc32);

  content[second.offset_bytes + second.size_bytes - 1] ^= 1;  // of the frame's checksum
  const auto damaged = Open(content);
  ASSERT_THAT(damaged, IsOk());
  EXPECT_THAT((*damaged)->ReadObject(*(*damaged)->index().FindObject("tensors/t")),
              FailsWith(ErrorKind::kChecksum));
}

TEST_F(ForeignFileTest, TextsOfAnyLengthInChunksAreRead) {
  Tail payload(kPayloadAt);
  const std::vector<std::string> texts = {"alpha", "", "\u00e9tude"};
  NewGlobalHeap heap;
  std::vector<NewGlobalHeap::Id> ids;
  for (const std::string& text : texts) ids.push_back(heap.AddText(text));
  heap.WriteTo(payload);
  Bytes elements;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    AppendLe(static_cast<std::uint32_t>(texts[t].size()), elements);
    heap.AppendReference(ids[t], elements);
  }
  elements.resize(64);  // the fourth one refers to nothing
  const ItemExtent first = AddFrame(ByteSpan(elements).first(32), payload);
  const ItemExtent second = AddFrame(ByteSpan(elements).last(32), payload);
  std::string content =
      ForeignWith({Pairs(DType::kComplex128, 5, {first, second})}, payload.Take());
  Retype(content, DType::kComplex128, EncodeLongTextType());
  const auto source = Open(content);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  EXPECT_EQ(ValueOf(**source, "tensors/t"), "list [\"alpha\",\"\",\"\u00e9tude\",\"\",\"\"]");
  EXPECT_FALSE((*source)->HasChecksum(*(*source)->index().FindObject("tensors/t")))
      << "the heap has none";
}

TEST_F(ForeignFileTest, TextsThatWereNeverWrittenAreEmptyAndOfABoundedNumber) {
  const auto with = [](std::int64_t count) {
    std::string content = ForeignWith(
        {{.group = kTensorsGroup, .name = "t", .dtype = DType::kComplex128, .shape = {count}}});
    Retype(content, DType::kComplex128, EncodeLongTextType());
    return content;
  };
  const auto two = Open(with(2));
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(ValidateIndex(**two), IsEmpty());
  EXPECT_EQ(ValueOf(**two, "tensors/t"), R"(list ["",""])");
  constexpr std::int64_t kLongTextBytes = 16;
  const auto many = Open(with((std::int64_t{64} << 20) / kLongTextBytes + 1));
  ASSERT_THAT(many, IsOk());
  EXPECT_THAT((*many)->ReadObject(*(*many)->index().FindObject("tensors/t")),
              FailsWith(ErrorKind::kResource));
}

TEST_F(ForeignFileTest, TextInAnotherFileIsRefusedWithAHint) {
  std::string content =
      ForeignWith({{.group = kTensorsGroup,
                    .name = "t",
                    .dtype = DType::kUint32,
                    .shape = {2},
                    .segments = {{.file = "raw.bin", .offset_bytes = 0, .size_bytes = 8}}}});
  Retype(content, DType::kUint32, EncodeTextType(4));
  const auto problems = ProblemsOf(content);
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kUnsupported);
  EXPECT_EQ(problems[0].tensor, "tensors/t");
  EXPECT_THAT(problems[0].hint, HasSubstr("h5repack"));
}

TEST_F(ForeignFileTest, ChecksumsOfChunksProtectWhatHasThem) {
  Tail payload(kPayloadAt);
  const ItemExtent frame = AddFrame(Bytes(8, std::byte{7}), payload);
  const Bytes bytes = payload.Take();
  const auto protected_bytes = [&](const std::vector<NewDataSet>& sets, const Bytes& stored) {
    const auto source = Open(ForeignWith(sets, stored));
    EXPECT_THAT(source, IsOk());
    std::uint64_t bytes_with_checksum = 0;
    if (!source.ok()) return bytes_with_checksum;
    for (const Chunk& chunk : (*source)->index().chunks()) {
      if ((*source)->HasChecksum(chunk)) bytes_with_checksum += chunk.size_bytes;
    }
    return bytes_with_checksum;
  };
  const NewDataSet pair = Pairs(DType::kUint32, 2, {frame});
  EXPECT_EQ(protected_bytes({pair}, bytes), frame.size_bytes);
  EXPECT_EQ(protected_bytes({Pairs(DType::kUint32, 4, {frame})}, bytes), frame.size_bytes)
      << "elements that were never written have no bytes";
  EXPECT_EQ(protected_bytes({pair, Bytes16("w")}, bytes), frame.size_bytes);
  Bytes without = bytes;
  without[4] &= ~std::byte{0x04};  // the frame no longer says that it has a checksum
  EXPECT_EQ(protected_bytes({pair}, without), 0U);
}

// The table of the root group's links, which has no checksum, gets two links to one group: the
// second and last one is that of the tensors.
TEST_F(ForeignFileTest, ASecondLinkToAGroupIsNotFollowed) {
  const auto with_loop = [](std::string content, std::uint64_t to) {
    constexpr std::size_t kFirstEntry = 8;
    constexpr std::size_t kEntryBytes = 40;
    const std::size_t table = content.rfind("SNOD");
    const std::size_t objects = table + kFirstEntry + 8;
    if (to == 0) to = LoadLe<std::uint64_t>(AsBytes(content).data() + objects + kEntryBytes);
    Put64(content, objects, to);
    return content;
  };
  const std::string foreign = ForeignWith({Bytes16("w")});
  const std::string twice = with_loop(foreign, 0);
  const auto source = Open(twice);
  ASSERT_THAT(source, IsOk());
  EXPECT_NE((*source)->index().FindTensor("objects/w"), nullptr);
  ASSERT_THAT((*source)->index().problems(), SizeIs(1));
  const Problem& warning = (*source)->index().problems()[0];
  EXPECT_EQ(warning.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(warning.severity, Severity::kWarning);
  EXPECT_EQ(warning.tensor, "tensors");
  EXPECT_THAT(warning.actual, HasSubstr("\"/objects\""));

  const auto circle = Open(with_loop(foreign, foreign.rfind("OHDR")));
  ASSERT_THAT(circle, IsOk());
  EXPECT_NE((*circle)->index().FindTensor("tensors/w"), nullptr);
  EXPECT_THAT((*circle)->index().problems(), SizeIs(1));

  EXPECT_FALSE(Open(with_loop(OursWith({Bytes16("w")}), 0)).ok()) << "we write none such";
}

// Rows 1 and 2 of 4 are those of another data set.
TEST_F(ForeignFileTest, AGapInAVirtualDataSetIsTheFillValueButInOurs) {
  const NewDataSet shown{.group = kTensorsGroup,
                         .name = "v",
                         .dtype = DType::kUint8,
                         .shape = {4, 8},
                         .parts = {{.file = ".",
                                    .data_set = "/tensors/w",
                                    .from = Box{.offsets = {0, 0}, .sizes = {2, 8}},
                                    .to = Box{.offsets = {1, 0}, .sizes = {2, 8}}}}};
  NewDataSet rows = Bytes16("w");
  rows.shape = {2, 8};
  const auto source = Open(ForeignWith({rows, shown}));
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(ValidateIndex(**source), IsEmpty());
  const CheckpointIndex& index = (*source)->index();
  const GlobalTensor* const tensor = index.FindTensor("tensors/v");
  ASSERT_NE(tensor, nullptr);
  std::map<std::string, std::string> codings;
  for (const Chunk& chunk : index.chunks(*tensor)) {
    codings[FormatBox(index.box(chunk))] = index.encoding(chunk);
  }
  const std::map<std::string, std::string> expected = {
      {"[0:1, 0:8]", "fill"}, {"[1:3, 0:8]", "raw"}, {"[3:4, 0:8]", "fill"}};
  EXPECT_EQ(codings, expected);

  const auto problems = ProblemsOf(OursWith({rows, shown}));
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, ErrorKind::kCoverage);
  EXPECT_EQ(problems[0].tensor, "v");
}

TEST_F(ForeignFileTest, NumbersOfOtherSizesAreNotDamage) {
  // A superblock of version 2 with four bytes for an offset and for a length.
  std::string block("\x89HDF\r\n\x1a\n\x02\x04\x04\x00", 12);
  block.resize(12 + 4 * 4 + 4 + 200);
  SumAgain(block, 0, 12 + 4 * 4 + 4);
  EXPECT_THAT(Open(block), FailsWith(ErrorKind::kUnsupported));
  block[13] ^= 1;
  EXPECT_THAT(Open(block), FailsWith(ErrorKind::kChecksum));
}

TEST_F(ForeignFileTest, AFileThatNeedsADriverIsNamed) {
  std::string content = OursWith({Bytes16("w")});
  constexpr std::size_t kExtensionAt = 20;
  constexpr std::size_t kSuperblockBytes = 48;
  Put64(content, kExtensionAt, content.size());
  SumAgain(content, 0, kSuperblockBytes);
  // A header with one message of type 0x14 and two bytes.
  std::string header("OHDR\x02\x00\x06\x14\x02\x00\x00\x00\x00", 13);
  header.resize(header.size() + kChecksumBytes);
  SumAgain(header, 0, header.size());
  EXPECT_THAT(Open(content + header), FailsWith(ErrorKind::kUnsupported));
  header[7] = 0x13;  // the widths of trees
  SumAgain(header, 0, header.size());
  EXPECT_THAT(Open(content + header), IsOk());
}

Result<Datatype> TypeOf(std::string_view bytes) {
  const StructureFile file(MakeMemoryFile("f.h5", Bytes()));
  FieldReader fields(AsBytes(bytes), 0);
  return ParseDatatype(file, fields);
}

// As HDF5 2.0 encodes its complex numbers of two floats of 32 bits.
TEST(Hdf5DatatypeTest, ComplexNumbersOfTheLibraryAreRead) {
  std::string type(
      "\x5b\x01\0\0\x08\0\0\0"
      "\x11\x20\x1f\0\x04\0\0\0\0\0\x20\0\x17\x08\0\x17\x7f\0\0\0",
      28);
  const auto complex = TypeOf(type);
  ASSERT_THAT(complex, IsOk());
  EXPECT_EQ(complex->kind, TypeKind::kNumber);
  EXPECT_EQ(complex->dtype, DType::kComplex64);
  EXPECT_FALSE(complex->byte_swapped);
  type[1] = 3;  // in another form than real and imaginary part
  const auto polar = TypeOf(type);
  ASSERT_THAT(polar, IsOk());
  EXPECT_EQ(polar->kind, TypeKind::kOther);
  EXPECT_EQ(polar->name, "complex");
}

// A dim of 4 that may become another.
TEST(Hdf5DataspaceTest, ADimMayGrowToItsMaximum) {
  const StructureFile file(MakeMemoryFile("f.h5", Bytes()));
  const auto max_shape = [&](std::uint64_t max) -> Result<Dims> {
    Bytes bytes;
    for (const int field : {2, 1, 1, 1}) AppendLe(static_cast<std::uint8_t>(field), bytes);
    AppendLe<std::uint64_t>(4, bytes);
    AppendLe(max, bytes);
    FieldReader fields(bytes, 0);
    CKPT_ASSIGN_OR_RETURN(const Dataspace space, ParseDataspace(file, fields));
    return space.max_shape;
  };
  EXPECT_THAT(max_shape(4), IsOkAndHolds(ElementsAre(4)));
  EXPECT_THAT(max_shape(9), IsOkAndHolds(ElementsAre(9)));
  EXPECT_THAT(max_shape(~std::uint64_t{0}), IsOkAndHolds(ElementsAre(kUnlimited)));
  EXPECT_THAT(max_shape(3), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(max_shape(std::uint64_t{1} << 63), FailsWith(ErrorKind::kBadMetadata));
}

TEST(Hdf5AttributeTest, AnArrayWithoutElementsHasNoMoreEmptyOnesThanCanBeShown) {
  StructureFile file(MakeMemoryFile("f.h5", Bytes()));
  Attribute attribute;
  attribute.type = {.kind = TypeKind::kNumber, .dtype = DType::kInt64, .size_bytes = 8, .name = {}};
  attribute.space.shape = {2, 0};
  const auto rendered = Render(file, attribute);
  ASSERT_THAT(rendered, IsOk());
  EXPECT_EQ(rendered->json, "[[],[]]");
  attribute.space.shape = {std::int64_t{1} << 40, 0};
  EXPECT_THAT(Render(file, attribute), FailsWith(ErrorKind::kResource));
}

TEST(Hdf5FiltersTest, ChecksumsAreKnownBeforeTheyAreCompared) {
  for (const std::size_t size : {1U, 255U, 256U, 300U, 65791U, 65792U, 100000U}) {
    SCOPED_TRACE(size);
    const Bytes frame = ZstdCompress(Bytes(size, std::byte{1}), 3);
    EXPECT_TRUE(HaveChecksum({Filtering::kZstd}, frame, size));
    EXPECT_TRUE(HaveChecksum({Filtering::kShuffle, Filtering::kZstd}, frame, size));
    EXPECT_FALSE(HaveChecksum({Filtering::kZstd}, frame, size + 1)) << "another frame may follow";
    EXPECT_FALSE(HaveChecksum({Filtering::kZstd}, ByteSpan(frame).first(4), size));
    EXPECT_FALSE(HaveChecksum({Filtering::kZstd}, ByteSpan(frame).subspan(1), size));
    Bytes without = frame;
    without[4] &= ~std::byte{0x04};
    EXPECT_FALSE(HaveChecksum({Filtering::kZstd}, without, size));
  }
  for (const Filtering has_one : {Filtering::kDeflate, Filtering::kFletcher32}) {
    EXPECT_TRUE(HaveChecksum({has_one}, {}, 8));
    EXPECT_TRUE(HaveChecksum({has_one, Filtering::kLzf}, {}, 8));
  }
  EXPECT_FALSE(HaveChecksum({Filtering::kShuffle, Filtering::kLzf}, {}, 8));
  EXPECT_FALSE(HaveChecksum({}, {}, 8));
}

// A chunk of rows of four, of which three are shown, and a column that was never written.
TEST(Hdf5PieceBytesTest, PiecesComeToTheirPlaces) {
  Bytes content;
  Append(std::string_view("..abcdefgh"), content);
  const auto file = MakeMemoryFile("f.h5", content);
  const auto fill = MakeMemoryFile("the fill value", Bytes(1, std::byte{'-'}));
  const std::vector<Piece> pieces = {
      {.box = {.offsets = {0, 0}, .sizes = {2, 3}},
       .file = "f.h5",
       .offset_bytes = 2,
       .size_bytes = 7,
       .form = {.strides = {4, 1}}},
      {.box = {.offsets = {0, 3}, .sizes = {2, 1}},
       .file = "f.h5",
       .form = {.coding = Coding::kFill, .strides = {0, 0}, .fill = fill}}};
  const auto gathered = GatherElements(*file, pieces, Dims{2, 4}, 1, 8);
  ASSERT_THAT(gathered, IsOk());
  EXPECT_EQ(AsText(*gathered), "abc-efg-");
  EXPECT_THAT(GatherElements(*file, pieces, Dims{2, 4}, 1, 7), FailsWith(ErrorKind::kResource));
}

// The entries of an index may all name one chunk.
TEST(Hdf5PieceBytesTest, AChunkIsNotDecodedWithoutEnd) {
  constexpr std::uint64_t kChunk = 1 << 20;
  const Bytes frame = ZstdCompress(Bytes(kChunk, std::byte{5}), 1);
  const auto file = MakeMemoryFile("f.h5", frame);
  const auto filterings = std::make_shared<const Filterings>(Filterings{Filtering::kZstd});
  const auto gather = [&](std::int64_t count) {
    std::vector<Piece> pieces;
    for (std::int64_t i = 0; i < count; ++i) {
      pieces.push_back({.box = {.offsets = {i}, .sizes = {1}},
                        .file = "f.h5",
                        .size_bytes = frame.size(),
                        .form = {.coding = Coding::kFiltered,
                                 .strides = {1},
                                 .decoded_bytes = kChunk,
                                 .filterings = filterings}});
    }
    return GatherElements(*file, pieces, Dims{count}, 1, kChunk);
  };
  EXPECT_THAT(gather(2), IsOkAndHolds(Bytes(2, std::byte{5})));
  EXPECT_THAT(gather(8), FailsWith(ErrorKind::kResource));
}

// The inner frame is larger than what is in it, as compressed noise is.
TEST(Hdf5FiltersTest, AChainOfCompressorsMayPackMoreThanTheElements) {
  Bytes noise;
  for (unsigned i = 0; i < 64; ++i) noise.push_back(static_cast<std::byte>(i * 167 ^ i / 3 * 29));
  const Bytes inner = ZstdCompress(noise, 1);
  ASSERT_GT(inner.size(), noise.size());
  const Filterings chain = {Filtering::kZstd, Filtering::kZstd};
  EXPECT_THAT(UndoFilters(ZstdCompress(inner, 1), chain, noise.size(), 1), IsOkAndHolds(noise));
  // Bounded in each step.
  const Bytes bomb = ZstdCompress(Bytes(1 << 20), 1);
  EXPECT_THAT(UndoFilters(bomb, chain, noise.size(), 1), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(UndoFilters(ZstdCompress(bomb, 1), chain, noise.size(), 1),
              FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::hdf5
