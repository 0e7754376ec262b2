// Where tensors are found, what they are called, and which objects are refused; each object is the
// text of a pickle.
#include "formats/torch_save/internal/entry_walk.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A tensor, as far as a walk looks at one.
const std::string kTensor = "ctorch._utils\n_rebuild_tensor_v2\n)R";

Result<std::vector<std::string>> Keys(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<NamedNode> found, FindTensors(parsed.graph, parsed.root));
  std::vector<std::string> keys;
  for (const NamedNode& named : found) keys.push_back(named.key);
  return keys;
}

Result<std::vector<std::string>> ValueKeys(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  CKPT_ASSIGN_OR_RETURN(const Entries found, FindEntries(parsed.graph, parsed.root));
  std::vector<std::string> keys;
  for (const NamedNode& named : found.list) {
    if (named.is_value) keys.push_back(named.key);
  }
  return keys;
}

Result<EntryPaths> Paths(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  return FindPaths(parsed.graph, parsed.root);
}

// The state of an nn.Module with these entries beside an empty `_modules`.
std::string Module(const std::string& parameters, const std::string& buffers,
                   const std::string& more = "") {
  return "cm\nModule\n)\x81}(V_parameters\n" + parameters + "V_buffers\n" + buffers + more +
         "V_modules\n}ub";
}

TEST(EntryWalkTest, NamesTensorsByTheirPlace) {
  EXPECT_THAT(Keys("K\1."), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Keys(kTensor + "."), IsOkAndHolds(ElementsAre("")));
  EXPECT_THAT(Keys("](N" + kTensor + kTensor + "e."), IsOkAndHolds(ElementsAre("1", "2")));
  EXPECT_THAT(Keys("}(Va\n" + kTensor + "K\3(" + kTensor + "tu."),
              IsOkAndHolds(ElementsAre("a", "3.0")));
  EXPECT_THAT(Keys("ccollections\nOrderedDict\n)RVa\n" + kTensor + "s."),
              IsOkAndHolds(ElementsAre("a")));
  // Python 2 gives it a list of pairs.
  EXPECT_THAT(Keys("ccollections\nOrderedDict\n(](](Va\n" + kTensor + "e](Vb\n" + kTensor +
                   "e](Vc\nNeNetRVd\n" + kTensor + "s."),
              IsOkAndHolds(ElementsAre("a", "b", "d")));
  EXPECT_THAT(Keys("cm\nDictClass\n)\x81Va\n" + kTensor + "s."), IsOkAndHolds(ElementsAre("a")));
  EXPECT_THAT(Keys("cm\nListClass\n)\x81" + kTensor + "a."), IsOkAndHolds(ElementsAre("0")));
  EXPECT_THAT(Keys("cm\nPoint\n)\x81."), IsOkAndHolds(IsEmpty()));
}

// OrderedDict(w=tensor) with the attribute m = 1.
const std::string kStateDict = "ccollections\nOrderedDict\n)R(Vw\n" + kTensor + "u}Vm\nK\1sb";

Result<std::vector<std::string>> AttributeKeys(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  CKPT_ASSIGN_OR_RETURN(const Entries found, FindEntries(parsed.graph, parsed.root));
  std::vector<std::string> keys;
  for (const NamedNode& named : found.attributes) keys.push_back(named.key);
  return keys;
}

TEST(EntryWalkTest, NamesAttributesOfMappingsApart) {
  EXPECT_THAT(AttributeKeys(kStateDict + "."), IsOkAndHolds(ElementsAre("m")));
  const std::string nested = "}Va\n" + kStateDict + "s.";
  EXPECT_THAT(AttributeKeys(nested), IsOkAndHolds(ElementsAre("a.m")));
  EXPECT_THAT(Keys(nested), IsOkAndHolds(ElementsAre("a.w")));
  EXPECT_THAT(ValueKeys(nested), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Paths(nested),
              IsOkAndHolds(Contains(Pair(
                  "a.m", EntryPath{std::string("a"), AttributeName{.name = std::string("m")}}))));
  // A key of the same text.
  EXPECT_THAT(AttributeKeys("}(Va.m\nNVa\n" + kStateDict + "u."),
              IsOkAndHolds(ElementsAre("['a'].m")));
  // Of a mapping without entries they belong to the value, as they do in a value that is whole.
  EXPECT_THAT(AttributeKeys("}Va\nccollections\nOrderedDict\n)R}Vm\nK\1sbs."),
              IsOkAndHolds(IsEmpty()));
  // What another class keeps is its own.
  EXPECT_THAT(AttributeKeys("cm\nDictClass\n)\x81Vw\n" + kTensor + "s}Vm\nK\1sb."),
              IsOkAndHolds(IsEmpty()));
}

Result<OwnClasses> ClassesOf(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  CKPT_ASSIGN_OR_RETURN(Entries found, FindEntries(parsed.graph, parsed.root));
  return std::move(found.own_classes);
}

TEST(EntryWalkTest, NotesClassesOfWhatItTakesApart) {
  const std::string values = "ccollections\ndefaultdict\n(cbuiltins\nlist\ntRVx\nK\1s";
  const Result<OwnClasses> inside = ClassesOf("}(Va\nNVb\n" + values + "Vc\n" + values + "u.");
  ASSERT_THAT(inside, IsOk());
  EXPECT_EQ(inside->count, 2U);
  EXPECT_EQ(inside->first_key, "b");
  EXPECT_NE(inside->first, pickle::kNoNode);
  const Result<OwnClasses> root = ClassesOf("cm\nListClass\n)\x81" + kTensor + "a.");
  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(root->count, 1U);
  EXPECT_EQ(root->first_key, "");
  // Python's own, a module, and what is one value: an empty one, one in a list of values.
  for (const std::string& other :
       {kStateDict + ".", "}Va\n](" + kTensor + "(" + kTensor + "tes.",
        Module("}Vw\n" + kTensor + "s", "}") + ".",
        std::string("}Va\nccollections\ndefaultdict\n(cbuiltins\nlist\ntRs."),
        std::string("}Va\n(ccollections\ndeque\n)RK\1ats.")}) {
    const Result<OwnClasses> none = ClassesOf(other);
    ASSERT_THAT(none, IsOk());
    EXPECT_EQ(none->count, 0U) << other;
  }
}

TEST(EntryWalkTest, AValueThatContainsItselfIsNamed) {
  EXPECT_THAT(ValueKeys("}q\1(Va\nh\1Vw\n" + kTensor + "u."), IsOkAndHolds(ElementsAre("a")));
}

TEST(EntryWalkTest, EntersSharedContainersForEachOfTheirPathsButNoCycle) {
  EXPECT_THAT(Keys("](]q\1" + kTensor + "ah\1e."), IsOkAndHolds(ElementsAre("0.0", "1.0")));
  EXPECT_THAT(Keys("]q\1h\1a" + kTensor + "a."), IsOkAndHolds(ElementsAre("1")));
  EXPECT_THAT(Keys("](]q\1Nah\1e."), IsOkAndHolds(IsEmpty()));
}

TEST(EntryWalkTest, NamesValuesAsTorchsDcpDoes) {
  EXPECT_THAT(ValueKeys("K\1."), IsOkAndHolds(ElementsAre("")));
  EXPECT_THAT(ValueKeys("}."), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ValueKeys(kTensor + "."), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ValueKeys("}(Va\nNVb\n}Vc\nK\1sVd\n}u."), IsOkAndHolds(ElementsAre("b.c", "a", "d")));
  // A list is taken apart for a mapping or a tensor inside it, a tuple for a tensor alone.
  const std::string inner = "}Vx\nK\1s";
  EXPECT_THAT(ValueKeys("}Va\n](K\1K\2]es."), IsOkAndHolds(ElementsAre("a")));
  EXPECT_THAT(ValueKeys("}Va\n](K\1" + inner + "]es."),
              IsOkAndHolds(ElementsAre("a.1.x", "a.2", "a.0")));
  EXPECT_THAT(ValueKeys("}Va\n(K\1" + inner + "ts."), IsOkAndHolds(ElementsAre("a")));
  EXPECT_THAT(ValueKeys("}Va\n(K\1" + kTensor + "ts."), IsOkAndHolds(ElementsAre("a.0")));
  EXPECT_THAT(ValueKeys("}Va\ncm\nPoint\n)\x81}Vx\nK\1sbs."), IsOkAndHolds(ElementsAre("a")));
  // One list under two keys, and a list that holds itself.
  EXPECT_THAT(ValueKeys("}(Va\n](K\1eq\1Vb\nh\1u."), IsOkAndHolds(ElementsAre("a", "b")));
  EXPECT_THAT(ValueKeys("]q\1h\1a."), IsOkAndHolds(ElementsAre("")));
}

TEST(EntryWalkTest, AMappingOfVeryManyValuesIsOneValue) {
  const auto mapping = [](int n) {
    std::string pickle = "}Va\n}(";
    for (int i = 0; i < n; ++i) pickle += "V" + std::to_string(i) + "\nN";
    return ValueKeys(pickle + "us.");
  };
  EXPECT_EQ(mapping(10'000).value().size(), 10'000U);
  EXPECT_THAT(mapping(10'001), IsOkAndHolds(ElementsAre("a")));
}

TEST(EntryWalkTest, TensorsAreNamedWhereValuesAreTooMany) {
  // Forty mappings, each of which has the next one twice.
  std::string pickle = "}(Vw\n" + kTensor + "Vd\n";
  for (int i = 0; i < 40; ++i) pickle += "}(Va\n";
  pickle += "}Vx\nK\1s";
  for (int i = 0; i < 40; ++i) {
    const std::string memo = std::to_string(i) + "\n";
    pickle += "p" + memo + "Vb\ng" + memo + "u";
  }
  pickle += "u.";
  const Result<pickle::ParsedPickle> parsed = pickle::ParsePickle(AsBytes(pickle), "p");
  ASSERT_THAT(parsed, IsOk());
  const Result<Entries> found = FindEntries(parsed->graph, parsed->root);
  ASSERT_THAT(found, IsOk());
  EXPECT_FALSE(found->has_values);
  ASSERT_EQ(found->list.size(), 1U);
  EXPECT_EQ(found->list[0].key, "w");
}

TEST(EntryWalkTest, NamesWhatAModulesStateDictHas) {
  const std::string buffers = "}(Va\n" + kTensor + "Vb\n" + kTensor + "K\7" + kTensor + "u";
  const std::string key = "V_non_persistent_buffers_set\n";
  EXPECT_THAT(Keys(Module("}", buffers) + "."), IsOkAndHolds(ElementsAre("a", "b", "7")));
  // The set as picklers of every protocol write it.
  for (const char* set : {"\x8F(Vb\nK\1\x90", "cbuiltins\nset\n((Vb\nltR", "(Vb\nl"}) {
    EXPECT_THAT(Keys(Module("}", buffers, key + set) + "."), IsOkAndHolds(ElementsAre("a", "7")))
        << set;
  }
  // What is not a set of names names nothing.
  for (const char* set : {"N", "cbuiltins\nset\n)R", "cbuiltins\nset\n(NNtR", "}"}) {
    EXPECT_THAT(Keys(Module("}", buffers, key + set) + "."),
                IsOkAndHolds(ElementsAre("a", "b", "7")))
        << set;
  }
  const std::string inner = Module("}Vw\n" + kTensor + "s", "}");
  EXPECT_THAT(Keys("cm\nModule\n)\x81}(V_parameters\nNV_buffers\n]V_modules\n"
                   "ccollections\nOrderedDict\n)RVlayer\n" +
                   inner + "sub."),
              IsOkAndHolds(ElementsAre("layer.w")));
}

TEST(EntryWalkTest, PathsOfTheSameTextAreSubscripts) {
  EXPECT_THAT(Keys("}(Va.b\n" + kTensor + "Va\n}Vb\n" + kTensor + "sVx.y\n" + kTensor + "u."),
              IsOkAndHolds(ElementsAre("['a.b']", "['a']['b']", "x.y")));
  EXPECT_THAT(Keys("}(K\1" + kTensor + "V1\n" + kTensor + "u."),
              IsOkAndHolds(ElementsAre("[1]", "['1']")));
  EXPECT_THAT(Keys("}(Vl\n](" + kTensor + "eVl.0\n" + kTensor + "u."),
              IsOkAndHolds(ElementsAre("['l'][0]", "['l.0']")));
}

TEST(EntryWalkTest, OtherStatesAreNoModules) {
  const std::string parameters = "V_parameters\n}Va\n" + kTensor + "s";
  const std::vector<std::string> states = {"}(" + parameters + "u",
                                           "}(" + parameters + "V_buffers\n}u", "]", "}"};
  for (const std::string& state : states) {
    EXPECT_THAT(Keys("cm\nC\n)\x81" + state + "b."), IsOkAndHolds(IsEmpty())) << state;
  }
}

TEST(EntryWalkTest, NamesCallsThatNoCheckpointNeeds) {
  EXPECT_THAT(Keys("}Va\ncposix\nsystem\n)Rs."), IsOkAndHolds(ElementsAre("a")));
  EXPECT_THAT(Keys("}Va\ncm\nf\n)R)Rs."), IsOkAndHolds(ElementsAre("a"))) << "of a call's result";
  EXPECT_THAT(Keys("}Va\nctorch\n__\n)Rs."), IsOkAndHolds(ElementsAre("a"))) << "no class";
  EXPECT_THAT(Keys("}Va\nccollections\nCounter\n)Rs."), IsOkAndHolds(IsEmpty()));
}

TEST(EntryWalkTest, RefusesAKeyTwiceAsPythonComparesKeys) {
  const std::vector<std::pair<std::string, std::string>> repeated = {{"Va\n", "Va\n"},
                                                                     {"K\1", "I01\n"},
                                                                     {"K\1", "F1\n"},
                                                                     {"I00\n", "F-0.0\n"},
                                                                     {"I-70000\n", "F-70000\n"}};
  for (const auto& [a, b] : repeated) {
    const Result<std::vector<std::string>> keys = Keys("}(" + a + "N" + b + "Nu.");
    EXPECT_THAT(keys, FailsWith(ErrorKind::kBadMetadata)) << a << b;
    EXPECT_THAT(keys.status().ToString(), HasSubstr("same key twice"));
  }
  EXPECT_THAT(Keys("](N}(Va\nNVa\nNue."), FailsWith(ErrorKind::kBadMetadata)) << "further down";
  const std::vector<std::pair<std::string, std::string>> distinct = {
      {"Va\n", "Vb\n"},         {"K\1", "V1\n"},
      {"K\1", "I00\n"},         {"F1.5\n", "F1.5\n"},
      {"F1e300\n", "F1e300\n"}, {"N", "N"},
      {"F1\n", "K\2"},          {"L9007199254740993L\n", "F9007199254740992\n"}};
  for (const auto& [a, b] : distinct) {
    EXPECT_THAT(Keys("}(" + a + "N" + b + "Nu."), IsOk()) << a << b;
  }
}

TEST(EntryWalkTest, RefusesMoreNamesThanFitInMemory) {
  // One key of 16 MiB before each of n tensors.
  const auto tensors = [](int n) {
    std::string pickle =
        "}\x8D" + std::string("\0\0\0\1\0\0\0\0", 8) + std::string(1 << 24, 'k') + "](";
    for (int i = 0; i < n; ++i) pickle += i == 0 ? kTensor + "q\1" : std::string("h\1");
    return Keys(pickle + "es.");
  };
  EXPECT_THAT(tensors(2), IsOk());
  EXPECT_THAT(tensors(17), FailsWith(ErrorKind::kResource));
}

TEST(EntryWalkTest, TellsWhereEntriesStand) {
  const auto path = [](auto... steps) { return EntryPath{PathStep(steps)...}; };
  const std::string a = "a";
  const std::string one = "1";
  const std::int64_t first = 0;
  const std::int64_t second = 1;
  EXPECT_THAT(Paths(kTensor + "."), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Paths("K\1."), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Paths("](N" + kTensor + "e."),
              IsOkAndHolds(ElementsAre(Pair("0", path(std::string("0"))), Pair("1", path(one)))));
  // A key that is a number is none of a list's positions, and a constant is no text.
  const NumberKey key = {.number = 1};
  EXPECT_THAT(Paths("}(Va\n}K\1](" + kTensor + "NesVb\n}\x88Nsu."),
              IsOkAndHolds(ElementsAre(
                  Pair("a.1.0", path(a, key, first)), Pair("a.1.1", path(a, key, second)),
                  Pair("b.True", path(std::string("b"), ConstantKey::kTrue)))));
  EXPECT_THAT(Paths("}(N}Va\nNs\x89}Va\nNsG\x3F\xF8" + std::string(6, '\0') + "}Va\nNsu."),
              IsOkAndHolds(ElementsAre(Pair("1.5.a", path(std::string("1.5"), a)),
                                       Pair("False.a", path(ConstantKey::kFalse, a)),
                                       Pair("None.a", path(ConstantKey::kNone, a)))));
  // Keys that are the same as text, and still stand apart.
  EXPECT_THAT(Paths("}(Va.a\n" + kTensor + "Va\n}Va\nNsu."),
              IsOkAndHolds(ElementsAre(Pair("['a']['a']", path(a, a)),
                                       Pair("['a.a']", path(std::string("a.a"))))));
  // Modules inside a module are part of its state_dict.
  const std::string inner = Module("}Vw\n" + kTensor + "s", "}");
  const std::string outer =
      "cm\nModule\n)\x81}(V_parameters\n}V_buffers\n}V_modules\n}Va\n" + inner + "sub";
  EXPECT_THAT(Paths("}Va\n" + outer + "s."),
              IsOkAndHolds(ElementsAre(Pair("a.a.w", path(a, std::string("a.w"))))));
}

TEST(EntryWalkTest, FindsWhatIsWholeBehindConstants) {
  // {None: {"x": None}, "None": {"y": None}, True: {"z": None}}
  const std::string pickle = "}(N}Vx\nNsVNone\n}Vy\nNs\x88}Vz\nNsu.";
  const auto parsed = pickle::ParsePickle(AsBytes(pickle), "p");
  ASSERT_THAT(parsed, IsOk());
  const auto keys = [&](const PathStep& step) {
    const std::vector<EntryPath> whole = {{step}};
    const auto found =
        FindEntries(parsed->graph, parsed->root, NodesAt(parsed->graph, parsed->root, whole));
    std::vector<std::string> all;
    for (const NamedNode& named : found->list) all.push_back(named.key);
    return all;
  };
  EXPECT_THAT(keys(ConstantKey::kNone), UnorderedElementsAre("None", "None.y", "True.z"));
  EXPECT_THAT(keys(std::string("None")), UnorderedElementsAre("None.x", "None", "True.z"));
  EXPECT_THAT(keys(ConstantKey::kTrue), UnorderedElementsAre("None.x", "None.y", "True"));
  EXPECT_THAT(keys(ConstantKey::kFalse), UnorderedElementsAre("None.x", "None.y", "True.z"));
}

TEST(EntryWalkTest, TakesNothingApartThatIsWhole) {
  // {"a": {"w": tensor}, "l": [{"v": None}], "n": {1: {"x": None}}}
  const std::string pickle = "}(Va\n}Vw\n" + kTensor + "sVl\n](}Vv\nNseVn\n}K\1}Vx\nNssu.";
  const auto parsed = pickle::ParsePickle(AsBytes(pickle), "p");
  ASSERT_THAT(parsed, IsOk());
  const auto entries = [&](const std::vector<EntryPath>& whole) {
    const auto found =
        FindEntries(parsed->graph, parsed->root, NodesAt(parsed->graph, parsed->root, whole));
    std::vector<std::string> keys;
    for (const NamedNode& named : found->list) {
      keys.push_back(named.key + (named.form == TensorForm::kDense ? " tensor" : ""));
    }
    return keys;
  };
  const std::string a = "a";
  const std::string l = "l";
  EXPECT_THAT(entries({}), UnorderedElementsAre("a.w tensor", "l.0.v", "n.1.x"));
  // A number is a position or a key, as the container has it.
  EXPECT_THAT(entries({{a}, {l, std::int64_t{0}}, {std::string("n"), std::int64_t{1}}}),
              UnorderedElementsAre("a", "l.0", "n.1"));
  EXPECT_THAT(entries({{l}}), UnorderedElementsAre("a.w tensor", "l", "n.1.x"));
  // Places that are not there.
  EXPECT_THAT(entries({{}, {l, std::int64_t{1}}, {l, std::int64_t{-1}}, {l, a}, {a, l}, {a, a, a}}),
              UnorderedElementsAre("a.w tensor", "l.0.v", "n.1.x"));
}

}  // namespace
}  // namespace ckpt::torch_save
