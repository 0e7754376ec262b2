#include "tools/ckpt-train/cmd_generate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/io/shared_reads.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-train/greedy.h"
#include "tools/ckpt-train/run_setup.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/resolve_together.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

using cli::ExitCode;

Result<std::vector<std::int32_t>> PromptOf(const GenerateOptions& options) {
  if (options.prompt.empty() == options.prompt_ids.empty()) {
    return Error(ErrorKind::kUsage, "generate takes a prompt: either text or tokens")
        .Hint("give --prompt TEXT or --prompt-ids 1,2,3");
  }
  if (options.prompt.empty()) return options.prompt_ids;
  std::vector<std::int32_t> tokens;
  trainer::AppendByteTokens(options.prompt, tokens);
  return tokens;
}

// One sequence a rank, as long as it will become; what the run was trained with does not matter.
layout::Configuration SettingsFor(std::int64_t num_tokens, layout::Configuration settings) {
  settings.insert_or_assign("seq_length", num_tokens);
  settings.insert_or_assign("micro_batch_size", layout::Value());
  settings.insert_or_assign("global_batch_size", layout::Value());
  return settings;
}

Status CheckTokens(const std::vector<std::int32_t>& prompt, bool is_text, const RunConfig& run) {
  const trainer::ModelConfig& model = run.train.model;
  if (is_text) {
    Status status = CheckTakesBytes(run.data, model.vocab_size);
    if (!status.ok()) {
      return std::move(status).Hint(
          "give the prompt as tokens of the model's own tokenizer: --prompt-ids");
    }
  }
  const auto [least, most] = std::ranges::minmax(prompt);
  if (least < 0 || most >= model.vocab_size) {
    return Error(ErrorKind::kUsage, "a token of the prompt lies outside the vocabulary")
        .Expected(fmt::format("[0, {})", model.vocab_size))
        .Actual(fmt::format("{}", least < 0 ? least : most));
  }
  return OkStatus();
}

std::string ReportJson(const std::vector<std::int32_t>& prompt, bool is_text,
                       const std::vector<std::int32_t>& tokens) {
  JsonWriter json(1);
  json.BeginObject().Key("prompt_ids").Ints(prompt).Key("ids").Ints(tokens);
  if (is_text) json.Key("text").Text(trainer::TextOfByteTokens(tokens));
  json.End();
  return json.Take() + "\n";
}

std::string ReportText(const GenerateOptions& options, const std::vector<std::int32_t>& tokens) {
  if (options.prompt.empty()) return fmt::format("{}\n", fmt::join(tokens, ","));
  return EscapeControls(options.prompt + trainer::TextOfByteTokens(tokens)) + "\n";
}

}  // namespace

Result<ExitCode> RunGenerate(const GenerateOptions& options, Storage& storage,
                             cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  const bool is_text = !options.prompt.empty();
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int32_t> prompt, PromptOf(options));
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  given["finetune"] = true;  // weights are all that it takes
  const auto num_tokens = static_cast<std::int64_t>(prompt.size()) + options.tokens;
  given = SettingsFor(num_tokens, std::move(given));
  const RunNeeds needs = {.weights = true, .runs_ranks = !options.print_config};
  SharedReads reads(storage);
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveTogether(reads, given, num_ranks, needs));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_RETURN_IF_ERROR(CheckHasWeights(run));
  CKPT_RETURN_IF_ERROR(CheckTokens(prompt, is_text, run));
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunSetup> setup,
      RunSetup::Create(run, num_ranks, options.run.device, options.common, storage, streams));

  GreedyOptions greedy = {.num_tokens = options.tokens};
  if (is_text) greedy.end_token = trainer::kByteEos;
  std::optional<std::vector<std::int32_t>> tokens;  // where rank 0 is one of this process
  CKPT_RETURN_IF_ERROR(setup->RunRanks([&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session, setup->StartRank(world));
    CKPT_ASSIGN_OR_RETURN(std::vector<std::int32_t> mine,
                          ContinueGreedily(session->trainer(), world, prompt, greedy));
    if (world.rank() == 0) tokens = std::move(mine);
    return OkStatus();
  }));
  if (!tokens) return ExitCode::kDone;
  streams.out.Write(options.common.json ? ReportJson(prompt, is_text, *tokens)
                                        : ReportText(options, *tokens));
  return ExitCode::kDone;
}

}  // namespace ckpt::train
