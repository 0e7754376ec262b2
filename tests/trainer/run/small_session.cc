#include "tests/trainer/run/small_session.h"

#include <bit>
#include <cstddef>
#include <list>
#include <string_view>

#include "core/base/units.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "tests/trainer/step/held_rows.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::testing {
namespace {

class Silence final : public ProgressSink {
 public:
  void OnPhase(std::string_view /*phase*/, std::uint64_t /*bytes*/,
               std::uint64_t /*items*/) override {}
  void OnDone(std::string_view /*item*/, std::uint64_t /*bytes*/) override {}
};

Status CompareRows(const HeldRows& held, std::uint64_t state, const std::string& part) {
  const Pattern pattern(state, part, held.spec.name);
  const std::int64_t first = held.row_begin * RowElems(held.spec);
  for (std::size_t i = 0; i < held.values.size(); ++i) {
    const float expected = pattern.At(first + static_cast<std::int64_t>(i));
    const float actual = held.values[i];
    if (std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(actual)) continue;
    return Error(ErrorKind::kValueMismatch, "not the state that was saved")
        .Tensor(part + held.spec.name)
        .Expected(std::to_string(expected))
        .Actual(std::to_string(actual));
  }
  return OkStatus();
}

// What `read` reads (ReadHeldRows), compared with `part` of state number `state`.
template <typename Read>
Status ComparePart(const Read& read, std::uint64_t state, const std::string& part) {
  CKPT_ASSIGN_OR_RETURN(const std::list<HeldRows> held, ReadHeldRows(read));
  for (const HeldRows& rows : held) CKPT_RETURN_IF_ERROR(CompareRows(rows, state, part));
  return OkStatus();
}

}  // namespace

layout::Configuration TinySettings() {
  return {{"num_layers", 1},          {"hidden_size", 8}, {"ffn_hidden_size", 12},
          {"num_attention_heads", 2}, {"kv_channels", 4}, {"vocab_size", 11},
          {"seq_length", 4},          {"train_iters", 10}};
}

layout::Configuration With(layout::Configuration settings, const layout::Configuration& more) {
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

Result<SmallSessions> SmallSessions::Create(Storage& storage, const layout::Configuration& settings,
                                            int ranks) {
  SmallSessions sessions(storage);
  CKPT_ASSIGN_OR_RETURN(sessions.run_, train::ResolveRun(storage, settings, ranks));
  trainer::SettingsReader reader(sessions.run_.effective);
  sessions.checkpoints_ = train::ReadCheckpointSettings(reader);
  return sessions;
}

Status SmallSessions::RunAsRank(trainer::HostGroup& world, const Body& body) {
  Storage& storage = storage_of ? storage_of(world.rank()) : *storage_;
  Silence silence;
  ModelSource init;
  if (run_.init_from) {
    CKPT_ASSIGN_OR_RETURN(init, OpenModel(*storage_, *run_.init_from, {}));
  }
  const train::SessionInput input = {.run = run_,
                                     .checkpoints = checkpoints_,
                                     .storage = storage,
                                     .init = run_.init_from ? &init : nullptr,
                                     .budget_bytes = kMiB,
                                     .threads = 1,
                                     .progress = silence};
  const auto notice = [&](const std::string& text) {
    if (world.rank() == 0) notices_.push_back(text);
  };
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<train::RankSession> session,
                        train::RankSession::Create(input, world, notice));
  return body(*session, world);
}

Status SmallSessions::Run(const Body& body) {
  return trainer::RunRanks(run_.train.mesh.world_size,
                           [&](trainer::HostGroup& world) { return RunAsRank(world, body); });
}

Status SaveState(train::RankSession& session, std::uint64_t state, std::int64_t iteration) {
  CKPT_RETURN_IF_ERROR(SetState(session.trainer(), state));
  return session.checkpoints().Save(
      {.iteration = iteration, .consumed_samples = iteration, .next_loss = {}});
}

Status CheckState(trainer::RankTrainer& trainer, std::uint64_t state) {
  const auto weights = [&](const auto& place) -> Status {
    CKPT_RETURN_IF_ERROR(trainer.ReadWeights(place));
    return trainer.AwaitReads();
  };
  CKPT_RETURN_IF_ERROR(ComparePart(weights, state, std::string(trainer::kWeightsPart)));
  for (int m = 0; m < NumMoments(trainer.config().optimizer); ++m) {
    const auto moment = [&](const auto& place) -> Status {
      CKPT_RETURN_IF_ERROR(trainer.ReadMoment(m, place));
      return trainer.AwaitReads();
    };
    CKPT_RETURN_IF_ERROR(ComparePart(moment, state, trainer::MomentPart(m)));
  }
  if (trainer.optimizer().steps() == static_cast<std::int64_t>(state)) return OkStatus();
  return Error(ErrorKind::kValueMismatch, "the optimizer made another number of updates")
      .Expected(std::to_string(state))
      .Actual(std::to_string(trainer.optimizer().steps()));
}

}  // namespace ckpt::testing
