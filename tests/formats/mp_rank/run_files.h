// Files of a small training run, as two tensor ranks of Megatron save them.
#ifndef CKPT_TESTS_FORMATS_MP_RANK_RUN_FILES_H_
#define CKPT_TESTS_FORMATS_MP_RANK_RUN_FILES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/endian.h"
#include "core/tensor/cast.h"
#include "core/tensor/shape.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::mp_rank {

// A rank's part of a parameter: bfloat16 in the model, float32 in the optimizer.
struct RunParameter {
  std::string name;
  Dims shape;
  std::vector<float> values;
};

// In the order of the module. Two parameters decay, one does not.
inline std::vector<RunParameter> ParametersOfRank(int rank) {
  const float t = static_cast<float>(rank);
  return {{"embedding.word_embeddings.weight", {1, 2}, {10 + 2 * t, 11 + 2 * t}},
          {"decoder.layers.0.mlp.linear_fc2.weight", {2, 1}, {20 + t, 22 + t}},
          {"decoder.final_layernorm.weight", {2}, {30, 31}}};
}

// What the optimizer keeps: a multiple of the weights.
inline constexpr float kFirstMoment = 0.5F;
inline constexpr float kSecondMoment = 0.25F;

struct RunOptions {
  bool is_distributed = true;
  double step = 3;
  std::vector<std::vector<std::int64_t>> groups = {{0, 1}, {2}};  // that decay, that do not
  std::string other_state = {};                                   // one more of parameter 0
  std::int64_t samples = 56;                                      // that the arguments say
  std::int64_t experts = 0;                                       // the same
};

// A pickle with tensors, and the file of it.
class RunFileWriter {
 public:
  pickle::PickleWriter& pickle() { return pickle_; }

  void Tensor(DType dtype, const Dims& shape, const std::vector<float>& values, float factor = 1) {
    Bytes bytes;
    for (const float value : values) {
      if (dtype == DType::kFloat32) {
        AppendLe(value * factor, bytes);
      } else {
        AppendLe(ToBf16Bits(value * factor), bytes);
      }
    }
    torch_save::WriteTensor(static_cast<std::int64_t>(storages_.size()), dtype, shape, pickle_);
    storages_.push_back(std::move(bytes));
  }

  Bytes Take() { return torch_save::ObjectItem(pickle_.Take(), storages_); }

 private:
  pickle::PickleWriter pickle_{pickle::Dialect::kWeightsOnly};
  std::vector<Bytes> storages_;
};

inline void WriteGroup(const RunOptions& options, std::size_t number, RunFileWriter& file) {
  pickle::PickleWriter& pickle = file.pickle();
  pickle.BeginDict().Text("wd_mult").Float(number == 0 ? 1.0 : 0.0).Text("lr").Float(0.01);
  if (options.is_distributed) {
    pickle.Text("step").Float(options.step);
  } else {
    pickle.Text("params").BeginList();
    for (const std::int64_t parameter : options.groups[number]) pickle.Int(parameter);
    pickle.EndList();
  }
  pickle.EndDict();
}

// {"state": …, "param_groups": […]}
inline void WriteTorchOptimizer(const std::vector<RunParameter>& parameters,
                                const RunOptions& options, RunFileWriter& file) {
  pickle::PickleWriter& pickle = file.pickle();
  pickle.BeginDict();
  if (!options.is_distributed) {
    pickle.Text("state").BeginDict();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const RunParameter& parameter = parameters[p];
      pickle.Int(static_cast<std::int64_t>(p)).BeginDict().Text("step");
      file.Tensor(DType::kFloat32, {}, {static_cast<float>(options.step)});
      pickle.Text("exp_avg");
      file.Tensor(DType::kFloat32, parameter.shape, parameter.values, kFirstMoment);
      pickle.Text("exp_avg_sq");
      file.Tensor(DType::kFloat32, parameter.shape, parameter.values, kSecondMoment);
      if (p == 0 && !options.other_state.empty()) {
        pickle.Text(options.other_state);
        file.Tensor(DType::kFloat32, parameter.shape, parameter.values);
      }
      pickle.EndDict();
    }
    pickle.EndDict();
  }
  pickle.Text("param_groups").BeginList();
  for (std::size_t g = 0; g < options.groups.size(); ++g) WriteGroup(options, g, file);
  pickle.EndList().EndDict();
}

// `model_optim_rng.pt`.
inline Bytes EncodeRunFile(const std::vector<RunParameter>& parameters, const RunOptions& options) {
  RunFileWriter file;
  pickle::PickleWriter& pickle = file.pickle();
  pickle.BeginDict().Text("args").Global("argparse", "Namespace").EmptyTuple().NewObject();
  pickle.BeginDict().Text("tensor_model_parallel_size").Int(2).Text("num_layers").Int(1);
  pickle.Text("consumed_train_samples").Int(options.samples);
  pickle.Text("num_experts").Int(options.experts).EndDict().Build();
  pickle.Text("checkpoint_version").Float(3.0).Text("iteration").Int(7).Text("model").BeginDict();
  for (const RunParameter& parameter : parameters) {
    pickle.Text(parameter.name);
    file.Tensor(DType::kBfloat16, parameter.shape, parameter.values);
  }
  pickle.EndDict().Text("optimizer").BeginDict().Text("optimizer");
  WriteTorchOptimizer(parameters, options, file);
  if (!options.is_distributed) {
    pickle.Text("fp32_from_fp16_params").BeginList();
    for (const std::vector<std::int64_t>& group : options.groups) {
      pickle.BeginList();
      for (const std::int64_t p : group) {
        const RunParameter& parameter = parameters[static_cast<std::size_t>(p)];
        file.Tensor(DType::kFloat32, parameter.shape, parameter.values);
      }
      pickle.EndList();
    }
    pickle.EndList();
  }
  pickle.EndDict().EndDict();
  return file.Take();
}

// `distrib_optim.pt`: the parameters from the last to the first, each at a multiple of 64 numbers.
inline Bytes EncodeBuffers(const std::vector<RunParameter>& parameters,
                           std::int64_t surplus_elems = 0) {
  std::vector<float> buffer;
  for (std::size_t p = parameters.size(); p-- > 0;) {
    buffer.resize((buffer.size() + 63) / 64 * 64);
    buffer.insert(buffer.end(), parameters[p].values.begin(), parameters[p].values.end());
  }
  buffer.resize(buffer.size() + static_cast<std::size_t>(surplus_elems));
  const Dims shape = {static_cast<std::int64_t>(buffer.size())};
  RunFileWriter file;
  pickle::PickleWriter& pickle = file.pickle();
  pickle.BeginDict().Text("buckets_coalesced").Bool(true).Int(0).BeginDict();
  pickle.BeginTuple().Global("torch", "bfloat16").Global("torch", "float32").EndTuple();
  pickle.BeginDict().Text("param");
  file.Tensor(DType::kFloat32, shape, buffer);
  pickle.Text("exp_avg");
  file.Tensor(DType::kFloat32, shape, buffer, kFirstMoment);
  pickle.Text("exp_avg_sq");
  file.Tensor(DType::kFloat32, shape, buffer, kSecondMoment);
  pickle.Text("numel_unpadded").Int(shape.front()).EndDict().EndDict().EndDict();
  return file.Take();
}

struct BucketOptions {
  bool has_sizes = true;
  std::int64_t surplus_elems = 0;  // that the sizes say too many
  bool is_of_gradients = false;    // buffers are known by the dtype of gradients alone
};

// The same as Megatron-Core before 0.7 stored it: parameters without room between them, in a tensor
// for each bucket. The first bucket has the last parameter, the second one the others, and each
// ends at a multiple of 8.
inline Bytes EncodeBuckets(const std::vector<RunParameter>& parameters,
                           const BucketOptions& options) {
  std::vector<std::vector<float>> buckets(2);
  for (std::size_t p = parameters.size(); p-- > 0;) {
    std::vector<float>& bucket = buckets[p + 1 == parameters.size() ? 0 : 1];
    bucket.insert(bucket.end(), parameters[p].values.begin(), parameters[p].values.end());
  }
  std::vector<std::int64_t> elems;
  for (std::vector<float>& bucket : buckets) {
    elems.push_back(static_cast<std::int64_t>(bucket.size()) + options.surplus_elems);
    bucket.resize((bucket.size() + 7) / 8 * 8);
  }
  RunFileWriter file;
  pickle::PickleWriter& pickle = file.pickle();
  const auto write_dtypes = [&] {
    if (options.is_of_gradients) {
      pickle.Global("torch", "float32");
      return;
    }
    pickle.BeginTuple().Global("torch", "bfloat16").Global("torch", "float32").EndTuple();
  };
  pickle.BeginDict();
  if (options.has_sizes) {
    pickle.Text("per_bucket_numel_unpadded").BeginList().BeginDict();
    write_dtypes();
    pickle.BeginList();
    for (const std::int64_t size : elems) pickle.Int(size);
    pickle.EndList().EndDict().EndList();
  }
  pickle.Int(0).BeginDict();
  write_dtypes();
  pickle.BeginDict();
  const auto write = [&](std::string_view field, float factor) {
    pickle.Text(field).BeginList();
    for (const std::vector<float>& bucket : buckets) {
      file.Tensor(DType::kFloat32, {static_cast<std::int64_t>(bucket.size())}, bucket, factor);
    }
    pickle.EndList();
  };
  write("param", 1);
  write("exp_avg", kFirstMoment);
  write("exp_avg_sq", kSecondMoment);
  pickle.EndDict().EndDict().EndDict();
  return file.Take();
}

}  // namespace ckpt::mp_rank

#endif  // CKPT_TESTS_FORMATS_MP_RANK_RUN_FILES_H_
