#include "tools/ckpt-inspect/html_page.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/counted.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/internal/page_parts.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/ckpt-inspect/topology.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {
namespace {

constexpr std::size_t kMaxTensors = 200'000;  // that can be searched
constexpr std::size_t kMaxKeyBytes = 400;
constexpr std::size_t kMaxFilesOfTensor = 3;  // that its row names
constexpr std::size_t kMaxFileRows = 1000;
constexpr std::size_t kMaxRankRows = 1000;
constexpr std::size_t kMaxProblems = 20;
constexpr std::size_t kMaxMapRows = 64;
constexpr std::size_t kMaxRectangles = 8000;
constexpr std::uint64_t kMapWidth = 1000;
constexpr std::size_t kRowHeight = 16;
constexpr std::size_t kLabelWidth = 260;

// Of dtypes, one after the other; readable for the colour-blind.
constexpr std::array<std::string_view, 8> kColours = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                                      "#66ccee", "#aa3377", "#999933", "#bbbbbb"};

std::string Base64(ByteSpan bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group =
          group << 8 | (at + i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[at + i]) : 0);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const bool is_padding = at + i > bytes.size();
      text += is_padding ? '=' : kDigits[group >> (18 - 6 * i) & 63];
    }
  }
  return text;
}

// The hash by which a page's policy names a script.
std::string HashOfScript(std::string_view script) {
  const std::string hex = HashHex(HashAlgorithm::kSha256, AsBytes(script));
  Bytes digest;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    digest.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return "sha256-" + Base64(digest);
}

// Cut in the middle of a character at worst, which is then escaped.
std::string Brief(std::string_view text) {
  if (text.size() <= kMaxKeyBytes) return EscapeControls(text);
  return EscapeControls(text.substr(0, kMaxKeyBytes)) + "…";
}

std::string HtmlOf(std::string_view text) { return EscapeHtml(Brief(text)); }

// What is known of one file.
struct FileRow {
  FileId file = 0;
  std::optional<std::uint64_t> size_bytes;  // nothing: it is missing
  std::uint64_t chunks = 0;
  std::uint64_t stored_bytes = 0;  // of tensors
};

// What several parts of the page need.
struct Facts {
  const ListedCheckpoint* checkpoint = nullptr;
  const CheckpointIndex* index = nullptr;
  std::vector<FileRow> files;                 // by FileId
  std::vector<std::string_view> dtypes;       // in byte order
  std::vector<std::uint64_t> bytes_of_dtype;  // parallel
  std::vector<std::size_t> dtype_of_chunk;    // by position in the index: into `dtypes`
  std::vector<std::uint32_t> tensor_of_chunk;
  std::uint64_t bytes = 0;

  [[nodiscard]] std::size_t DtypeOf(const GlobalTensor& tensor) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(dtypes, DTypeName(tensor.dtype)) -
                                    dtypes.begin());
  }
};

Facts Gather(const ListedCheckpoint& checkpoint) {
  Facts facts;
  facts.checkpoint = &checkpoint;
  const CheckpointIndex& index = checkpoint.source->index();
  facts.index = &index;
  for (FileId file = 0; file < index.files().size(); ++file) {
    const Result<std::uint64_t> size = checkpoint.source->FileSize(file);
    facts.files.push_back(
        {.file = file, .size_bytes = size.ok() ? std::optional(*size) : std::nullopt});
  }
  std::map<std::string_view, std::uint64_t> by_dtype;
  for (const GlobalTensor& tensor : index.tensors()) {
    const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
    by_dtype[DTypeName(tensor.dtype)] += bytes.ok() ? *bytes : 0;
    facts.bytes += bytes.ok() ? *bytes : 0;
  }
  for (const auto& [dtype, bytes] : by_dtype) {
    facts.dtypes.push_back(dtype);
    facts.bytes_of_dtype.push_back(bytes);
  }
  facts.dtype_of_chunk.resize(index.chunks().size());
  facts.tensor_of_chunk.resize(index.chunks().size());
  for (std::uint32_t t = 0; t < index.tensors().size(); ++t) {
    const GlobalTensor& tensor = index.tensors()[t];
    const std::size_t dtype = facts.DtypeOf(tensor);
    for (std::uint64_t c = 0; c < tensor.num_chunks; ++c) {
      const Chunk& chunk = index.chunks()[tensor.first_chunk + c];
      facts.dtype_of_chunk[tensor.first_chunk + c] = dtype;
      facts.tensor_of_chunk[tensor.first_chunk + c] = t;
      ++facts.files[chunk.file].chunks;
      facts.files[chunk.file].stored_bytes += chunk.size_bytes;
    }
  }
  return facts;
}

std::string_view ColourOf(std::size_t dtype) { return kColours[dtype % kColours.size()]; }

void AddSummary(const Facts& facts, std::string& page) {
  const CheckpointIndex& index = *facts.index;
  page += "<table>\n";
  const auto row = [&](std::string_view name, const std::string& value) {
    page += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, value);
  };
  row("format", EscapeHtml(facts.checkpoint->format->name));
  if (facts.checkpoint->iteration) row("iteration", std::to_string(*facts.checkpoint->iteration));
  row("tensors",
      fmt::format("{} in {}", index.tensors().size(), Counted(index.chunks().size(), "chunk")));
  row("objects", std::to_string(index.objects().size()));
  row("files", std::to_string(index.files().size()));
  row("size", FormatByteSize(facts.bytes));
  page += "</table>\n";
}

void AddProblems(const Facts& facts, std::string& page) {
  const std::vector<Problem>& problems = facts.checkpoint->problems;
  if (problems.empty()) return;
  page += "<h2>Problems</h2>\n<ul>\n";
  for (std::size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    page += "<li>" + HtmlOf(cli::DescribeProblem(problems[i])) + "</li>\n";
  }
  page += "</ul>\n";
  if (problems.size() > kMaxProblems) {
    page += fmt::format("<p class=\"note\">and {} more</p>\n", problems.size() - kMaxProblems);
  }
}

// A part of a bar of `kMapWidth`, in whole units.
std::uint64_t Scaled(std::uint64_t bytes, std::uint64_t of_bytes) {
  const long double part = static_cast<long double>(bytes) / static_cast<long double>(of_bytes);
  return static_cast<std::uint64_t>(std::min(part, 1.0L) * static_cast<long double>(kMapWidth));
}

void AddDtypes(const Facts& facts, std::string& page) {
  page +=
      "<h2>Dtypes</h2>\n<table>\n<tr><th>dtype</th><th class=\"number\">size</th>"
      "<th class=\"number\">part</th></tr>\n";
  for (std::size_t d = 0; d < facts.dtypes.size(); ++d) {
    const double part = facts.bytes == 0 ? 0
                                         : 100.0 * static_cast<double>(facts.bytes_of_dtype[d]) /
                                               static_cast<double>(facts.bytes);
    page += fmt::format(
        "<tr><td><svg class=\"swatch\" viewBox=\"0 0 1 1\"><rect width=\"1\" height=\"1\" "
        "fill=\"{}\"/></svg>{}</td><td class=\"number\">{}</td><td class=\"number\">{:.1f} %</td>"
        "</tr>\n",
        ColourOf(d), facts.dtypes[d], FormatByteSize(facts.bytes_of_dtype[d]), part);
  }
  page += "</table>\n";
}

// The chunks of one file as one row of rectangles. Neighbours that are narrower than `least` units
// share one.
void AddMapRow(const Facts& facts, const FileRow& file, std::vector<std::size_t>& chunks,
               std::uint64_t widest, std::uint64_t least, std::size_t y, std::string& page) {
  const CheckpointIndex& index = *facts.index;
  const auto begin_of = [&](std::size_t c) { return index.chunks()[c].offset_bytes; };
  std::ranges::sort(chunks, {}, begin_of);
  page += fmt::format("<text x=\"0\" y=\"{}\">{}</text>\n", y + 12,
                      HtmlOf(std::string_view(index.files()[file.file]).substr(0, 40)));
  const std::uint64_t length = std::max<std::uint64_t>(file.size_bytes.value_or(0), 1);
  page += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"currentColor\" "
      "stroke-opacity=\".3\"/>\n",
      kLabelWidth, y + 2, std::max<std::uint64_t>(Scaled(length, widest), 1), kRowHeight - 4);
  for (std::size_t i = 0; i < chunks.size();) {
    const std::uint64_t x = Scaled(begin_of(chunks[i]), widest);
    std::size_t end = i;
    std::uint64_t right = x;
    while (end < chunks.size() && (end == i || right < x + least)) {
      const Chunk& chunk = index.chunks()[chunks[end]];
      const std::uint64_t stop = chunk.offset_bytes > UINT64_MAX - chunk.size_bytes
                                     ? UINT64_MAX
                                     : chunk.offset_bytes + chunk.size_bytes;
      right = std::max(right, Scaled(stop, widest));
      ++end;
    }
    const Chunk& first = index.chunks()[chunks[i]];
    const GlobalTensor& tensor = index.tensors()[facts.tensor_of_chunk[chunks[i]]];
    std::string title = Brief(tensor.key) + " " + FormatBox(index.box(first));
    if (end - i > 1) title += fmt::format(" and {} more", Counted(end - i - 1, "chunk"));
    page += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>\n",
        kLabelWidth + x, y + 2, std::max<std::uint64_t>(right - x, 1), kRowHeight - 4,
        ColourOf(facts.dtype_of_chunk[chunks[i]]), EscapeHtml(title));
    i = end;
  }
}

void AddShardMap(const Facts& facts, std::string& page) {
  std::vector<FileId> shown;
  for (const FileRow& file : facts.files) {
    if (file.chunks > 0) shown.push_back(file.file);
  }
  const std::size_t num_files = shown.size();
  shown.resize(std::min(shown.size(), kMaxMapRows));
  page += "<h2>Shard map</h2>\n";
  if (shown.empty()) {
    page += "<p class=\"note\">No tensor has a chunk.</p>\n";
    return;
  }
  std::vector<std::vector<std::size_t>> chunks(facts.files.size());
  std::uint64_t widest = 1;
  for (const FileId file : shown) {
    chunks[file].reserve(facts.files[file].chunks);
    widest = std::max(widest, facts.files[file].size_bytes.value_or(1));
  }
  for (std::size_t c = 0; c < facts.index->chunks().size(); ++c) {
    const FileId file = facts.index->chunks()[c].file;
    if (chunks[file].capacity() > 0) chunks[file].push_back(c);
  }
  const std::uint64_t least = std::max<std::uint64_t>(shown.size() * kMapWidth / kMaxRectangles, 1);
  page += fmt::format("<svg id=\"map\" viewBox=\"0 0 {} {}\" role=\"img\">\n",
                      kLabelWidth + kMapWidth, shown.size() * kRowHeight);
  for (std::size_t row = 0; row < shown.size(); ++row) {
    AddMapRow(facts, facts.files[shown[row]], chunks[shown[row]], widest, least, row * kRowHeight,
              page);
  }
  page +=
      "</svg>\n<p class=\"note\">A row is a file, a rectangle a chunk or several small ones; its "
      "colour is the dtype.";
  if (const std::size_t rest = num_files - shown.size(); rest != 0) {
    page += fmt::format(" {} more {} not drawn.", Counted(rest, "file"), rest == 1 ? "is" : "are");
  }
  page += "</p>\n";
}

// A table of names with sizes and bars. `rows` are cut to `most`.
struct SizeRow {
  std::string name;
  std::optional<std::uint64_t> bytes;
  std::uint64_t chunks = 0;
};

void AddSizes(std::string_view title, std::string_view what, const std::vector<SizeRow>& rows,
              std::size_t most, std::string& page) {
  std::uint64_t widest = 1;
  for (const SizeRow& row : rows) widest = std::max(widest, row.bytes.value_or(0));
  page += fmt::format(
      "<h2>{}</h2>\n<table>\n<tr><th>{}</th><th class=\"number\">size</th>"
      "<th class=\"number\">chunks</th><th></th></tr>\n",
      title, what);
  for (std::size_t i = 0; i < std::min(rows.size(), most); ++i) {
    const SizeRow& row = rows[i];
    page += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>"
        "<svg viewBox=\"0 0 1000 20\"><rect width=\"{}\" height=\"20\" fill=\"#4477aa\"/></svg>"
        "</td></tr>\n",
        HtmlOf(row.name), row.bytes ? FormatByteSize(*row.bytes) : "missing", row.chunks,
        Scaled(row.bytes.value_or(0), widest));
  }
  page += "</table>\n";
  if (rows.size() > most) {
    page += fmt::format("<p class=\"note\">and {} more</p>\n", rows.size() - most);
  }
}

void AddRanksAndFiles(const Facts& facts, std::string& page) {
  std::map<std::int64_t, SizeRow> by_rank;
  std::vector<SizeRow> files;
  for (const FileRow& file : facts.files) {
    const std::string& name = facts.index->files()[file.file];
    files.push_back({.name = name, .bytes = file.size_bytes, .chunks = file.chunks});
    if (const std::optional<std::int64_t> rank = WriterOf(name)) {
      SizeRow& row = by_rank[*rank];
      row.name = fmt::format("rank {}", *rank);
      row.bytes = row.bytes.value_or(0) + file.size_bytes.value_or(0);
      row.chunks += file.chunks;
    }
  }
  std::vector<SizeRow> ranks;
  for (auto& [rank, row] : by_rank) ranks.push_back(std::move(row));
  if (!ranks.empty()) AddSizes("Ranks that wrote it", "rank", ranks, kMaxRankRows, page);
  AddSizes("Files", "file", files, kMaxFileRows, page);
}

// What the script shows: {"dtypes": […], "files": […], "tensors": [[key, dtype, shape, bytes,
// chunks, first files, number of files]]}.
std::string TableData(const Facts& facts) {
  const CheckpointIndex& index = *facts.index;
  JsonWriter json;
  json.BeginObject().Key("dtypes").BeginArray();
  for (const std::string_view dtype : facts.dtypes) json.Text(dtype);
  json.End().Key("tensors").BeginArray();
  std::map<FileId, std::size_t> named;  // positions in "files"
  std::vector<FileId> names;
  for (const GlobalTensor& tensor :
       index.tensors().first(std::min(index.tensors().size(), kMaxTensors))) {
    std::vector<FileId> files;
    for (const Chunk& chunk : index.chunks(tensor)) files.push_back(chunk.file);
    std::ranges::sort(files);
    files.erase(std::unique(files.begin(), files.end()), files.end());
    json.BeginArray().Text(Brief(tensor.key)).Int(facts.DtypeOf(tensor)).Ints(tensor.shape);
    json.Int(LogicalBytes(tensor)).Int(tensor.num_chunks).BeginArray();
    for (std::size_t f = 0; f < std::min(files.size(), kMaxFilesOfTensor); ++f) {
      const auto [place, is_new] = named.emplace(files[f], names.size());
      if (is_new) names.push_back(files[f]);
      json.Int(place->second);
    }
    json.End().Int(files.size()).End();
  }
  json.End().Key("files").BeginArray();
  for (const FileId file : names) json.Text(Brief(index.files()[file]));
  json.End().End();
  return json.Take();
}

void AddTensors(const Facts& facts, std::string& page) {
  page +=
      "<h2>Tensors</h2>\n<input id=\"search\" type=\"search\" placeholder=\"words of a key, or a "
      "dtype\" aria-label=\"search\">\n<p id=\"found\" class=\"note\"></p>\n<table>\n<thead><tr>"
      "<th>key</th><th>dtype</th><th>shape</th><th class=\"number\">size</th>"
      "<th class=\"number\">chunks</th><th>files</th></tr></thead>\n<tbody id=\"rows\"></tbody>\n"
      "</table>\n";
  const std::size_t count = facts.index->tensors().size();
  if (count > kMaxTensors) {
    page += fmt::format(
        "<p class=\"note\">{} tensors more are not listed: ckpt-inspect tensors "
        "lists all.</p>\n",
        count - kMaxTensors);
  }
  page += "<script id=\"data\" type=\"application/json\">" + EscapeScript(TableData(facts)) +
          "</script>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : EscapeControls(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string EscapeScript(std::string_view json) {
  // These stand in strings alone, where JSON may write any character by its number.
  std::string out;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string MakePage(const ListedCheckpoint& checkpoint) {
  const Facts facts = Gather(checkpoint);
  const std::string_view style = PageParts()[0].second;
  const std::string_view script = PageParts()[1].second;
  const std::string title = HtmlOf(checkpoint.path.string());
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src '{}'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>\n{}"
      "</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      HashOfScript(script), title, style, title);
  AddSummary(facts, page);
  AddProblems(facts, page);
  AddDtypes(facts, page);
  AddShardMap(facts, page);
  AddRanksAndFiles(facts, page);
  AddTensors(facts, page);
  page += "<script>" + std::string(script) + "</script>\n</body>\n</html>\n";
  return page;
}

}  // namespace ckpt::inspect
