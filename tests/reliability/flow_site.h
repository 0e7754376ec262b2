// One flow in a directory of a disk: what it reads, what is at its target before, and what may be
// there when a run failed.
#ifndef CKPT_TESTS_RELIABILITY_FLOW_SITE_H_
#define CKPT_TESTS_RELIABILITY_FLOW_SITE_H_

#include <vector>

#include "converters/verbs/convert.h"
#include "core/io/storage.h"
#include "tests/reliability/flows.h"
#include "tests/reliability/small_model.h"

namespace ckpt::testing {

class FlowSite {
 public:
  // Writes the source, its matrices of size `hidden` if it is a model, and what was at the target
  // before. Runs the flow to see what it makes, and what it makes of that: `Reset` comes next.
  static Result<FlowSite> Create(Storage& storage, const Flow& flow, int hidden,
                                 const Path& directory);

  [[nodiscard]] const Flow& flow() const { return flow_; }
  // Alone in its directory: some targets have files beside them.
  [[nodiscard]] Path target() const { return directory_ / "made" / kTarget; }
  [[nodiscard]] ConvertOptions options() const;
  // After a failure one goes on, whatever the first run came to.
  [[nodiscard]] ConvertOptions recovery_options() const;

  // What was there before the first run is there again, and nothing else.
  Status Reset();
  // Errors: kValueMismatch (the target is neither what it was before nor all of the new; or, if it
  // must be new, anything else than the new lies there or beside it), those of a reader.
  Status Check(bool must_be_new);

 private:
  static constexpr char kTarget[] = "target";

  FlowSite(Storage& storage, const Flow& flow, Path directory);
  // Without what a run has not published.
  Result<Tree> ReadPublished();
  [[nodiscard]] bool Holds(const Tree& tree, const Tree& whole) const;

  Storage* storage_;
  Flow flow_;
  Path directory_;
  Tree old_;  // empty: there was nothing
  // The new one, and what replaced that once more: parts of a target have other names then.
  std::vector<Tree> made_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_FLOW_SITE_H_
