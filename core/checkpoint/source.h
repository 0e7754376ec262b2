// CheckpointSource: a checkpoint that can be read piece by piece, whatever its container.
#ifndef CKPT_CORE_CHECKPOINT_SOURCE_H_
#define CKPT_CORE_CHECKPOINT_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// Where the elements of one chunk lie. Element `i` (an index into the chunk's sizes) starts at byte
// `offset_bytes + ElementBytes(dtype) * Σ strides[d]·i[d]` of `file`. All these bytes were checked
// to lie within the file.
struct StoredArray {
  std::shared_ptr<const ReadableFile> file;
  std::uint64_t offset_bytes = 0;
  DType dtype = DType::kFloat32;
  Dims strides;               // in elements; may be zero or in any order, never negative
  bool byte_swapped = false;  // big-endian elements
  bool negated = false;       // torch's lazy negative: the value is minus what is stored
  bool conjugated = false;    // torch's lazy conjugate
  // Memory that `file` keeps: the size of a decoded item; 0 for a real file.
  std::uint64_t resident_bytes = 0;
};

// A tensor inside an object that the object's JSON does not show.
struct HeldTensor {
  std::string path;  // inside the object: attributes, keys and positions joined with '.'
  Dims shape;
  DType dtype = DType::kFloat32;
  std::string sha256;  // of the elements in C order, little-endian

  friend bool operator==(const HeldTensor&, const HeldTensor&) = default;
};

// The values of tensors of one number, by their dtypes and the SHA-256 of their elements.
using HeldNumbers = std::map<std::pair<DType, std::string>, double>;

// An entry that is not a tensor, as JSON by the rule of docs/formats/objects.md.
struct RenderedObject {
  std::string type;  // "int", "dict", "Namespace", …: Python's name of the outermost type
  std::string json;
  std::vector<Problem> warnings;      // calls in its pickle, which are not executed
  std::vector<HeldTensor> held = {};  // tensors that the JSON only names
  HeldNumbers numbers = {};           // of the tensors that the JSON shows by dtype and SHA-256
  bool hides_attributes = false;      // some mapping in it has attributes, which no JSON shows
};

// Whether two objects have the same text and hold the same tensors.
[[nodiscard]] bool SayTheSame(const RenderedObject& a, const RenderedObject& b);

// An object as a pickle of protocol 2, which refers to the storages of its tensors by number.
struct PickledObject {
  Bytes pickle;
  std::vector<Bytes> storages = {};
};

// An entry that is not a tensor.
struct PickledEntry {
  std::string key;
  PickledObject value;
};

// What checked the payload when a chunk was located or verified.
enum class Protection : std::uint8_t { kNone, kCrc32, kIntegrityJson, kManifest };
// "none", "crc32", "integrity.json", "manifest".
std::string_view ProtectionName(Protection protection);

// Thread-safety: const methods may run concurrently.
class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;

  // Global tensors and the chunks that cover them. Valid as long as this object.
  [[nodiscard]] virtual const CheckpointIndex& index() const = 0;

  // Opens a chunk's stored item and finds its elements. If the item carries a checksum, it is
  // verified first, which reads the item once.
  //
  // REQUIRES: `tensor` is one of the index, and `chunk` one of its chunks there, not a copy.
  // Errors: kMissingFile, kTruncated, kOutOfRange, kBadItem, kShapeMismatch or kDtypeMismatch (the
  // item is not what the index says), kSizeMismatch, kChecksum, kUnsupported (encoding), kResource.
  // Cost: a few small reads, plus one read of the item if it carries a checksum or is compressed.
  [[nodiscard]] virtual Result<StoredArray> Locate(const GlobalTensor& tensor,
                                                   const Chunk& chunk) const = 0;

  // The same for one thread that reads all elements, mostly in the order of the file, and uses none
  // of them before it has the last: a checksum may be compared on the way, so that the item is read
  // once, and the read that ends the item then fails.
  [[nodiscard]] virtual Result<StoredArray> LocateToStream(const GlobalTensor& tensor,
                                                           const Chunk& chunk) const {
    return Locate(tensor, chunk);
  }

  // Errors: kBadItem and the file errors of Locate.
  [[nodiscard]] virtual Result<RenderedObject> ReadObject(const ObjectEntry& object) const = 0;

  // The object itself, of which ReadObject's text may not say all. Nothing: the format stores no
  // pickles. Errors: those of ReadObject; kUnsafePickle (it calls or names what no honest
  // checkpoint does), kUnsupported (a value that cannot be pickled again as it is), kResource (too
  // large to be held in memory).
  [[nodiscard]] virtual Result<std::optional<PickledObject>> ReadPickled(
      const ObjectEntry& /*object*/) const {
    return std::optional<PickledObject>();
  }

  // Bytes of the tensors that an object holds, where ObjectEntry::size_bytes does not count them.
  [[nodiscard]] virtual std::uint64_t HeldBytes(const ObjectEntry& /*object*/) const { return 0; }

  // Whether the checkpoint is one object in one file. For an entry with the empty key, ReadObject
  // then returns all of it.
  [[nodiscard]] virtual bool is_one_object() const { return false; }

  // Where tensors and objects stood in the nested Python object that was saved; nothing of those
  // whose key is all that is known.
  [[nodiscard]] virtual EntryPaths Paths() const { return {}; }

  // What Python keeps beside the values of a mapping that holds entries: `_metadata` of a module's
  // state_dict(). They are not entries of the index. ReadObject and ReadPickled read each by its
  // key, and Paths() says where it stood.
  [[nodiscard]] virtual std::vector<ObjectEntry> Attributes() const { return {}; }

  // Compares bytes that belong to no tensor of the index, such as numbers inside objects, with
  // their checksums. Errors: kChecksum and the file errors of Locate.
  [[nodiscard]] virtual Status VerifyRest() const { return OkStatus(); }

  // Full size of a file that chunks name. Errors: kMissingFile, kUnsafePath.
  [[nodiscard]] virtual Result<std::uint64_t> FileSize(FileId file) const = 0;

  // The strongest checksum that this format stores with its items; kNone if there is none.
  [[nodiscard]] virtual Protection protection() const = 0;

  // Whether all that Locate or ReadObject reads of the item is compared with a checksum, where only
  // some items have one.
  [[nodiscard]] virtual bool HasChecksum(const Chunk& /*chunk*/) const {
    return protection() != Protection::kNone;
  }
  [[nodiscard]] virtual bool HasChecksum(const ObjectEntry& /*object*/) const {
    return protection() != Protection::kNone;
  }
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_SOURCE_H_
