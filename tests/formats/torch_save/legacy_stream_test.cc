// Streams of torch before 1.6: five pickles in a row, then the storages.
#include "formats/torch_save/internal/legacy_stream.h"

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "formats/torch_save/torch_container.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using namespace std::string_literals;

// A stream's parts; a test changes some.
struct Stream {
  std::string magic = std::string(kLegacyMagic);
  std::string protocol = "M\xE9\3.";
  std::string system = "}Vlittle_endian\nI01\ns.";
  std::string object = "(Vstorage\nctorch\nFloatStorage\nVk\nVcpu\nK\2tQ.";
  std::string keys = "(Vk\nl.";
  std::string storages = "\2\0\0\0\0\0\0\0abcdefgh"s;
};

Result<TorchContainer> Open(const Stream& stream) {
  Bytes bytes;
  for (const std::string_view part :
       {std::string_view(stream.magic), std::string_view(stream.protocol),
        std::string_view(stream.system), std::string_view(stream.object),
        std::string_view(stream.keys), std::string_view(stream.storages)}) {
    Append(part, bytes);
  }
  return OpenTorchFile(MakeMemoryFile("old.pt", std::move(bytes)));
}

TEST(LegacyStreamTest, FindsTheStorages) {
  const Result<TorchContainer> container = Open({});
  ASSERT_THAT(container, IsOk());
  ASSERT_EQ(container->storages.size(), 1U);
  const StorageExtent& storage = container->storages.at("k");
  EXPECT_EQ(storage.size_bytes, 8U);
  EXPECT_EQ(storage.offset_bytes + 8, container->file->size_bytes());
  EXPECT_FALSE(container->is_big_endian);
  EXPECT_THAT(VerifyStorage(*container, storage), IsOk()) << "there is no checksum";
}

// As `pickle.dumps(0x1950a86a20f9469cfc6c, protocol)` spells it.
TEST(LegacyStreamTest, TheMagicNumberMayBeOfAnyProtocol) {
  const std::string number = "\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.";
  const std::string frame = "\x95\x0D\0\0\0\0\0\0\0"s;
  for (const std::string& magic :
       {"L119547037146038801333356L\n."s, "\x80\x02"s + number, "\x80\x03"s + number,
        "\x80\x04"s + frame + number, "\x80\x05"s + frame + number}) {
    const Result<TorchContainer> container = Open({.magic = magic});
    ASSERT_THAT(container, IsOk());
    EXPECT_EQ(container->storages.at("k").size_bytes, 8U);
  }
}

// torch writes little endian on every machine, and does not look when it reads.
TEST(LegacyStreamTest, ElementsAreLittleEndianWhateverTheWriterSaysOfItself) {
  for (const std::string& system : {"}Vlittle_endian\nI00\ns."s, "}."s, "}Vlittle_endian\nNs."s}) {
    const Result<TorchContainer> container = Open({.system = system});
    ASSERT_THAT(container, IsOk());
    EXPECT_FALSE(container->is_big_endian) << system;
  }
}

// Of torch.save(module): its class stands as the persistent id ("module", class, file, source).
TEST(LegacyStreamTest, ClassesOfModulesArePersistentIds) {
  const auto container =
      Open({.object = "((Vmodule\nctorch.nn\nLinear\nVlinear.py\nVclass Linear\ntQ)\x81"
                      "}Vbias\n(Vstorage\nctorch\nFloatStorage\nVk\nVcpu\nK\2tQsbt."});
  ASSERT_THAT(container, IsOk());
  const pickle::Graph& graph = container->pickle.graph;
  const pickle::NodeId module = graph.items(container->pickle.root)[0];
  ASSERT_EQ(graph.kind(module), pickle::NodeKind::kInstance);
  EXPECT_EQ(graph.QualifiedName(module), "torch.nn.Linear");
  EXPECT_EQ(container->storages.size(), 1U);
}

TEST(LegacyStreamTest, WarnsOfBytesBehindTheLastStorage) {
  EXPECT_TRUE(Open({})->warnings.empty());
  const auto warning_of = [](const std::string& behind) {
    const auto container = Open({.storages = "\2\0\0\0\0\0\0\0abcdefgh"s + behind});
    EXPECT_THAT(container, IsOk());
    if (!container.ok() || container->warnings.size() != 1) return Problem();
    EXPECT_EQ(container->storages.at("k").size_bytes, 8U);
    return container->warnings.front();
  };
  const Problem padding = warning_of("\0\0\0"s);
  EXPECT_EQ(padding.severity, Severity::kWarning);
  EXPECT_EQ(padding.message, "bytes follow the end of the stream");
  EXPECT_THAT(padding.file, HasSubstr("old.pt"));
  EXPECT_EQ(padding.actual, "3 B");
  EXPECT_THAT(padding.hint, HasSubstr("torch does not look at them"));
  EXPECT_THAT(warning_of(std::string(kLegacyMagic) + "more").hint,
              HasSubstr("another torch.save follows"));
}

struct Damage {
  const char* name;
  Stream stream;
  ErrorKind kind;
  const char* says;
};
void PrintTo(const Damage& damage, std::ostream* os) { *os << damage.name; }
class LegacyDamageTest : public ::testing::TestWithParam<Damage> {};

TEST_P(LegacyDamageTest, IsReportedByItsKind) {
  const Result<TorchContainer> container = Open(GetParam().stream);
  EXPECT_THAT(container, FailsWith(GetParam().kind));
  EXPECT_THAT(container.status().ToString(), HasSubstr(GetParam().says));
  EXPECT_THAT(container.status().ToString(), HasSubstr("old.pt"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LegacyDamageTest,
    ::testing::Values(
        Damage{"AnotherProtocol", {.protocol = "M\xEA\3."}, ErrorKind::kUnsupported, "1001"},
        Damage{"ProtocolOfText", {.protocol = "V1001\n."}, ErrorKind::kUnsupported, "1001"},
        Damage{"NoProtocol", {.protocol = "a"}, ErrorKind::kBadMetadata, "not a pickle"},
        Damage{"SystemOfAList", {.system = "]."}, ErrorKind::kBadItem, "system is not a dict"},
        Damage{"NoSystem", {.system = "a"}, ErrorKind::kBadMetadata, "not a pickle"},
        Damage{"NoObject", {.object = "a"}, ErrorKind::kBadMetadata, "not a pickle"},
        Damage{"KeysInATuple", {.keys = ")."}, ErrorKind::kBadItem, "keys is not a list"},
        Damage{"NoKeys", {.keys = "a"}, ErrorKind::kBadMetadata, "not a pickle"},
        Damage{"KeyOfANumber", {.keys = "(K\1l."}, ErrorKind::kBadItem, "key is not text"},
        Damage{"KeyOfNothing",
               {.keys = "(Vx\nl."},
               ErrorKind::kBadItem,
               "no tensor says what storage \"x\" holds"},
        Damage{"KeyTwice",
               {.keys = "(Vk\nVk\nl.", .storages = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"s},
               ErrorKind::kBadItem,
               "storage \"k\" occurs twice"},
        Damage{"CountCut",
               {.storages = "\2\0\0\0\0\0\0"s},
               ErrorKind::kTruncated,
               "ends before storage"},
        Damage{"DataCut",
               {.storages = "\2\0\0\0\0\0\0\0abcdefg"s},
               ErrorKind::kTruncated,
               "data of storage \"k\" end early"},
        Damage{"CountOverflows",
               {.storages = "\1\0\0\0\0\0\0\x40"s},
               ErrorKind::kResource,
               "more than the whole file"},
        Damage{"CountPastTheFile",
               {.storages = "\xFF\0\0\0\0\0\0\0"s},
               ErrorKind::kResource,
               "255 elements of 4 bytes"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(LegacyStreamTest, AStorageOfTheSizeOfTheFileIsCutNotAbsurd) {
  // As many elements as make exactly the file's bytes, and one more.
  Stream stream = {.storages = std::string(8 + 16, '\0')};
  stream.storages.append((4 - Open(stream)->file->size_bytes() % 4) % 4, '\0');
  const std::uint64_t file_bytes = Open(stream)->file->size_bytes();
  ASSERT_EQ(file_bytes % 4, 0U);
  const auto with_count = [&](std::uint64_t count) {
    StoreLe(count, reinterpret_cast<std::byte*>(stream.storages.data()));
    return Open(stream);
  };
  EXPECT_THAT(with_count(file_bytes / 4), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(with_count(file_bytes / 4 + 1), FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::torch_save
