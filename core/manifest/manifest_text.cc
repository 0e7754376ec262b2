#include "core/manifest/manifest_text.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/text_number.h"
#include "core/json/json_scanner.h"
#include "core/json/json_writer.h"
#include "core/manifest/internal/manifest_rules.h"

namespace ckpt {
namespace {

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

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); });
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

}  // namespace

std::string SerializeManifest(Manifest manifest) {
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  for (const ManifestFile& file : manifest.files) CKPT_CHECK(HasAllChecksums(file));
  CKPT_CHECK(CheckManifest(manifest).ok());

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
  CKPT_RETURN_IF_ERROR(CheckManifest(manifest).File(name));
  return manifest;
}

}  // namespace ckpt
