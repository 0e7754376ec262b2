// Every system call of the file system fails in turn, in every way it can.
#include <algorithm>
#include <cerrno>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/posix_storage.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/flow_site.h"
#include "tests/reliability/flows.h"
#include "tests/reliability/small_foreign.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/reliability/syscall_faults.h"
#include "tests/testing/matchers.h"
#include "tools/ckpt-inspect/inspect.h"
#include "tools/cli/streams.h"

namespace ckpt::testing {
namespace {

struct FaultCase {
  const char* name;
  int code;                        // as SyscallFault::code
  CallKind of = CallKind::kOther;  // kOther: any call
  bool passes_once = false;        // trying again is right
};

const std::vector<FaultCase> kFaults = {
    {.name = "ENOSPC", .code = ENOSPC},
    {.name = "EIO", .code = EIO},
    {.name = "EDQUOT", .code = EDQUOT},
    {.name = "EMFILE", .code = EMFILE},
    {.name = "EINTR", .code = EINTR, .passes_once = true},
    {.name = "EAGAIN", .code = EAGAIN},
    // What file systems say that cannot reserve, lock, or exchange.
    {.name = "ENOSYS", .code = ENOSYS},
    {.name = "EINVAL", .code = EINVAL},
    {.name = "short write", .code = 0, .of = CallKind::kWrite, .passes_once = true},
    {.name = "short read", .code = 0, .of = CallKind::kRead, .passes_once = true},
};

// EAGAIN is an answer of transfers; elsewhere it is an error like others.
bool MustPass(const FaultCase& fault, CallKind call, bool is_sticky) {
  const bool is_short = fault.code == 0;
  if (is_sticky) return is_short;
  return fault.passes_once || (fault.code == EAGAIN && call != CallKind::kOther);
}

// What came of a run: an error, or all that it gave.
struct Outcome {
  Status status = {};
  std::string result = {};  // compared with the undisturbed one's
};

constexpr int kHidden =
    32;  // of models: a few pages, which workers can share when they are compressed

class ErrnoTest : public ::testing::Test {
 protected:
  ErrnoTest() {
    EXPECT_THAT(WriteSmallModel(storage_, dir() / "hf", {.hidden = kHidden}), IsOk());
    EXPECT_THAT(Convert(storage_, HfToFsdp(dir() / "hf", dir() / "fsdp")), IsOk());
    EXPECT_THAT(Convert(storage_, FsdpToHf(dir() / "fsdp", dir() / "repository")), IsOk());
  }

  [[nodiscard]] const Path& dir() const { return dir_.path(); }

  using Check = std::function<void(const std::string& where, Suite&)>;

  // Runs `flow` with every fault at every call it makes, in the short set with one of `stride` of
  // them. `prepare` comes before each run.
  void FailEveryCall(const std::string& name, const std::function<void()>& prepare,
                     const std::function<Outcome()>& flow, const Check& check_success,
                     const Check& check_failure, std::size_t stride = 3) {
    Suite suite("errno, " + name);
    prepare();
    std::vector<CallKind> calls;
    Outcome expected;
    {
      SyscallFaults counter({});
      expected = flow();
      calls = counter.calls();
    }
    ASSERT_THAT(expected.status, IsOk());
    std::size_t way = 0;  // of a call to fail
    for (const FaultCase& fault : kFaults) {
      for (const bool is_sticky : {false, true}) {
        ++way;
        for (std::size_t call = 0; call < calls.size(); ++call) {
          if (fault.of != CallKind::kOther && fault.of != calls[call]) continue;
          if (!IsTried(call + way, stride)) continue;
          const std::string where =
              fmt::format("{}{} at call {} of {}", fault.name, is_sticky ? " from then on" : "",
                          call, calls.size());
          prepare();
          const Outcome outcome = RunWith(
              {.code = fault.code, .at = static_cast<int>(call), .is_sticky = is_sticky}, flow);
          suite.Count();
          if (outcome.status.ok()) {
            if (outcome.result != expected.result) suite.Fail(where + ": OK, but another result");
            check_success(where, suite);
          } else {
            CheckError(outcome.status, where, suite);
            if (MustPass(fault, calls[call], is_sticky)) {
              suite.Fail(where + ": fails: " + outcome.status.ToString());
            }
            check_failure(where, suite);
          }
        }
      }
    }
    suite.Note(fmt::format("{} calls", calls.size()));
  }

  static Outcome RunWith(const SyscallFault& fault, const std::function<Outcome()>& flow) {
    const SyscallFaults faults(fault);
    return flow();
  }

  static void CheckError(const Status& status, const std::string& where, Suite& suite) {
    for (const Problem& problem : status.problems()) {
      if (problem.severity == Severity::kError && problem.file.empty()) {
        suite.Fail(where + ": names no file: " + Describe(problem));
      }
      if (problem.kind == ErrorKind::kInternal) suite.Fail(where + ": " + Describe(problem));
    }
  }

  // A flow by `options`, whose result is compared byte for byte. `prepare` comes before each run,
  // when there is what the flow begins with.
  void FailFlow(const std::string& name, FlowSite& site, const ConvertOptions& options,
                const std::function<void()>& prepare) {
    const auto begin = [&] {
      EXPECT_THAT(site.Reset(), IsOk());
      prepare();
    };
    const auto run = [&] {
      return Outcome{.status = RunFlow(storage_, site.flow(), options).status()};
    };
    const auto check = [&](bool must_be_new, const std::string& where, Suite& suite) {
      if (const Status status = site.Check(must_be_new); !status.ok()) {
        suite.Fail(where + ": " + status.ToString());
      }
    };
    const auto check_success = [&](const std::string& where, Suite& suite) {
      check(true, where + ": OK", suite);
    };
    int failure = 0;
    const auto check_failure = [&](const std::string& where, Suite& suite) {
      check(false, where, suite);
      // Every so often the next run goes on from there.
      if (++failure % 16 != 0) return;
      const Status status = RunFlow(storage_, site.flow(), site.recovery_options()).status();
      if (!status.ok()) suite.Fail(where + ": the next run fails: " + status.ToString());
      check(true, where + ", next run", suite);
    };
    // Every second call fails in one way; runs and workers make many, so every fifth does.
    const std::size_t ways = 2 * kFaults.size();
    const bool is_short = site.flow().run.empty() && site.flow().workers == 0;
    FailEveryCall(name, begin, run, check_success, check_failure, is_short ? 2 * ways : 5 * ways);
  }

  // A verb of ckpt-inspect on checkpoints of these formats. An error of the system must never read
  // as a verdict.
  void FailInspect(const std::string& verb, const std::map<std::string, Path>& checkpoints) {
    for (const auto& [format, path] : checkpoints) {
      const auto flow = [&, at = path.string()] { return Inspect({verb, at, "--threads", "1"}); };
      const auto nothing = [](const std::string&, Suite&) {};
      FailEveryCall(
          fmt::format("{} of {}", verb, format), [] {}, flow, nothing, nothing);
    }
  }

  [[nodiscard]] std::map<std::string, Path> Converted() const {
    return {{"repository", dir() / "repository"}, {"fsdp", dir() / "fsdp"}};
  }

  // One of every other container that is read.
  std::map<std::string, Path> OtherContainers() {
    EXPECT_THAT(WriteSmallZarr(storage_, dir() / "zarr"), IsOk());
    EXPECT_THAT(WriteSmallMegatronRun(storage_, dir() / "mp_rank"), IsOk());
    EXPECT_THAT(WriteSmallTorchRepository(storage_, dir() / "torch"), IsOk());
    EXPECT_THAT(Convert(storage_, HfToTorchDist(dir() / "hf", dir() / "torch_dist")), IsOk());
    ConvertOptions fsdp2 = ConvertTo("dcp", dir() / "hf", dir() / "fsdp2");
    fsdp2.to.naming = "fsdp2";
    EXPECT_THAT(Convert(storage_, fsdp2), IsOk());
    EXPECT_THAT(Convert(storage_, ConvertTo("hdf5", dir() / "hf", dir() / "model.h5")), IsOk());
    EXPECT_THAT(Convert(storage_, ConvertTo("torch_save", dir() / "hf", dir() / "model.pt")),
                IsOk());
    return {{"zarr", dir() / "zarr"},
            {"mp_rank", dir() / "mp_rank"},
            {"verl", Path(CKPT_SOURCE_DIR) / "tests/golden/verl/optimizer"},
            {"pytorch_model.bin", dir() / "torch"},
            {"torch_dist", dir() / "torch_dist"},
            {"fsdp2", dir() / "fsdp2"},
            {"hdf5", dir() / "model.h5"},
            {"torch_save", dir() / "model.pt"}};
  }

  Outcome Inspect(const std::vector<std::string>& args) {
    cli::StringOutput out;
    cli::StringOutput err;
    cli::Streams streams{.out = out, .err = err};
    const cli::ExitCode code = inspect::RunInspect(args, storage_, streams);
    if (code == cli::ExitCode::kDone) return {.result = out.text()};
    const std::string said = out.text() + err.text();
    // What the error names is part of its text here.
    const bool names_file = std::ranges::any_of(
        std::initializer_list<std::string>{dir().string(), CKPT_SOURCE_DIR, ".safetensors",
                                           ".distcp", ".pt", ".bin", ".h5"},
        [&](const std::string& name) { return said.find(name) != std::string::npos; });
    return {.status = Error(ErrorKind::kIo, said).File(names_file ? "named" : "")};
  }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
};

class ErrnoFlowTest : public ErrnoTest, public ::testing::WithParamInterface<Flow> {};
INSTANTIATE_TEST_SUITE_P(Flows, ErrnoFlowTest, ::testing::ValuesIn(Flows()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ErrnoFlowTest, GivesAClearErrorOrTheSameFiles) {
  auto site = FlowSite::Create(storage_, GetParam(), kHidden, dir());
  ASSERT_THAT(site, IsOk());
  FailFlow(GetParam().name, *site, site->options(), [] {});
}

// The first run ends two thirds of the way.
TEST_F(ErrnoTest, ResumingGivesAClearErrorOrTheSameFiles) {
  auto site = FlowSite::Create(storage_, {.name = "resume", .zstd_level = 3}, kHidden, dir());
  ASSERT_THAT(site, IsOk());
  ASSERT_THAT(site->Reset(), IsOk());
  ConvertOptions options = site->options();
  options.verify = false;
  int stop_at = 0;
  {
    const SyscallFaults counter({});
    ASSERT_THAT(Convert(storage_, options), IsOk());
    stop_at = static_cast<int>(counter.calls().size()) * 2 / 3;
  }
  ConvertOptions resume = options;
  resume.resume = true;
  FailFlow("resume", *site, resume, [&] {
    const SyscallFaults kill({.code = EIO, .at = stop_at, .is_sticky = true});
    EXPECT_FALSE(Convert(storage_, options).ok());
  });
}

TEST_F(ErrnoTest, VerifyGivesAClearErrorOrTheSameAnswer) { FailInspect("verify", Converted()); }

TEST_F(ErrnoTest, VerifyOfOtherContainersGivesAClearErrorOrTheSameAnswer) {
  FailInspect("verify", OtherContainers());
}

TEST_F(ErrnoTest, DigestGivesAClearErrorOrTheSameAnswer) { FailInspect("digest", Converted()); }

TEST_F(ErrnoTest, DigestOfOtherContainersGivesAClearErrorOrTheSameAnswer) {
  FailInspect("digest", OtherContainers());
}

}  // namespace
}  // namespace ckpt::testing
