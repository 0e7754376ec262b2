#include "trainer/run/internal/checked_load.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/thrown.h"
#include "core/manifest/late_checks.h"
#include "core/manifest/manifest_text.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/comm/row_exchange.h"

namespace ckpt::train {
namespace {

// Sends each part to the rank that compares its block. Returns those that were sent to this rank.
// Every rank calls it.
Result<std::vector<BlockPart>> SendToComparers(std::vector<BlockPart> parts,
                                               trainer::HostGroup& world) {
  const auto num_ranks = static_cast<std::size_t>(world.size());
  // Each block has one, and neighbours have different ones: what must be read is divided, too.
  const auto comparer_of = [&](const BlockPart& part) {
    return static_cast<std::size_t>((part.block + part.file) % num_ranks);
  };
  std::ranges::sort(parts, {}, comparer_of);
  std::vector<std::int64_t> send_rows(num_ranks);
  for (const BlockPart& part : parts) ++send_rows[comparer_of(part)];
  std::vector<std::int64_t> receive_rows(num_ranks);
  const std::vector<std::int64_t> one_each(num_ranks, 1);
  CKPT_RETURN_IF_ERROR(
      world.ExchangeRows({.send = std::as_bytes(std::span(send_rows)).data(),
                          .receive = std::as_writable_bytes(std::span(receive_rows)).data(),
                          .row_bytes = sizeof(std::int64_t),
                          .send_rows = one_each,
                          .receive_rows = one_each}));
  std::vector<BlockPart> received(static_cast<std::size_t>(
      std::accumulate(receive_rows.begin(), receive_rows.end(), std::int64_t{0})));
  CKPT_RETURN_IF_ERROR(
      world.ExchangeRows({.send = std::as_bytes(std::span(parts)).data(),
                          .receive = std::as_writable_bytes(std::span(received)).data(),
                          .row_bytes = sizeof(BlockPart),
                          .send_rows = std::move(send_rows),
                          .receive_rows = std::move(receive_rows)}));
  return received;
}

// The first damaged block that any rank has `found`; nothing if none has. Every rank calls it.
Result<std::optional<BlockPart>> FirstDamage(const std::optional<BlockPart>& found,
                                             trainer::HostGroup& world) {
  const BlockPart mine = found.value_or(BlockPart());  // which is empty, as no damaged block is
  CKPT_ASSIGN_OR_RETURN(std::vector<BlockPart> all, trainer::ExchangeValues(world, mine));
  std::erase_if(all, [](const BlockPart& part) { return part.size_bytes == 0; });
  if (all.empty()) return std::optional<BlockPart>();
  return std::optional(*std::ranges::min_element(all));
}

// Compares all blocks of which this rank or another one has read parts. Every rank calls it.
Status CompareTogether(LateChecks& late, trainer::HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(std::vector<BlockPart> parts, SendToComparers(late.TakeParts(), world));
  const Result<std::optional<BlockPart>> found = late.FindDamage(std::move(parts));
  CKPT_ASSIGN_OR_RETURN(const std::optional<BlockPart> first,
                        FirstDamage(found.ok() ? *found : std::nullopt, world));
  return first ? late.Describe(*first) : found.status();
}

}  // namespace

std::string ManifestIdentity(const std::shared_ptr<const Manifest>& manifest) {
  if (manifest == nullptr) return "none";
  return HashHex(HashAlgorithm::kXxh3, AsBytes(SerializeManifest(*manifest)));
}

Status LoadChecked(const OpenedCheckpoint& checkpoint, const std::function<Status()>& load,
                   trainer::HostGroup& world) {
  const std::shared_ptr<LateChecks>& late = checkpoint.late_checks;
  if (late == nullptr) return load();
  late->Begin();
  Status loaded = StatusOfCall(load);
  // All have ended their reading then.
  Status compared = world.Barrier();
  if (compared.ok()) compared = CompareTogether(*late, world);
  late->End();
  return compared.ok() ? loaded : compared;
}

}  // namespace ckpt::train
