#include "formats/hdf5/internal/structure_file.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "formats/hdf5/internal/local_heap.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ckpt::testing::IsOkAndHolds;

// The published values of lookup3 with the initial value 0.
TEST(Lookup3Test, IsTheHashOfItsAuthor) {
  EXPECT_EQ(Lookup3({}), 0xdeadbeef);
  EXPECT_EQ(Lookup3(AsBytes("Four score and seven years ago")), 0x17770551);
}

TEST(FieldReaderTest, ReadsZerosPastTheEndAndSaysSo) {
  FieldReader fields(AsBytes("\x01\x02\x03"), 100);
  EXPECT_EQ(fields.U16(), 0x0201);
  EXPECT_EQ(fields.at(), 102);
  EXPECT_TRUE(fields.ok());
  EXPECT_EQ(fields.U32(), 0);
  EXPECT_FALSE(fields.ok());
  EXPECT_EQ(fields.U8(), 0);
}

TEST(FieldReaderTest, TextNeedsItsEnd) {
  FieldReader fields(AsBytes(std::string_view("ab\0cd", 5)), 0);
  EXPECT_EQ(fields.TextToNul(), "ab");
  EXPECT_EQ(fields.TextToNul(), "");
  EXPECT_FALSE(fields.ok());
}

TEST(StructureFileTest, RefusesWhatLiesOutsideAndWhatIsReadOverAndOver) {
  StructureFile file(MakeMemoryFile("f.h5", Bytes(1000)));
  EXPECT_THAT(file.Read(990, 10), IsOk());
  EXPECT_THAT(file.Read(991, 10), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(file.Read(~std::uint64_t{0}, 1), FailsWith(ErrorKind::kOutOfRange));
  Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = file.Read(0, 1000).status();
  EXPECT_THAT(status, FailsWith(ErrorKind::kResource));
}

TEST(StructureFileTest, RefusesToCopyATextOverAndOver) {
  StructureFile file(MakeMemoryFile("f.h5", Bytes(1000)));
  EXPECT_THAT(file.Charge(1000), IsOk());
  Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = file.Charge(1000);
  EXPECT_THAT(status, FailsWith(ErrorKind::kResource));
}

TEST(LocalHeapTest, ANameEndsWithinSoManyBytes) {
  Bytes content;
  Append(std::string_view("HEAP\0\0\0\0", 8), content);
  for (const int field : {8, 1, 32}) AppendLe(static_cast<std::uint64_t>(field), content);
  Append(std::string_view("abc\0defg", 8), content);
  StructureFile file(MakeMemoryFile("f.h5", std::move(content)));
  const auto heap = LocalHeap::Open(file, 0);
  ASSERT_THAT(heap, IsOk());
  EXPECT_THAT(heap->NameAt(file, 0, 3), IsOkAndHolds("abc"));
  EXPECT_THAT(heap->NameAt(file, 0, 2), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(heap->NameAt(file, 4, 100), FailsWith(ErrorKind::kBadMetadata)) << "without an end";
  EXPECT_THAT(heap->NameAt(file, 8, 100), FailsWith(ErrorKind::kBadMetadata)) << "outside";
}

TEST(StructureFileTest, ASharedBlockIsReadOnce) {
  StructureFile file(MakeMemoryFile("f.h5", Bytes(1000)));
  for (int i = 0; i < 2000; ++i) ASSERT_THAT(file.ReadShared(0, 1000), IsOk());
}

}  // namespace
}  // namespace ckpt::hdf5
