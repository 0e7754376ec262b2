// Turns the objects of a `.metadata` pickle into numbers while it is being read: a chunk becomes 16
// bytes.
#ifndef CKPT_FORMATS_DCP_INTERNAL_METADATA_REDUCER_H_
#define CKPT_FORMATS_DCP_INTERNAL_METADATA_REDUCER_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "formats/dcp/internal/field_names.h"
#include "formats/dcp/internal/text_pool.h"
#include "formats/pickle/graph.h"
#include "formats/pickle/literal.h"
#include "formats/pickle/reader.h"

namespace ckpt::dcp {

// The classes of torch.distributed.checkpoint that a `.metadata` is made of, under all module names
// they ever had.
enum class MetadataClass : std::uint8_t {
  kOther,
  kMetadata,
  kTensor,      // TensorStorageMetadata
  kBytes,       // BytesStorageMetadata
  kProperties,  // TensorProperties
  kChunk,       // ChunkStorageMetadata
  kIndex,       // MetadataIndex
  kStored,      // _StorageInfo
  kPlan,        // what Megatron adds for its own planner; nothing here needs it
  kSize,        // torch.Size
};

MetadataClass ClassifyMetadata(std::string_view module, std::string_view name);

// A _StorageInfo.
struct StoredItem {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t path = 0;  // in `paths()`
  std::uint32_t encoding =
      0;  // in `encodings()`, or kFlawed: then offset_bytes is a position in `flaws()`
};
inline constexpr std::uint32_t kFlawed = 0xFFFFFFFF;

// A TensorStorageMetadata whose parts are all well-formed.
struct TensorRecord {
  std::uint32_t dtype = 0;  // in `dtypes()`
  DimsId size = 0;
  std::uint64_t first_chunk = 0;  // in `chunks()`
  std::uint32_t num_chunks = 0;
};

struct ChunkRecord {
  DimsId offsets = 0;
  DimsId sizes = 0;
};

// The identity of a stored item: MetadataIndex without its hint. An object has no offset.
inline constexpr DimsId kNoOffset = 0xFFFFFFFF;
constexpr std::uint64_t MakeIdentity(std::uint32_t key, DimsId offset) {
  return (static_cast<std::uint64_t>(key) << 32) | offset;
}

class MetadataReducer final : public pickle::Reducer {
 public:
  // Record types in the graph. The value of kIndex is an identity; of the others a number in the
  // table of that name.
  enum RecordType : std::uint32_t {
    kSize = 1,
    kProperties,
    kChunk,
    kTensor,
    kIndex,
    kStored,
    kPlan
  };

  // `dims` is shared by the files of one checkpoint and must outlive this.
  explicit MetadataReducer(DimsPool& dims);

  // Makes room for what a pickle of this size may hold, and sets the limit of that. Room that stays
  // unused is never touched.
  void ReserveFor(std::uint64_t pickle_bytes);

  std::optional<pickle::Record> OnCall(const pickle::Graph& graph, pickle::NodeId callable,
                                       pickle::NodeId args) override;
  std::optional<pickle::Record> OnBuilt(const pickle::Graph& graph, pickle::NodeId instance,
                                        pickle::NodeId state) override;
  std::optional<pickle::Record> OnLiteral(const pickle::Graph& graph,
                                          const pickle::InstanceLiteral& instance) override;

  [[nodiscard]] const TextPool& keys() const { return keys_; }
  [[nodiscard]] TextPool& keys() { return keys_; }
  [[nodiscard]] const TextPool& paths() const { return paths_; }
  [[nodiscard]] const TextPool& encodings() const { return encodings_; }
  [[nodiscard]] const TextPool& dtypes() const { return dtypes_; }
  [[nodiscard]] const std::vector<StoredItem>& stored() const { return stored_; }
  [[nodiscard]] const std::vector<TensorRecord>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<ChunkRecord>& chunks() const { return chunks_; }
  // Whether tensors share chunks so much that they could not all be listed.
  [[nodiscard]] bool has_too_many_chunks() const { return has_too_many_chunks_; }
  // Why a _StorageInfo cannot be used.
  [[nodiscard]] const std::vector<Status>& flaws() const { return flaws_; }

  // The class of a global, or of what a kCall or kInstance calls.
  [[nodiscard]] MetadataClass ClassOf(const pickle::Graph& graph, pickle::NodeId node);
  // A torch.Size, tuple or list of integers as dims; nothing if it is none.
  [[nodiscard]] std::optional<DimsId> DimsOf(const pickle::Graph& graph, pickle::NodeId node);

 private:
  using Built = std::optional<pickle::Record>;
  Built BuildChunk(const pickle::Graph& graph, pickle::NodeId state);
  Built BuildIndex(const pickle::Graph& graph, pickle::NodeId state);
  Built BuildStored(const pickle::Graph& graph, pickle::NodeId state);
  Built BuildProperties(const pickle::Graph& graph, pickle::NodeId state);
  Built BuildTensor(const pickle::Graph& graph, pickle::NodeId state);
  std::optional<std::uint32_t> EncodingOf(const pickle::Graph& graph, pickle::NodeId descriptors);

  // The same from literals; nothing also where it takes the functions above to judge.
  Built LiteralChunk(const pickle::Graph& graph, const Fields& fields);
  Built LiteralIndex(const pickle::Graph& graph, const Fields& fields);
  Built LiteralStored(const pickle::Graph& graph, const Fields& fields);
  std::optional<DimsId> LiteralDims(const pickle::Graph& graph, const pickle::Literal* value);

  DimsPool* dims_;
  std::vector<std::int64_t> scratch_;
  std::vector<MetadataClass> classes_;  // by GlobalId
  std::vector<bool> classified_;
  TextPool keys_;
  TextPool paths_;
  TextPool encodings_;  // 0: no transforms
  TextPool dtypes_;
  TextCache key_cache_;
  TextCache path_cache_;
  FieldNames field_names_;
  std::vector<StoredItem> stored_;
  std::vector<TensorRecord> tensors_;
  std::vector<ChunkRecord> chunks_;
  std::vector<Status> flaws_;
  std::uint64_t max_chunks_;
  bool has_too_many_chunks_ = false;
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_METADATA_REDUCER_H_
