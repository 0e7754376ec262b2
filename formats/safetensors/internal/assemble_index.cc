#include "formats/safetensors/internal/assemble_index.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/counted.h"
#include "core/base/name_list.h"
#include "core/base/warning.h"

namespace ckpt::safetensors {
namespace {

// The part of one tensor that one file holds.
struct Piece {
  const TensorEntry* entry;
  const LoadedShard* shard;
  FileId file;

  [[nodiscard]] const std::string& name() const { return entry->name; }
  [[nodiscard]] bool is_whole() const {
    return !shard->info || !shard->info->contains(entry->name);
  }
};

class Assembler {
 public:
  Assembler(std::span<const LoadedShard> shards, const RepositoryFiles& files)
      : shards_(shards), files_(files), raw_(builder_.AddEncoding("raw")) {
    for (const LoadedShard& shard : shards) builder_.AddFile(shard.name);
  }

  Result<CheckpointIndex> Assemble() {
    for (const std::string& name : files_.leftover) {
      builder_.AddProblem(
          Warning(ErrorKind::kLeftover, "file is not part of the checkpoint", name));
    }
    WarnOfAbsentShards();
    CollectPieces();
    CheckTensorsOfIndex();
    CheckAnnouncedSize();
    for (std::size_t begin = 0; begin < pieces_.size();) {
      std::size_t end = begin + 1;
      while (end < pieces_.size() && pieces_[end].name() == pieces_[begin].name()) ++end;
      AddTensor(std::span(pieces_).subspan(begin, end - begin));
      begin = end;
    }
    AddNotes();
    return builder_.Build();
  }

 private:
  void Report(Status status, const Piece& piece) {
    builder_.AddProblems(std::move(status).Tensor(piece.name()).File(piece.shard->name));
  }

  // Without the last piece of a tensor, what is left of it looks whole.
  void WarnOfAbsentShards() {
    for (const AbsentShards& absent : files_.absent) {
      Problem warning =
          Warning(ErrorKind::kMissingFile,
                  "a rank has no file where others have one; if it was lost, tensors are shorter "
                  "than they were",
                  absent.names.front());
      warning.expected = fmt::format("{} of each of {}", Counted(absent.total, "file"),
                                     Counted(absent.ranks, "rank"));
      warning.actual = "no " + NameSome(absent.names, absent.count);
      warning.hint = "a rank without a part of these tensors writes none; else copy it again";
      builder_.AddProblem(std::move(warning));
    }
  }

  // In order of name, then file. Copies of a tensor that the index assigns to another file are left
  // out.
  void CollectPieces() {
    std::unordered_map<std::string_view, std::string_view> assigned;
    if (files_.index) {
      for (const auto& [tensor, file] : files_.index->weight_map) assigned.emplace(tensor, file);
    }
    for (FileId file = 0; file < shards_.size(); ++file) {
      const LoadedShard& shard = shards_[file];
      for (const TensorEntry& entry : shard.header.tensors) {
        const auto it = assigned.find(entry.name);
        if (it != assigned.end() && it->second != shard.name) {
          builder_.AddProblem(Warning(ErrorKind::kLeftover, "the index takes it from another file",
                                      shard.name, entry.name));
          continue;
        }
        if (files_.index && it == assigned.end()) {
          builder_.AddProblem(
              Warning(ErrorKind::kLeftover, "tensor is not in the index", shard.name, entry.name));
        }
        pieces_.push_back({&entry, &shard, file});
      }
    }
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.name() < b.name(); });
  }

  void CheckTensorsOfIndex() {
    if (!files_.index) return;
    std::set<std::string_view> found;
    for (const Piece& piece : pieces_) found.insert(piece.name());
    builder_.AddProblems(CheckWeightMap(*files_.index, found, files_.missing));
  }

  // Ranks that all write `model-00001-of-00001.safetensors` replace each other's file. What is left
  // can look complete; only the size in the index, which counts all ranks, shows the loss. Writers
  // without sharding info count other things there.
  void CheckAnnouncedSize() {
    if (!files_.index || !files_.index->total_size || !files_.missing.empty()) return;
    std::uint64_t held = 0;  // cannot overflow: extents were checked against the sizes of files
    for (const Piece& piece : pieces_) held += piece.entry->end - piece.entry->begin;
    if (held >= *files_.index->total_size) return;
    for (const Piece& piece : pieces_) {
      if (piece.is_whole()) continue;
      Report(Error(ErrorKind::kCoverage, "pieces of the tensors are missing")
                 .Expected(fmt::format("{} bytes in all files", *files_.index->total_size))
                 .Actual(fmt::format("{} bytes", held))
                 .Hint("ranks may have overwritten each other's file: save with "
                       "save_distributed=True"),
             piece);
    }
  }

  // Where the piece lies in the tensor. If that is not possible, reports it and returns nothing.
  std::optional<Box> BoxOf(const Piece& piece) {
    const Result<Dims> shape = ToTorchShape(piece.entry->dtype, piece.entry->shape);
    if (!shape.ok()) {
      Report(shape.status(), piece);
      return std::nullopt;
    }
    if (piece.is_whole()) return WholeBox(*shape);
    const Dims& offsets = piece.shard->info->at(piece.name());
    if (offsets.size() != shape->size()) {
      Report(Error(ErrorKind::kBadMetadata, "saved_offsets and shape have different lengths")
                 .Expected(FormatDims(*shape))
                 .Actual(FormatDims(offsets)),
             piece);
      return std::nullopt;
    }
    for (std::size_t d = 0; d < offsets.size(); ++d) {
      std::int64_t end = 0;
      if (offsets[d] < 0 || !CheckedAdd(offsets[d], (*shape)[d], &end)) {
        Report(
            Error(ErrorKind::kOutOfRange, "impossible saved_offsets").Actual(FormatDims(offsets)),
            piece);
        return std::nullopt;
      }
    }
    return Box{offsets, *shape};
  }

  // Whether `piece` can be a part of the tensor that `first` is a part of.
  bool CheckAgrees(const Piece& piece, const Piece& first) {
    if (piece.entry->dtype != first.entry->dtype) {
      Report(Error(ErrorKind::kDtypeMismatch, "pieces of a tensor have different dtypes")
                 .Expected(StoredDTypeName(first.entry->dtype))
                 .Actual(StoredDTypeName(piece.entry->dtype)),
             piece);
      return false;
    }
    if (piece.entry->shape.size() != first.entry->shape.size()) {
      Report(Error(ErrorKind::kShapeMismatch, "pieces of a tensor have different numbers of dims")
                 .Expected(FormatDims(first.entry->shape))
                 .Actual(FormatDims(piece.entry->shape)),
             piece);
      return false;
    }
    if (piece.is_whole() || first.is_whole()) {
      Report(Error(ErrorKind::kOverlap, "tensor is in two files").Expected(first.shard->name),
             piece);
      return false;
    }
    return true;
  }

  // `pieces` are those of one name.
  void AddTensor(std::span<const Piece> pieces) {
    const Piece& first = pieces.front();
    const std::optional<DType> dtype = ToDType(first.entry->dtype);
    if (!dtype) {
      Report(Error(ErrorKind::kUnsupported, "torch has no such dtype")
                 .Actual(StoredDTypeName(first.entry->dtype)),
             first);
      return;
    }
    std::vector<std::pair<const Piece*, Box>> placed;
    Dims shape(first.entry->shape.size(), 0);
    for (const Piece& piece : pieces) {
      if (&piece != &first && !CheckAgrees(piece, first)) continue;
      std::optional<Box> box = BoxOf(piece);
      if (!box) continue;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        shape[d] = std::max(shape[d], box->offsets[d] + box->sizes[d]);
      }
      placed.emplace_back(&piece, *std::move(box));
    }
    if (placed.empty()) return;
    builder_.AddTensor(first.name(), *dtype, std::move(shape));
    for (const auto& [piece, box] : placed) {
      builder_.AddChunk(box, piece->file, raw_,
                        piece->shard->header.payload_offset + piece->entry->begin,
                        piece->entry->end - piece->entry->begin);
    }
  }

  void AddNotes() {
    std::set<std::string_view> taken;
    for (const Piece& piece : pieces_) taken.insert(piece.name());
    for (Note& note : NotesOf(shards_)) {
      if (taken.contains(note.key)) continue;
      builder_.AddObject({.key = std::move(note.key),
                          .file = note.file,
                          .encoding = raw_,
                          .offset_bytes = kLengthBytes,
                          .size_bytes = note.text.size()});
    }
  }

  std::span<const LoadedShard> shards_;
  const RepositoryFiles& files_;
  IndexBuilder builder_;
  EncodingId raw_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Note> NotesOf(std::span<const LoadedShard> shards) {
  std::map<std::string, std::vector<Note>> by_name;
  for (FileId file = 0; file < shards.size(); ++file) {
    const std::optional<TextPairs>& metadata = shards[file].header.metadata;
    if (!metadata) continue;
    for (const auto& [name, text] : *metadata) {
      if (name.starts_with("DCP_") || (name == "format" && text == "pt")) continue;
      by_name[name].push_back({.key = "__metadata__." + name, .text = text, .file = file});
    }
  }
  std::vector<Note> notes;
  for (auto& [name, said] : by_name) {
    const bool are_same = std::ranges::all_of(
        said, [&first = said[0]](const Note& note) { return note.text == first.text; });
    if (are_same) said.resize(1);
    for (Note& note : said) {
      if (!are_same) note.key.insert(0, shards[note.file].name + ".");
      notes.push_back(std::move(note));
    }
  }
  return notes;
}

Result<CheckpointIndex> AssembleIndex(std::span<const LoadedShard> shards,
                                      const RepositoryFiles& files) {
  return Assembler(shards, files).Assemble();
}

}  // namespace ckpt::safetensors
