// What of an archive makes it a torch.save file, and what else a file can be.
#include "formats/torch_save/torch_container.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "formats/torch_save/object_item.h"
#include "formats/zip/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using namespace std::string_literals;

Result<TorchContainer> OpenBytes(std::string_view bytes) {
  return OpenTorchFile(MakeMemoryFile("a.pt", Bytes(AsBytes(bytes).begin(), AsBytes(bytes).end())));
}

Result<TorchContainer> OpenRecords(
    const std::vector<std::pair<std::string, std::string>>& records) {
  zip::Writer zip;
  for (const auto& [name, payload] : records) zip.Add(name, AsBytes(payload));
  return OpenTorchFile(MakeMemoryFile("a.pt", std::move(zip).Finish().front().bytes));
}

TEST(TorchContainerTest, TheByteOrderIsLittleUnlessTheFileSaysOtherwise) {
  EXPECT_FALSE(OpenRecords({{"data.pkl", "N."}})->is_big_endian);
  EXPECT_FALSE(OpenRecords({{"data.pkl", "N."}, {"byteorder", "little"}})->is_big_endian);
  EXPECT_TRUE(OpenRecords({{"data.pkl", "N."}, {"byteorder", "big"}})->is_big_endian);
  for (const std::string& order : {""s, "middle"s, "little\n"s}) {
    const auto container = OpenRecords({{"data.pkl", "N."}, {"byteorder", order}});
    EXPECT_THAT(container, FailsWith(ErrorKind::kBadItem));
    EXPECT_EQ(container.status().first().actual, order);
    EXPECT_THAT(container.status().first().file, HasSubstr("a.pt"));
  }
  EXPECT_THAT(OpenRecords({{"data.pkl", "N."}, {"byteorder", std::string(65, 'x')}}),
              FailsWith(ErrorKind::kResource));
}

TEST(TorchContainerTest, StoragesAreTheRecordsBelowData) {
  const auto container = OpenRecords({{"data.pkl", "N."}, {"data/7", "abc"}, {"other/1", "x"}});
  ASSERT_THAT(container, IsOk());
  ASSERT_EQ(container->storages.size(), 1U);
  EXPECT_EQ(container->storages.begin()->first, "7");
  EXPECT_EQ(container->storages.begin()->second.size_bytes, 3U);
  EXPECT_EQ(container->storages.begin()->second.name, "archive/data/7");
}

TEST(TorchContainerTest, SaysWhichValuesAreWholeAndWhereTheyCameFrom) {
  const auto container =
      OpenRecords({{"data.pkl", "N."},
                   {"ckptkit_objects.json", R"([["a.b",0],["c",7,"d"],[{"key":null}],[]])"},
                   {"ckptkit_origin.json", "{}"}});
  ASSERT_THAT(container, IsOk());
  const EntryPath first = {"a.b"s, std::int64_t{0}};
  const EntryPath second = {"c"s, std::int64_t{7}, "d"s};
  const EntryPath third = {ConstantKey::kNone};
  EXPECT_EQ(container->whole, (std::vector<EntryPath>{first, second, third, {}}));
  EXPECT_EQ(container->origin, "{}");
  for (const std::string& text : {""s, "["s, "{}"s, "[7]"s, "[[0.5]]"s, "[[null]]"s, "[[[]]]"s}) {
    const auto refused = OpenRecords({{"data.pkl", "N."}, {"ckptkit_objects.json", text}});
    EXPECT_THAT(refused, FailsWith(ErrorKind::kBadMetadata)) << text;
    EXPECT_THAT(refused.status().first().file, HasSubstr("a.pt"));
  }
  EXPECT_THAT(OpenRecords({{"data.pkl", "N."}, {"ckptkit_objects.json", std::string(100, '[')}}),
              FailsWith(ErrorKind::kResource));
}

TEST(TorchContainerTest, SaysWhatElseAFileIs) {
  const auto refusal = [](const Result<TorchContainer>& container) {
    EXPECT_FALSE(container.ok());
    return std::pair(container.status().kind(), container.status().first().message);
  };
  using ::testing::Pair;
  EXPECT_THAT(refusal(OpenBytes("")), Pair(ErrorKind::kTruncated, HasSubstr("empty")));
  EXPECT_THAT(refusal(OpenBytes("x")), Pair(ErrorKind::kUnsupported, "not a torch.save file"));
  EXPECT_THAT(refusal(OpenBytes("\x80\2N.")),
              Pair(ErrorKind::kUnsupported, HasSubstr("plain pickle")));
  EXPECT_THAT(refusal(OpenBytes(std::string(257, ' ') + "ustar")),
              Pair(ErrorKind::kUnsupported, HasSubstr("tar archive")));
  EXPECT_THAT(refusal(OpenBytes(std::string(257, ' ') + "usta")),
              Pair(ErrorKind::kUnsupported, "not a torch.save file"));
  EXPECT_THAT(refusal(OpenRecords({{"data.pkl", "N."}, {"constants.pkl", "N."}})),
              Pair(ErrorKind::kUnsupported, HasSubstr("TorchScript")));
  EXPECT_THAT(refusal(OpenRecords({{"version", "3"}})),
              Pair(ErrorKind::kIncomplete, HasSubstr("no data.pkl")));
  EXPECT_THAT(refusal(OpenRecords({{"w.npy", "3"}})),
              Pair(ErrorKind::kUnsupported, HasSubstr("numpy archive")));
  EXPECT_THAT(refusal(OpenRecords({{"data.pkl", "a"}})),
              Pair(ErrorKind::kBadMetadata, "not a pickle"));
}

// A file whose bytes nobody can read.
class DeafFile final : public ReadableFile {
 public:
  std::uint64_t size_bytes() const override { return 100; }
  const std::string& name() const override { return name_; }
  Status ReadAt(std::uint64_t /*offset*/, MutableByteSpan /*out*/) const override {
    return Error(ErrorKind::kIo, "injected fault");
  }
  Result<std::unique_ptr<FileView>> View() const override {
    return Error(ErrorKind::kIo, "injected fault");
  }

 private:
  std::string name_ = "deaf";
};

TEST(TorchContainerTest, AFileThatCannotBeReadIsNoOtherFormat) {
  EXPECT_THAT(OpenTorchFile(std::make_shared<DeafFile>()), FailsWith(ErrorKind::kIo));
}

TEST(TorchContainerTest, ObjectsCarryTheWarningsOfTheirArchive) {
  zip::Writer zip;
  zip.Add("data.pkl", AsBytes("}Vlr\nF0.5\ns."));
  zip.Add("../../evil", AsBytes("x"));
  const auto container =
      OpenTorchFile(MakeMemoryFile("a.pt", std::move(zip).Finish().front().bytes));
  ASSERT_THAT(container, IsOk());
  const auto object = RenderItem(*container, container->pickle.root, "");
  ASSERT_THAT(object, IsOk());
  EXPECT_EQ(object->json, R"({"lr":0.5})");
  ASSERT_EQ(object->warnings.size(), 1U);
  EXPECT_EQ(object->warnings[0].kind, ErrorKind::kUnsafePath);
}

TEST(TorchContainerTest, AFlippedTensorIsNoPartOfAnObject) {
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nByteStorage\nV0\nVcpu\nI8\ntQ"
      "I0\n(I8\nt(I1\nttR.";
  zip::Writer zip;
  zip.Add("data.pkl", AsBytes(tensor));
  zip.Add("data/0", AsBytes("elements"));
  Bytes bytes = std::move(zip).Finish().front().bytes;
  const auto render = [&] {
    const auto container = OpenTorchFile(MakeMemoryFile("a.pt", bytes));
    EXPECT_THAT(container, IsOk());
    return RenderItem(*container, container->pickle.root, "");
  };
  const auto object = render();
  ASSERT_THAT(object, IsOk());
  EXPECT_THAT(object->json, HasSubstr(R"({"$tensor":{"shape":[8],"dtype":"uint8")"));
  bytes[AsText(bytes).find("elements")] ^= std::byte{1};
  EXPECT_THAT(render(), FailsWith(ErrorKind::kChecksum));
}

TEST(TorchContainerTest, ATensorOfOneNumberSaysItsValue) {
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI2\ntQ";
  zip::Writer zip;
  zip.Add("data.pkl",
          AsBytes("(" + tensor + "I1\n(t(tI00\n(ttR" + tensor + "I0\n(I2\nt(I1\ntI00\n(ttRt."));
  Bytes elements;
  for (const float element : {7.0F, 3.0F}) AppendLe(element, elements);
  zip.Add("data/0", elements);
  const auto container =
      OpenTorchFile(MakeMemoryFile("a.pt", std::move(zip).Finish().front().bytes));
  ASSERT_THAT(container, IsOk());
  const auto object = RenderItem(*container, container->pickle.root, "");
  ASSERT_THAT(object, IsOk());
  ASSERT_EQ(object->numbers.size(), 1U);
  const auto& [stored, number] = *object->numbers.begin();
  EXPECT_EQ(stored.first, DType::kFloat32);
  EXPECT_THAT(object->json, HasSubstr(stored.second));
  EXPECT_EQ(number, 3.0);
}

}  // namespace
}  // namespace ckpt::torch_save
