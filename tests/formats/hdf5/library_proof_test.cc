#include "formats/hdf5/internal/library_proof.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/io/memory_storage.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Property;

Matcher<const Status&> Says(ErrorKind kind, const Matcher<std::string>& text) {
  return AllOf(FailsWith(kind), Property(&Status::ToString, text));
}

const Path kFile = "/d/out.h5";

// One of every dtype, of no dims, of no elements, with a key that needs another name, and one that
// is too long for text of fixed length.
std::vector<TargetTensor> AllKinds() {
  std::vector<TargetTensor> tensors;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    tensors.push_back(
        {.key = fmt::format("of.{}", DTypeName(dtype)), .dtype = dtype, .shape = {6, 4}});
  }
  tensors.push_back({.key = "scalar", .dtype = DType::kFloat32, .shape = {}});
  tensors.push_back({.key = "empty", .dtype = DType::kFloat16, .shape = {3, 0}});
  tensors.push_back({.key = "a/b%", .dtype = DType::kBfloat16, .shape = {100, 3}});
  tensors.push_back({.key = std::string(70'000, 'k'), .dtype = DType::kInt8, .shape = {2}});
  tensors.push_back({.key = "", .dtype = DType::kInt8, .shape = {2, 1, 2}});
  return tensors;
}

WeightsRequest ProofRequestOf(std::vector<TargetTensor> tensors) {
  WeightsRequest request;
  request.tensors = std::move(tensors);
  request.known_tensors = {
      {.key = "step", .dtype = DType::kFloat32, .shape = {}, .values = Bytes(4)}};
  request.carried_objects = {
      {.key = "o/1", .type = "int", .json = "1"},
      {.key = "o/2", .type = "dict", .json = R"({"a": 2})", .numbers = {{{DType::kBool, "…"}, 1}}}};
  request.file_name = "out.h5";
  request.origin = "{}";
  return request;
}

class LibraryProofTest : public ::testing::Test {
 protected:
  LibraryProofTest() { EXPECT_THAT(storage_->MakeDirectories("/d"), IsOk()); }

  // The files of the plan, with zeros for elements.
  WritePlan Write(WeightsRequest request) {
    auto planned = PlanHdf5(std::move(request));
    EXPECT_THAT(planned, IsOk());
    WritePlan plan = std::move(planned->plan);
    std::vector<WriteLiteral> literals = plan.literals;
    if (plan.late_bytes) {
      std::vector<WrittenItem> items;
      std::uint64_t at = 64;
      for (const WriteItem& item : plan.items) {
        WrittenItem& written = items.emplace_back();
        written.extent = {item.offset_bytes, item.size_bytes};
        written.payload_crc32 = Crc32(Bytes(item.payload_bytes)) ^ checksum_error_;
        if (!plan.compression) continue;
        written.extent = {at, item.is_plain ? item.size_bytes : 7};
        at += written.extent.size_bytes;
      }
      for (WriteLiteral& late : plan.late_bytes->encode(plan, items)) {
        literals.push_back(std::move(late));
      }
    }
    for (std::uint32_t f = 0; f < plan.files.size(); ++f) {
      Bytes content(plan.files[f].size_bytes);
      for (const WriteLiteral& literal : literals) {
        if (literal.file != f) continue;
        content.resize(
            std::max<std::size_t>(content.size(), literal.offset_bytes + literal.bytes.size()));
        std::ranges::copy(literal.bytes,
                          content.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
      }
      Put(plan.files[f].name, content);
    }
    return plan;
  }

  void Put(const std::string& name, ByteSpan content) {
    EXPECT_THAT(storage_->RemoveAll(kFile.parent_path() / name), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, kFile.parent_path() / name, content), IsOk());
  }

  Status Prove(const WritePlan& plan) { return ProveByLibrary(*storage_, kFile, plan); }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  std::uint32_t checksum_error_ = 0;  // in those of all elements
};

TEST_F(LibraryProofTest, TheLibraryTakesEveryFormThatWeWrite) {
  EXPECT_THAT(Prove(Write(ProofRequestOf(AllKinds()))), IsOk()) << "in one piece";
  WeightsRequest compressed = ProofRequestOf(AllKinds());
  compressed.tensors.push_back(
      {.key = "chunks", .dtype = DType::kFloat32, .shape = {1000, 1 << 16}});
  compressed.zstd_level = 3;
  EXPECT_THAT(Prove(Write(std::move(compressed))), IsOk()) << "compressed";
  WeightsRequest parts = ProofRequestOf(AllKinds());
  parts.files = 3;
  EXPECT_THAT(Prove(Write(std::move(parts))), IsOk()) << "several files";
  EXPECT_THAT(Prove(Write(ProofRequestOf({}))), IsOk()) << "no tensors";
}

TEST_F(LibraryProofTest, TheLibraryTakesLinks) {
  WeightsRequest request =
      ProofRequestOf({{.key = "rows", .dtype = DType::kBfloat16, .shape = {4, 2}},
                      {.key = "whole", .dtype = DType::kInt64, .shape = {}},
                      {.key = "grid", .dtype = DType::kFloat32, .shape = {2, 4}}});
  const auto link = [](Dims offsets, Dims sizes, std::uint64_t at, std::uint64_t bytes) {
    return LinkedBox{.box = {.offsets = std::move(offsets), .sizes = std::move(sizes)},
                     .file = "/c/weights.distcp",
                     .offset_bytes = at,
                     .size_bytes = bytes};
  };
  request.links = {{link({0, 0}, {1, 2}, 100, 4), link({1, 0}, {3, 2}, 200, 12)},
                   {link({}, {}, 300, 8)},
                   {link({0, 0}, {2, 1}, 400, 8), link({0, 1}, {2, 3}, 500, 24)}};
  EXPECT_THAT(Prove(Write(std::move(request))), IsOk());
}

TEST_F(LibraryProofTest, EveryDifferenceFromThePlanIsNamed) {
  WritePlan plan = Write(ProofRequestOf({{.key = "a", .dtype = DType::kFloat32, .shape = {2, 3}},
                                         {.key = "b", .dtype = DType::kFloat32, .shape = {2, 3}}}));
  ASSERT_THAT(Prove(plan), IsOk());
  const TargetTensor a = plan.tensors[0];
  plan.tensors[0].shape = {3, 2};
  EXPECT_THAT(Prove(plan), Says(ErrorKind::kShapeMismatch,
                                AllOf(HasSubstr("out.h5: a: expected"), HasSubstr("[3, 2]"))));
  plan.tensors[0] = a;
  plan.tensors[0].dtype = DType::kBfloat16;
  EXPECT_THAT(Prove(plan), Says(ErrorKind::kValueMismatch, HasSubstr("attribute dtype")));
  plan.tensors[0] = {.key = "c", .dtype = a.dtype, .shape = a.shape};
  EXPECT_THAT(Prove(plan), Says(ErrorKind::kMissing, HasSubstr("c")));
  plan.tensors.erase(plan.tensors.begin());
  EXPECT_THAT(Prove(plan),
              Says(ErrorKind::kValueMismatch, HasSubstr("finds a tensor that was not planned")));
}

// A strict reader that saw the elements elsewhere than the library would be found out.
TEST_F(LibraryProofTest, ElementsInAnotherPlaceAreRefused) {
  const TargetTensor a{.key = "a", .dtype = DType::kFloat32, .shape = {20, 3}};
  const TargetTensor b{.key = "b", .dtype = DType::kFloat32, .shape = {20, 3}};
  for (const bool is_compressed : {false, true}) {
    for (const int files : {1, 2}) {
      if (is_compressed && files > 1) continue;
      const auto request = [&](std::vector<TargetTensor> tensors) {
        WeightsRequest made = ProofRequestOf(std::move(tensors));
        if (is_compressed) made.zstd_level = 3;
        made.files = files;
        return made;
      };
      Write(request({b, a}));
      const auto other = OpenSource(*storage_, kFile);
      ASSERT_THAT(other, IsOk());
      const WritePlan plan = Write(request({a, b}));
      EXPECT_THAT(
          CompareWithLibrary(*storage_, kFile, plan, **other),
          Says(ErrorKind::kValueMismatch, AllOf(HasSubstr("finds elements in another place"),
                                                HasSubstr("out.h5: a: expected"))))
          << is_compressed << files;
    }
  }
}

TEST_F(LibraryProofTest, AnotherChecksumIsRefusedAndSoIsNone) {
  for (const int files : {1, 2}) {
    SCOPED_TRACE(files);
    const auto request = [&](bool is_shared) {
      WeightsRequest made =
          ProofRequestOf({{.key = "a", .dtype = DType::kFloat32, .shape = {20, 3}}});
      made.files = files;
      made.is_shared = is_shared;
      return made;
    };
    checksum_error_ = 1;
    Write(request(false));
    const auto other = OpenSource(*storage_, kFile);
    ASSERT_THAT(other, IsOk());
    checksum_error_ = 0;
    const WritePlan plan = Write(request(false));
    EXPECT_THAT(Prove(plan), IsOk());
    EXPECT_THAT(CompareWithLibrary(*storage_, kFile, plan, **other),
                Says(ErrorKind::kValueMismatch, HasSubstr("a: expected")));
    EXPECT_THAT(Prove(Write(request(true))), IsOk());
    EXPECT_THAT(Prove(plan), Says(ErrorKind::kMissing, HasSubstr("expected crc32")));
  }
}

TEST_F(LibraryProofTest, ATextWithAnotherChecksumIsRefused) {
  const WritePlan plan = Write(ProofRequestOf({}));
  std::string content = ReadSmallFile(*storage_, kFile, 1 << 20).value();
  const std::size_t at = content.find(R"({"a": 2})");
  ASSERT_NE(at, std::string::npos);
  content[at + 6] ^= 1;
  Put("out.h5", AsBytes(content));
  EXPECT_THAT(Prove(plan), Says(ErrorKind::kChecksum, HasSubstr("o/2")));
}

TEST_F(LibraryProofTest, ADamagedStructureIsRefused) {
  WeightsRequest request =
      ProofRequestOf({{.key = "a", .dtype = DType::kFloat32, .shape = {64, 3}}});
  request.files = 2;
  const WritePlan plan = Write(std::move(request));
  const auto strict = OpenSource(*storage_, kFile);
  ASSERT_THAT(strict, IsOk());
  for (const WriteFile& file : plan.files) {
    const std::string content =
        ReadSmallFile(*storage_, kFile.parent_path() / file.name, 1 << 20).value();
    for (const std::string_view mark : {"OHDR", "TREE", "SNOD"}) {
      std::string damaged = content;
      const std::size_t at = damaged.find(mark);
      ASSERT_NE(at, std::string::npos) << file.name << mark;
      damaged[at] ^= 1;
      Put(file.name, AsBytes(damaged));
      EXPECT_FALSE(Prove(plan).ok()) << "by the strict reader";
      EXPECT_THAT(CompareWithLibrary(*storage_, kFile, plan, **strict),
                  Says(ErrorKind::kBadMetadata,
                       AllOf(HasSubstr("the HDF5 library"), HasSubstr(file.name), HasSubstr("H5"))))
          << file.name << mark;
    }
    Put(file.name, AsBytes(content));
  }
  EXPECT_THAT(Prove(plan), IsOk());
  EXPECT_THAT(storage_->RemoveAll(kFile.parent_path() / plan.files[2].name), IsOk());
  EXPECT_FALSE(Prove(plan).ok());
}

}  // namespace
}  // namespace ckpt::hdf5
