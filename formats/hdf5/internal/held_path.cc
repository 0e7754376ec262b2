#include "formats/hdf5/internal/held_path.h"

#include <cstdint>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/checkpoint/entry_path_json.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::string_view kSteps = "steps";
constexpr std::string_view kCrc32 = "crc32";

std::uint32_t ChecksumOf(const EntryPath& path) { return Crc32(AsBytes(FormatEntryPath(path))); }

}  // namespace

std::string EncodePath(const EntryPath& path) {
  JsonWriter json;
  json.BeginObject().Key(kSteps);
  WriteEntryPath(path, json);
  return json.Key(kCrc32).Int(ChecksumOf(path)).End().Take();
}

Result<EntryPath> ParsePath(std::string_view text) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, "attribute path"));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor steps, document.root().At(kSteps));
  CKPT_ASSIGN_OR_RETURN(EntryPath path, ReadEntryPath(steps));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor stored, document.root().At(kCrc32));
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t crc32, stored.Uint64());
  if (const std::uint32_t actual = ChecksumOf(path); actual != crc32) {
    return Error(ErrorKind::kChecksum, "the attribute path is damaged")
        .Expected(fmt::format("CRC-32 {:08x}", crc32))
        .Actual(fmt::format("{:08x}", actual));
  }
  if (IsPlace(path)) return path;
  return Error(ErrorKind::kBadMetadata, "no place in a mapping").Actual(FormatEntryPath(path));
}

}  // namespace ckpt::hdf5
