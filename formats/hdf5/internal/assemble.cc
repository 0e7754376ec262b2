#include "formats/hdf5/internal/assemble.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/hdf5/internal/held_path.h"
#include "formats/hdf5/internal/links.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/object_header.h"

namespace ckpt::hdf5 {
namespace {

constexpr int kMaxGroupDepth = 64;
constexpr std::uint64_t kMaxKeyBytes = 256 * kMiB;  // of all of them

// Of an attribute that this program writes; nothing if it is another value.
std::optional<std::int64_t> IntegerOf(const Attribute& attribute) {
  const bool is_number = attribute.type.kind == TypeKind::kNumber &&
                         attribute.type.dtype == DType::kInt64 &&
                         attribute.value.size() == sizeof(std::int64_t);
  if (!is_number) return std::nullopt;
  return LoadLe<std::int64_t>(attribute.value.data());
}

struct WaitingAttribute {
  ObjectEntry entry;
  StoredObject object;
  Status why_unread = {};
};

class Assembler {
 public:
  Assembler(const DataFiles& files, std::unique_ptr<StructureFile> file)
      : path_(file->file().name()), finder_(files) {
    main_.name = files.own_name();
    main_.file = std::move(file);
  }

  Result<Assembled> Assemble() {
    StructureFile& file = *main_.file;
    CKPT_ASSIGN_OR_RETURN(main_.root, ReadSuperblock(file));
    own_ = builder_.AddFile(main_.name);
    raw_ = builder_.AddEncoding(PieceForm().CodingName());
    CKPT_ASSIGN_OR_RETURN(const ObjectHeader root, ReadObjectHeader(file, main_.root));
    CKPT_ASSIGN_OR_RETURN(const FoundAttributes attributes, ReadEachAttribute(file, root));
    CKPT_RETURN_IF_ERROR(attributes.WhyUnread(kLayoutAttribute));
    if (const Attribute* const layout = FindAttribute(attributes.read, kLayoutAttribute)) {
      CKPT_RETURN_IF_ERROR(CheckLayout(*layout));
      result_.is_ours = main_.is_ours = true;
      CKPT_RETURN_IF_ERROR(AddOurGroups(root));
    } else {
      CKPT_RETURN_IF_ERROR(AddGroup(main_.root, root, "", 0));
      PutAttributes();
    }
    for (Problem& warning : file.TakeWarnings()) builder_.AddProblem(std::move(warning));
    for (Problem& warning : finder_.TakeWarnings()) builder_.AddProblem(std::move(warning));
    CKPT_ASSIGN_OR_RETURN(result_.index, builder_.Build());
    return std::move(result_);
  }

 private:
  Status CheckLayout(const Attribute& attribute) {
    const std::int64_t version = IntegerOf(attribute).value_or(0);
    if (version == kLayoutVersion) return OkStatus();
    return Error(ErrorKind::kUnsupported, "a layout of a version that this build does not know")
        .File(path_)
        .Expected(fmt::format("{} = {}", kLayoutAttribute, kLayoutVersion))
        .Actual(std::to_string(version));
  }

  // Of a group that this program wrote, whose table of links has no checksum.
  Result<std::vector<Link>> ReadOurLinks(const ObjectHeader& header) {
    CKPT_ASSIGN_OR_RETURN(const FoundAttributes attributes, ReadEachAttribute(*main_.file, header));
    CKPT_RETURN_IF_ERROR(attributes.WhyUnread(kLinksAttribute));
    CKPT_ASSIGN_OR_RETURN(std::vector<Link> links, ReadLinks(*main_.file, header));
    const Attribute* const count = FindAttribute(attributes.read, kLinksAttribute);
    const std::optional<std::int64_t> expected = count ? IntegerOf(*count) : std::nullopt;
    // This program writes hard links alone.
    const auto num_hard = std::ranges::count(links, LinkKind::kHard, &Link::kind);
    if (!expected || num_hard >= *expected) return links;
    return Error(ErrorKind::kBadMetadata, "a group lacks links that were written to it")
        .File(path_)
        .Expected(fmt::format("{}, by its attribute {}", *expected, kLinksAttribute))
        .Actual(std::to_string(num_hard))
        .Hint("a program that removes some sets the attribute, or removes it");
  }

  // Of a file that this program wrote: the tensors and the objects.
  Status AddOurGroups(const ObjectHeader& root) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<Link> links, ReadOurLinks(root));
    const auto has = [&](std::string_view name) {
      return std::ranges::find(links, name, &Link::name) != links.end();
    };
    result_.is_part = has(kChunksGroup) && !has(kTensorsGroup);
    for (const std::string_view group : {kTensorsGroup, kObjectsGroup}) {
      if (result_.is_part || has(group)) continue;
      return Error(ErrorKind::kBadMetadata, "a group that ckptkit writes is not there")
          .File(path_)
          .Expected(Quote(group));
    }
    for (const Link& link : links) {
      const bool is_group = link.name == kTensorsGroup || link.name == kObjectsGroup;
      const bool is_origin = link.name == kOriginName;
      if ((is_group || is_origin) && link.kind != LinkKind::kHard) {
        return Error(ErrorKind::kBadMetadata, "a link that ckptkit writes is of another kind")
            .File(path_)
            .Tensor(link.name)
            .Expected("a hard link")
            .Actual(link.kind == LinkKind::kSoft ? "a symbolic link" : "a link to another file");
      }
      if (!is_group && !is_origin) {
        if (link.name == kChunksGroup) continue;
        builder_.AddProblem(Warning(ErrorKind::kUnsupported,
                                    "what is beside ckptkit's own groups is not read", path_,
                                    link.name));
        continue;
      }
      CKPT_ASSIGN_OR_RETURN(const ObjectHeader header, ReadObjectHeader(*main_.file, link.at));
      if (is_origin) {
        CKPT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                              ReadAttributes(*main_.file, header));
        CKPT_ASSIGN_OR_RETURN(DataSet set, ParseDataSet(*main_.file, header));
        CKPT_RETURN_IF_ERROR(TakeChecksum(*main_.file, attributes, set));
        const bool is_text = set.type.kind == TypeKind::kText && set.shape.empty() &&
                             set.segments.size() == 1 && set.segments[0].file.empty();
        if (!is_text) return main_.file->Bad(header.at, "the account of the origin is not a text");
        result_.origin = set.segments[0];
        result_.origin_checksum = set.checksum;
        continue;
      }
      CKPT_RETURN_IF_ERROR(AddGroup(link.at, header, "", 1));
    }
    return OkStatus();
  }

  Status AddGroup(std::uint64_t at, const ObjectHeader& header, const std::string& path,
                  int depth) {
    StructureFile& file = *main_.file;
    if (depth > kMaxGroupDepth) {
      return Contain(file.Unsupported(at, "groups nest too deep"), path);
    }
    const auto [known, is_new] = groups_.emplace(at, path);
    if (!is_new && result_.is_ours) return file.Bad(at, "two links lead to one group");
    if (!is_new) {
      Problem warning = Warning(ErrorKind::kUnsupported,
                                "a second link to one group is not followed", path_, path);
      warning.actual = "the group " + Quote("/" + known->second);
      builder_.AddProblem(std::move(warning));
      return OkStatus();
    }
    if (!result_.is_ours) CKPT_RETURN_IF_ERROR(AddAttributes(header, path));
    CKPT_ASSIGN_OR_RETURN(const std::vector<Link> links,
                          result_.is_ours ? ReadOurLinks(header) : ReadLinks(file, header));
    for (const Link& link : links) {
      const std::string inner = path.empty() ? link.name : path + "/" + link.name;
      CKPT_RETURN_IF_ERROR(CountKey(inner));
      CKPT_RETURN_IF_ERROR(AddLink(link, inner, depth));
    }
    return OkStatus();
  }

  // Names of groups are in the keys of all that is below them.
  Status CountKey(const std::string& key) {
    key_bytes_ += key.size();
    if (key_bytes_ <= kMaxKeyBytes) return OkStatus();
    return Error(ErrorKind::kResource, "the names in the file are longer than can be listed")
        .File(path_);
  }

  Status AddLink(const Link& link, const std::string& path, int depth) {
    if (link.kind == LinkKind::kSoft) {
      builder_.AddProblem(
          Warning(ErrorKind::kUnsupported, "a symbolic link is not followed", path_, path));
      return OkStatus();
    }
    if (link.kind == LinkKind::kExternal) {
      builder_.AddProblems(
          Error(ErrorKind::kUnsupported, "a link into another HDF5 file is not followed")
              .File(path_)
              .Tensor(path)
              .Hint("open the other file"));
      return OkStatus();
    }
    CKPT_ASSIGN_OR_RETURN(const ObjectHeader header, ReadObjectHeader(*main_.file, link.at));
    if (IsGroup(header)) return AddGroup(link.at, header, path, depth + 1);
    const bool has_type = header.Find(MessageType::kDatatype) != nullptr;
    const bool has_shape = header.Find(MessageType::kDataspace) != nullptr;
    const bool is_data_set = header.Find(MessageType::kLayout) != nullptr;
    const bool is_type = has_type && !has_shape && !is_data_set;
    if (!is_data_set && !is_type) {
      return Contain(main_.file->Bad(link.at, "an object is neither a group nor a data set"), path);
    }
    if (!result_.is_ours) {
      keys_.insert(path);
      CKPT_RETURN_IF_ERROR(AddAttributes(header, path));
    }
    if (is_type) return OkStatus();  // a name for an element type holds no values
    return Contain(AddDataSet(header, path), path);
  }

  // What is wrong with one object leaves the others readable.
  Status Contain(Status status, const std::string& path) {
    if (status.ok()) return status;
    if (IsUnread(status.kind())) return status;
    builder_.AddProblems(std::move(status).File(path_).Tensor(path));
    return OkStatus();
  }

  Status AddDataSet(const ObjectHeader& header, const std::string& path) {
    StructureFile& file = *main_.file;
    std::vector<Attribute> attributes;  // that say what an object or a tensor of ours is
    CKPT_ASSIGN_OR_RETURN(DataSet set, ParseDataSet(file, header));
    std::string key = path;
    if (result_.is_ours) {
      CKPT_ASSIGN_OR_RETURN(attributes, ReadAttributes(file, header));
      CKPT_RETURN_IF_ERROR(TakeChecksum(file, attributes, set));
      // By it a link that leads to another data set is found.
      if (FindAttribute(attributes, kKeyAttribute) == nullptr) {
        return Error(ErrorKind::kBadMetadata, "a data set lacks its attribute key")
            .Hint("a program that adds a data set gives it the key of the tensor or object");
      }
      CKPT_ASSIGN_OR_RETURN(key, OwnText(attributes, kKeyAttribute, ""));
      // Neither the names of links nor texts have checksums: each proves the other.
      if (LinkNameOf(key) != path) {
        return Error(ErrorKind::kBadMetadata, "the attribute key does not fit the data set's name")
            .Expected(Quote(LinkNameOf(key)))
            .Actual(Quote(path));
      }
      if (FindAttribute(attributes, kPathAttribute) != nullptr) {
        CKPT_ASSIGN_OR_RETURN(const std::string place, OwnText(attributes, kPathAttribute, ""));
        CKPT_ASSIGN_OR_RETURN(EntryPath steps, ParsePath(place));
        result_.paths.insert_or_assign(key, std::move(steps));
      }
    }
    if (set.type.kind != TypeKind::kNumber || set.is_null) {
      return AddObject(set, attributes, key);
    }
    DType dtype = set.type.dtype;
    if (result_.is_ours) {
      CKPT_ASSIGN_OR_RETURN(const std::string name,
                            OwnText(attributes, kDtypeAttribute, DTypeName(set.type.dtype)));
      const std::optional<DType> named = ParseDType(name);
      if (!named || ElementBytes(*named) != set.type.size_bytes) {
        return Error(ErrorKind::kDtypeMismatch, "the attribute dtype does not fit the elements")
            .Expected(fmt::format("a type of {} bytes", set.type.size_bytes))
            .Actual(Quote(name));
      }
      dtype = *named;
    }
    CKPT_ASSIGN_OR_RETURN(std::vector<Piece> pieces, finder_.Find(main_, set));
    builder_.AddTensor(key, dtype, set.shape);
    if (set.type.is_enum) {
      builder_.AddProblem(Warning(ErrorKind::kUnsupported,
                                  "an enumeration is read as numbers, without their names", path_,
                                  key));
    }
    for (Piece& piece : pieces) {
      const FileId in = piece.file == main_.name ? own_ : builder_.AddFile(piece.file);
      builder_.AddChunk(piece.box, in, builder_.AddEncoding(piece.form.CodingName()),
                        piece.offset_bytes, piece.size_bytes);
      result_.forms.push_back(std::move(piece.form));
    }
    return OkStatus();
  }

  // The text of an attribute that this program writes; `otherwise` if it is absent.
  Result<std::string> OwnText(const std::vector<Attribute>& attributes, std::string_view name,
                              std::string_view otherwise) {
    const Attribute* const attribute = FindAttribute(attributes, name);
    if (attribute == nullptr) return std::string(otherwise);
    CKPT_ASSIGN_OR_RETURN(std::optional<std::string> text, TextOf(*main_.file, *attribute));
    if (text) {
      CKPT_RETURN_IF_ERROR(main_.file->Charge(text->size()));
      return *std::move(text);
    }
    return main_.file->Bad(attribute->at, fmt::format("the attribute {} is not a text", name));
  }

  // A data set that is no tensor: texts, compounds.
  Status AddObject(const DataSet& set, const std::vector<Attribute>& attributes,
                   const std::string& key) {
    StoredObject object;
    object.attribute.name = key;
    object.attribute.type = set.type;
    object.attribute.space = {.is_null = set.is_null, .shape = set.shape};
    object.checksum = set.checksum;
    if (result_.is_ours) {
      CKPT_ASSIGN_OR_RETURN(object.json_type, OwnText(attributes, kTypeAttribute, "str"));
      CKPT_ASSIGN_OR_RETURN(object.numbers, OwnText(attributes, kNumbersAttribute, ""));
    }
    ObjectEntry entry{.key = key, .file = own_, .encoding = raw_};
    const bool has_values = set.type.kind != TypeKind::kOther && !set.is_null;
    if (has_values) CKPT_RETURN_IF_ERROR(PlaceText(set, entry, object));
    Put(std::move(entry), std::move(object));
    if (set.type.kind != TypeKind::kOther || set.is_null) return OkStatus();
    return Error(ErrorKind::kUnsupported, "an element type that this build does not read")
        .Actual(set.type.name)
        .Hint("ckpt-convert --drop leaves it out");
  }

  // Says where the elements of a text lie. The index has room for one extent: of several pieces,
  // for that of the first one that is stored.
  Status PlaceText(const DataSet& set, ObjectEntry& entry, StoredObject& object) {
    CKPT_ASSIGN_OR_RETURN(std::vector<Piece> pieces, finder_.Find(main_, set));
    if (pieces.empty()) return OkStatus();
    const auto is_elsewhere = [&](const Piece& piece) { return piece.file != main_.name; };
    const bool is_one_range = pieces.size() == 1 && pieces[0].form.coding == Coding::kRaw &&
                              pieces[0].form.strides == ContiguousStrides(set.shape);
    if (std::ranges::any_of(pieces, is_elsewhere) || (set.virtual_layout && !is_one_range)) {
      return Error(ErrorKind::kUnsupported,
                   "text that is shown from other data sets or lies in other files")
          .Hint("h5repack -l CONTI copies it into the file");
    }
    const auto is_stored = [](const Piece& piece) { return piece.form.coding != Coding::kFill; };
    const auto stored = std::ranges::find_if(pieces, is_stored);
    const Piece& first = stored == pieces.end() ? pieces.front() : *stored;
    entry.encoding = builder_.AddEncoding(first.form.CodingName());
    entry.offset_bytes = first.offset_bytes;
    entry.size_bytes = first.size_bytes;
    if (is_one_range) {
      object.attribute.at = entry.offset_bytes - main_.file->user_block();
    } else {
      object.pieces = std::move(pieces);
    }
    return OkStatus();
  }

  Status AddAttributes(const ObjectHeader& header, const std::string& path) {
    const auto key_of = [&](const std::string& name) { return path + "@" + name; };
    CKPT_ASSIGN_OR_RETURN(FoundAttributes attributes, ReadEachAttribute(*main_.file, header));
    for (UnreadAttribute& unread : attributes.unread) {
      const std::string key = key_of(unread.name);
      CKPT_RETURN_IF_ERROR(CountKey(key));
      if (unread.name.empty()) {
        CKPT_RETURN_IF_ERROR(Contain(std::move(unread.why), key));
        continue;
      }
      StoredObject object;
      object.attribute.type.name = "unknown";
      attributes_.push_back({.entry = {.key = key, .file = own_, .encoding = raw_},
                             .object = std::move(object),
                             .why_unread = std::move(unread.why)});
    }
    std::set<std::string_view> names;
    for (const Attribute& attribute : attributes.read) {
      if (!names.insert(attribute.name).second) {
        CKPT_RETURN_IF_ERROR(
            Contain(main_.file->Bad(attribute.at, "two attributes of an object have one name"),
                    key_of(attribute.name)));
        continue;
      }
      CKPT_RETURN_IF_ERROR(CountKey(key_of(attribute.name)));
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t offset, main_.file->OffsetInFile(attribute.at));
      ObjectEntry entry{.key = key_of(attribute.name),
                        .file = own_,
                        .encoding = raw_,
                        .offset_bytes = offset,
                        .size_bytes = attribute.value.size()};
      StoredObject object{.attribute = attribute, .json_type = {}};
      object.attribute.value.clear();
      attributes_.push_back({.entry = std::move(entry), .object = std::move(object)});
    }
    return OkStatus();
  }

  // Last of all: data sets have their keys first, and "a@b" may be one beside an attribute of "a".
  void PutAttributes() {
    for (WaitingAttribute& attribute : attributes_) {
      const std::string key = attribute.entry.key;
      if (!keys_.insert(key).second) {
        builder_.AddProblem(Warning(ErrorKind::kUnsupported,
                                    "an attribute whose key another entry has is not read", path_,
                                    key));
        continue;
      }
      builder_.AddProblems(std::move(attribute.why_unread).File(path_).Tensor(key));
      Put(std::move(attribute.entry), std::move(attribute.object));
    }
  }

  void Put(ObjectEntry entry, StoredObject object) {
    result_.objects.insert_or_assign(entry.key, std::move(object));
    builder_.AddObject(std::move(entry));
  }

  std::string path_;
  OpenedFile main_;
  PieceFinder finder_;
  IndexBuilder builder_;
  FileId own_ = 0;
  EncodingId raw_ = 0;
  Assembled result_;
  std::map<std::uint64_t, std::string> groups_;  // paths by addresses
  // Of a file of another program: keys that are in use, and attributes that have none yet.
  std::set<std::string> keys_;
  std::vector<WaitingAttribute> attributes_;
  std::uint64_t key_bytes_ = 0;
};

}  // namespace

Result<Assembled> Assemble(const DataFiles& files, std::shared_ptr<const ReadableFile> file) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<StructureFile> structure,
                        StructureFile::Open(std::move(file)));
  return Assembler(files, std::move(structure)).Assemble();
}

}  // namespace ckpt::hdf5
