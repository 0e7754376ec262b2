// Lowered tables against index formulas written out by hand.

#include "core/layout/compose.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/core/layout/apply_nest.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Pairwise different extents, so that no swap can hide.
constexpr std::int64_t kL = 2, kG = 3, kJ = 4, kD = 6, kH = 5, kF = 7, kE = 9, kV = 11;

constexpr std::string_view kTable = R"(
family test
dim l = 2
dim g = 3
dim j = 4
dim d = 6
dim r = 2
dim p = d / 2
dim h = 5
dim f = 7
dim e = 9
dim v = 11
dim pad = padded - 11 min 0
split d = r p
logical embed [v h]
logical q  [l g j d h]
logical k  [l g d h]
logical vv [l g d h]
logical gate [l e f h]
logical up   [l e f h]
logical down [l e h f]

naming hf
  choice experts one | fused
  embed : v h = embed
  <l>.q : (g j d) h = q
  <l>.k : (g d) h = k
  <l>.v : (g d) h = vv
  <l>.<e>.gate : f h = gate when experts == "one"
  <l>.<e>.up   : f h = up when experts == "one"
  <l>.<e>.down : h f = down when experts == "one"
  <l>.gate_up : e ({gate | up} f) h when experts == "fused"
  <l>.down : e h f = down when experts == "fused"

naming megatron
  embed : {embed: v | zero: pad} h
  qkv.<l> : (g {q: j | k | vv} d) h
  fc1.<l>.weight<e> : ({gate | up} f) h
  fc2.<l>.weight<e> : h f = down

naming stacked
  embed : {embed: v | zero: pad} h
  qkv : l (g {q: j | k | vv} d) h
  fc1 : l e ({gate | up} f) h
  fc2 : l e h f = down

# Meta's pairwise rotary order; gpt-oss's interleaved, transposed experts.
naming meta
  embed : h v = embed
  wq.<l+1> : (g j p r) h = q
  wk.<l+1> : (g p r) h = k
  wv.<l+1> : (g d) h = vv
  <l>.gate_up : e h (f {gate | up})
  <l>.down : e f h = down
)";

using Values = std::vector<std::int32_t>;

struct Model {
  ResolvedLayout layout;
  std::map<std::string, Values> tensors;
  const Values& at(const std::string& name) const { return tensors.at(name); }
};

class ComposeTest : public ::testing::Test {
 protected:
  ComposeTest() : table_(ParseLayoutTable(kTable, "table").value()) {}

  ResolvedLayout Layout(std::string_view naming, const Choices& choices = {}) const {
    const auto layout = ResolveExactly(table_, naming, {{"padded", 16}}, choices);
    EXPECT_THAT(layout, IsOk());
    return *layout;
  }

  Model RandomModel(std::string_view naming) const {
    Model model{Layout(naming), {}};
    std::mt19937_64 rng(7);
    for (const ResolvedTensor& tensor : model.layout.tensors) {
      Values values(static_cast<std::size_t>(NumElements(tensor.shape)));
      for (std::int32_t& value : values) value = static_cast<std::int32_t>(rng() >> 33) + 1;
      model.tensors[tensor.name] = std::move(values);
    }
    return model;
  }

  static Model Convert(const Model& source, const ResolvedLayout& target) {
    const auto composition = Compose(source.layout, target);
    EXPECT_THAT(composition, IsOk());
    Model model{target, {}};
    for (std::size_t t = 0; t < target.tensors.size(); ++t) {
      const ResolvedTensor& tensor = target.tensors[t];
      Bytes bytes(static_cast<std::size_t>(NumElements(tensor.shape)) * 4);
      for (const Nest& nest : composition->nests[t]) {
        if (nest.is_zero_fill()) continue;
        const ResolvedTensor& from = source.layout.tensors[nest.source];
        testing::ApplyNest(nest, std::as_bytes(std::span(source.at(from.name))), from.shape, bytes,
                           tensor.shape, 4);
      }
      Values values(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      model.tensors[tensor.name] = std::move(values);
    }
    return model;
  }

  LayoutTable table_;
};

std::size_t At(std::int64_t row, std::int64_t width, std::int64_t column) {
  return static_cast<std::size_t>(row * width + column);
}

TEST_F(ComposeTest, InterleavesQueriesKeysAndValuesByGroup) {
  const Model hf = RandomModel("hf");
  const Model megatron = Convert(hf, Layout("megatron"));
  for (std::int64_t l = 0; l < kL; ++l) {
    const std::string n = std::to_string(l);
    for (std::int64_t group = 0; group < kG; ++group) {
      for (std::int64_t s = 0; s < kJ + 2; ++s) {
        for (std::int64_t delta = 0; delta < kD; ++delta) {
          for (std::int64_t c = 0; c < kH; ++c) {
            const std::int64_t row = (group * (kJ + 2) + s) * kD + delta;
            const std::int32_t want =
                s < kJ    ? hf.at(n + ".q")[At((group * kJ + s) * kD + delta, kH, c)]
                : s == kJ ? hf.at(n + ".k")[At(group * kD + delta, kH, c)]
                          : hf.at(n + ".v")[At(group * kD + delta, kH, c)];
            ASSERT_EQ(megatron.at("qkv." + n)[At(row, kH, c)], want);
          }
        }
      }
    }
  }
}

TEST_F(ComposeTest, StacksLayersAndExpertsAndConcatenatesGateAndUp) {
  const Model hf = RandomModel("hf");
  const Model stacked = Convert(hf, Layout("stacked"));
  for (std::int64_t l = 0; l < kL; ++l) {
    for (std::int64_t e = 0; e < kE; ++e) {
      const std::string n = std::to_string(l) + "." + std::to_string(e);
      for (std::int64_t f = 0; f < kF; ++f) {
        for (std::int64_t c = 0; c < kH; ++c) {
          const std::int64_t expert = (l * kE + e) * 2 * kF;
          ASSERT_EQ(stacked.at("fc1")[At(expert + f, kH, c)], hf.at(n + ".gate")[At(f, kH, c)]);
          ASSERT_EQ(stacked.at("fc1")[At(expert + kF + f, kH, c)], hf.at(n + ".up")[At(f, kH, c)]);
          ASSERT_EQ(stacked.at("fc2")[At((l * kE + e) * kH + c, kF, f)],
                    hf.at(n + ".down")[At(c, kF, f)]);
        }
      }
    }
  }
}

TEST_F(ComposeTest, PermutesRotaryPairsAndTransposesInterleavedExperts) {
  const Model hf = RandomModel("hf");
  const Model meta = Convert(hf, Layout("meta"));
  for (std::int64_t l = 0; l < kL; ++l) {
    const std::string n = std::to_string(l);
    const std::string plus = std::to_string(l + 1);
    for (std::int64_t a = 0; a < kG * kJ; ++a) {
      for (std::int64_t r = 0; r < 2; ++r) {
        for (std::int64_t p = 0; p < kD / 2; ++p) {
          for (std::int64_t c = 0; c < kH; ++c) {
            ASSERT_EQ(hf.at(n + ".q")[At(a * kD + r * (kD / 2) + p, kH, c)],
                      meta.at("wq." + plus)[At(a * kD + 2 * p + r, kH, c)]);
          }
        }
      }
    }
    EXPECT_EQ(hf.at(n + ".v"), meta.at("wv." + plus));
    for (std::int64_t e = 0; e < kE; ++e) {
      const std::string expert = n + "." + std::to_string(e);
      for (std::int64_t f = 0; f < kF; ++f) {
        for (std::int64_t c = 0; c < kH; ++c) {
          ASSERT_EQ(meta.at(n + ".gate_up")[At(e * kH + c, 2 * kF, 2 * f)],
                    hf.at(expert + ".gate")[At(f, kH, c)]);
          ASSERT_EQ(meta.at(n + ".gate_up")[At(e * kH + c, 2 * kF, 2 * f + 1)],
                    hf.at(expert + ".up")[At(f, kH, c)]);
          ASSERT_EQ(meta.at(n + ".down")[At(e * kF + f, kH, c)],
                    hf.at(expert + ".down")[At(c, kF, f)]);
        }
      }
    }
  }
}

TEST_F(ComposeTest, EveryPairOfLayoutsComesBackToTheOrigin) {
  const std::vector<std::pair<std::string, Choices>> forms = {
      {"hf", {}}, {"hf", {{"experts", "fused"}}}, {"megatron", {}}, {"stacked", {}}, {"meta", {}}};
  for (const auto& [a, a_choices] : forms) {
    const Model origin = Convert(RandomModel("hf"), Layout(a, a_choices));
    for (const auto& [b, b_choices] : forms) {
      SCOPED_TRACE(a + " to " + b);
      const Model there = Convert(origin, Layout(b, b_choices));
      EXPECT_EQ(Convert(there, origin.layout).tensors, origin.tensors);
    }
  }
}

TEST_F(ComposeTest, FillsThePaddingWithZerosAndDropsItOnTheWayBack) {
  const Model hf = RandomModel("hf");
  const Model megatron = Convert(hf, Layout("megatron"));
  const Values& padded = megatron.at("embed");
  ASSERT_EQ(padded.size(), static_cast<std::size_t>(16 * kH));
  EXPECT_TRUE(std::equal(hf.at("embed").begin(), hf.at("embed").end(), padded.begin()));
  EXPECT_TRUE(std::all_of(padded.begin() + kV * kH, padded.end(), [](auto x) { return x == 0; }));
}

TEST_F(ComposeTest, KeepsContiguousRunsLong) {
  const auto composition = Compose(Layout("hf"), Layout("megatron"));
  ASSERT_THAT(composition, IsOk());
  for (const auto& nests : composition->nests) {
    for (const Nest& nest : nests) EXPECT_LE(nest.loops.size(), 3U) << FormatNest(nest);
  }
}

TEST(ComposeErrors, RefusesLayoutsOfDifferentModels) {
  const auto table =
      ParseLayoutTable("family t\ndim a = size\nlogical x [a]\nnaming f\nt : a = x\n", "t");
  ASSERT_THAT(table, IsOk());
  const auto small = ResolveExactly(*table, "f", {{"size", 2}}, {});
  const auto large = ResolveExactly(*table, "f", {{"size", 3}}, {});
  EXPECT_THAT(Compose(*small, *large), FailsWith(ErrorKind::kUnsupported));
}

struct WrongTable {
  const char* name;
  const char* rules;
  ErrorKind want;
};
void PrintTo(const WrongTable& c, std::ostream* os) { *os << c.name; }
class WrongTableTest : public ::testing::TestWithParam<WrongTable> {};

TEST_P(WrongTableTest, IsRejectedWhenItIsResolved) {
  const auto table = ParseLayoutTable(
      std::string("family t\ndim l = 3\ndim f = 2\nlogical gate [l f]\nlogical up [l f]\n"
                  "logical odd [l f] when l % 2 == 1\nnaming f\n") +
          GetParam().rules,
      "t");
  ASSERT_THAT(table, IsOk());
  EXPECT_THAT(ResolveExactly(*table, "f", {}, {}), FailsWith(GetParam().want));
}

INSTANTIATE_TEST_SUITE_P(
    Tables, WrongTableTest,
    ::testing::Values(
        WrongTable{"GateTwice", "a.<l> : ({gate | gate} f)\nb.<l> : f = odd\n",
                   ErrorKind::kOverlap},
        WrongTable{"MissingLine", "a.<l> : f = gate\nb.<l> : f = odd\n", ErrorKind::kCoverage},
        WrongTable{"LineTwice", "a.<l> : ({gate | up} f)\nc.<l> : f = up\nb.<l> : f = odd\n",
                   ErrorKind::kOverlap},
        WrongTable{"PartOfALayerRange", "a.<l> : ({gate | up} f) when l > 0\nb.<l> : f = odd\n",
                   ErrorKind::kCoverage},
        WrongTable{"StackOfUnlikeLayers", "a.<l> : ({gate | up} f)\nb : l f = odd\n",
                   ErrorKind::kUnsupported},
        WrongTable{"FusedWithAnAbsentOne", "a.<l> : ({gate | up | odd} f)\n",
                   ErrorKind::kBadMetadata}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ResolveOrder, IsLayerByLayer) {
  const auto table = ParseLayoutTable(
      "family t\ndim l = 2\ndim e = 2\ndim f = 2\nlogical a [l f]\nlogical b [l e f]\n"
      "logical c [l e f]\nnaming f\n"
      "a.<l> : f = a\nb.<l>.<e> : f = b\nc.<l>.<e> : f = c\n",
      "t");
  ASSERT_THAT(table, IsOk());
  const auto layout = ResolveExactly(*table, "f", {}, {});
  ASSERT_THAT(layout, IsOk());
  std::vector<std::string> names;
  for (const ResolvedTensor& tensor : layout->tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.0", "b.0.0", "c.0.0", "b.0.1", "c.0.1", "a.1",
                                             "b.1.0", "c.1.0", "b.1.1", "c.1.1"}));
}

// A rule that never applies costs time for each number.
TEST(Resolve, RefusesNumbersThatTakeForever) {
  const auto table = ParseLayoutTable(
      "family t\ndim l = layers\ndim e = experts\ndim f = 2\nlogical a [l e f]\nnaming f\n"
      "a : l e f = a\na.<l>.<e> : f = a when layers < 0\n",
      "t");
  ASSERT_THAT(table, IsOk());
  EXPECT_THAT(ResolveExactly(*table, "f", {{"layers", 1000}, {"experts", 1000}}, {}), IsOk());
  EXPECT_THAT(ResolveExactly(*table, "f", {{"layers", 1 << 20}, {"experts", 1 << 20}}, {}),
              FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::layout
