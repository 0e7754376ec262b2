#include "converters/verbs/internal/link_tensors.h"

#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/task_pool.h"
#include "core/io/path.h"

namespace ckpt {
namespace {

using Links = std::map<std::string, std::vector<LinkedBox>>;
using Extent = std::pair<std::string, std::uint64_t>;  // a file, and an offset in it

// Why the elements cannot be shown as they are stored; empty: they can.
std::string_view WhyNot(const StoredArray& array, DimsView sizes) {
  if (array.resident_bytes != 0) return "it is compressed";
  if (array.byte_swapped) return "its elements are big-endian";
  if (array.negated || array.conjugated) return "its elements are to be negated or conjugated";
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && array.strides[d] != stride) return "its elements are strided";
    stride *= sizes[d];
  }
  return {};
}

// The file by a name that any process can open, with the extension that it has here: a link is not
// replaced by what it points at.
std::string AbsoluteName(const std::string& name) {
  const Path path(name);
  return (CanonicalPath(path.has_parent_path() ? path.parent_path() : Path(".")) / path.filename())
      .string();
}

Result<std::vector<LinkedBox>> LinkTensor(const CheckpointSource& source,
                                          const GlobalTensor& tensor) {
  const CheckpointIndex& index = source.index();
  std::vector<LinkedBox> links;
  std::set<std::pair<Dims, Dims>> seen;
  for (const Chunk& chunk : index.chunks(tensor)) {
    Box box = index.box(chunk);
    if (IsEmpty(box) || !seen.emplace(box.offsets, box.sizes).second) continue;
    CKPT_ASSIGN_OR_RETURN(const StoredArray array, source.Locate(tensor, chunk));
    const std::string_view why = WhyNot(array, box.sizes);
    if (!why.empty()) {
      return Error(ErrorKind::kUnsupported, fmt::format("the tensor cannot be linked: {}", why))
          .File(array.file->name())
          .Tensor(tensor.key)
          .Hint("ckpt-convert to-hdf5 without --link copies it");
    }
    const std::uint64_t size_bytes = NumBytes(box.sizes, tensor.dtype);
    links.push_back({.box = std::move(box),
                     .file = AbsoluteName(array.file->name()),
                     .offset_bytes = array.offset_bytes,
                     .size_bytes = size_bytes});
  }
  return links;
}

}  // namespace

Result<Links> LinkTensors(const ModelSource& model, const ConvertOptions& options) {
  std::vector<std::vector<LinkedBox>> found(model.stored.size());
  std::vector<Status> failures(model.stored.size());
  const auto link = [&](std::size_t t, std::size_t /*worker*/) -> Status {
    const GlobalTensor& tensor = model.source().index().tensors()[model.stored[t].position];
    Result<std::vector<LinkedBox>> links = LinkTensor(model.source(), tensor);
    if (links.ok()) {
      found[t] = *std::move(links);
    } else {
      failures[t] = std::move(links).status();
    }
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(found.size(), options.threads, options.stop, link));
  Status status;
  for (Status& failure : failures) {
    if (!failure.ok()) status.Add(std::move(failure));
  }
  if (!status.ok()) return status;
  Links links;
  for (std::size_t t = 0; t < found.size(); ++t) {
    links[model.stored[t].key] = std::move(found[t]);
  }
  return links;
}

Status CheckLinks(const CheckpointSource& written, const ModelSource& model, const Links& links) {
  const CheckpointIndex& index = written.index();
  if (index.tensors().size() != links.size()) {
    return Error(ErrorKind::kValueMismatch, "the result read back has other tensors")
        .Expected(Counted(links.size(), "tensor"))
        .Actual(Counted(index.tensors().size(), "tensor"));
  }
  const auto source_tensors = model.source().index().tensors();
  for (const StoredTensor& stored : model.stored) {
    const GlobalTensor& original = source_tensors[stored.position];
    const GlobalTensor* const tensor = index.FindTensor(stored.key);
    const bool is_same =
        tensor != nullptr && tensor->dtype == original.dtype && tensor->shape == original.shape;
    if (!is_same) {
      return Error(ErrorKind::kValueMismatch, "the result read back has another tensor")
          .Tensor(stored.key);
    }
    std::map<Dims, Extent> places;
    for (const Chunk& chunk : index.chunks(*tensor)) {
      if (IsEmpty(index.box(chunk))) continue;
      CKPT_ASSIGN_OR_RETURN(const StoredArray array, written.Locate(*tensor, chunk));
      places[index.box(chunk).offsets] = {CanonicalPath(array.file->name()).string(),
                                          array.offset_bytes};
    }
    for (const LinkedBox& link : links.at(stored.key)) {
      const auto place = places.find(link.box.offsets);
      if (place != places.end() &&
          place->second == Extent(CanonicalPath(link.file).string(), link.offset_bytes)) {
        continue;
      }
      return Error(ErrorKind::kValueMismatch, "the result read back shows other bytes")
          .File(link.file)
          .Tensor(stored.key);
    }
  }
  return OkStatus();
}

}  // namespace ckpt
