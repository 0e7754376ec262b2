// Models and their settings on the way through the arguments of a checkpoint.
#ifndef CKPT_TESTS_CONVERTERS_CONFIG_ARGS_FIXTURE_H_
#define CKPT_TESTS_CONVERTERS_CONFIG_ARGS_FIXTURE_H_

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/config/translation_table.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {

// `config` with the values of `more` in place of its own.
inline layout::Configuration With(layout::Configuration config, const layout::Configuration& more) {
  for (const auto& [name, value] : more) config[name] = value;
  return config;
}

// The arguments as a reader of the checkpoint finds them. Fails the test if one is there twice.
inline layout::Configuration ByName(const NamedValues& args) {
  layout::Configuration stored;
  for (const auto& [name, value] : args) {
    EXPECT_TRUE(stored.emplace(name, value).second) << name << " is there twice";
  }
  return stored;
}

// What `MegatronArgs` makes of a model. Fails the test if it refuses the model.
inline ModelArgs DescribeModel(const layout::Configuration& config) {
  auto args = MegatronArgs(config);
  EXPECT_THAT(args, IsOk());
  return args.ok() ? *std::move(args) : ModelArgs();
}
inline layout::Configuration ArgsOf(const layout::Configuration& config) {
  return ByName(DescribeModel(config).values);
}
inline std::vector<Problem> WarningsOf(const layout::Configuration& config) {
  std::vector<Problem> warnings = DescribeModel(config).warnings;
  for (const Problem& problem : warnings) EXPECT_EQ(problem.severity, Severity::kWarning);
  return warnings;
}

// The configuration of a published model.
inline layout::Configuration GoldenConfig(const std::string& name) {
  const GoldenCase golden = LoadGolden("hf", name);
  const auto text = ReadSmallFile(PosixStorage(), golden.path / "config.json", 1 << 20);
  EXPECT_THAT(text, IsOk());
  return ParseHfConfig(*text, name).value();
}

// The name of a case, as the name of a test.
inline std::string TestNameOf(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_CONVERTERS_CONFIG_ARGS_FIXTURE_H_
