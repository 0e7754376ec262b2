// What objects of classes become in JSON, each given as the text of a pickle: known ones by their
// value, all others by name.
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::ckpt::testing::IsOkAndHolds;
using namespace std::string_literals;

Result<std::string> RenderCall(std::string_view pickle, const RenderOptions& options = {}) {
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(AsBytes(pickle), "o"));
  return RenderJson(parsed.graph, parsed.root, options);
}

std::string Opaque(const std::string& name) { return R"({"$opaque":")" + name + R"("})"; }

struct CallCase {
  const char* name;
  std::string pickle;
  std::string json;
};
void PrintTo(const CallCase& c, std::ostream* os) { *os << c.name; }

class ObjectJsonCallsTest : public ::testing::TestWithParam<CallCase> {};

TEST_P(ObjectJsonCallsTest, BecomesItsValueOrItsName) {
  EXPECT_THAT(RenderCall(GetParam().pickle), IsOkAndHolds(GetParam().json));
}

const auto kNameOf = [](const auto& test) { return std::string(test.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Known, ObjectJsonCallsTest,
    ::testing::Values(
        CallCase{"Bytes", "\x80\x04\x43\x02\x01\xFF.", R"({"$bytes":"01ff"})"},
        CallCase{"ByteArray", "\x80\x05\x96\x01\0\0\0\0\0\0\0a."s, R"({"$bytearray":"61"})"},
        CallCase{"ByteArrayByCall", "cbuiltins\nbytearray\n)R.", R"({"$bytearray":""})"},
        CallCase{"Set", "\x80\x04\x8F(K\x02K\x01\x90.", R"({"$set":[1,2]})"},
        CallCase{"FrozenSet", "\x80\x04(K\x01\x91.", R"({"$frozenset":[1]})"},
        CallCase{"Complex", "cbuiltins\ncomplex\n(F1.5\nFnan\ntR.",
                 R"({"$complex":[1.5,{"$float":"nan"}]})"},
        CallCase{"NegativeInfinity", "F-inf\n.", R"({"$float":"-inf"})"},
        CallCase{"LargeNegative", "I-9007199254740993\n.", R"({"$int":"-9007199254740993"})"},
        CallCase{"LeastPlainInt", "I-9007199254740992\n.", "-9007199254740992"},
        CallCase{"EnumA", "ctorch\nA\n(K\1tR.",
                 R"({"$object":{"class":"torch.A","state":{"value":1}}})"},
        CallCase{"EnumZ", "ctorch\nZ\n(K\1tR.",
                 R"({"$object":{"class":"torch.Z","state":{"value":1}}})"},
        CallCase{"OrderedDict", "ccollections\nOrderedDict\n)RI1\nNsVa\nNs.",
                 R"({"$ordered_dict":[[1,null],["a",null]]})"},
        CallCase{"DeviceWithoutIndex", "ctorch\ndevice\n(Vcpu\ntR.", R"({"$device":"cpu"})"},
        CallCase{"Layout", "ctorch.serialization\n_get_layout\n(Vtorch.strided\ntR.",
                 R"({"$layout":"strided"})"},
        CallCase{"LayoutWithoutModule", "ctorch.serialization\n_get_layout\n(Vjagged\ntR.",
                 R"({"$layout":"jagged"})"},
        CallCase{"PathOfPython313", "cpathlib._local\nPosixPath\n(Va\ntR.",
                 R"({"$object":{"class":"pathlib.PosixPath","state":{"parts":["a"]}}})"},
        CallCase{"NamespaceWithoutState", "cargparse\nNamespace\n)\x81.",
                 R"({"$object":{"class":"argparse.Namespace","state":{}}})"},
        CallCase{"SimpleNamespace", "ctypes\nSimpleNamespace\n)R}Va\nNsb.",
                 R"({"$object":{"class":"types.SimpleNamespace","state":{"a":null}}})"},
        CallCase{"SimpleNamespaceByNewObj", "ctypes\nSimpleNamespace\n)\x81}b.",
                 R"({"$object":{"class":"types.SimpleNamespace","state":{}}})"},
        CallCase{"EnumOfInt", "csignal\nSignals\n(K\x0FtR.",
                 R"({"$object":{"class":"signal.Signals","state":{"value":15}}})"},
        CallCase{
            "EnumOfText", "cmegatron.core\nOuter._Backend\n(Vauto\ntR.",
            R"({"$object":{"class":"megatron.core.Outer._Backend","state":{"value":"auto"}}})"}),
    kNameOf);

// Values that only look like known ones.
INSTANTIATE_TEST_SUITE_P(
    Opaque, ObjectJsonCallsTest,
    ::testing::Values(
        CallCase{"OrderedDictOfAList", "ccollections\nOrderedDict\n(]tR.",
                 Opaque("collections.OrderedDict")},
        CallCase{"SizeOfNothing", "ctorch\nSize\n)R.", Opaque("torch.Size")},
        CallCase{"SizeOfAnInt", "ctorch\nSize\n(K\x01tR.",
                 R"({"$object":{"class":"torch.Size","state":{"value":1}}})"},
        CallCase{"SizeOfAList", "ctorch\nSize\n(]tR.", Opaque("torch.Size")},
        CallCase{"DeviceOfNothing", "ctorch\ndevice\n)R.", Opaque("torch.device")},
        CallCase{"LayoutOfNothing", "ctorch.serialization\n_get_layout\n)R.",
                 Opaque("torch.serialization._get_layout")},
        CallCase{"LayoutOfANumber", "ctorch.serialization\n_get_layout\n(K\x01tR.",
                 Opaque("torch.serialization._get_layout")},
        CallCase{"NamespaceWithAListAsState", "cargparse\nNamespace\n)\x81]b.",
                 Opaque("argparse.Namespace")},
        CallCase{"SimpleNamespaceOfValues", "ctypes\nSimpleNamespace\n(K\x01tR.",
                 Opaque("types.SimpleNamespace")},
        CallCase{"SimpleNamespaceWithAListAsState", "ctypes\nSimpleNamespace\n)R]b.",
                 Opaque("types.SimpleNamespace")},
        CallCase{"InstanceOfAnotherClass", "cm\nPoint\n)\x81}b.", Opaque("m.Point")},
        CallCase{"EnumOfTwoValues", "csignal\nSignals\n(K\x01K\x02tR.", Opaque("signal.Signals")},
        CallCase{"EnumOfAFloat", "csignal\nSignals\n(F1\ntR.", Opaque("signal.Signals")},
        CallCase{"EnumWithState", "csignal\nSignals\n(K\x01tR}b.", Opaque("signal.Signals")},
        CallCase{"EnumWithItems", "csignal\nSignals\n(K\x01tRNa.", Opaque("signal.Signals")},
        CallCase{"EnumWithEntries", "csignal\nSignals\n(K\x01tRNNs.", Opaque("signal.Signals")},
        CallCase{"FunctionOfOneValue", "cfunctools\npartial\n(K\x01tR.",
                 Opaque("functools.partial")},
        CallCase{"NameOfUnderscores", "ctorch\n__\n(K\x01tR.", Opaque("torch.__")},
        CallCase{"NameThatStartsWithADigit", "ctorch\n1A\n(K\x01tR.", Opaque("torch.1A")},
        CallCase{"UnknownClassOfOneValue", "cm\nColor\n(K\x01tR.", Opaque("m.Color")},
        CallCase{"ClassOfTheStandardLibrary", "cdecimal\nDecimal\n(V1\ntR.",
                 Opaque("decimal.Decimal")},
        CallCase{"CallOfACall", "cm\nf\n)R)R.", Opaque("call")},
        CallCase{"ReconstructedObject",
                 "ccopyreg\n_reconstructor\n(cm\nPoint\ncbuiltins\nobject\nNtR.",
                 Opaque("m.Point")},
        CallCase{"ReconstructorOfNothing", "ccopyreg\n_reconstructor\n)R.",
                 Opaque("copyreg._reconstructor")},
        CallCase{"TensorSubclass",
                 "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_f\ncm\nMyTensor\n)NtR.",
                 Opaque("m.MyTensor")},
        CallCase{"TensorSubclassOfNothing", "ctorch._tensor\n_rebuild_from_type_v2\n(NtR.",
                 Opaque("torch._tensor._rebuild_from_type_v2")},
        CallCase{"NumpyArrayOfObjects", "cnumpy.core.multiarray\n_reconstruct\n)R.",
                 Opaque("numpy.ndarray")},
        CallCase{"Storage", "(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nK\x01tQ.",
                 Opaque("torch.FloatStorage")},
        CallCase{"PersistentIdWithoutClass", "(Vstorage\ntQ.", Opaque("persistent id")},
        CallCase{"PersistentIdOfText", "Vx\nQ.", Opaque("persistent id")},
        CallCase{"Function", "cm\nf\n.", Opaque("m.f")}),
    kNameOf);

TEST(ObjectJsonTest, KnowsTheDtypesOfTorch) {
  for (const char* name : {"float32", "qint8", "bits16", "bits1x8", "int1", "int7", "uint3"}) {
    EXPECT_THAT(RenderCall("ctorch\n"s + name + "\n."),
                IsOkAndHolds(R"({"$dtype":")"s + name + R"("})"));
  }
  for (const char* name : {"int0", "int9", "int10", "interp", "uintx", "bits1x80", "Tensor"}) {
    EXPECT_THAT(RenderCall("ctorch\n"s + name + "\n."), IsOkAndHolds(Opaque("torch."s + name)));
  }
  EXPECT_THAT(RenderCall("cm\nfloat32\n."), IsOkAndHolds(Opaque("m.float32")));
}

// Options under which every tensor has the same digest.
RenderOptions WithDigest(const std::optional<TensorDigest>& digest) {
  RenderOptions options;
  options.tensor = [=](NodeId /*node*/) -> Result<std::optional<TensorDigest>> { return digest; };
  return options;
}

TEST(ObjectJsonTest, ShowsTensorsByTheirDigest) {
  const RenderOptions options =
      WithDigest(TensorDigest{.shape = {2, 3}, .dtype = DType::kBfloat16, .sha256 = "ab"});
  const std::string shown = R"("shape":[2,3],"dtype":"bfloat16","sha256":"ab")";
  const auto parameter = [](const std::string& function, const std::string& args) {
    return "ctorch._utils\n" + function + "\n(ctorch._utils\n_rebuild_tensor_v2\n)R" + args + "tR.";
  };
  EXPECT_THAT(RenderCall("ctorch._utils\n_rebuild_tensor_v2\n)R.", options),
              IsOkAndHolds(R"({"$tensor":{)" + shown + "}}"));
  EXPECT_THAT(RenderCall(parameter("_rebuild_parameter", "\x88"), options),
              IsOkAndHolds(R"({"$parameter":{)" + shown + R"(,"requires_grad":true}})"));
  EXPECT_THAT(RenderCall(parameter("_rebuild_parameter_with_state", "\x89N"), options),
              IsOkAndHolds(R"({"$parameter":{)" + shown + R"(,"requires_grad":false}})"));
  EXPECT_THAT(RenderCall("ctorch._tensor\n_rebuild_from_type_v2\n(Ncm\nTensor\n)NtR.", options),
              IsOkAndHolds(Opaque("m.Tensor")));
  EXPECT_THAT(RenderCall("ctorch._tensor\n_rebuild_from_type_v2\n(Nctorch\nTensor\n)NtR.", options),
              IsOkAndHolds(R"({"$tensor":{)" + shown + "}}"));
  // Parameters that do not say whether they want a gradient are not parameters.
  for (const char* args : {"", "K\x01"}) {
    EXPECT_THAT(RenderCall(parameter("_rebuild_parameter", args), options),
                IsOkAndHolds(Opaque("torch.Tensor")));
  }
  EXPECT_THAT(RenderCall("ctorch._utils\n_rebuild_tensor_v2\n)R.", WithDigest(std::nullopt)),
              IsOkAndHolds(Opaque("torch.Tensor")));
}

TEST(ObjectJsonTest, DigestsATensorOnceHoweverOftenItIsReferredTo) {
  int digested = 0;
  RenderOptions options;
  options.tensor = [&](NodeId) -> Result<std::optional<TensorDigest>> {
    ++digested;
    return std::optional(TensorDigest{.shape = {}, .dtype = DType::kInt8, .sha256 = "ab"});
  };
  const std::string shown = R"({"$tensor":{"shape":[],"dtype":"int8","sha256":"ab"}})";
  EXPECT_THAT(RenderCall("ctorch._utils\n_rebuild_tensor_v2\n)Rq\0000](h\0h\0h\0e."s, options),
              IsOkAndHolds("[" + shown + "," + shown + "," + shown + "]"));
  EXPECT_EQ(digested, 1);
}

TEST(ObjectJsonTest, ADamagedTensorIsAnErrorOfTheWholeObject) {
  RenderOptions options;
  options.tensor = [](NodeId) -> Result<std::optional<TensorDigest>> {
    return Error(ErrorKind::kChecksum, "flipped");
  };
  EXPECT_THAT(RenderCall("](Nctorch._utils\n_rebuild_tensor_v2\n)Re.", options),
              FailsWith(ErrorKind::kChecksum));
}

TEST(ObjectJsonTest, NamesTypesAsPythonDoes) {
  const auto type = [](std::string_view pickle) -> std::string {
    const Result<ParsedPickle> parsed = ParsePickle(AsBytes(pickle), "o");
    EXPECT_THAT(parsed, IsOk());
    return PythonTypeName(parsed->graph, parsed->root);
  };
  EXPECT_EQ(type("N."), "NoneType");
  EXPECT_EQ(type("\x80\x02\x88."), "bool");
  EXPECT_EQ(type("I-1\n."), "int");
  EXPECT_EQ(type("L36893488147419103232L\n."), "int");
  EXPECT_EQ(type("F1\n."), "float");
  EXPECT_EQ(type("Va\n."), "str");
  EXPECT_EQ(type("\x80\x04\x43\x01\x61."), "bytes");
  EXPECT_EQ(type("c_codecs\nencode\n(Va\nVlatin1\ntR."), "bytes");
  EXPECT_EQ(type("\x80\x05\x96\0\0\0\0\0\0\0\0."s), "bytearray");
  EXPECT_EQ(type(")."), "tuple");
  EXPECT_EQ(type("]."), "list");
  EXPECT_EQ(type("}."), "dict");
  EXPECT_EQ(type("\x80\x04\x8F."), "set");
  EXPECT_EQ(type("\x80\x04(\x91."), "frozenset");
  EXPECT_EQ(type("ctorch\nfloat8_e4m3fn\n."), "dtype");
  EXPECT_EQ(type("ctorch\nTensor\n."), "type");
  EXPECT_EQ(type("cm\nfloat32\n."), "type");
  EXPECT_EQ(type("ctorch.serialization\n_get_layout\n)R."), "layout");
  EXPECT_EQ(type("cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(Vu1\ntRc_codecs\nencode\n"
                 "(Va\nVlatin1\ntRtR."),
            "numpy scalar");
  EXPECT_EQ(type("ctorch._utils\n_rebuild_parameter\n)R."), "Parameter");
  EXPECT_EQ(type("ctorch._utils\n_rebuild_parameter_with_state\n)R."), "Parameter");
  EXPECT_EQ(type("ctorch._utils\n_rebuild_tensor_v2\n)R."), "Tensor");
  EXPECT_EQ(type("cargparse\nNamespace\n)\x81."), "Namespace");
  EXPECT_EQ(type("(Vstorage\nctorch\nFloatStorage\ntQ."), "FloatStorage");
}

}  // namespace
}  // namespace ckpt::pickle
