#include "tests/reliability/small_model.h"

#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/checkpoint/write_plan.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/registry.h"
#include "formats/safetensors/internal/writer.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 24;
constexpr int kHeads = 4;
constexpr int kKvHeads = 2;

std::vector<TargetTensor> Tensors(int hidden) {
  const std::int64_t h = hidden;
  const std::int64_t kv = h * kKvHeads / kHeads;
  const std::int64_t inner = h + 8;
  const std::string layer = "model.layers.0.";
  const std::vector<std::pair<std::string, Dims>> shapes = {
      {"model.embed_tokens.weight", {h + 16, h}},
      {layer + "input_layernorm.weight", {h}},
      {layer + "mlp.down_proj.weight", {h, inner}},
      {layer + "mlp.gate_proj.weight", {inner, h}},
      {layer + "mlp.up_proj.weight", {inner, h}},
      {layer + "post_attention_layernorm.weight", {h}},
      {layer + "self_attn.k_proj.weight", {kv, h}},
      {layer + "self_attn.o_proj.weight", {h, h}},
      {layer + "self_attn.q_proj.weight", {h, h}},
      {layer + "self_attn.v_proj.weight", {kv, h}},
      {"model.norm.weight", {h}}};
  std::vector<TargetTensor> tensors;
  tensors.reserve(shapes.size());
  for (const auto& [key, shape] : shapes) {
    tensors.push_back({.key = key, .dtype = DType::kFloat32, .shape = shape});
  }
  return tensors;
}

std::string ConfigJson(int hidden) {
  return fmt::format(
      R"({{
  "architectures": ["LlamaForCausalLM"],
  "dtype": "float32",
  "head_dim": {},
  "hidden_act": "silu",
  "hidden_size": {},
  "intermediate_size": {},
  "max_position_embeddings": 128,
  "model_type": "llama",
  "num_attention_heads": {},
  "num_hidden_layers": 1,
  "num_key_value_heads": {},
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "tie_word_embeddings": true,
  "vocab_size": {}
}}
)",
      hidden / kHeads, hidden, hidden + 8, kHeads, kKvHeads, hidden + 16);
}

Bytes RandomFloats(std::uint64_t size_bytes, std::mt19937_64& rng) {
  Bytes bytes(size_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

// Every item of the plan without framing, whose tensors are whole.
Status WritePlanned(Storage& storage, const Path& directory, const WritePlan& plan,
                    std::mt19937_64& rng) {
  for (std::uint32_t f = 0; f < plan.files.size(); ++f) {
    Bytes content(plan.files[f].size_bytes);
    const auto put = [&content](std::uint64_t offset, ByteSpan bytes) {
      std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    for (const WriteLiteral& literal : plan.literals) {
      if (literal.file == f) put(literal.offset_bytes, literal.bytes);
    }
    for (const WriteItem& item : plan.items) {
      if (item.file == f) put(item.payload_offset, RandomFloats(item.payload_bytes, rng));
    }
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, directory / plan.files[f].name, content));
  }
  return OkStatus();
}

}  // namespace

Status WriteSmallModel(Storage& storage, const Path& directory, const SmallModelOptions& options) {
  std::mt19937_64 rng(options.seed);
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(directory));
  CKPT_RETURN_IF_ERROR(
      WriteSmallFile(storage, directory / "config.json", AsBytes(ConfigJson(options.hidden))));
  if (options.has_tokenizer) {
    for (const auto& [name, text] :
         {std::pair("tokenizer.json", R"({"model": {"vocab": {"a": 0}}})"),
          std::pair("tokenizer_config.json", R"({"bos_token": "a"})")}) {
      CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, directory / name, AsBytes(std::string(text))));
    }
  }
  CKPT_ASSIGN_OR_RETURN(
      const WritePlan plan,
      safetensors::PlanSafetensors(Tensors(options.hidden), {.files = options.files}));
  return WritePlanned(storage, directory, plan, rng);
}

ConvertOptions HfToFsdp(const Path& source, const Path& target) {
  ConvertOptions options;
  options.source = source;
  options.target = target;
  options.model.naming = "hf";
  options.to.container = *FindFormat("fsdp_dtensor");
  options.files = 2;
  return options;
}

ConvertOptions HfToTorchDist(const Path& source, const Path& target) {
  ConvertOptions options = HfToFsdp(source, target);
  options.to.container = *FindFormat("torch_dist");
  return options;
}

ConvertOptions ConvertTo(std::string_view format, const Path& source, const Path& target) {
  ConvertOptions options;
  options.source = source;
  options.target = target;
  options.to.container = *FindFormat(format);
  return options;
}

ConvertOptions FsdpToHf(const Path& source, const Path& target) {
  ConvertOptions options;
  options.source = source;
  options.target = target;
  options.model.naming = "fsdp_dtensor";
  options.to.container = *FindFormat("hf");
  return options;
}

Result<ConvertReport> Convert(Storage& storage, const ConvertOptions& options) {
  CKPT_ASSIGN_OR_RETURN(const PreparedConversion prepared, PrepareConversion(storage, options));
  return RunConversion(storage, prepared, options);
}

Result<ConvertReport> ConvertByWorkers(Storage& storage, ConvertOptions options, int workers) {
  options.resume = false;
  for (int number = 0; number < workers; ++number) {
    options.worker = WorkerId{.number = number, .count = workers};
    const Status status = Convert(storage, options).status();
    if (!status.ok() && status.kind() != ErrorKind::kAlreadyExists) return status;
  }
  options.worker.reset();
  options.finalize = true;
  Result<ConvertReport> report = Convert(storage, options);
  if (report.ok() || report.status().kind() != ErrorKind::kMissing) return report;
  options.finalize = false;
  return Convert(storage, options);
}

Result<Tree> ReadTree(Storage& storage, const Path& path) {
  Tree tree;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kRegular) {
    CKPT_ASSIGN_OR_RETURN(tree[""], ReadSmallFile(storage, path, kMaxFileBytes));
    return tree;
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListRecursively(storage, path));
  for (const std::string& name : names) {
    CKPT_ASSIGN_OR_RETURN(tree[name], ReadSmallFile(storage, path / name, kMaxFileBytes));
  }
  return tree;
}

Result<std::string> ReadCheckpoint(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(storage, path));
  std::vector<Problem> problems = ValidateIndex(*opened.source);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kDirectory) {
    const Path manifest_path = opened.path / std::string(kManifestName);
    CKPT_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(storage, manifest_path, kMaxFileBytes));
    CKPT_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, manifest_path.string()));
    CKPT_ASSIGN_OR_RETURN(const std::vector<Problem> differences,
                          VerifyManifest(storage, opened.path, manifest, KnownRunRoot()));
    problems.insert(problems.end(), differences.begin(), differences.end());
  }
  if (!problems.empty()) return Status(std::move(problems));
  std::vector<TensorDigest> digests;
  for (const GlobalTensor& tensor : opened.source->index().tensors()) {
    CKPT_ASSIGN_OR_RETURN(
        std::string hex,
        DigestTensor(*opened.source, tensor, HashAlgorithm::kXxh3, std::uint64_t{1} << 20));
    digests.push_back({tensor.key, tensor.dtype, tensor.shape, std::move(hex)});
  }
  return CombineDigests(std::move(digests), HashAlgorithm::kXxh3);
}

}  // namespace ckpt::testing
