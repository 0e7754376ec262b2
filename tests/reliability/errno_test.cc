// Every system call of the file system fails in turn, in every way it can.
#include <algorithm>
#include <cerrno>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/posix_storage.h"
#include "tests/reliability/fast_dir.h"
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

namespace fs = boost::filesystem;

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

constexpr int kHidden = 16;  // of models: many calls, few bytes

class ErrnoTest : public ::testing::Test {
 protected:
  ErrnoTest() {
    EXPECT_THAT(WriteSmallModel(storage_, dir() / "hf", {.hidden = kHidden}), IsOk());
    EXPECT_THAT(Convert(storage_, HfToFsdp(dir() / "hf", dir() / "fsdp")), IsOk());
    EXPECT_THAT(Convert(storage_, FsdpToHf(dir() / "fsdp", dir() / "repository")), IsOk());
  }

  [[nodiscard]] const Path& dir() const { return dir_.path(); }
  [[nodiscard]] Path target() const { return dir() / "target"; }
  [[nodiscard]] Path staging() const { return dir() / "target.ckptkit-partial"; }

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

  // A conversion to `target` by `options`, whose result is compared byte for byte.
  void FailConversions(const Flow& flow, const ConvertOptions& options,
                       const std::function<void()>& prepare) {
    const auto convert = [&](const ConvertOptions& with) { return RunFlow(storage_, flow, with); };
    ASSERT_THAT(convert(options), IsOk());
    const Result<Tree> expected = ReadTree(storage_, target());
    ASSERT_THAT(expected, IsOk());
    const auto clean = [&] {
      EXPECT_THAT(storage_.RemoveAll(target()), IsOk());
      EXPECT_THAT(storage_.RemoveAll(staging()), IsOk());
      prepare();
    };
    const auto run = [&] { return Outcome{.status = convert(options).status()}; };
    const auto check_success = [&](const std::string& where, Suite& suite) {
      if (!fs::exists(target())) suite.Fail(where + ": OK, but nothing is there");
      CheckTarget(*expected, where, suite);
    };
    int failure = 0;
    const auto check_failure = [&](const std::string& where, Suite& suite) {
      CheckTarget(*expected, where, suite);
      // Every so often the next run goes on from there.
      if (++failure % 16 != 0) return;
      ConvertOptions again = options;
      again.resume = true;
      again.overwrite = true;
      const Status status = convert(again).status();
      if (!status.ok()) suite.Fail(where + ": the next run fails: " + status.ToString());
      CheckTarget(*expected, where + ", next run", suite);
    };
    // A run has many tensors: then every call fails in one way.
    const std::size_t stride = flow.run.empty() ? 5 : 2 * kFaults.size();
    FailEveryCall(flow.name, clean, run, check_success, check_failure, stride);
  }

  // What was there before is there, or all that is new.
  void CheckTarget(const Tree& expected, const std::string& where, Suite& suite) {
    if (!fs::exists(target())) {
      if (!old_tree_.empty()) suite.Fail(where + ": the old checkpoint is gone");
      return;
    }
    const Result<Tree> tree = ReadTree(storage_, target());
    const bool is_old = tree.ok() && !old_tree_.empty() && *tree == old_tree_;
    if (!tree.ok() || (*tree != expected && !is_old)) suite.Fail(where + ": a mixture is there");
  }

  void WriteTree(const Tree& tree, const Path& directory) {
    for (const auto& [name, content] : tree) {
      EXPECT_THAT(storage_.MakeDirectories((directory / name).parent_path()), IsOk());
      EXPECT_THAT(WriteSmallFile(storage_, directory / name, AsBytes(content)), IsOk());
    }
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

  Tree old_tree_;  // at the target before each run; empty: nothing

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
};

// The writers, and every way of sharing, packing and publishing their files.
const std::vector<Flow> kFlows = {
    {.name = "ToFsdp"},
    {.name = "ToFsdpParity", .parity_group = 2},
    {.name = "ToFsdp2", .to = "fsdp2"},
    {.name = "ToFsdp2ByWorkers", .to = "fsdp2", .workers = 2},
    {.name = "ToTorchDist", .to = "torch_dist"},
    {.name = "ToBridgeTree", .to = "torch_dist", .forms = {{"tree", "megatron-bridge"}}},
    {.name = "ToHf", .to = "hf"},
    {.name = "ToHdf5", .to = "hdf5"},
    {.name = "ToHdf5Compressed", .to = "hdf5", .zstd_level = 3},
    {.name = "ToHdf5Link", .to = "hdf5", .links = true},
    {.name = "ToHdf5ByWorkers", .to = "hdf5", .workers = 2},
    {.name = "ToTorchSave", .to = "torch_save"},
    {.name = "ToTorchSaveByWorkers", .to = "torch_save", .workers = 2},
    {.name = "RunToFsdp2", .to = "fsdp2", .run = "torch_dist"},
    {.name = "RunToTorchDistInBuffers",
     .to = "torch_dist",
     .run = "fsdp_dtensor",
     .forms = {{"optimizer-form", "dp_reshardable"}}}};

class ErrnoFlowTest : public ErrnoTest, public ::testing::WithParamInterface<Flow> {};
INSTANTIATE_TEST_SUITE_P(Flows, ErrnoFlowTest, ::testing::ValuesIn(kFlows),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ErrnoFlowTest, GivesAClearErrorOrTheSameFiles) {
  const Flow& flow = GetParam();
  ASSERT_THAT(WriteSource(storage_, flow, 1, kHidden, dir() / "source"), IsOk());
  FailConversions(flow, OptionsOf(flow, dir() / "source", target()), [] {});
}

// The first run ends two thirds of the way.
TEST_F(ErrnoTest, ResumingGivesAClearErrorOrTheSameFiles) {
  ConvertOptions options = HfToFsdp(dir() / "hf", target());
  options.zstd_level = 3;
  options.verify = false;
  int stop_at = 0;
  {
    const SyscallFaults counter({});
    ASSERT_THAT(Convert(storage_, options), IsOk());
    stop_at = static_cast<int>(counter.calls().size()) * 2 / 3;
  }
  ASSERT_THAT(storage_.RemoveAll(target()), IsOk());
  ConvertOptions resume = options;
  resume.resume = true;
  FailConversions({.name = "resume"}, resume, [&] {
    const SyscallFaults kill({.code = EIO, .at = stop_at, .is_sticky = true});
    EXPECT_FALSE(Convert(storage_, options).ok());
  });
}

// The old checkpoint stays until the new one is whole.
TEST_F(ErrnoTest, OverwritingGivesAClearErrorOrTheSameFiles) {
  ASSERT_THAT(WriteSmallModel(storage_, dir() / "other", {.seed = 2, .hidden = kHidden}), IsOk());
  ConvertOptions old = HfToFsdp(dir() / "other", target());
  ConvertOptions options = HfToFsdp(dir() / "hf", target());
  options.overwrite = true;
  ASSERT_THAT(Convert(storage_, old), IsOk());
  const Result<Tree> old_tree = ReadTree(storage_, target());
  ASSERT_THAT(old_tree, IsOk());
  old_tree_ = *old_tree;
  FailConversions({.name = "overwrite"}, options, [&] { WriteTree(*old_tree, target()); });
}

TEST_F(ErrnoTest, VerifyGivesAClearErrorOrTheSameAnswer) { FailInspect("verify", Converted()); }

TEST_F(ErrnoTest, VerifyOfOtherContainersGivesAClearErrorOrTheSameAnswer) {
  FailInspect("verify", OtherContainers());
}

// A block that cannot be read is rebuilt from parity where that can be done,
// so what was repaired may differ.
TEST_F(ErrnoTest, RepairGivesAClearErrorOrTheSameCopy) {
  ConvertOptions options = HfToFsdp(dir() / "hf", dir() / "damaged");
  options.parity_group = 2;
  ASSERT_THAT(Convert(storage_, options), IsOk());
  const Result<Tree> expected = ReadTree(storage_, dir() / "damaged");
  ASSERT_THAT(expected, IsOk());
  const Path release = dir() / "damaged" / "release";
  ASSERT_THAT(storage_.RemoveAll(release / "hf_assets" / "config.json"), IsOk());
  std::string data = expected->at("release/__0_0.distcp");
  data[data.size() / 2] ^= 0x08;
  ASSERT_THAT(storage_.RemoveAll(release / "__0_0.distcp"), IsOk());
  ASSERT_THAT(WriteSmallFile(storage_, release / "__0_0.distcp", AsBytes(data)), IsOk());
  const auto clean = [&] {
    EXPECT_THAT(storage_.RemoveAll(target()), IsOk());
    EXPECT_THAT(storage_.RemoveAll(staging()), IsOk());
  };
  const auto flow = [&] {
    Outcome outcome = Inspect(
        {"repair", (dir() / "damaged").string(), "-o", target().string(), "--threads", "1"});
    outcome.result.clear();
    return outcome;
  };
  const auto check_success = [&](const std::string& where, Suite& suite) {
    if (!fs::exists(target())) suite.Fail(where + ": OK, but nothing is there");
    CheckTarget(*expected, where, suite);
  };
  const auto check_failure = [&](const std::string& where, Suite& suite) {
    CheckTarget(*expected, where, suite);
  };
  FailEveryCall("repair", clean, flow, check_success, check_failure);
}

TEST_F(ErrnoTest, DigestGivesAClearErrorOrTheSameAnswer) { FailInspect("digest", Converted()); }

TEST_F(ErrnoTest, DigestOfOtherContainersGivesAClearErrorOrTheSameAnswer) {
  FailInspect("digest", OtherContainers());
}

}  // namespace
}  // namespace ckpt::testing
