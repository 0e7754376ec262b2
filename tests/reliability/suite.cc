#include "tests/reliability/suite.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kShownFailures = 5;

}  // namespace

bool IsLongRun() {
  const char* mode = std::getenv("CKPT_RELIABILITY");
  return mode != nullptr && std::string_view(mode) == "long";
}

Suite::Suite(std::string name) : name_(std::move(name)) {}

Suite::~Suite() {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  std::printf("reliability %s: %llu cases, %llu failures, %.1f s%s\n", name_.c_str(),
              static_cast<unsigned long long>(cases_), static_cast<unsigned long long>(failures_),
              seconds.count(), notes_.c_str());
  std::fflush(stdout);
  EXPECT_EQ(failures_, 0U) << name_ << "; replay: CKPT_TEST_SEED=" << TestSeed(kDefaultSeed);
  EXPECT_GT(cases_, 0U) << name_ << " tried nothing";
}

void Suite::Fail(const std::string& what) {
  if (failures_++ < kShownFailures) ADD_FAILURE() << name_ << ": " << what;
}

void Suite::Note(const std::string& note) { notes_ += "; " + note; }

}  // namespace ckpt::testing
