// Conversions between the golden repositories and directories of the test.
#ifndef CKPT_TESTS_CONVERTERS_VERBS_CONVERT_FIXTURE_H_
#define CKPT_TESTS_CONVERTERS_VERBS_CONVERT_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/convert.h"
#include "converters/verbs/model_digest.h"
#include "core/base/endian.h"
#include "core/io/posix_storage.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace ckpt::testing {

inline std::string Content(const Path& path) {
  std::ifstream in(path.string(), std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class ConvertTest : public ::testing::Test {
 protected:
  static Path Golden(const std::string& name) { return GoldenDir() / "hf" / name / "ckpt"; }

  [[nodiscard]] ConvertOptions Between(const std::string& from, const std::string& to,
                                       const Path& source, const std::string& target) const {
    ConvertOptions options;
    options.source = source;
    options.target = dir_.path() / target;
    options.model.naming = from;
    options.to.container = *FindFormat(to);
    return options;
  }
  [[nodiscard]] ConvertOptions ToFsdp(const Path& source) const {
    return Between("hf", "fsdp_dtensor", source, "fsdp");
  }
  [[nodiscard]] ConvertOptions ToHf(const Path& source) const {
    ConvertOptions options = Between("fsdp_dtensor", "hf", source, "hf");
    options.to.choices["expert_layout"] = kOriginalChoice;
    return options;
  }
  static Result<ConvertReport> Convert(Storage& storage, const ConvertOptions& options) {
    CKPT_ASSIGN_OR_RETURN(const PreparedConversion prepared, PrepareConversion(storage, options));
    return RunConversion(storage, prepared, options);
  }
  static Result<ConvertReport> Convert(const ConvertOptions& options) {
    return Convert(PosixStorage(), options);
  }
  // `header`: JSON, without its length. Every byte of the `size_bytes` behind it is 'x'.
  static void WriteSafetensors(const Path& path, const std::string& header,
                               std::size_t size_bytes) {
    Bytes file;
    AppendLe(std::uint64_t{header.size()}, file);
    Append(header + std::string(size_bytes, 'x'), file);
    ASSERT_THAT(WriteSmallFile(PosixStorage(), path, file), IsOk());
  }
  static std::string DigestAsHf(const Path& path) {
    const auto model = OpenModel(PosixStorage(), path, {});
    EXPECT_THAT(model, IsOk());
    if (!model.ok()) return {};
    const auto digest = DigestModel(*model, {});
    EXPECT_THAT(digest, IsOk());
    return digest.ok() ? digest->checkpoint : std::string();
  }
  static void ExpectSameFiles(const Path& expected, const Path& actual) {
    const auto names = ListRecursively(PosixStorage(), expected);
    ASSERT_THAT(names, IsOk());
    for (const std::string& name : *names) {
      EXPECT_EQ(Content(expected / name), Content(actual / name)) << name;
    }
  }
  // The same conversion again, whatever it may use.
  void ExpectSameForAnyThreadsAndBudget(const Path& expected, ConvertOptions options) const {
    options.target = dir_.path() / "again";
    for (const int threads : {1, 4}) {
      for (const std::uint64_t budget : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
        options.threads = threads;
        options.memory_budget_bytes = budget;
        ASSERT_THAT(Convert(options), IsOk());
        ExpectSameFiles(expected, options.target);
        ASSERT_THAT(PosixStorage().RemoveAll(options.target), IsOk());
      }
    }
  }

  TempDir dir_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_CONVERTERS_VERBS_CONVERT_FIXTURE_H_
