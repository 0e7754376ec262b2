#include "tests/reliability/flow_site.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/io/staging_name.h"

namespace ckpt::testing {

FlowSite::FlowSite(Storage& storage, const Flow& flow, Path directory)
    : storage_(&storage), flow_(flow), directory_(std::move(directory)) {}

Result<FlowSite> FlowSite::Create(Storage& storage, const Flow& flow, int hidden,
                                  const Path& directory) {
  FlowSite site(storage, flow, directory);
  CKPT_RETURN_IF_ERROR(WriteSource(storage, flow, 1, hidden, directory / "source"));
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(site.target().parent_path()));
  if (flow.overwrites) {
    const Flow old = OldOf(flow);
    CKPT_RETURN_IF_ERROR(WriteSource(storage, old, 2, hidden, directory / "other"));
    const ConvertOptions options = OptionsOf(old, directory / "other", site.target());
    CKPT_RETURN_IF_ERROR(RunFlow(storage, old, options).status());
    CKPT_ASSIGN_OR_RETURN(site.old_, site.ReadPublished());
  }
  for (const ConvertOptions& options : {site.options(), site.recovery_options()}) {
    CKPT_RETURN_IF_ERROR(RunFlow(storage, flow, options).status());
    CKPT_RETURN_IF_ERROR(ReadCheckpoint(storage, site.target()).status());
    CKPT_ASSIGN_OR_RETURN(Tree tree, site.ReadPublished());
    site.made_.push_back(std::move(tree));
  }
  return site;
}

ConvertOptions FlowSite::options() const {
  return OptionsOf(flow_, directory_ / "source", target());
}

ConvertOptions FlowSite::recovery_options() const {
  ConvertOptions options = this->options();
  options.resume = !flow_.links;  // which copies nothing that could be taken up
  options.overwrite = true;
  return options;
}

Status FlowSite::Reset() {
  const Path made = target().parent_path();
  CKPT_RETURN_IF_ERROR(storage_->RemoveAll(made));
  CKPT_RETURN_IF_ERROR(storage_->MakeDirectories(made));
  for (const auto& [name, content] : old_) {
    CKPT_RETURN_IF_ERROR(storage_->MakeDirectories((made / name).parent_path()));
    CKPT_RETURN_IF_ERROR(WriteSmallFile(*storage_, made / name, AsBytes(content)));
  }
  return OkStatus();
}

Result<Tree> FlowSite::ReadPublished() {
  CKPT_ASSIGN_OR_RETURN(Tree tree, ReadTree(*storage_, target().parent_path()));
  const std::string staging = StagingOf(target()).filename().string();
  std::erase_if(tree, [&](const auto& file) { return file.first.starts_with(staging); });
  return tree;
}

// Parts of a file get their names before the file does, and an old one's lose theirs after that.
bool FlowSite::Holds(const Tree& tree, const Tree& whole) const {
  const bool has_parts = flow_.files > 0 || flow_.old_files > 0;
  if (!has_parts) return tree == whole;
  return whole.empty() ? !tree.contains(kTarget) : std::ranges::includes(tree, whole);
}

Status FlowSite::Check(bool must_be_new) {
  CKPT_ASSIGN_OR_RETURN(const Tree tree, ReadPublished());
  if (std::ranges::find(made_, tree) != made_.end()) return OkStatus();
  const auto is_there = [&](const Tree& whole) { return Holds(tree, whole); };
  if (!must_be_new && (is_there(old_) || std::ranges::any_of(made_, is_there))) return OkStatus();
  std::string names;
  for (const auto& [name, content] : tree) names += " " + name;
  return Error(ErrorKind::kValueMismatch, "the target is not what it must be")
      .Expected(must_be_new ? "the new one, nothing else" : "the old one or the new one")
      .Actual("files" + names);
}

}  // namespace ckpt::testing
