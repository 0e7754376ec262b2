// A convention for the root of a run, for tests of code that knows none by name.
#ifndef CKPT_TESTS_TESTING_RUN_ROOT_H_
#define CKPT_TESTS_TESTING_RUN_ROOT_H_

#include <string>
#include <string_view>

#include "core/manifest/run_root.h"

namespace ckpt::testing {

// Trackers say a number or "release"; checkpoints of a run begin with "iter_".
inline constexpr RunRoot kRunRoot = {
    .tracker_name = "latest_checkpointed_iteration.txt",
    .copied_file = "train_state.pt",
    .copy_name = "latest_train_state.pt",
    .weights_directory = "release",
    .is_tracker_text =
        [](std::string_view text) {
          return text.find_first_not_of("0123456789release \n") == std::string_view::npos;
        },
    .tracker_text = [](std::string_view directory) { return std::string(directory); },
    .is_of_run = [](std::string_view name) { return name.starts_with("iter_"); }};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_RUN_ROOT_H_
