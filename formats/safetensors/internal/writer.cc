#include "formats/safetensors/internal/writer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/text_number.h"
#include "core/checkpoint/add_file.h"
#include "formats/safetensors/sharded_index.h"

namespace ckpt::safetensors {
namespace {

// A file to write: which tensors (positions in the plan), in which order.
struct FileContent {
  std::string name;
  std::optional<TextPairs> metadata;
  std::vector<std::uint32_t> tensors;
};

// A header entry without its place. Errors: kUnsupported, kResource.
Result<TensorEntry> EntryOf(const TargetTensor& tensor) {
  const std::optional<StoredDType> dtype = FromDType(tensor.dtype);
  if (!dtype) {
    return Error(ErrorKind::kUnsupported, "safetensors has no such dtype")
        .Tensor(tensor.key)
        .Actual(DTypeName(tensor.dtype));
  }
  TensorEntry entry;
  entry.name = tensor.key;
  entry.dtype = *dtype;
  Result<Dims> shape = ToStoredShape(*dtype, tensor.shape);
  if (!shape.ok()) return std::move(shape).status().Tensor(tensor.key);
  entry.shape = *std::move(shape);
  const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
  if (!bytes.ok()) return Status(bytes.status()).Tensor(tensor.key);
  entry.end = *bytes;
  return entry;
}

// The files of tensors, for messages. Those that are packed are none yet.
std::unordered_map<std::string_view, std::string_view> FilesOf(
    std::span<const ShardLayout> shards) {
  std::unordered_map<std::string_view, std::string_view> files;
  for (const ShardLayout& shard : shards) {
    for (const std::string& key : shard.tensors) files.emplace(key, shard.file);
  }
  return files;
}

std::uint64_t BytesOf(const TensorEntry& entry) { return entry.end - entry.begin; }

using TensorGroups = std::vector<std::vector<std::uint32_t>>;

// Starts another file where a tensor would make one larger than `max_bytes`.
TensorGroups GroupBySize(std::span<const TensorEntry> entries, std::span<const std::uint32_t> order,
                         std::uint64_t max_bytes) {
  TensorGroups groups(1);
  std::uint64_t filled = 0;
  for (const std::uint32_t tensor : order) {
    const std::uint64_t bytes = BytesOf(entries[tensor]);
    if (!RangeFits(filled, bytes, max_bytes) && !groups.back().empty()) {
      groups.emplace_back();
      filled = 0;
    }
    groups.back().push_back(tensor);
    filled += bytes;
  }
  return groups;
}

// Cuts into `count` files. File i ends where (i + 1) / count of all bytes are reached, and leaves
// at least one tensor for each later file. REQUIRES: 1 <= count <= order.size(); the sum of the
// bytes does not overflow.
TensorGroups GroupByCount(std::span<const TensorEntry> entries,
                          std::span<const std::uint32_t> order, std::size_t count) {
  std::uint64_t total = 0;
  for (const TensorEntry& entry : entries) total += BytesOf(entry);
  TensorGroups groups(1);
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    groups.back().push_back(order[i]);
    filled += BytesOf(entries[order[i]]);
    const std::uint64_t part = groups.size();
    const std::uint64_t end = total / count * part + total % count * part / count;
    const std::size_t tensors_left = order.size() - i - 1;
    const std::size_t files_left = count - groups.size();
    if (files_left != 0 && (filled >= end || tensors_left == files_left)) groups.emplace_back();
  }
  return groups;
}

// Fills files in key order; inside a file, the reference library's order.
std::vector<FileContent> PackFiles(std::span<const TensorEntry> entries,
                                   const WriterOptions& options) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return NaturallyLess(entries[a].name, entries[b].name);
  });
  const std::size_t count =
      std::min(order.size(), static_cast<std::size_t>(std::max(options.files, 0)));
  TensorGroups groups = count != 0 ? GroupByCount(entries, order, count)
                                   : GroupBySize(entries, order, options.max_shard_bytes);
  std::vector<FileContent> files(groups.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1 ? fmt::format("{}.safetensors", options.stem)
                                      : fmt::format("{}-{:05d}-of-{:05d}.safetensors", options.stem,
                                                    i + 1, files.size());
    files[i].metadata = options.metadata;
    files[i].tensors = std::move(groups[i]);
    std::sort(
        files[i].tensors.begin(), files[i].tensors.end(),
        [&](std::uint32_t a, std::uint32_t b) { return PrecedesInFile(entries[a], entries[b]); });
  }
  return files;
}

// Errors: kMissing, kUnmapped, kAlreadyExists, kUnsafePath; all of them.
Result<std::vector<FileContent>> FollowLayout(std::span<const TensorEntry> entries,
                                              std::span<const ShardLayout> shards) {
  std::unordered_map<std::string_view, std::uint32_t> by_key;
  for (std::uint32_t i = 0; i < entries.size(); ++i) by_key.emplace(entries[i].name, i);
  std::vector<bool> placed(entries.size(), false);
  std::set<std::string_view> names;
  std::vector<FileContent> files;
  Status problems;
  for (const ShardLayout& shard : shards) {
    problems.Add(JoinInside(Path("."), shard.file).status());
    if (!names.insert(shard.file).second) {
      problems.Add(Error(ErrorKind::kAlreadyExists, "two shards have one name").File(shard.file));
    }
    FileContent file{.name = shard.file, .metadata = shard.metadata, .tensors = {}};
    for (const std::string& key : shard.tensors) {
      const auto it = by_key.find(key);
      if (it == by_key.end()) {
        problems.Add(Error(ErrorKind::kMissing, "the shard map names a tensor that is not there")
                         .Tensor(key)
                         .File(shard.file));
      } else if (placed[it->second]) {
        problems.Add(Error(ErrorKind::kAlreadyExists, "the shard map names a tensor twice")
                         .Tensor(key)
                         .File(shard.file));
      } else {
        placed[it->second] = true;
        file.tensors.push_back(it->second);
      }
    }
    files.push_back(std::move(file));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!placed[i]) {
      problems.Add(
          Error(ErrorKind::kUnmapped, "the shard map has no place for it").Tensor(entries[i].name));
    }
  }
  if (!problems.ok()) return problems;
  return files;
}

// Appends one file with its header and items to the plan, and sets the places in `entries`.
Status PlanFile(const FileContent& content, std::span<TensorEntry> entries, WritePlan& plan) {
  const auto file = static_cast<std::uint32_t>(plan.files.size());
  std::vector<TensorEntry> listed;
  std::uint64_t at = 0;
  for (const std::uint32_t tensor : content.tensors) {
    TensorEntry& entry = entries[tensor];
    const std::uint64_t bytes = BytesOf(entry);
    entry.begin = at;
    if (!CheckedAdd(at, bytes, &at)) {
      return Error(ErrorKind::kResource, "file size overflows").File(content.name);
    }
    entry.end = at;
    listed.push_back(entry);
  }
  Bytes header = SerializeHeader(content.metadata, listed);
  const std::uint64_t payload_offset = header.size();
  if (payload_offset - kLengthBytes > kMaxHeaderBytes) {
    return Error(ErrorKind::kResource, "header is longer than safetensors readers accept")
        .File(content.name)
        .Expected(fmt::format("at most {} bytes", kMaxHeaderBytes))
        .Actual(fmt::format("{} bytes", payload_offset - kLengthBytes))
        .Hint("lower ckpt-convert's --max-shard-size");
  }
  plan.files.push_back({content.name, payload_offset + at});
  plan.literals.push_back({file, 0, std::move(header)});
  for (const std::uint32_t tensor : content.tensors) {
    const std::uint64_t offset = payload_offset + entries[tensor].begin;
    plan.items.push_back({.tensor = tensor,
                          .file = file,
                          .box = WholeBox(plan.tensors[tensor].shape),
                          .offset_bytes = offset,
                          .payload_offset = offset,
                          .payload_bytes = BytesOf(entries[tensor]),
                          .size_bytes = BytesOf(entries[tensor])});
  }
  return OkStatus();
}

// Numbers tensors in the order in which their bytes lie, because a plan's items must have that
// order.
void OrderTensorsByItem(WritePlan& plan) {
  std::vector<TargetTensor> ordered;
  ordered.reserve(plan.tensors.size());
  for (WriteItem& item : plan.items) {
    ordered.push_back(std::move(plan.tensors[item.tensor]));
    item.tensor = static_cast<std::uint32_t>(ordered.size() - 1);
  }
  plan.tensors = std::move(ordered);
}

void PlanIndex(std::span<const FileContent> files, std::span<const TensorEntry> entries,
               std::string_view stem, WritePlan& plan) {
  // Sorted by key, as transformers writes it.
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  for (const FileContent& file : files) {
    for (const std::uint32_t tensor : file.tensors) {
      weight_map.emplace(entries[tensor].name, file.name);
      total += BytesOf(entries[tensor]);
    }
  }
  ShardedIndex index;
  index.total_size = total;
  index.weight_map.assign(weight_map.begin(), weight_map.end());
  AddTextFile(fmt::format("{}{}", stem, kIndexSuffix), SerializeShardedIndex(index), plan);
}

Status CheckDistinctKeys(std::span<const TensorEntry> entries) {
  std::set<std::string_view> keys;
  Status problems;
  for (const TensorEntry& entry : entries) {
    if (!keys.insert(entry.name).second) {
      problems.Add(Error(ErrorKind::kAlreadyExists, "two tensors have one key").Tensor(entry.name));
    }
  }
  return problems;
}

}  // namespace

bool NaturallyLess(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
      continue;
    }
    // Without leading zeros, the longer run of digits is the larger number.
    const auto number = [](std::string_view text, std::size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const std::size_t begin = at;
      while (at < text.size() && IsDigit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = number(a, i);
    const std::string_view y = number(b, j);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // the same except for leading zeros
}

Result<WritePlan> PlanSafetensors(std::vector<TargetTensor> tensors, const WriterOptions& options) {
  std::vector<TensorEntry> entries;
  entries.reserve(tensors.size());
  const auto files_of = FilesOf(options.shards);
  Status problems;
  for (const TargetTensor& tensor : tensors) {
    Result<TensorEntry> entry = EntryOf(tensor);
    if (entry.ok()) {
      entries.push_back(*std::move(entry));
    } else {
      const auto file = files_of.find(tensor.key);
      problems.Add(std::move(entry).status().File(
          std::string(file == files_of.end() ? kSingleFileName : file->second)));
    }
  }
  if (!problems.ok()) return problems;
  CKPT_RETURN_IF_ERROR(CheckDistinctKeys(entries));

  std::vector<FileContent> files;
  if (options.shards.empty()) {
    files = PackFiles(entries, options);
  } else {
    CKPT_ASSIGN_OR_RETURN(files, FollowLayout(entries, options.shards));
  }
  WritePlan plan;
  plan.tensors = std::move(tensors);
  for (const FileContent& file : files) CKPT_RETURN_IF_ERROR(PlanFile(file, entries, plan));
  if (options.write_index && files.size() > 1) PlanIndex(files, entries, options.stem, plan);
  OrderTensorsByItem(plan);
  return plan;
}

}  // namespace ckpt::safetensors
