#include "tests/reliability/random_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/internal/torch_dtype.h"
#include "formats/zip/writer.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxTensorBytes = 6 << 10;

std::int64_t Below(std::int64_t bound, std::mt19937_64& rng) {
  return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(bound));
}

bool OneIn(std::int64_t n, std::mt19937_64& rng) { return Below(n, rng) == 0; }

Dims RandomShape(DType dtype, std::mt19937_64& rng) {
  Dims shape(static_cast<std::size_t>(Below(5, rng)));
  for (std::int64_t& size : shape)
    size = OneIn(24, rng) ? 0 : 1 + Below(OneIn(4, rng) ? 40 : 9, rng);
  while (NumBytes(shape, dtype) > kMaxTensorBytes) {
    *std::max_element(shape.begin(), shape.end()) /= 2;
  }
  return shape;
}

std::string RandomKey(std::size_t position, std::mt19937_64& rng) {
  constexpr const char* kWords[] = {
      "layers.{}.weight", "a b.{}", "кey.{}",     "\"{}\".bias", "{}",
      "x.{}.y.z",         "_{}",    "norm\\{}.w", "λ/{}",        "m.{}.0.1"};
  return fmt::format(fmt::runtime(kWords[rng() % std::size(kWords)]), position);
}

// Any bit pattern is a value of every type but bool.
Bytes RandomValues(DType dtype, std::uint64_t size_bytes, std::mt19937_64& rng) {
  Bytes values(size_bytes);
  const std::uint64_t range = dtype == DType::kBool ? 2 : 256;
  for (std::byte& b : values) b = static_cast<std::byte>(rng() % range);
  return values;
}

// Elements of a box of a tensor, wherever they shall lie.
struct Placement {
  Dims strides;            // in elements
  std::int64_t elems = 0;  // from the first to behind the last
};

// Dims in some order, with gaps after some of them.
Placement RandomPlacement(const Dims& sizes, std::mt19937_64& rng) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), rng);
  Placement placement{.strides = Dims(sizes.size()), .elems = 1};
  std::int64_t step = 1;
  for (const std::size_t dim : order) {
    placement.strides[dim] = step;
    placement.elems += step * (sizes[dim] - 1);
    step *= sizes[dim] + (OneIn(3, rng) ? Below(3, rng) : 0);
  }
  return placement;
}

// Copies a box out of a tensor's values to `out`, element by element: slow and plain on purpose.
void Place(const MemoryTensor& tensor, const Box& box, const Placement& placement, std::byte* out) {
  const std::uint64_t width = ElementBytes(tensor.dtype);
  const Dims strides = ContiguousStrides(tensor.shape);
  Dims at(box.sizes.size(), 0);
  for (std::int64_t left = NumElements(box.sizes); left > 0; --left) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      from += (box.offsets[d] + at[d]) * strides[d];
      to += at[d] * placement.strides[d];
    }
    std::copy_n(tensor.values.begin() + from * static_cast<std::ptrdiff_t>(width), width,
                out + to * static_cast<std::ptrdiff_t>(width));
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.sizes[d]) break;
      at[d] = 0;
    }
  }
}

// Where each dim is cut, as ranges: uneven, and of one element now and then.
std::vector<Box> RandomGrid(const Dims& shape, std::mt19937_64& rng) {
  std::vector<Box> boxes = {Box{}};
  for (const std::int64_t size : shape) {
    std::vector<std::int64_t> cuts = {0, size};
    for (std::int64_t n = size > 1 ? Below(3, rng) : 0; n > 0; --n)
      cuts.push_back(1 + Below(size - 1, rng));
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (cuts.size() == 1) cuts.push_back(size);  // a dim of nothing
    std::vector<Box> finer;
    for (const Box& box : boxes) {
      for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
        finer.push_back(box);
        finer.back().offsets.push_back(cuts[c]);
        finer.back().sizes.push_back(cuts[c + 1] - cuts[c]);
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

class Scattered final : public CheckpointSource {
 public:
  Scattered(CheckpointIndex index, std::vector<std::shared_ptr<const ReadableFile>> files,
            std::map<std::pair<FileId, std::uint64_t>, Dims> strides)
      : index_(std::move(index)), files_(std::move(files)), strides_(std::move(strides)) {}

  const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    return StoredArray{.file = files_[chunk.file],
                       .offset_bytes = chunk.offset_bytes,
                       .dtype = tensor.dtype,
                       .strides = strides_.at({chunk.file, chunk.offset_bytes})};
  }
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    return Error(ErrorKind::kInternal, "there are no objects").Actual(object.key);
  }
  Result<std::uint64_t> FileSize(FileId file) const override { return files_[file]->size_bytes(); }
  Protection protection() const override { return Protection::kNone; }

 private:
  CheckpointIndex index_;
  std::vector<std::shared_ptr<const ReadableFile>> files_;
  std::map<std::pair<FileId, std::uint64_t>, Dims> strides_;
};

// A storage that tensors of one dtype share.
struct SharedStorage {
  DType dtype = DType::kFloat32;
  Bytes content = {};
};

// A tensor of a torch.save file.
struct View {
  const MemoryTensor* tensor = nullptr;
  std::size_t storage = 0;
  std::int64_t offset = 0;  // in elements
  Dims strides = {};
};

bool IsSame(const MemoryTensor& a, const MemoryTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.values == b.values;
}

// Appends the tensor to a storage of its dtype, or to a new one.
View PlaceView(const MemoryTensor& tensor, std::vector<SharedStorage>& storages,
               std::mt19937_64& rng) {
  const std::uint64_t width = ElementBytes(tensor.dtype);
  View view{.tensor = &tensor};
  view.storage = static_cast<std::size_t>(
      std::find_if(storages.begin(), storages.end(),
                   [&](const SharedStorage& s) { return s.dtype == tensor.dtype; }) -
      storages.begin());
  if (view.storage == storages.size() || OneIn(2, rng)) {
    view.storage = storages.size();
    storages.push_back({.dtype = tensor.dtype, .content = Bytes(width * (rng() % 4))});
  }
  Bytes& content = storages[view.storage].content;
  view.offset = static_cast<std::int64_t>(content.size() / width);
  const Box whole = WholeBox(tensor.shape);
  if (IsEmpty(whole)) {
    view.strides = ContiguousStrides(tensor.shape);
    return view;
  }
  const Placement placement = RandomPlacement(tensor.shape, rng);
  view.strides = placement.strides;
  const std::size_t at = content.size();
  content.resize(at + static_cast<std::size_t>(placement.elems) * width);
  Place(tensor, whole, placement, content.data() + at);
  return view;
}

void PickleTensor(const View& view, std::uint64_t storage_bytes, pickle::PickleWriter& pickle) {
  const DType dtype = view.tensor->dtype;
  const std::string_view storage_class = torch_save::StorageClassOf(dtype);
  const bool is_untyped = storage_class.empty();
  pickle.Global("torch._utils", is_untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.BeginTuple().BeginTuple().Text("storage");
  pickle.Global(is_untyped ? "torch.storage" : "torch",
                is_untyped ? "UntypedStorage" : storage_class);
  pickle.Text(std::to_string(view.storage)).Text("cpu");
  pickle.Int(
      static_cast<std::int64_t>(is_untyped ? storage_bytes : storage_bytes / ElementBytes(dtype)));
  pickle.EndTuple().PersistentId().Int(view.offset);
  pickle.IntTuple(view.tensor->shape).IntTuple(view.strides).Bool(false);
  pickle.Global("collections", "OrderedDict").EmptyTuple().Reduce();
  if (is_untyped) pickle.Global("torch", DTypeName(dtype));
  pickle.EndTuple().Reduce();
}

}  // namespace

std::vector<MemoryTensor> RandomTensors(std::span<const DType> dtypes, std::mt19937_64& rng) {
  std::vector<MemoryTensor> tensors(static_cast<std::size_t>(1 + Below(8, rng)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    MemoryTensor& tensor = tensors[i];
    if (i > 0 && OneIn(6, rng)) {
      tensor = tensors[i - 1];  // tied
    } else {
      tensor.dtype = dtypes[rng() % dtypes.size()];
      tensor.shape = RandomShape(tensor.dtype, rng);
      // Of two 4-bit values in a byte there is no scalar.
      if (tensor.dtype == DType::kFloat4E2m1fnX2 && tensor.shape.empty()) tensor.shape = {3};
      tensor.values = RandomValues(tensor.dtype, NumBytes(tensor.shape, tensor.dtype), rng);
    }
    tensor.key = RandomKey(i, rng);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  return tensors;
}

Result<std::unique_ptr<CheckpointSource>> ScatteredSource(std::span<const MemoryTensor> tensors,
                                                          std::mt19937_64& rng) {
  IndexBuilder builder;
  const EncodingId encoding = builder.AddEncoding("raw");
  std::vector<Bytes> contents(static_cast<std::size_t>(1 + Below(4, rng)));
  for (std::size_t f = 0; f < contents.size(); ++f) builder.AddFile(fmt::format("part{}", f));
  std::map<std::pair<FileId, std::uint64_t>, Dims> strides;
  for (const MemoryTensor& tensor : tensors) {
    builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
    for (const Box& box : RandomGrid(tensor.shape, rng)) {
      if (IsEmpty(box)) continue;
      const auto file = static_cast<FileId>(rng() % contents.size());
      Bytes& content = contents[file];
      content.resize(content.size() + 1 + rng() % 9);  // no payload is aligned
      const Placement placement = RandomPlacement(box.sizes, rng);
      const std::uint64_t at = content.size();
      const std::uint64_t bytes =
          static_cast<std::uint64_t>(placement.elems) * ElementBytes(tensor.dtype);
      content.resize(at + bytes, std::byte{0xEE});
      Place(tensor, box, placement, content.data() + at);
      strides[{file, at}] = placement.strides;
      builder.AddChunk(box, file, encoding, at, bytes);
    }
  }
  CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
  std::vector<std::shared_ptr<const ReadableFile>> files;
  for (std::size_t f = 0; f < contents.size(); ++f) {
    files.push_back(MakeMemoryFile(fmt::format("part{}", f), std::move(contents[f])));
  }
  return std::unique_ptr<CheckpointSource>(
      std::make_unique<Scattered>(std::move(index), std::move(files), std::move(strides)));
}

Bytes TorchSaveFile(std::span<const MemoryTensor> tensors, std::mt19937_64& rng) {
  std::vector<SharedStorage> storages;
  std::vector<View> views;
  for (const MemoryTensor& tensor : tensors) {
    const auto tied = std::find_if(views.begin(), views.end(),
                                   [&](const View& v) { return IsSame(*v.tensor, tensor); });
    View view = tied != views.end() ? *tied : PlaceView(tensor, storages, rng);
    view.tensor = &tensor;
    views.push_back(std::move(view));
  }
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict();
  for (const View& view : views) {
    pickle.Text(view.tensor->key);
    PickleTensor(view, storages[view.storage].content.size(), pickle);
  }
  pickle.EndDict();

  zip::Writer zip("model");
  zip.Add("data.pkl", pickle.Take());
  zip.Add("byteorder", AsBytes("little"));
  for (std::size_t s = 0; s < storages.size(); ++s) {
    zip.Add(fmt::format("data/{}", s), storages[s].content);
  }
  zip.Add("version", AsBytes("3\n"));
  return std::move(zip).Finish().front().bytes;
}

}  // namespace ckpt::testing
