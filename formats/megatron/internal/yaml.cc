#include "formats/megatron/internal/yaml.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>
#include <vector>
#include <yaml-cpp/yaml.h>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/json/json_writer.h"
#include "core/yaml/event_limit.h"
#include "core/yaml/plain_number.h"

namespace ckpt::megatron {
namespace {

// Aliases make a small file large.
constexpr std::size_t kMaxValues = 200'000;
constexpr int kMaxDepth = 48;

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// PyYAML knows a number that is no integer by its point.
std::optional<double> FractionOf(std::string_view text) {
  if (text.find('.') == std::string_view::npos) return std::nullopt;
  const std::optional<double> number = ParsePlainNumber<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

void WritePlain(const std::string& text, JsonWriter& json) {
  if (text.empty() || IsOneOf(text, {"~", "null", "Null", "NULL"})) {
    json.Null();
  } else if (IsOneOf(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) {
    json.Bool(true);
  } else if (IsOneOf(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
    json.Bool(false);
  } else if (const auto integer = ParsePlainNumber<std::int64_t>(text)) {
    json.Int(*integer);
  } else if (const auto number = FractionOf(text)) {
    json.Double(*number);
  } else {
    json.Text(text);
  }
}

class Converter {
 public:
  explicit Converter(std::string_view name) : name_(name) {}

  Status Write(const YAML::Node& node, int depth) {
    if (++num_values_ > kMaxValues || depth > kMaxDepth) {
      return At(Error(ErrorKind::kResource, "larger than any configuration"), node)
          .Expected(fmt::format("at most {} values, {} levels deep", kMaxValues, kMaxDepth));
    }
    CKPT_RETURN_IF_ERROR(CheckTag(node));
    if (node.IsMap()) return WriteMapping(node, depth);
    if (node.IsSequence()) {
      json_.BeginArray();
      for (const YAML::Node& item : node) CKPT_RETURN_IF_ERROR(Write(item, depth + 1));
      json_.End();
    } else if (node.IsScalar()) {
      CKPT_RETURN_IF_ERROR(CheckText(node));
      const bool is_quoted = node.Tag() == "!";
      is_quoted ? static_cast<void>(json_.Text(node.Scalar())) : WritePlain(node.Scalar(), json_);
    } else {
      json_.Null();
    }
    return OkStatus();
  }

  std::string Take() { return json_.Take(); }

 private:
  [[nodiscard]] Status At(Status status, const YAML::Node& node) const {
    return std::move(status).File(fmt::format("{}:{}", name_, node.Mark().line + 1));
  }

  // Only what the safe loader makes plain values of. Tags of Python would be objects to build.
  [[nodiscard]] Status CheckTag(const YAML::Node& node) const {
    const std::string& tag = node.Tag();
    if (tag.empty() || tag == "?" || tag == "!") return OkStatus();
    return At(Error(ErrorKind::kUnsupported, "the configuration has a value with a tag"), node)
        .Actual(Quote(tag));
  }

  [[nodiscard]] Status CheckText(const YAML::Node& node) const {
    if (IsUtf8(node.Scalar())) return OkStatus();
    return At(Error(ErrorKind::kBadMetadata, "the configuration has text that is not UTF-8"), node);
  }

  Status WriteMapping(const YAML::Node& mapping, int depth) {
    json_.BeginObject();
    std::set<std::string> seen;
    for (const auto& entry : mapping) {
      const YAML::Node& key = entry.first;
      if (!key.IsScalar()) {
        return At(Error(ErrorKind::kBadMetadata, "a name of the configuration is not plain text"),
                  mapping);
      }
      CKPT_RETURN_IF_ERROR(CheckText(key));
      if (!seen.insert(key.Scalar()).second) {
        return At(Error(ErrorKind::kBadMetadata, "a name stands in the configuration twice"), key)
            .Actual(Quote(key.Scalar()));
      }
      json_.Key(key.Scalar());
      CKPT_RETURN_IF_ERROR(Write(entry.second, depth + 1));
    }
    json_.End();
    return OkStatus();
  }

  const std::string_view name_;
  JsonWriter json_;
  std::size_t num_values_ = 0;
};

}  // namespace

Result<std::string> YamlToJson(std::string_view text, std::string_view name) {
  if (text.size() > kMaxYamlBytes) {
    return Error(ErrorKind::kResource, "larger than any configuration")
        .File(name)
        .Expected(fmt::format("at most {} bytes", kMaxYamlBytes))
        .Actual(std::to_string(text.size()));
  }
  if (Status status = CheckYamlEvents(text); !status.ok()) return std::move(status).File(name);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() != 1 || !documents[0].IsMap()) {
      return Error(ErrorKind::kBadMetadata, "the configuration is not one mapping").File(name);
    }
    Converter converter(name);
    CKPT_RETURN_IF_ERROR(converter.Write(documents[0], 0));
    return converter.Take();
  } catch (const YAML::Exception& error) {
    return Error(ErrorKind::kBadMetadata, "the configuration is not YAML")
        .File(fmt::format("{}:{}", name, error.mark.line + 1))
        .Actual(error.msg);
  }
}

}  // namespace ckpt::megatron
