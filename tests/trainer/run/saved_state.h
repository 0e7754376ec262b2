// The state that a small run saved, and runs that go on from it.
#ifndef CKPT_TESTS_TRAINER_RUN_SAVED_STATE_H_
#define CKPT_TESTS_TRAINER_RUN_SAVED_STATE_H_

#include <utility>

#include <gmock/gmock.h>

#include "converters/verbs/training_state.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "formats/megatron/root.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/run/internal/load_state.h"

namespace ckpt::testing {

// What a run of TinySettings, and over them `more`, saves below /runs/a. The state reads from
// `storage`.
inline TrainingState SavedState(Storage& storage, const layout::Configuration& more = {}) {
  const Path root = "/runs/a";
  auto sessions = SmallSessions::Create(
      storage, With(With(TinySettings(), {{"save", root.string()}}), more), 1);
  EXPECT_THAT(sessions, IsOk());
  EXPECT_THAT(sessions->Run([](train::RankSession& session, trainer::HostGroup&) {
    return SaveState(session, 1, 2);
  }),
              IsOk());
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  auto state = OpenTrainingState(storage, root / megatron::IterationName(2), padded);
  EXPECT_THAT(state, IsOk());
  return *std::move(state);
}

// What a run with these settings says when it loads the state.
inline Status LoadInto(Storage& storage, const TrainingState& state,
                       const layout::Configuration& settings = {}) {
  auto sessions = SmallSessions::Create(storage, With(TinySettings(), settings), 1);
  CKPT_RETURN_IF_ERROR(sessions.status());
  return sessions->Run([&](train::RankSession& session, trainer::HostGroup&) {
    return train::LoadState(state, session.trainer(), /*progress=*/nullptr);
  });
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_RUN_SAVED_STATE_H_
