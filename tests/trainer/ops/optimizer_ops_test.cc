#include <cmath>
#include <limits>

#include "core/tensor/cast.h"
#include "tests/conformance/ops_suite.h"

namespace ckpt::trainer {
namespace {

// Weights, gradients and what torch 2.15.0 made of them in 20 steps:
//
//   p = torch.nn.Parameter(torch.tensor([(i % 5 - 2) / 4.0 for i in range(7)]))
//   o = torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)  # and Adam
//   o = torch.optim.SGD([p], lr=1e-2, momentum=0.9, weight_decay=0.1)  # and momentum=0
//   for step in range(1, 21):
//       p.grad = torch.tensor([((i * 37 + step * 11) % 17 - 8) / 8.0 for i in range(7)])
//       o.step()
constexpr int kSteps = 20;
constexpr std::int64_t kSize = 7;

Values StartWeights() { return {-0.5, -0.25, 0, 0.25, 0.5, -0.5, -0.25}; }

// Of update number `step` with these rates; SGD reads only lr.
UpdateScalars UpdateOf(double lr, double beta1 = 0.9, double beta2 = 0.999, int step = 1) {
  return {.lr = lr,
          .correction1 = 1 - std::pow(beta1, step),
          .root_correction2 = std::sqrt(1 - std::pow(beta2, step))};
}

Values GradientOf(int step) {
  Values gradient;
  for (int i = 0; i < kSize; ++i) gradient.push_back(((i * 37 + step * 11) % 17 - 8) / 8.0);
  return gradient;
}

Values RoundedToBf16(Values values) {
  for (double& value : values) value = FromBf16Bits(ToBf16Bits(static_cast<float>(value)));
  return values;
}

TEST_P(OpsSuite, AdamWFollowsTorch) {
  const struct {
    const char* name;
    bool decoupled;
    Values weights;
    Values exp_avg;
    Values exp_avg_sq;
  } cases[] = {
      {"AdamW",
       true,
       {-0.5287007689476013, -0.25966155529022217, 0.011974632740020752, 0.2651199698448181,
        0.5135526657104492, -0.48588863015174866, -0.25945982336997986},
       {0.021745657548308372, -0.01208252739161253, -0.10045778006315231, 0.06146548315882683,
        -0.07333022356033325, 0.06998354941606522, -0.11639042943716049},
       {0.25662073493003845, 0.24023942649364471, 0.23636317253112793, 0.23064850270748138,
        0.24258124828338623, 0.24308271706104279, 0.25266432762145996}},
      {"Adam",
       false,
       {-0.523175835609436, -0.25704601407051086, 0.011862611398100853, 0.2624881863594055,
        0.5091964602470398, -0.48023390769958496, -0.25669950246810913},
       {-0.024556029587984085, -0.034742020070552826, -0.09967564791440964, 0.08474136143922806,
        -0.028317010030150414, 0.02717602625489235, -0.1391047090291977},
       {0.2565695345401764, 0.24096320569515228, 0.23641374707221985, 0.23252950608730316,
        0.240493044257164, 0.2420758455991745, 0.25584888458251953}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto main = Make(DType::kFloat32, {kSize}, StartWeights());
    const auto exp_avg = Make(DType::kFloat32, {kSize}, Values(kSize, 0.0));
    const auto exp_avg_sq = Make(DType::kFloat32, {kSize}, Values(kSize, 0.0));
    const auto compute = Poisoned(DType::kBfloat16, {kSize});
    const auto of_other = Poisoned(DType::kBfloat16, {kSize});
    for (int step = 1; step <= kSteps; ++step) {
      const auto update = Scalars(UpdateOf(1e-2, 0.9, 0.95, step));
      ops().AdamW(
          queue(),
          {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = c.decoupled},
          update, Make(DType::kFloat32, {kSize}, GradientOf(step)).tensor(), main, exp_avg,
          exp_avg_sq, {compute, of_other});
      ASSERT_THAT(queue().Synchronize(), testing::IsOk());  // the gradient goes
    }
    EXPECT_THAT(Read(main), NearValues(c.weights, 2e-7));
    EXPECT_THAT(Read(exp_avg), NearValues(c.exp_avg, 5e-7));
    EXPECT_THAT(Read(exp_avg_sq), NearValues(c.exp_avg_sq, 2e-7));
    const Values rounded = RoundedToBf16(Read(main));
    EXPECT_EQ(Read(compute), rounded);
    EXPECT_EQ(Read(of_other), rounded);
  }
}

TEST_P(OpsSuite, SgdFollowsTorch) {
  const struct {
    double momentum;
    Values weights;
  } cases[] = {
      {0.9,
       {-0.5156813263893127, -0.23113170266151428, 0.00941198505461216, 0.2604275047779083,
        0.46121570467948914, -0.40537354350090027, -0.2492244988679886}},
      {0.0,
       {-0.49990126490592957, -0.24503235518932343, 0.010005049407482147, 0.24368689954280853,
        0.49880871176719666, -0.49268263578414917, -0.23747634887695312}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.momentum);
    const auto main = Make(DType::kFloat32, {kSize}, StartWeights());
    const auto momentum = Make(DType::kFloat32, {kSize}, Values(kSize, 0.0));
    const auto update = Scalars(UpdateOf(1e-2));
    const auto compute = Poisoned(DType::kBfloat16, {kSize});
    const auto of_other = Poisoned(DType::kBfloat16, {kSize});
    for (int step = 1; step <= kSteps; ++step) {
      ops().Sgd(queue(), {.momentum = c.momentum, .weight_decay = 0.1}, update,
                Make(DType::kFloat32, {kSize}, GradientOf(step)).tensor(), main,
                c.momentum == 0 ? Tensor() : momentum.tensor(), {compute, of_other});
      ASSERT_THAT(queue().Synchronize(), testing::IsOk());  // the gradient goes
    }
    EXPECT_THAT(Read(main), NearValues(c.weights, 2e-7));
    const Values rounded = RoundedToBf16(Read(main));
    EXPECT_EQ(Read(compute), rounded);
    EXPECT_EQ(Read(of_other), rounded);
  }
}

// What an element becomes depends neither on where a shard begins nor on the number of threads.
TEST_P(OpsSuite, AdamWGivesEveryShardTheBitsOfTheWhole) {
  constexpr std::int64_t kLong = 50021;
  const Values weights = Uniform(kLong);
  const Values gradients = Uniform(kLong);
  const auto update = [&](std::initializer_list<std::int64_t> cuts) {
    const auto main = Make(DType::kFloat32, {kLong}, weights);
    const auto gradient = Make(DType::kFloat32, {kLong}, gradients);
    const auto exp_avg = Make(DType::kFloat32, {kLong}, Values(kLong, 0.25));
    const auto exp_avg_sq = Make(DType::kFloat32, {kLong}, Values(kLong, 0.5));
    const auto scalars = Scalars(UpdateOf(1e-3, 0.9, 0.999, 3));
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      const auto part = [&](const Array& whole) { return whole.tensor().Rows(begin, end - begin); };
      ops().AdamW(queue(), {.weight_decay = 0.1}, scalars, part(gradient), part(main),
                  part(exp_avg), part(exp_avg_sq), Tensor());
      begin = end;
    }
    return std::vector<Values>{Read(main), Read(exp_avg), Read(exp_avg_sq)};
  };
  EXPECT_EQ(update({3, 20, 41, 30001, kLong}), update({kLong}));
  ExpectSameWithAnyThreads([&] { return update({kLong}); });
}

// What the passes would leave that the factors stand for: a cast to float32, and one multiplication
// after the other.
TEST_P(OpsSuite, UpdatesAndNormsTakeSumsOfEveryDtypeWithTheBitsOfSeparatePasses) {
  constexpr double kScale = 1.0 / 3;
  constexpr double kClip = 0.3;
  const Values weights = Uniform(kSize);
  const auto updated = [&](const GradientSum& gradient, double scale, double clip) {
    UpdateScalars scalars = UpdateOf(0.1);
    scalars.scale = scale;
    scalars.clip = clip;
    const auto update = Scalars(scalars);
    const auto main = Make(DType::kFloat32, {kSize}, weights);
    const auto exp_avg = Make(DType::kFloat32, {kSize}, Values(kSize, 0.25));
    const auto exp_avg_sq = Make(DType::kFloat32, {kSize}, Values(kSize, 0.5));
    const auto descended = Make(DType::kFloat32, {kSize}, weights);
    const auto momentum = Make(DType::kFloat32, {kSize}, Values(kSize, 0.5));
    const auto sums = Poisoned(DType::kFloat64, {1});
    ops().AdamW(queue(), {.weight_decay = 0.1}, update, gradient, main, exp_avg, exp_avg_sq,
                Tensor());
    ops().Sgd(queue(), {.momentum = 0.9}, update, gradient, descended, momentum, Tensor());
    const RowSquares rows[] = {{gradient.Reshape({1, kSize}), sums}};
    ops().SumSquares(queue(), rows);
    return std::vector<Values>{Read(main), Read(exp_avg_sq), Read(descended), Read(sums)};
  };
  const auto multiplied = [&](const Array& floats, double factor) {
    Values values = Read(floats);
    for (double& value : values) value = static_cast<float>(value) * static_cast<float>(factor);
    return Make(DType::kFloat32, {kSize}, values);
  };
  for (const DType dtype : kGradientDTypes) {
    if (dtype == DType::kFloat64) continue;  // rounds differently, and no main weights go with it
    SCOPED_TRACE(DTypeName(dtype));
    const auto sums = Make(dtype, {kSize}, Uniform(kSize));
    const auto floats = Poisoned(DType::kFloat32, {kSize});
    ops().Cast(queue(), sums, floats);
    const auto averaged = multiplied(floats, kScale);
    std::vector<Values> want = updated(multiplied(averaged, kClip).tensor(), 1, 1);
    want[3] = updated(floats.tensor(), 1, 1)[3];  // squares of sums have no factor
    EXPECT_EQ(updated(sums.tensor(), kScale, kClip), want);
  }
}

TEST_P(OpsSuite, TwoTermsGiveTheBitsOfTheirSum) {
  UpdateScalars scalars = UpdateOf(0.1);
  scalars.scale = 1.0 / 3;
  scalars.clip = 0.3;
  const auto update = Scalars(scalars);
  for (const std::int64_t columns : {kSize, std::int64_t{1024}}) {
    const std::int64_t size = 2 * columns;
    const auto state = [&](double value) {
      return Make(DType::kFloat32, {size}, Values(static_cast<std::size_t>(size), value));
    };
    const auto updated = [&](const GradientSum& gradient) {
      const auto main = state(0.75);
      const auto exp_avg = state(0.25);
      const auto exp_avg_sq = state(0.5);
      const auto descended = state(0.75);
      const auto momentum = state(0.5);
      const auto squares = Poisoned(DType::kFloat64, {2});
      ops().AdamW(queue(), {.weight_decay = 0.1}, update, gradient, main, exp_avg, exp_avg_sq,
                  Tensor());
      ops().Sgd(queue(), {.momentum = 0.9}, update, gradient, descended, momentum, Tensor());
      const RowSquares rows[] = {{gradient.Reshape({2, columns}), squares}};
      ops().SumSquares(queue(), rows);
      return std::vector<Values>{Read(main),      Read(exp_avg),  Read(exp_avg_sq),
                                 Read(descended), Read(momentum), Read(squares)};
    };
    const auto first = Make(DType::kBfloat16, {size}, Uniform(size));
    const auto second = Make(DType::kBfloat16, {size}, Uniform(size));
    Values sums = Read(first);
    const Values others = Read(second);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = static_cast<float>(sums[i]) + static_cast<float>(others[i]);
    }
    EXPECT_EQ(updated({first, second}), updated(Make(DType::kFloat32, {size}, sums).tensor()));
  }
}

TEST_P(OpsSuite, ASkippedUpdateChangesNothing) {
  const Values weights = Uniform(kSize);
  UpdateScalars scalars = UpdateOf(0.1);
  scalars.skip = 1;
  const auto update = Scalars(scalars);
  const auto gradient = Make(DType::kFloat32, {kSize}, Values(kSize, std::nan("")));
  const auto main = Make(DType::kFloat32, {kSize}, weights);
  const auto exp_avg = Make(DType::kFloat32, {kSize}, Values(kSize, 0.25));
  const auto exp_avg_sq = Make(DType::kFloat32, {kSize}, Values(kSize, 0.5));
  const auto compute = Make(DType::kBfloat16, {kSize}, Values(kSize, 2));
  const Tensor sums = gradient;
  ops().AdamW(queue(), {.weight_decay = 0.1}, update, sums, main, exp_avg, exp_avg_sq,
              {compute, compute});
  ops().Sgd(queue(), {.momentum = 0.9}, update, sums, main, exp_avg, {compute, compute});
  EXPECT_THAT(Read(main), NearValues(weights, 1e-7));
  EXPECT_EQ(Read(exp_avg), Values(kSize, 0.25));
  EXPECT_EQ(Read(exp_avg_sq), Values(kSize, 0.5));
  EXPECT_EQ(Read(compute), Values(kSize, 2));
}

TEST_P(OpsSuite, SumSquaresOfARowDoesNotDependOnItsNeighbours) {
  constexpr std::int64_t kRows = 67;
  constexpr std::int64_t kColumns = 1037;
  for (const auto& [dtype, epsilon] : kComputeDTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto x = Make(dtype, {kRows, kColumns}, Uniform(kRows * kColumns));
    const auto sum_rows = [&](std::int64_t begin, std::int64_t count) {
      const auto sums = Poisoned(DType::kFloat64, {count});
      const RowSquares rows[] = {{x.tensor().Rows(begin, count), sums}};
      ops().SumSquares(queue(), rows);
      return Read(sums);
    };
    const Values all = sum_rows(0, kRows);
    const Values values = Read(x);
    for (std::int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(sum_rows(row, 1)[0], all[static_cast<std::size_t>(row)]);
      const auto first = values.begin() + row * kColumns;
      const Values in(first, first + kColumns);
      EXPECT_NEAR(all[static_cast<std::size_t>(row)], Dot(in, in), 1e-10);
    }
    ExpectSameWithAnyThreads([&] { return std::vector<Values>{sum_rows(0, kRows)}; });
  }
}

// More arrays than a GPU squares at once, of any dtypes and widths, some without rows.
TEST_P(OpsSuite, SumSquaresOfManyArrays) {
  std::vector<Array> arrays;
  std::vector<Array> sums;
  std::vector<RowSquares> all;
  for (std::int64_t i = 0; i < 150; ++i) {
    const std::int64_t rows = i % 4;
    const std::int64_t columns = i % 5 == 0 ? 1 : 8 * i + i % 3;
    const DType dtype = i % 50 < 25 ? DType::kBfloat16 : DType::kFloat32;
    arrays.push_back(Make(dtype, {rows, columns}, Uniform(rows * columns)));
    sums.push_back(Poisoned(DType::kFloat64, {rows}));
    all.push_back({arrays.back().tensor(), sums.back()});
  }
  ops().SumSquares(queue(), all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    const Values values = Read(arrays[i]);
    const std::int64_t columns = all[i].x.first.dim(1);
    Values want;
    for (auto row = values.begin(); row != values.end(); row += columns) {
      const Values in(row, row + columns);
      want.push_back(Dot(in, in));
    }
    EXPECT_THAT(Read(sums[i]), NearValues(want, 1e-10));
  }
}

TEST_P(OpsSuite, SumSquaresIsFiniteWhereTheRowIs) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto x =
      Make(DType::kFloat32, {4, 3}, {1, inf, -inf, 3e38, 3e38, 3e38, 0, 0, std::nan(""), 0, 0, 0});
  const auto sums = Poisoned(DType::kFloat64, {4});
  const RowSquares rows[] = {{x.tensor(), sums}};
  ops().SumSquares(queue(), rows);
  Values finite = Read(sums);
  for (double& sum : finite) sum = std::isfinite(sum) ? 1 : 0;
  EXPECT_THAT(finite, ::testing::ElementsAre(0, 1, 0, 1));
}

}  // namespace
}  // namespace ckpt::trainer
