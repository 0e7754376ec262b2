#include "core/manifest/manifest.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/io/path.h"
#include "core/json/json_scanner.h"
#include "core/json/json_writer.h"

namespace ckpt {
namespace {

constexpr std::string_view kOutside = "../";

// The first bytes of every manifest. The digits of the digest follow.
constexpr std::string_view kVersionPrefix = R"({"ckptkit":)";
constexpr std::string_view kPrefix = R"({"ckptkit":1,"self":")";
constexpr std::size_t kDigestDigits = 32;
constexpr std::size_t kCrcDigits = 8;

// XXH3-128 of the text with zeros in place of the digest. REQUIRES: the text starts with kPrefix
// and a digest.
std::string SelfDigest(std::string_view text) {
  Hasher hasher(HashAlgorithm::kXxh3);
  hasher.Update(AsBytes(text.substr(0, kPrefix.size())));
  hasher.Update(AsBytes(std::string(kDigestDigits, '0')));
  hasher.Update(AsBytes(text.substr(kPrefix.size() + kDigestDigits)));
  return hasher.Finish();
}

std::uint64_t NumBlocks(std::uint64_t size_bytes) {
  return CeilDiv(size_bytes, kManifestBlockBytes);
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

template <typename Range, typename Member>
void WriteColumn(JsonWriter& json, std::string_view name, const Range& rows, Member member) {
  json.Key(name).BeginArray();
  for (const auto& row : rows) member(row);
  json.End();
}

void WriteTexts(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
  WriteColumn(json, name, texts, [&](const std::string& text) { json.Text(text); });
}

std::string FormatCrcs(const std::vector<std::uint32_t>& crcs) {
  std::string digits;
  digits.reserve(crcs.size() * kCrcDigits);
  for (const std::uint32_t crc : crcs) digits += Hex32(crc);
  return digits;
}

void WriteFiles(JsonWriter& json, const std::vector<ManifestFile>& files) {
  json.Key("files").BeginObject();
  WriteColumn(json, "names", files, [&](const ManifestFile& f) { json.Text(f.name); });
  WriteColumn(json, "sizes", files, [&](const ManifestFile& f) { json.Int(f.size_bytes); });
  WriteColumn(json, "roots", files, [&](const ManifestFile& f) { json.Text(FileRoot(f)); });
  WriteColumn(json, "crc32c", files,
              [&](const ManifestFile& f) { json.Text(FormatCrcs(f.block_crc32c)); });
  WriteColumn(json, "crc32", files,
              [&](const ManifestFile& f) { json.Text(FormatCrcs(f.block_crc32)); });
  json.End();
}

void WriteParity(JsonWriter& json, const Manifest& manifest) {
  const std::vector<ParityGroup>& groups = manifest.parity;
  json.Key("parity").BeginObject();
  WriteColumn(json, "files", groups, [&](const ParityGroup& g) { json.Text(g.parity_file); });
  WriteColumn(json, "members", groups, [&](const ParityGroup& g) {
    json.BeginArray();
    for (const std::string& member : g.members) json.Text(member);
    json.End();
  });
  if (manifest.has_copy) json.Key("copy").Text(kManifestCopyName);
  json.End();
}

void WriteOrigin(JsonWriter& json, const ManifestOrigin& origin) {
  json.Key("origin").BeginObject().Key("format").Text(origin.format);
  json.Key("shards").BeginArray();
  for (const ManifestShard& shard : origin.shards) {
    json.BeginObject().Key("file").Text(shard.file);
    if (shard.metadata) {
      json.Key("metadata").BeginArray();
      for (const auto& [key, value] : *shard.metadata) {
        json.BeginArray().Text(key).Text(value).End();
      }
      json.End();
    }
    WriteTexts(json, "tensors", shard.tensors);
    json.End();
  }
  json.End();
  WriteTexts(json, "dropped", origin.dropped);
  json.Key("choices").BeginObject();
  for (const auto& [key, value] : origin.choices) json.Key(key).Text(value);
  json.End().End();
}

std::vector<std::string> ScanTexts(JsonScanner& scan) {
  std::vector<std::string> texts;
  for (scan.BeginArray(); scan.NextItem();) texts.push_back(scan.Text());
  return texts;
}

std::vector<std::uint32_t> ParseCrcs(JsonScanner& scan, std::string_view digits) {
  if (digits.size() % kCrcDigits != 0 || !IsHex(digits)) {
    scan.Fail(ErrorKind::kBadMetadata, "checksums are not a sequence of 8 hex digits each");
    return {};
  }
  std::vector<std::uint32_t> crcs(digits.size() / kCrcDigits);
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    const char* at = digits.data() + i * kCrcDigits;
    std::from_chars(at, at + kCrcDigits, crcs[i], 16);
  }
  return crcs;
}

bool HasAllChecksums(const ManifestFile& file) {
  const std::uint64_t num_blocks = NumBlocks(file.size_bytes);
  return file.block_crc32c.size() == num_blocks &&
         (file.block_crc32.empty() || file.block_crc32.size() == num_blocks);
}

// Members may come in any order. Unknown ones are skipped, because later versions may add some.
std::vector<ManifestFile> ScanFiles(JsonScanner& scan) {
  std::vector<std::string> names;
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> roots;
  std::vector<std::vector<std::uint32_t>> crc32c;
  std::vector<std::vector<std::uint32_t>> crc32;
  std::string column;
  for (scan.BeginObject(); scan.NextMember(column);) {
    if (column == "names") {
      names = ScanTexts(scan);
    } else if (column == "sizes") {
      for (scan.BeginArray(); scan.NextItem();) sizes.push_back(scan.Uint());
    } else if (column == "roots") {
      roots = ScanTexts(scan);
    } else if (column == "crc32c") {
      for (scan.BeginArray(); scan.NextItem();) crc32c.push_back(ParseCrcs(scan, scan.Text()));
    } else if (column == "crc32") {
      for (scan.BeginArray(); scan.NextItem();) crc32.push_back(ParseCrcs(scan, scan.Text()));
    } else {
      scan.Skip();
    }
  }
  crc32.resize(crc32.empty() ? names.size() : crc32.size());
  if (sizes.size() != names.size() || roots.size() != names.size() ||
      crc32c.size() != names.size() || crc32.size() != names.size()) {
    scan.Fail(ErrorKind::kBadMetadata, "columns of files have different lengths");
    return {};
  }
  std::vector<ManifestFile> files(names.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i] = {std::move(names[i]), sizes[i], std::move(crc32c[i]), std::move(crc32[i])};
    if (!HasAllChecksums(files[i])) {
      scan.Fail(ErrorKind::kBadMetadata, "file has another number of blocks than checksums",
                Quote(files[i].name));
    } else if (FileRoot(files[i]) != roots[i]) {
      scan.Fail(ErrorKind::kBadMetadata, "root does not follow from size and checksums",
                Quote(files[i].name));
    }
  }
  return files;
}

void ScanParity(JsonScanner& scan, Manifest& manifest) {
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> members;
  std::string column;
  for (scan.BeginObject(); scan.NextMember(column);) {
    if (column == "files") {
      files = ScanTexts(scan);
    } else if (column == "members") {
      for (scan.BeginArray(); scan.NextItem();) members.push_back(ScanTexts(scan));
    } else if (column == "copy") {
      const std::string name = scan.Text();
      if (name != kManifestCopyName) {
        scan.Fail(ErrorKind::kBadMetadata, "the manifest's copy has another name", Quote(name));
      }
      manifest.has_copy = true;
    } else {
      scan.Skip();
    }
  }
  if (files.size() != members.size()) {
    scan.Fail(ErrorKind::kBadMetadata, "columns of parity groups have different lengths");
    return;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    manifest.parity.push_back({std::move(files[i]), std::move(members[i])});
  }
}

std::vector<ManifestTensor> ScanTensors(JsonScanner& scan) {
  std::vector<std::string> keys;
  std::vector<std::string> digests;
  std::string column;
  for (scan.BeginObject(); scan.NextMember(column);) {
    if (column == "keys") {
      keys = ScanTexts(scan);
    } else if (column == "xxh3") {
      digests = ScanTexts(scan);
    } else {
      scan.Skip();
    }
  }
  if (keys.size() != digests.size()) {
    scan.Fail(ErrorKind::kBadMetadata, "columns of tensors have different lengths");
    return {};
  }
  std::vector<ManifestTensor> tensors(keys.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = {std::move(keys[i]), std::move(digests[i])};
    if (tensors[i].xxh3.size() != kDigestDigits || !IsHex(tensors[i].xxh3)) {
      scan.Fail(ErrorKind::kBadMetadata, "digest is not 32 hex digits", Quote(tensors[i].key));
    }
  }
  return tensors;
}

ManifestShard ScanShard(JsonScanner& scan) {
  ManifestShard shard;
  std::string field;
  for (scan.BeginObject(); scan.NextMember(field);) {
    if (field == "file") {
      shard.file = scan.Text();
    } else if (field == "metadata") {
      shard.metadata.emplace();
      for (scan.BeginArray(); scan.NextItem();) {
        std::vector<std::string> pair = ScanTexts(scan);
        if (pair.size() != 2) {
          scan.Fail(ErrorKind::kBadMetadata, "metadata entry is not a pair");
          break;
        }
        shard.metadata->emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    } else if (field == "tensors") {
      shard.tensors = ScanTexts(scan);
    } else {
      scan.Skip();
    }
  }
  return shard;
}

ManifestOrigin ScanOrigin(JsonScanner& scan) {
  ManifestOrigin origin;
  std::string field;
  for (scan.BeginObject(); scan.NextMember(field);) {
    if (field == "format") {
      origin.format = scan.Text();
    } else if (field == "shards") {
      for (scan.BeginArray(); scan.NextItem();) origin.shards.push_back(ScanShard(scan));
    } else if (field == "dropped") {
      origin.dropped = ScanTexts(scan);
    } else if (field == "choices") {
      std::string key;
      for (scan.BeginObject(); scan.NextMember(key);) origin.choices[key] = scan.Text();
    } else {
      scan.Skip();
    }
  }
  return origin;
}

// The text that names a checkpoint, and a file of that checkpoint once more (RunRoot::copied_file).
constexpr int kMostTrackers = 2;

// Names are relative and sorted, so none occurs twice.
Status CheckNames(const Manifest& manifest) {
  int num_trackers = 0;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const std::string& name = manifest.files[i].name;
    const std::string inside = IsTracker(name) ? name.substr(kOutside.size()) : name;
    CKPT_RETURN_IF_ERROR(JoinInside(Path("."), inside).status());
    num_trackers += IsTracker(name) ? 1 : 0;
    if (num_trackers > kMostTrackers) {
      return Error(ErrorKind::kBadMetadata, "there are more trackers than a root has")
          .Actual(Quote(name));
    }
    if (i > 0 && !(manifest.files[i - 1].name < name)) {
      return Error(ErrorKind::kBadMetadata, "file names are not in order").Actual(Quote(name));
    }
  }
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    if (!(manifest.tensors[i - 1].key < manifest.tensors[i].key)) {
      return Error(ErrorKind::kBadMetadata, "tensor keys are not in order")
          .Tensor(manifest.tensors[i].key);
    }
  }
  return OkStatus();
}

// Every file is in at most one group and has one role in it. Every parity file is as long as its
// longest member.
Status CheckParity(const Manifest& manifest) {
  std::vector<bool> has_role(manifest.files.size(), false);
  const auto take = [&](const std::string& name) -> Result<std::uint64_t> {
    const std::optional<std::size_t> file = manifest.FindFile(name);
    if (!file || IsTracker(name)) {
      return Error(ErrorKind::kBadMetadata, "a parity group names a file that cannot be in one")
          .Actual(Quote(name));
    }
    if (has_role[*file]) {
      return Error(ErrorKind::kBadMetadata, "a file is in two parity groups").Actual(Quote(name));
    }
    has_role[*file] = true;
    return manifest.files[*file].size_bytes;
  };
  for (const ParityGroup& group : manifest.parity) {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, take(group.parity_file));
    std::uint64_t longest = 0;
    for (const std::string& member : group.members) {
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t member_bytes, take(member));
      longest = std::max(longest, member_bytes);
    }
    if (longest == size_bytes) continue;
    return Error(ErrorKind::kBadMetadata, "a parity file is not as long as its longest member")
        .Expected(fmt::format("{} bytes", longest))
        .Actual(fmt::format("{}: {} bytes", Quote(group.parity_file), size_bytes));
  }
  return OkStatus();
}

}  // namespace

std::string ParityName(std::size_t number) {
  return fmt::format("{}{:03d}{}", kParityPrefix, number, kParitySuffix);
}

namespace {

bool IsBeside(std::string_view name, std::string_view suffix) {
  return name.starts_with(kOutside) && name.ends_with(suffix) &&
         name.size() > kOutside.size() + suffix.size() &&
         name.find('/', kOutside.size()) == std::string_view::npos;
}

bool IsTrackerText(std::string_view name) { return IsBeside(name, ".txt"); }

}  // namespace

bool IsTracker(std::string_view name) { return IsTrackerText(name) || IsBeside(name, ".pt"); }

std::optional<std::size_t> Manifest::FindTracker() const {
  const auto found = std::ranges::find_if(files, IsTrackerText, &ManifestFile::name);
  if (found == files.end()) return std::nullopt;
  return static_cast<std::size_t>(found - files.begin());
}

std::optional<std::size_t> Manifest::FindFile(std::string_view name) const {
  const auto it = std::lower_bound(
      files.begin(), files.end(), name,
      [](const ManifestFile& file, std::string_view wanted) { return file.name < wanted; });
  if (it == files.end() || it->name != name) return std::nullopt;
  return static_cast<std::size_t>(it - files.begin());
}

std::string FileRoot(const ManifestFile& file) {
  Bytes bytes;
  AppendLe(file.size_bytes, bytes);
  for (const std::uint32_t crc : file.block_crc32c) AppendLe(crc, bytes);
  return HashHex(HashAlgorithm::kXxh3, bytes);
}

std::string SerializeManifest(Manifest manifest) {
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  for (const ManifestFile& file : manifest.files) {
    CKPT_CHECK(HasAllChecksums(file));
  }
  CKPT_CHECK(CheckNames(manifest).ok());
  CKPT_CHECK(CheckParity(manifest).ok());

  JsonWriter json;
  json.BeginObject().Key("ckptkit").Int(1);
  json.Key("self").Text(std::string(kDigestDigits, '0'));
  json.Key("tool").Text(manifest.tool);
  json.Key("block_bytes").Int(kManifestBlockBytes);
  WriteFiles(json, manifest.files);
  if (!manifest.parity.empty() || manifest.has_copy) WriteParity(json, manifest);
  json.Key("tensors").BeginObject();
  WriteColumn(json, "keys", manifest.tensors, [&](const auto& t) { json.Text(t.key); });
  WriteColumn(json, "xxh3", manifest.tensors, [&](const auto& t) { json.Text(t.xxh3); });
  json.End();
  if (manifest.origin) WriteOrigin(json, *manifest.origin);
  std::string text = json.End().Take() + "\n";
  CKPT_CHECK(text.starts_with(kPrefix));
  text.replace(kPrefix.size(), kDigestDigits, SelfDigest(text));
  return text;
}

Result<Manifest> ParseManifest(std::string_view text, std::string_view name) {
  if (!text.starts_with(kVersionPrefix) || text.size() < kPrefix.size() + kDigestDigits) {
    return Error(ErrorKind::kBadMetadata, "not a ckptkit manifest")
        .File(name)
        .Expected(kPrefix)
        .Actual(Quote(text.substr(0, kPrefix.size())));
  }
  if (!text.starts_with(kPrefix)) {
    return Error(ErrorKind::kUnsupported, "unsupported version of the manifest")
        .File(name)
        .Expected(kPrefix)
        .Actual(Quote(text.substr(0, kPrefix.size())));
  }
  const std::string_view stored = text.substr(kPrefix.size(), kDigestDigits);
  const std::string computed = SelfDigest(text);
  if (stored != computed) {
    return Error(ErrorKind::kChecksum, "the manifest's own digest differs")
        .File(name)
        .Expected(stored)
        .Actual(computed)
        .Hint("the manifest is damaged; without it the data can be read, but not proven");
  }

  Manifest manifest;
  std::uint64_t block_bytes = 0;
  JsonScanner scan(text, name);
  std::string field;
  for (scan.BeginObject(); scan.NextMember(field);) {
    if (field == "tool") {
      manifest.tool = scan.Text();
    } else if (field == "block_bytes") {
      block_bytes = scan.Uint();
    } else if (field == "files") {
      manifest.files = ScanFiles(scan);
    } else if (field == "parity") {
      ScanParity(scan, manifest);
    } else if (field == "tensors") {
      manifest.tensors = ScanTensors(scan);
    } else if (field == "origin") {
      manifest.origin = ScanOrigin(scan);
    } else {
      scan.Skip();
    }
  }
  CKPT_RETURN_IF_ERROR(scan.Finish());
  if (block_bytes != kManifestBlockBytes) {
    return Error(ErrorKind::kUnsupported, "unsupported block size in the manifest")
        .File(name)
        .Expected(std::to_string(kManifestBlockBytes))
        .Actual(std::to_string(block_bytes));
  }
  CKPT_RETURN_IF_ERROR(CheckNames(manifest).File(name));
  CKPT_RETURN_IF_ERROR(CheckParity(manifest).File(name));
  return manifest;
}

}  // namespace ckpt
