// Values that are written again are what they were, and call nothing that a stranger chose.
#include "formats/pickle/copy_value.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "formats/pickle/from_json.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using namespace std::string_view_literals;

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::ckpt::testing::IsOkAndHolds;

Status NoReference(NodeId /*persistent*/, PickleWriter& /*pickle*/) {
  return Error(ErrorKind::kUnsupported, "a reference");
}

Result<Bytes> Copy(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(AsBytes(pickle), "p"));
  PickleWriter copy(Dialect::kWeightsOnly);
  CKPT_RETURN_IF_ERROR(CopyValue(parsed.graph, parsed.root, &NoReference, copy));
  return copy.Take();
}

Result<std::string> Json(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(AsBytes(pickle), "p"));
  return RenderJson(parsed.graph, parsed.root);
}

TEST(CopyValueTest, EveryPlainValueIsWhatItWas) {
  for (const char* json : {
           R"([null,true,0,-1,70000,{"$int":"340282366920938463463374607431768211456"},0.5,"é"])",
           R"({"$dict":[[1,"a"],[{"$tuple":[0,"b"]},null],["$c",{"$dict":[[2,3]]}]]})",
           R"({"$ordered_dict":[["b",1],["a",{"$ordered_dict":[]}]]})",
           R"([{"$tuple":[]},{"$tuple":[1,{"$tuple":[2]}]},{"$set":[1,2]},{"$frozenset":["a"]}])",
           R"([{"$bytes":""},{"$bytes":"00ff80"},{"$bytearray":"0102"},{"$complex":[1.0,-2.5]}])",
           R"([{"$size":[2,3]},{"$dtype":"bfloat16"},{"$device":"cuda:1"},{"$layout":"strided"}])",
           R"({"$numpy_scalar":{"dtype":"<f8","bytes":"000000000000f03f"}})",
           R"({"$object":{"class":"argparse.Namespace","state":{"lr":0.5,"a":[{"$tuple":[]}]}}})",
           R"({"$object":{"class":"megatron.core.enums.ModelType","state":{"value":1}}})",
       }) {
    const Result<Bytes> first = PickleFromJson(json, "o");
    ASSERT_THAT(first, IsOk());
    const Result<Bytes> copy = Copy(AsText(*first));
    ASSERT_THAT(copy, IsOk()) << json;
    EXPECT_THAT(Json(AsText(*copy)), IsOkAndHolds(json));
  }
}

TEST(CopyValueTest, InstancesOfAnyClassKeepTheirParts) {
  // mine.Config, and a BytesIO with its position.
  const std::string instance = "cmine\nConfig\n(K\1t\x81}Vlr\nK\2sb.";
  const Result<Bytes> copy = Copy(instance);
  ASSERT_THAT(copy, IsOk());
  const Result<ParsedPickle> parsed = ParsePickle(*copy, "p");
  ASSERT_THAT(parsed, IsOk());
  const Graph& graph = parsed->graph;
  EXPECT_EQ(graph.QualifiedName(parsed->root), "mine.Config");
  EXPECT_EQ(graph.items(graph.args(parsed->root)).size(), 1U);
  const NodeId rate = graph.Find(graph.state(parsed->root), "lr");
  ASSERT_NE(rate, kNoNode);
  EXPECT_EQ(graph.integer(rate), 2);

  const Result<Bytes> buffer = Copy("c_io\nBytesIO\n)\x81(C\2abK\1Nt\x62.");
  ASSERT_THAT(buffer, IsOk());
  EXPECT_THAT(Json(AsText(*buffer)), IsOkAndHolds(R"({"$opaque":"_io.BytesIO"})"));
}

TEST(CopyValueTest, WhatIsSharedStaysShared) {
  const Result<Bytes> copy = Copy("](}q\1Va\nNsh\1h\1e.");
  ASSERT_THAT(copy, IsOk());
  const Result<ParsedPickle> parsed = ParsePickle(*copy, "p");
  ASSERT_THAT(parsed, IsOk());
  const auto items = parsed->graph.items(parsed->root);
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(items[0], items[2]);
}

TEST(CopyValueTest, SharingWithoutEndStaysShort) {
  // A list of two times the list before, 60 deep.
  std::string pickle = "]q\1";
  for (int level = 0; level < 60; ++level) pickle += "0(h\1h\1lq\1";
  const Result<Bytes> copy = Copy(pickle + ".");
  ASSERT_THAT(copy, IsOk());
  EXPECT_LT(copy->size(), 1000U);
}

TEST(CopyValueTest, RefusesWhatNoHonestCheckpointNames) {
  for (const std::string_view pickle :
       {"cos\nsystem\n(Vls\ntR."sv,                                       // a call
        "cos\nsystem\n."sv,                                               // a function
        "](cos\nsystem\ne."sv,                                            // inside
        "ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nN)NtR."sv,  // called by another call
        "ctorch\nload\n."sv,                                              // no dtype
        "\x80\4\x8c\x0ctorch.\nposix\x8c\6System\x93."sv}) {              // two lines of protocol 2
    EXPECT_THAT(Copy(pickle), FailsWith(ErrorKind::kUnsafePickle)) << pickle;
  }
}

TEST(CopyValueTest, RefusesWhatHasNoEnd) {
  EXPECT_THAT(Copy("]q\1h\1a."), FailsWith(ErrorKind::kResource));
  std::string deep;
  for (int level = 0; level < 1000; ++level) deep += "(";
  for (int level = 0; level < 1000; ++level) deep += "l";
  EXPECT_THAT(Copy(deep + "."), FailsWith(ErrorKind::kResource));
}

TEST(CopyValueTest, RefusesWhatItCannotWrite) {
  // A call of what a call returned, keyword arguments, and a reference that its writer refuses.
  for (const std::string_view pickle :
       {"cbuiltins\nint\n)R)R."sv, "\x80\4cm\nC\n)}Va\nNs\x92."sv, "V0\nQ."sv}) {
    EXPECT_THAT(Copy(pickle), FailsWith(ErrorKind::kUnsupported)) << pickle;
  }
  // A class inside a class, which protocol 2 has no GLOBAL for: as protocols 2 and 4 name it.
  for (const std::string_view pickle :
       {"cbuiltins\ngetattr\n(cm\nC\nVD\ntR)\x81."sv, "\x80\4\x8c\1m\x8c\3C.D\x93)\x81."sv,
        "\x80\4\x8c\5torch\x8c\3C.D\x93."sv}) {
    const Result<Bytes> copy = Copy(pickle);
    ASSERT_THAT(copy, FailsWith(ErrorKind::kUnsupported)) << pickle;
    EXPECT_THAT(copy.status().first().message, ::testing::HasSubstr("inside another class"));
  }
}

}  // namespace
}  // namespace ckpt::pickle
