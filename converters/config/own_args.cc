#include "converters/config/own_args.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/training/training_run.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

constexpr std::string_view kStateDigest = "ckptkit_state_digest";
constexpr std::string_view kNextLoss = "ckptkit_next_loss";
constexpr std::string_view kDataIdentity = "ckptkit_data_identity";
constexpr std::string_view kRunId = "ckptkit_run_id";
constexpr std::array kFacts = {kArgsVersion, kStateDigest, kNextLoss,  kDataIdentity,
                               kRunId,       kRefused,     kGroupOrder};

// Nothing if the setting is absent or null.
Value ValueOf(const Configuration& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? Value() : found->second;
}

Status CheckComputes(const Configuration& args) {
  const Value refused = ValueOf(args, std::string(kRefused));
  if (refused.is_null()) return OkStatus();
  const Value::List reasons =
      refused.AsList() != nullptr ? *refused.AsList() : Value::List{refused};
  Status status;
  for (const Value& reason : reasons) {
    const std::string* const text = reason.AsText();
    status.Add(
        Error(ErrorKind::kUnsupported, text != nullptr ? *text : layout::FormatValue(reason)));
  }
  return status;
}

// Nothing if the argument is absent or None.
template <typename T>
Result<std::optional<T>> FactIn(const Configuration& args, std::string_view name,
                                const T* (Value::*as)() const) {
  const Value value = ValueOf(args, std::string(name));
  if (value.is_null()) return std::optional<T>();
  if (const T* fact = (value.*as)()) return std::optional<T>(*fact);
  return Error(ErrorKind::kBadMetadata, fmt::format("argument {} is of the wrong kind", name))
      .Tensor("args")
      .Actual(layout::FormatValue(value));
}

}  // namespace

NamedValues ArgsOf(const OwnFacts& facts) {
  NamedValues args;
  if (facts.state_digest) args.emplace_back(kStateDigest, *facts.state_digest);
  if (facts.run_id) args.emplace_back(kRunId, *facts.run_id);
  if (facts.next_loss) args.emplace_back(kNextLoss, *facts.next_loss);
  if (facts.data_identity) args.emplace_back(kDataIdentity, *facts.data_identity);
  return args;
}

Result<OwnFacts> ReadOwnFacts(const Configuration& args) {
  OwnFacts facts;
  CKPT_ASSIGN_OR_RETURN(facts.state_digest, FactIn(args, kStateDigest, &Value::AsText));
  CKPT_ASSIGN_OR_RETURN(facts.next_loss, FactIn(args, kNextLoss, &Value::AsFloat));
  CKPT_ASSIGN_OR_RETURN(facts.run_id, FactIn(args, kRunId, &Value::AsText));
  CKPT_ASSIGN_OR_RETURN(facts.data_identity, FactIn(args, kDataIdentity, &Value::AsText));
  return facts;
}

bool IsOwnFact(std::string_view name) {
  return name != kArgsVersion && name != kRefused &&
         std::find(kFacts.begin(), kFacts.end(), name) != kFacts.end();
}

bool HasArg(const NamedValues& args, std::string_view name) {
  return std::any_of(args.begin(), args.end(), [&](const auto& arg) { return arg.first == name; });
}

void AddMissing(NamedValues values, NamedValues& args) {
  std::set<std::string, std::less<>> names;
  for (const auto& arg : args) names.insert(arg.first);
  for (auto& value : values) {
    if (names.insert(value.first).second) args.push_back(std::move(value));
  }
}

void AddOrReplace(NamedValues values, NamedValues& args) {
  std::set<std::string, std::less<>> names;
  for (const auto& value : values) names.insert(value.first);
  std::erase_if(args, [&](const auto& arg) { return names.contains(arg.first); });
  args.insert(args.end(), std::make_move_iterator(values.begin()),
              std::make_move_iterator(values.end()));
}

void AddOwn(const Configuration& settings, const Configuration& back,
            const std::function<bool(const std::string& name, bool comes_back)>& is_said,
            NamedValues& args) {
  Configuration names = settings;
  names.insert(back.begin(), back.end());
  for (const auto& [name, unused] : names) {
    const Value value = ValueOf(settings, name);
    if (is_said(name, AreSame(value, ValueOf(back, name)))) continue;
    args.emplace_back(std::string(kOwnPrefix) + name, value);
  }
}

void TakeOwn(const Configuration& args, const TranslationTable& table, Configuration& settings) {
  for (const auto& [name, value] : args) {
    if (!name.starts_with(kOwnPrefix)) continue;
    if (std::find(kFacts.begin(), kFacts.end(), name) != kFacts.end()) continue;
    const std::string setting = name.substr(kOwnPrefix.size());
    if (table.IsOneWay(setting)) continue;
    settings.erase(setting);
    if (!value.is_null()) settings.emplace(setting, value);
  }
}

Status CheckArgsVersion(const Configuration& args) {
  const auto version = args.find(kArgsVersion);
  if (version == args.end() || version->second == Value(kArgsVersionNow)) return OkStatus();
  return Error(ErrorKind::kUnsupported, "another version of ckptkit stored these arguments")
      .Expected(fmt::format("{} {}", kArgsVersion, kArgsVersionNow))
      .Actual(layout::FormatValue(version->second));
}

bool AreSame(const Value& a, const Value& b) {
  const double* const x = a.AsFloat();
  const double* const y = b.AsFloat();
  return a == b || (x != nullptr && y != nullptr && std::isnan(*x) && std::isnan(*y));
}

Result<bool> AreOurs(const Configuration& args) {
  if (!args.contains(kArgsVersion)) return false;
  CKPT_RETURN_IF_ERROR(CheckArgsVersion(args));
  CKPT_RETURN_IF_ERROR(CheckComputes(args));
  return true;
}

}  // namespace ckpt
