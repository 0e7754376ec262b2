#include "formats/pickle/from_json.h"

#include <string>

#include <gmock/gmock.h>

#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::ckpt::testing::IsOkAndHolds;

Result<std::string> ThereAndBack(const std::string& json) {
  CKPT_ASSIGN_OR_RETURN(const Bytes pickle, PickleFromJson(json, "o"));
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(pickle, "o"));
  return RenderJson(parsed.graph, parsed.root);
}

TEST(FromJsonTest, IsTheWayBackFromEveryValueThatTheTextSaysInFull) {
  for (const char* json : {
           R"(null)",
           R"([true,false,0,-1,255,65536,-70000,9007199254740992,0.1,1.0,-0.0,1e+300,"é","$a"])",
           R"({"$int":"9007199254740993"})",
           R"({"$int":"-9007199254740993"})",
           R"({"$int":"18446744073709551616"})",
           R"({"$int":"-340282366920938463463374607431768211456"})",
           R"([{"$float":"nan"},{"$float":"inf"},{"$float":"-inf"}])",
           R"({"b":{"z":1,"a":[]},"a":{}})",
           R"({"$dict":[[1,"a"],[{"$tuple":[0,"b"]},null],["$c",{"$dict":[[2,3]]}]]})",
           R"({"$ordered_dict":[["b",1],["a",{"$ordered_dict":[]}]]})",
           R"([{"$tuple":[]},{"$tuple":[1,{"$tuple":[2]}]},{"$set":[1,2]},{"$frozenset":["a"]}])",
           R"([{"$bytes":""},{"$bytes":"00ff80"},{"$bytearray":"0102"},{"$complex":[1.0,-2.5]}])",
           R"([{"$size":[2,3]},{"$dtype":"bfloat16"},{"$device":"cuda:1"},{"$layout":"strided"}])",
           R"({"$numpy_scalar":{"dtype":"<f8","bytes":"000000000000f03f"}})",
           R"({"$object":{"class":"argparse.Namespace","state":{"lr":0.5,"a":[{"$tuple":[]}]}}})",
           R"({"$object":{"class":"types.SimpleNamespace","state":{"lr":0.5}}})",
           R"({"$object":{"class":"pathlib.PosixPath","state":{"parts":["/","tmp","x"]}}})",
           R"({"$object":{"class":"megatron.core.enums.ModelType","state":{"value":1}}})",
           R"({"$object":{"class":"signal.Signals","state":{"value":15}}})",
       }) {
    EXPECT_THAT(ThereAndBack(json), IsOkAndHolds(json));
  }
}

TEST(FromJsonTest, RefusesWhatTheTextDoesNotSay) {
  for (const char* json : {
           R"([{"$tensor":{"shape":[1],"dtype":"float32","sha256":"00"}}])",
           R"({"a":{"$numpy_array":{"dtype":"<u4","shape":[1],"sha256":"00"}}})",
           R"({"$opaque":"io.BytesIO"})",
           R"({"$object":{"class":"datetime.date","state":{"isoformat":"2026-01-01"}}})",
           R"({"$dtype":"qint8"})",
       }) {
    EXPECT_THAT(PickleFromJson(json, "o"), FailsWith(ErrorKind::kUnsupported)) << json;
  }
  for (const char* json :
       {"", "{", R"({"$bytes":"0"})", R"({"$bytes":"0g"})", R"({"$new":1})", R"({"$dict":[[1]]})",
        R"({"$tuple":1})", R"({"$object":{}})", R"({"a":1,"a":2})"}) {
    EXPECT_THAT(PickleFromJson(json, "o"), FailsWith(ErrorKind::kBadMetadata)) << json;
  }
}

// A text from a stranger must not become a pickle that runs what the stranger names.
TEST(FromJsonTest, CallsNothingThatATextNames) {
  for (const char* name :
       {"os.system", "posix.system", "subprocess.Popen", "builtins.eval", "builtins.Eval",
        "torch.load", "torch.hub.load", "pathlib.os.system", "numpy.memmap", "torch.FileStore",
        "megatron.core.enums.system", "megatron.core.utils.Timer", "Popen", ""}) {
    const std::string json =
        std::string(R"({"$object":{"class":")") + name + R"(","state":{"value":"ls"}}})";
    EXPECT_THAT(PickleFromJson(json, "o"), FailsWith(ErrorKind::kUnsupported)) << name;
  }
}

// The values of tensors of one number may be known from elsewhere.
TEST(FromJsonTest, KnowsWhetherATextSaysAllWithNumbersBesideIt) {
  const std::string text =
      R"({"step":{"$tensor":{"shape":[],"dtype":"float32","sha256":"ab"}},"lr":0.5})";
  EXPECT_THAT(CheckSaysAll(text, "o", {}), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(CheckSaysAll(text, "o", {{{DType::kFloat32, "ab"}, 3.0}}), IsOk());
  EXPECT_THAT(CheckSaysAll(text, "o", {{{DType::kInt64, "ab"}, 3.0}}),
              FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(CheckSaysAll(text, "o", {{{DType::kFloat32, "cd"}, 3.0}}),
              FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(CheckSaysAll(R"({"lr":0.5})", "o", {}), IsOk());
}

}  // namespace
}  // namespace ckpt::pickle
