#include "formats/pickle/globals.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/warning.h"
#include "core/tensor/dtype.h"

namespace ckpt::pickle {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 49> kHarmless = {{
    {"_codecs", "encode"},
    {"argparse", "Namespace"},
    {"builtins", "bool"},
    {"builtins", "bytearray"},
    {"builtins", "bytes"},
    {"builtins", "complex"},
    {"builtins", "dict"},
    {"builtins", "float"},
    {"builtins", "frozenset"},
    {"builtins", "int"},
    {"builtins", "list"},
    {"builtins", "object"},
    {"builtins", "range"},
    {"builtins", "set"},
    {"builtins", "slice"},
    {"builtins", "str"},
    {"builtins", "tuple"},
    {"collections", "Counter"},
    {"collections", "OrderedDict"},
    {"collections", "defaultdict"},
    {"collections", "deque"},
    {"copyreg", "__newobj__"},
    {"copyreg", "_reconstructor"},
    {"datetime", "date"},
    {"datetime", "datetime"},
    {"datetime", "time"},
    {"datetime", "timedelta"},
    {"datetime", "timezone"},
    {"fractions", "Fraction"},
    {"decimal", "Decimal"},
    {"functools", "partial"},
    {"io", "BytesIO"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy._core.numeric", "_frombuffer"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.core.numeric", "_frombuffer"},
    {"numpy.random._pickle", "__bit_generator_ctor"},
    {"numpy.random._pickle", "__generator_ctor"},
    {"numpy.random._pickle", "__randomstate_ctor"},
    {"signal", "Signals"},
    {"torch", "device"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch.serialization", "_get_layout"},
    {"types", "SimpleNamespace"},
    {"uuid", "UUID"},
}};

// The classes of these modules only store their arguments. That is not known of functions, whose
// names start with a small letter.
constexpr std::array<std::string_view, 8> kFrameworks = {
    "torch",   "megatron", "transformer_engine", "numpy", "omegaconf", "transformers",
    "pathlib", "torchao"};

bool IsClassName(std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos) {
    name = name.substr(dot + 1);
  }
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

}  // namespace

bool IsFrameworkClass(std::string_view module, std::string_view name) {
  const std::string_view root = module.substr(0, module.find('.'));
  return IsClassName(name) &&
         std::find(kFrameworks.begin(), kFrameworks.end(), root) != kFrameworks.end();
}

bool IsHarmlessCall(std::string_view module, std::string_view name) {
  if (std::find(kHarmless.begin(), kHarmless.end(), std::pair(module, name)) != kHarmless.end()) {
    return true;
  }
  if (module == "torch._utils" && name.starts_with("_rebuild_")) return true;
  return IsFrameworkClass(module, name);
}

bool IsDTypeName(std::string_view name) {
  constexpr std::array<std::string_view, 7> kQuantized = {
      "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "bits16", "bits8"};
  if (ParseDType(name)) return true;
  if (std::find(kQuantized.begin(), kQuantized.end(), name) != kQuantized.end()) return true;
  if (name.starts_with("bits") && name.size() == 7) return true;  // bits1x8, bits2x4, bits4x2
  // int1 … int7, uint1 … uint7
  const std::string_view digits = name.substr(std::min(name.size(), name.find("int") + 3));
  return (name.starts_with("int") || name.starts_with("uint")) && digits.size() == 1 &&
         digits[0] >= '1' && digits[0] <= '7';
}

std::vector<Problem> WarnAboutCalls(const Graph& graph, const std::string& file,
                                    const std::string& tensor) {
  std::vector<Problem> warnings;
  for (const GlobalName& global : graph.CalledGlobals()) {
    if (IsHarmlessCall(global.module, global.name)) continue;
    std::string name = std::string(global.module) + "." + std::string(global.name);
    Problem warning = Warning(ErrorKind::kUnsafePickle,
                              "the pickle calls " + name + "; it was not run", file, tensor);
    warning.actual = std::move(name);
    warnings.push_back(std::move(warning));
  }
  return warnings;
}

}  // namespace ckpt::pickle
