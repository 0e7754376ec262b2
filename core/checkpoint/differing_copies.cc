#include "core/checkpoint/differing_copies.h"

#include <span>
#include <vector>

#include "core/base/hash.h"
#include "core/base/name_list.h"
#include "core/base/warning.h"
#include "core/checkpoint/chunk_copies.h"
#include "core/checkpoint/digest.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

// Adds copy number `copy`, `other`, which differs from `first` by `size_bytes`.
template <typename Entry>
void Add(const CheckpointIndex& index, const Entry& first, const Entry& other, std::size_t copy,
         std::uint64_t size_bytes, DifferingCopies& differing) {
  if (differing.empty()) differing.taken = index.files()[first.file];
  differing.others.insert(index.files()[other.file]);
  differing.bytes[copy] += size_bytes;
}

}  // namespace

Result<DifferingCopies> CompareCopies(const CheckpointSource& source, const GlobalTensor& tensor,
                                      std::uint64_t budget_bytes) {
  const CheckpointIndex& index = source.index();
  DifferingCopies differing{.key = tensor.key};
  if (!index.ranks_saved_alone()) return differing;
  std::map<BoxId, std::vector<const Chunk*>> stored;
  for (const Chunk& chunk : index.chunks(tensor)) stored[BoxIdOf(chunk)].push_back(&chunk);
  for (const auto& [id, copies] : stored) {
    if (copies.size() == 1) continue;
    const Box box = index.box(*copies[0]);
    const auto digest = [&](std::size_t copy) {
      return DigestChunks(source, tensor, box, copy, HashAlgorithm::kXxh3, budget_bytes);
    };
    CKPT_ASSIGN_OR_RETURN(const std::string first, digest(0));
    for (std::size_t copy = 1; copy < copies.size(); ++copy) {
      CKPT_ASSIGN_OR_RETURN(const std::string other, digest(copy));
      if (other == first) continue;
      Add(index, *copies[0], *copies[copy], copy, NumBytes(box.sizes, tensor.dtype), differing);
    }
  }
  return differing;
}

Result<DifferingCopies> CompareCopies(const CheckpointSource& source, const ObjectEntry& object) {
  const CheckpointIndex& index = source.index();
  DifferingCopies differing{.key = object.key};
  const std::span<const ObjectEntry> copies = index.copies(object);
  if (!index.ranks_saved_alone() || copies.empty()) return differing;
  CKPT_ASSIGN_OR_RETURN(const RenderedObject first, source.ReadObject(object));
  for (std::size_t i = 0; i < copies.size(); ++i) {
    CKPT_ASSIGN_OR_RETURN(const RenderedObject other, source.ReadObject(copies[i]));
    if (SayTheSame(first, other)) continue;
    Add(index, object, copies[i], i + 1, copies[i].size_bytes, differing);
  }
  return differing;
}

Problem WarnOfCopies(const DifferingCopies& copies) {
  Problem warning = Warning(ErrorKind::kValueMismatch,
                            "ranks stored different values, of which the first rank's are taken",
                            copies.taken, copies.key);
  const std::vector<std::string> others(copies.others.begin(), copies.others.end());
  warning.actual = "others in " + NameSome(others);
  return warning;
}

}  // namespace ckpt
