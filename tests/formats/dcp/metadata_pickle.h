// A `.metadata` pickle of one tensor and one object, each part of which a test can replace by what
// torch never writes.
#ifndef CKPT_TESTS_FORMATS_DCP_METADATA_PICKLE_H_
#define CKPT_TESTS_FORMATS_DCP_METADATA_PICKLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/pickle/writer.h"

namespace ckpt::testing {

using WriteValue = std::function<void(pickle::PickleWriter&)>;

// A torch.Size.
inline WriteValue Size(Dims dims) {
  return [dims = std::move(dims)](pickle::PickleWriter& out) {
    out.Global("torch", "Size").IntTuple(dims).InTuple().Reduce();
  };
}

inline WriteValue Text(std::string text) {
  return [text = std::move(text)](pickle::PickleWriter& out) { out.Text(text); };
}

inline WriteValue Int(std::int64_t value) {
  return [value](pickle::PickleWriter& out) { out.Int(value); };
}

inline void None(pickle::PickleWriter& out) { out.None(); }

using WrittenPairs = std::vector<std::pair<WriteValue, WriteValue>>;

inline WriteValue Dict(WrittenPairs pairs) {
  return [pairs = std::move(pairs)](pickle::PickleWriter& out) {
    out.BeginDict();
    for (const auto& [key, value] : pairs) {
      key(out);
      value(out);
    }
    out.EndDict();
  };
}

// Without a state.
inline WriteValue Instance(std::string module, std::string name) {
  return [module = std::move(module), name = std::move(name)](pickle::PickleWriter& out) {
    out.Global(module, name).EmptyTuple().NewObject();
  };
}

inline WriteValue Instance(std::string module, std::string name, WriteValue state) {
  return [instance = Instance(std::move(module), std::move(name)),
          state = std::move(state)](pickle::PickleWriter& out) {
    instance(out);
    state(out);
    out.Build();
  };
}

inline constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
inline constexpr const char* kFileSystemModule = "torch.distributed.checkpoint.filesystem";

// A chunk of the tensor, and where its item lies in `__0_0.distcp`.
struct PickledChunk {
  Box box;
  std::int64_t offset_bytes = 0;
  std::int64_t size_bytes = 0;
};

// The tensor "w" of float32 and an object.
struct MetadataPickle {
  Dims shape = {2};
  std::vector<PickledChunk> chunks = {{{{0}, {2}}, 0, 700}};
  std::string object_key = "o";
  PickledChunk object = {{}, 700, 400};
  // By the name of the part: "planner_data" is the value of that field, "tensor" the description
  // of "w".
  std::map<std::string, WriteValue> instead = {};

  [[nodiscard]] Bytes Write() const {
    pickle::PickleWriter out(pickle::Dialect::kProtocol4);
    const WriteValue state = Part("state", Fields({"state_dict_metadata", "planner_data",
                                                   "storage_data", "mcore_data", "storage_meta"}));
    Part("root", Instance(kMetadataModule, "Metadata", state))(out);
    return out.Take();
  }

 private:
  [[nodiscard]] WriteValue Part(const std::string& name, WriteValue usual) const {
    const auto found = instead.find(name);
    return found == instead.end() ? std::move(usual) : found->second;
  }

  [[nodiscard]] WriteValue Usual(const std::string& field) const {
    if (field == "state_dict_metadata") {
      return Dict({{Part("key", Text("w")), Part("tensor", Tensor())},
                   {Text(object_key), Instance(kMetadataModule, "BytesStorageMetadata")}});
    }
    if (field == "storage_data") return StorageData();
    return None;
  }

  [[nodiscard]] WriteValue Fields(const std::vector<std::string>& names) const {
    WrittenPairs pairs;
    for (const std::string& name : names) pairs.emplace_back(Text(name), Part(name, Usual(name)));
    return Dict(std::move(pairs));
  }

  [[nodiscard]] WriteValue Tensor() const {
    const WriteValue properties = Instance(kMetadataModule, "TensorProperties",
                                           Part("properties_state", [](pickle::PickleWriter& out) {
                                             out.Global("torch", "float32").InTuple();
                                           }));
    return Instance(kMetadataModule, "TensorStorageMetadata",
                    Part("tensor_state", Dict({{Text("properties"), Part("properties", properties)},
                                               {Text("size"), Part("size", Size(shape))},
                                               {Text("chunks"), Part("chunks", Chunks())}})));
  }

  [[nodiscard]] WriteValue Chunks() const {
    return [this](pickle::PickleWriter& out) {
      out.BeginList();
      for (const PickledChunk& chunk : chunks) Part("chunk", Chunk(chunk.box))(out);
      out.EndList();
    };
  }

  [[nodiscard]] WriteValue Chunk(const Box& box) const {
    return Instance(kMetadataModule, "ChunkStorageMetadata",
                    Dict({{Text("offsets"), Part("offsets", Size(box.offsets))},
                          {Text("sizes"), Part("sizes", Size(box.sizes))}}));
  }

  [[nodiscard]] WriteValue StorageData() const {
    WrittenPairs pairs;
    for (const PickledChunk& chunk : chunks) {
      pairs.emplace_back(Part("index", Index("w", Part("index_offset", Size(chunk.box.offsets)))),
                         Part("stored", Stored(chunk)));
    }
    pairs.emplace_back(Index(object_key, None), Stored(object));
    return Dict(std::move(pairs));
  }

  [[nodiscard]] WriteValue Index(std::string key, WriteValue offset) const {
    return Instance(
        kMetadataModule, "MetadataIndex",
        Dict({{Text("fqn"), Text(std::move(key))}, {Text("offset"), std::move(offset)}}));
  }

  [[nodiscard]] WriteValue Stored(const PickledChunk& chunk) const {
    return Instance(kFileSystemModule, "_StorageInfo",
                    Dict({{Text("relative_path"), Part("relative_path", Text("__0_0.distcp"))},
                          {Text("offset"), Part("stored_offset", Int(chunk.offset_bytes))},
                          {Text("length"), Part("stored_length", Int(chunk.size_bytes))},
                          {Text("transform_descriptors"), Part("transforms", None)}}));
  }
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_FORMATS_DCP_METADATA_PICKLE_H_
