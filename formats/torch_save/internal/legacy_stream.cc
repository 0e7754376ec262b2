#include "formats/torch_save/internal/legacy_stream.h"

#include <array>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/torch_save/internal/persistent_storage.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;
using pickle::ParsedPickle;
using namespace std::string_view_literals;

constexpr std::int64_t kProtocolNumber = 1001;

Status Bad(const ReadableFile& file, std::string_view rule) {
  return Error(ErrorKind::kBadItem, rule).File(file.name());
}

// Keys that torch writes are numbers. Many references may share one long key.
constexpr std::size_t kMaxStorageKeyBytes = 256;

// Element size by storage key: of the class with which the key was seen first.
std::map<std::string, std::uint64_t, std::less<>> ElementBytesByKey(const Graph& graph) {
  std::map<std::string, std::uint64_t, std::less<>> sizes;
  for (NodeId node = 0; node < graph.size(); ++node) {
    if (graph.kind(node) != NodeKind::kPersistent) continue;
    const std::optional<PersistentStorage> storage = ParsePersistentStorage(graph, node);
    const bool is_usable =
        storage && storage->element_bytes != 0 && storage->key.size() <= kMaxStorageKeyBytes;
    if (is_usable) sizes.try_emplace(std::string(storage->key), storage->element_bytes);
  }
  return sizes;
}

// Reads the announced element count of one storage and checks that its bytes are there.
Result<StorageExtent> ReadStorage(const ReadableFile& file, ByteSpan bytes, std::uint64_t at,
                                  std::string_view key, std::uint64_t element_bytes) {
  constexpr std::uint64_t kCountBytes = sizeof(std::uint64_t);
  const std::string name = "storage " + Quote(key);
  if (!RangeFits(at, kCountBytes, bytes.size())) {
    return Error(ErrorKind::kTruncated, fmt::format("the file ends before {}", name))
        .File(file.name());
  }
  const auto count = LoadLe<std::uint64_t>(&bytes[at]);
  std::uint64_t size = 0;
  if (!CheckedMul(count, element_bytes, &size) || size > bytes.size()) {
    return Error(ErrorKind::kResource, fmt::format("{} announces more than the whole file", name))
        .File(file.name())
        .Expected(fmt::format("at most {} bytes", bytes.size()))
        .Actual(fmt::format("{} elements of {} bytes", count, element_bytes));
  }
  const std::uint64_t offset = at + kCountBytes;
  if (!RangeFits(offset, size, bytes.size())) {
    return Error(ErrorKind::kTruncated, fmt::format("the data of {} end early", name))
        .File(DescribeRange(file.name(), offset, size))
        .Expected(fmt::format("{} bytes", size))
        .Actual(fmt::format("{} bytes", bytes.size() - offset))
        .Hint("a short file is a cut-off copy or an interrupted save");
  }
  return StorageExtent{.name = name, .offset_bytes = offset, .size_bytes = size, .crc32 = {}};
}

// What lies behind the last storage, from `at` on.
Problem WarnOfBytesBehind(const ReadableFile& file, ByteSpan bytes, std::uint64_t at) {
  const ByteSpan rest = bytes.subspan(at);
  Problem warning = Warning(ErrorKind::kUnsupported, "bytes follow the end of the stream",
                            DescribeRange(file.name(), at, rest.size()));
  warning.actual = FormatByteSize(rest.size());
  warning.hint = LegacyMagicBytes(AsText(rest)) != 0
                     ? "another torch.save follows: with torch, load each from the same open file"
                     : "torch does not look at them: keep the file if another program wrote them";
  return warning;
}

}  // namespace

std::uint64_t LegacyMagicBytes(std::string_view start) {
  constexpr std::array kSpellings = {
      "L119547037146038801333356L\n."sv,  // protocol 1
      kLegacyMagic,
      "\x80\x03\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."sv,
      // From protocol 4 on there is a frame around it.
      "\x80\x04\x95\x0D\0\0\0\0\0\0\0\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."sv,
      "\x80\x05\x95\x0D\0\0\0\0\0\0\0\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."sv,
  };
  for (const std::string_view spelling : kSpellings) {
    if (start.starts_with(spelling)) return spelling.size();
  }
  return 0;
}

Result<TorchContainer> OpenLegacyStream(std::shared_ptr<const ReadableFile> file) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<FileView> view, file->View());
  const ByteSpan bytes = view->bytes();
  std::uint64_t at = LegacyMagicBytes(AsText(bytes));
  CKPT_CHECK(at != 0);
  const auto next_pickle = [&](bool has_module_ids = false) -> Result<ParsedPickle> {
    CKPT_ASSIGN_OR_RETURN(
        ParsedPickle parsed,
        pickle::ParsePickle(bytes, file->name(), {.start = at, .has_module_ids = has_module_ids}));
    at = parsed.end;
    return parsed;
  };

  CKPT_ASSIGN_OR_RETURN(const ParsedPickle protocol, next_pickle());
  if (protocol.graph.kind(protocol.root) != NodeKind::kInt ||
      protocol.graph.integer(protocol.root) != kProtocolNumber) {
    return Error(ErrorKind::kUnsupported, "a legacy torch.save stream of another protocol")
        .File(file->name())
        .Expected(std::to_string(kProtocolNumber));
  }
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle system, next_pickle());
  if (system.graph.kind(system.root) != NodeKind::kDict) {
    return Bad(*file, "the description of the writing system is not a dict");
  }
  // The recorded byte order of the writer is not used: torch always writes little endian, and does
  // not look at this when it reads.
  TorchContainer container;
  CKPT_ASSIGN_OR_RETURN(container.pickle, next_pickle(/*has_module_ids=*/true));
  CKPT_ASSIGN_OR_RETURN(const ParsedPickle keys, next_pickle());
  if (keys.graph.kind(keys.root) != NodeKind::kList) {
    return Bad(*file, "the list of storage keys is not a list");
  }

  const auto element_bytes = ElementBytesByKey(container.pickle.graph);
  for (const NodeId item : keys.graph.items(keys.root)) {
    if (keys.graph.kind(item) != NodeKind::kText) return Bad(*file, "a storage key is not text");
    const std::string_view key = keys.graph.text(item);
    const auto found = element_bytes.find(key);
    if (found == element_bytes.end()) {
      return Bad(*file, fmt::format("no tensor says what storage {} holds", Quote(key)));
    }
    CKPT_ASSIGN_OR_RETURN(StorageExtent extent, ReadStorage(*file, bytes, at, key, found->second));
    at = extent.offset_bytes + extent.size_bytes;
    if (!container.storages.emplace(key, std::move(extent)).second) {
      return Bad(*file, fmt::format("storage {} occurs twice", Quote(key)));
    }
  }
  if (at < bytes.size()) container.warnings.push_back(WarnOfBytesBehind(*file, bytes, at));
  container.file = std::move(file);
  return container;
}

}  // namespace ckpt::torch_save
