// Rebuild calls of every version, over a storage of 64 bytes, and what torch would read past it.
#include "formats/torch_save/tensor_rebuild.h"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using pickle::PickleWriter;
using testing::FailsWith;
using testing::IsOk;
using Write = std::function<void(PickleWriter&)>;

constexpr std::uint64_t kStorageBytes = 64;

Write Int(std::int64_t value) {
  return [=](PickleWriter& w) { w.Int(value); };
}
Write Text(const std::string& text) {
  return [=](PickleWriter& w) { w.Text(text); };
}
Write Global(const std::string& module, const std::string& name) {
  return [=](PickleWriter& w) { w.Global(module, name); };
}
Write Tuple(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    w.BeginTuple();
    for (const Write& part : parts) part(w);
    w.EndTuple();
  };
}
Write Dims2(std::int64_t a, std::int64_t b) { return Tuple({Int(a), Int(b)}); }
Write Persistent(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    Tuple(parts)(w);
    w.PersistentId();
  };
}
Write Call(const std::string& module, const std::string& name, const std::vector<Write>& args) {
  return [=](PickleWriter& w) {
    w.Global(module, name);
    Tuple(args)(w);
    w.Reduce();
  };
}
const Write kNone = [](PickleWriter& w) { w.None(); };
const Write kFalse = [](PickleWriter& w) { w.Bool(false); };
const Write kFloats =
    Persistent({Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), Int(16)});
const Write kUntyped = Persistent(
    {Text("storage"), Global("torch.storage", "UntypedStorage"), Text("0"), Text("cpu"), Int(64)});

Write V2(const std::vector<Write>& args) {
  return Call("torch._utils", "_rebuild_tensor_v2", args);
}

// What came of a tensor; its own kind if it is not a dense one.
struct Rebuilt {
  TensorForm form = TensorForm::kNone;
  Status status = {};
  Dims shape = {};
  StoredArray array = {};
};

Rebuilt Rebuild(const Write& write, std::uint64_t storage_bytes = kStorageBytes) {
  PickleWriter writer(pickle::Dialect::kProtocol4);
  write(writer);
  auto parsed = pickle::ParsePickle(writer.Take(), "p");
  EXPECT_THAT(parsed, IsOk());
  TorchContainer container;
  container.file = MakeMemoryFile("f", Bytes(kStorageBytes));
  container.pickle = std::move(parsed).value();
  container.storages["0"] = {
      .name = "data/0", .offset_bytes = 0, .size_bytes = storage_bytes, .crc32 = {}};
  Rebuilt rebuilt;
  rebuilt.form = TensorFormOf(container.pickle.graph, container.pickle.root);
  if (rebuilt.form != TensorForm::kDense) return rebuilt;
  auto tensor = RebuildTensor(container, container.pickle.root);
  rebuilt.status = tensor.status();
  if (tensor.ok()) {
    rebuilt.shape = tensor->shape;
    rebuilt.array = tensor->array;
  }
  return rebuilt;
}

TEST(TensorRebuildTest, EveryVersion) {
  const Rebuilt v1 =
      Rebuild(Call("torch._utils", "_rebuild_tensor", {kFloats, Int(4), Dims2(2, 3), Dims2(3, 1)}));
  ASSERT_THAT(v1.status, IsOk());
  EXPECT_EQ(v1.shape, (Dims{2, 3}));
  EXPECT_EQ(v1.array.offset_bytes, 16U);
  const Rebuilt v3 = Rebuild(Call("torch._utils", "_rebuild_tensor_v3",
                                  {kUntyped, Int(0), Tuple({Int(32)}), Tuple({Int(1)}), kFalse,
                                   kNone, Global("torch", "uint16")}));
  ASSERT_THAT(v3.status, IsOk());
  EXPECT_EQ(v3.array.dtype, DType::kUint16);
  // torch.Size where a tuple was, lists too.
  EXPECT_THAT(
      Rebuild(V2({kFloats, Int(0), Call("torch", "Size", {Dims2(4, 4)}), Dims2(4, 1)})).status,
      IsOk());
  EXPECT_THAT(Rebuild(V2({kFloats, Int(0), [](PickleWriter& w) { w.BeginList().Int(16).EndList(); },
                          Tuple({Int(1)})}))
                  .status,
              IsOk());
}

TEST(TensorRebuildTest, WithoutElementsTheOffsetMeansNothing) {
  const Rebuilt empty = Rebuild(V2({kFloats, Int(1 << 20), Dims2(0, 4), Dims2(4, 1)}));
  ASSERT_THAT(empty.status, IsOk());
  EXPECT_EQ(empty.array.offset_bytes, 0U);
}

TEST(TensorRebuildTest, LooksThroughParametersAndSubclasses) {
  const Write inner = V2({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)});
  EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_parameter", {inner, kFalse, kNone})).shape,
            (Dims{4, 4}));
  EXPECT_EQ(
      Rebuild(Call("torch._utils", "_rebuild_parameter_with_state", {inner, kFalse, kNone, kNone}))
          .shape,
      (Dims{4, 4}));
  EXPECT_EQ(Rebuild(Call("torch._tensor", "_rebuild_from_type_v2",
                         {Global("torch._utils", "_rebuild_tensor_v2"), Global("torch", "Tensor"),
                          Tuple({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)}), kNone}))
                .shape,
            (Dims{4, 4}));
  Write deep = inner;
  for (int i = 0; i < 9; ++i)
    deep = Call("torch._utils", "_rebuild_parameter", {deep, kFalse, kNone});
  EXPECT_EQ(Rebuild(deep).form, TensorForm::kNone);
  EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_parameter", {})).form, TensorForm::kNone);
  EXPECT_EQ(Rebuild(Call("torch._tensor", "_rebuild_from_type_v2", {kNone, kNone})).form,
            TensorForm::kNone);
  EXPECT_EQ(Rebuild(Call("torch._tensor", "_rebuild_from_type_v2", {kNone, kNone, kNone})).form,
            TensorForm::kNone);
  EXPECT_EQ(Rebuild(Call("torch._tensor", "_rebuild_from_type_v2",
                         {Global("torch._utils", "_rebuild_tensor_v2"), kNone, kNone}))
                .form,
            TensorForm::kNone);
}

TEST(TensorRebuildTest, TakesAsFewArgumentsAsThereMayBe) {
  EXPECT_EQ(Rebuild(Call("torch._tensor", "_rebuild_from_type_v2",
                         {Global("torch._utils", "_rebuild_tensor_v2"), Global("torch", "Tensor"),
                          Tuple({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)})}))
                .shape,
            (Dims{4, 4}));
  EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_tensor_v3",
                         {kUntyped, Int(0), Dims2(4, 4), Dims2(4, 1), kFalse, kNone}))
                .form,
            TensorForm::kOther)
      << "its dtype would be the seventh";
  const Rebuilt three = Rebuild(V2({kFloats, Int(0), Dims2(4, 4)}));
  EXPECT_EQ(three.status.first().message, "a tensor is rebuilt from fewer than four arguments");
  const Write nothing = Persistent(
      {Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), Int(0)});
  EXPECT_THAT(Rebuild(V2({nothing, Int(0), Tuple({Int(0)}), Tuple({Int(1)})}), 0).status, IsOk());
}

Write V2WithMetadata(const Write& metadata) {
  return V2({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1), kFalse, kNone, metadata});
}
Write Dict(const std::string& key, const Write& value) {
  return [=](PickleWriter& w) {
    w.BeginDict().Text(key);
    value(w);
    w.EndDict();
  };
}

// torch asks whether the key is there, not what it says.
TEST(TensorRebuildTest, ReadsTheLazyBits) {
  for (const Write& value : {kFalse, Int(1), kNone}) {
    const Rebuilt conjugated = Rebuild(V2WithMetadata(Dict("conj", value)));
    EXPECT_TRUE(conjugated.array.conjugated);
    EXPECT_FALSE(conjugated.array.negated);
    EXPECT_TRUE(Rebuild(V2WithMetadata(Dict("neg", value))).array.negated);
    EXPECT_FALSE(Rebuild(V2WithMetadata(Dict("other", value))).array.negated);
  }
  EXPECT_THAT(Rebuild(V2WithMetadata(kNone)).status, IsOk());
}

TEST(TensorRebuildTest, RefusesMetadataThatItCannotRead) {
  const Write ordered = [](PickleWriter& w) {
    Call("collections", "OrderedDict", {})(w);
    w.BeginDict().Text("neg").Bool(true).EndDict().Build();
  };
  const Write large = [](PickleWriter& w) {
    w.BeginDict();
    for (int i = 0; i < 100; ++i) w.Text("k" + std::to_string(i)).Int(i);
    w.EndDict();
  };
  for (const Write& metadata : {Int(1), ordered, large}) {
    EXPECT_THAT(Rebuild(V2WithMetadata(metadata)).status, FailsWith(ErrorKind::kBadItem));
  }
}

// BUILD calls __setstate__, which takes another storage; "data" and its like are assigned.
TEST(TensorRebuildTest, RefusesATensorThatIsChangedOnceItIsThere) {
  const Write inner = V2({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)});
  const auto built = [](const Write& tensor) {
    return [=](PickleWriter& w) {
      tensor(w);
      Tuple({kFloats, Int(4), Dims2(1, 1), Dims2(1, 1)})(w);
      w.Build();
    };
  };
  const auto parameter = [](const Write& tensor, const Write& state) {
    return Call("torch._utils", "_rebuild_parameter_with_state", {tensor, kFalse, kNone, state});
  };
  const auto subclass = [](const Write& state) {
    return Call("torch._tensor", "_rebuild_from_type_v2",
                {Global("torch._utils", "_rebuild_tensor_v2"), Global("torch", "Tensor"),
                 Tuple({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)}), state});
  };
  for (const Write& changed :
       {Write(built(inner)), Write(built(parameter(inner, kNone))),
        parameter(Write(built(inner)), kNone), parameter(inner, Dict("data", inner)),
        parameter(inner, Tuple({kNone, Dict("real", inner)})), subclass(Dict("imag", inner)),
        subclass(Int(1)), subclass(Tuple({Tuple({kNone})}))}) {
    EXPECT_THAT(Rebuild(changed).status, FailsWith(ErrorKind::kUnsupported));
  }
  // Which may set anything: many tensors may share it, so it is not searched.
  const Write many = [](PickleWriter& w) {
    w.BeginDict();
    for (int i = 0; i < 2000; ++i) w.Text("tag" + std::to_string(i)).Int(i);
    w.EndDict();
  };
  EXPECT_THAT(Rebuild(parameter(inner, many)).status, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(Rebuild(parameter(inner, Dict("tag", Int(1)))).status, IsOk());
  EXPECT_THAT(Rebuild(subclass(Tuple({Dict("tag", Int(1)), kNone}))).status, IsOk());
}

TEST(TensorRebuildTest, NamesOtherFormsOfTensors) {
  for (const char* name :
       {"_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_wrapper_subclass"}) {
    EXPECT_EQ(Rebuild(Call("torch._utils", name, {})).form, TensorForm::kOther) << name;
  }
  EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_nothing", {})).form, TensorForm::kNone);
  EXPECT_EQ(Rebuild(Call("collections", "OrderedDict", {})).form, TensorForm::kNone);
  EXPECT_EQ(Rebuild(Int(1)).form, TensorForm::kNone);
  const auto of_class = [](const char* name) {
    return Rebuild(V2({Persistent({Text("storage"), Global("torch", name), Text("0"), Text("cpu"),
                                   Int(16)}),
                       Int(0), Dims2(4, 4), Dims2(4, 1)}))
        .form;
  };
  for (const char* name : {"QInt32Storage", "QInt8Storage", "QUInt8Storage", "QUInt4x2Storage",
                           "QUInt2x4Storage", "Bits8Storage"}) {
    EXPECT_EQ(of_class(name), TensorForm::kOther) << name;
  }
  EXPECT_EQ(of_class(""), TensorForm::kOther);
  EXPECT_EQ(of_class("FloatStorage"), TensorForm::kDense);
  const auto of_module = [](const char* module) {
    return Rebuild(V2({Persistent({Text("storage"), Global(module, "FloatStorage"), Text("0"),
                                   Text("cpu"), Int(16)}),
                       Int(0), Dims2(4, 4), Dims2(4, 1)}))
        .form;
  };
  EXPECT_EQ(of_module("torch.cuda"), TensorForm::kDense);
  EXPECT_EQ(of_module("torch.storage"), TensorForm::kOther);
  EXPECT_EQ(of_module("m"), TensorForm::kOther);
  // A dtype that is none of torch's, or no name at all.
  for (const Write& dtype : {Global("torch", "bits8"), Global("numpy", "float32"), Int(1)}) {
    EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_tensor_v3",
                           {kUntyped, Int(0), Dims2(4, 4), Dims2(4, 1), kFalse, kNone, dtype}))
                  .form,
              TensorForm::kOther);
  }
  EXPECT_EQ(Rebuild(Call("torch._utils", "_rebuild_tensor_v3",
                         {kUntyped, Int(0), Dims2(4, 4), Dims2(4, 1)}))
                .form,
            TensorForm::kOther);
}

constexpr const char* kFloat8Class = "WeightWithDynamicFloat8CastTensor";

// As torch pickles a tensor whose class has no elements of its own: of shape [4, 4], with one
// attribute.
Write Wrapper(const std::string& name, const std::string& attribute, const Write& inside) {
  const Write type = Global("torchao.float8.fsdp_utils", name);
  return Call("torch._tensor", "_rebuild_from_type_v2",
              {Global("torch._utils", "_rebuild_wrapper_subclass"), type,
               Tuple({type, Global("torch", "float32"), Dims2(4, 4), Dims2(4, 1)}),
               Dict(attribute, inside)});
}

// FSDP2 casts it to float8 when it gathers it. Stored is the weight.
TEST(TensorRebuildTest, TakesTheWeightOutOfTorchaosWrapper) {
  const auto parameter = [](const Write& tensor) {
    return Call("torch._utils", "_rebuild_parameter", {tensor, kFalse, kNone});
  };
  const Write weight = V2({kFloats, Int(0), Dims2(4, 4), Dims2(1, 4)});
  const Write wrapped = Wrapper(kFloat8Class, "_tensor", weight);
  for (const Write& same :
       {wrapped, Write(parameter(wrapped)), Wrapper(kFloat8Class, "_tensor", parameter(weight))}) {
    const Rebuilt rebuilt = Rebuild(same);
    ASSERT_THAT(rebuilt.status, IsOk());
    EXPECT_EQ(rebuilt.shape, (Dims{4, 4}));
    EXPECT_EQ(rebuilt.array.dtype, DType::kFloat32);
    EXPECT_EQ(rebuilt.array.strides, (Dims{1, 4}));
  }
}

TEST(TensorRebuildTest, NamesTheClassOfAWeightToCast) {
  const auto beside = [](const Write& write) {
    PickleWriter writer(pickle::Dialect::kProtocol4);
    write(writer);
    const auto parsed = pickle::ParsePickle(writer.Take(), "p");
    EXPECT_THAT(parsed, IsOk());
    EXPECT_TRUE(IsFloat8Weight(parsed->graph, parsed->root));
    return BesideElements(parsed->graph, parsed->root);
  };
  const Write weight = V2({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)});
  EXPECT_THAT(
      beside(Wrapper(kFloat8Class, "_tensor", weight)),
      ::testing::ElementsAre("class torchao.float8.fsdp_utils.WeightWithDynamicFloat8CastTensor"));
}

// A class that is not known, another attribute, another size than the class says, no plain array.
TEST(TensorRebuildTest, TakesNothingOutOfOtherWrappers) {
  const Write weight = V2({kFloats, Int(0), Dims2(4, 4), Dims2(4, 1)});
  const Write smaller = V2({kFloats, Int(0), Dims2(2, 4), Dims2(4, 1)});
  const Write sparse = Call("torch._utils", "_rebuild_sparse_tensor", {kNone, kNone, Dims2(4, 4)});
  for (const Write& other :
       {Wrapper("WeightWithStaticFloat8CastTensor", "_tensor", weight),
        Wrapper(kFloat8Class, "_data", weight), Wrapper(kFloat8Class, "_tensor", smaller),
        Wrapper(kFloat8Class, "_tensor", sparse), Wrapper(kFloat8Class, "_tensor", Int(1))}) {
    EXPECT_EQ(Rebuild(other).form, TensorForm::kOther);
  }
}

// A view into a storage, as files of torch before 1.0 have them: (key, offset, size).
TEST(TensorRebuildTest, AViewNarrowsItsStorage) {
  const auto with_view = [](const Write& view, std::int64_t size) {
    return Rebuild(V2({Persistent({Text("storage"), Global("torch", "FloatStorage"), Text("0"),
                                   Text("cpu"), Int(16), view}),
                       Int(0), Tuple({Int(size)}), Tuple({Int(1)})}));
  };
  const Rebuilt good = with_view(Tuple({Text("1"), Int(4), Int(8)}), 8);
  ASSERT_THAT(good.status, IsOk());
  EXPECT_EQ(good.array.offset_bytes, 16U);
  EXPECT_THAT(with_view(kNone, 16).status, IsOk());
  EXPECT_THAT(with_view(Tuple({Text("1"), Int(4), Int(8)}), 9).status,
              FailsWith(ErrorKind::kSizeMismatch));
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const Write& view :
       {Tuple({Text("1"), Int(9), Int(8)}), Tuple({Text("1"), Int(kHuge), Int(8)}),
        Tuple({Text("1"), Int(0), Int(kHuge)})}) {
    EXPECT_THAT(with_view(view, 1).status, FailsWith(ErrorKind::kSizeMismatch));
  }
  for (const Write& view :
       {Int(1), Tuple({Text("1"), Int(4)}), Tuple({Text("1"), Text("4"), Int(8)}),
        Tuple({Text("1"), Int(-4), Int(8)})}) {
    EXPECT_THAT(with_view(view, 1).status, FailsWith(ErrorKind::kBadItem));
  }
}

TEST(TensorRebuildTest, RepeatsElementsUpToAnAbsurdSize) {
  // One element again and again: a GiB and a bit from a storage of 16 MiB, and of 4 bytes less.
  const auto repeated = [](std::int64_t num_stored) {
    const Write storage = Persistent({Text("storage"), Global("torch", "FloatStorage"), Text("0"),
                                      Text("cpu"), Int(num_stored)});
    return Rebuild(V2({storage, Int(0), Tuple({Int((1 << 28) + 1)}), Tuple({Int(0)})}),
                   static_cast<std::uint64_t>(num_stored) * 4)
        .status;
  };
  EXPECT_THAT(repeated(1 << 22), IsOk());
  EXPECT_THAT(repeated((1 << 22) - 1), FailsWith(ErrorKind::kResource));
  // Up to a GiB any storage does.
  EXPECT_THAT(Rebuild(V2({kFloats, Int(0), Tuple({Int(1 << 28)}), Tuple({Int(0)})})).status,
              IsOk());
}

struct Refused {
  const char* name;
  Write tensor;
  ErrorKind kind = ErrorKind::kBadItem;
};
void PrintTo(const Refused& c, std::ostream* os) { *os << c.name; }
class RefusedTensorTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedTensorTest, IsReportedByItsKind) {
  EXPECT_THAT(Rebuild(GetParam().tensor).status, FailsWith(GetParam().kind));
}

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
Write OfStorage(const std::vector<Write>& id) {
  return V2({Persistent(id), Int(0), Dims2(4, 4), Dims2(4, 1)});
}
const Write kTag = Text("storage");
const Write kClass = Global("torch", "FloatStorage");

INSTANTIATE_TEST_SUITE_P(
    All, RefusedTensorTest,
    ::testing::Values(
        Refused{"ThreeArguments", V2({kFloats, Int(0), Dims2(4, 4)})},
        Refused{"OffsetOfText", V2({kFloats, Text("0"), Dims2(4, 4), Dims2(4, 1)})},
        Refused{"NegativeOffset", V2({kFloats, Int(-1), Dims2(4, 4), Dims2(4, 1)})},
        Refused{"SizeOfText", V2({kFloats, Int(0), Text("4"), Dims2(4, 1)})},
        Refused{"SizeOfAnotherClass",
                V2({kFloats, Int(0), Call("m", "Size", {Dims2(4, 4)}), Dims2(4, 1)})},
        Refused{
            "SizeOfTwoTuples",
            V2({kFloats, Int(0), Call("torch", "Size", {Dims2(4, 4), Dims2(4, 4)}), Dims2(4, 1)})},
        Refused{"SizeOfTexts", V2({kFloats, Int(0), Tuple({Text("4")}), Tuple({Int(1)})})},
        Refused{"SixtyFiveDims", V2({kFloats, Int(0), Tuple(std::vector<Write>(65, Int(1))),
                                     Tuple(std::vector<Write>(65, Int(1)))})},
        Refused{"NegativeSize", V2({kFloats, Int(0), Dims2(-4, 4), Dims2(4, 1)})},
        Refused{"NegativeStride", V2({kFloats, Int(0), Dims2(4, 4), Dims2(-4, 1)})},
        Refused{"StrideLess", V2({kFloats, Int(0), Dims2(4, 4), Tuple({Int(1)})})},
        Refused{"PastTheEnd", V2({kFloats, Int(1), Dims2(4, 4), Dims2(4, 1)}),
                ErrorKind::kSizeMismatch},
        Refused{"StridePastTheEnd", V2({kFloats, Int(0), Dims2(4, 4), Dims2(5, 1)}),
                ErrorKind::kSizeMismatch},
        Refused{"StrideOverflows", V2({kFloats, Int(0), Dims2(16, 1), Dims2(kHuge, 1)}),
                ErrorKind::kSizeMismatch},
        Refused{"StridesOverflowTogether",
                V2({kFloats, Int(kHuge), Dims2(3, 3), Dims2(kHuge, kHuge)}),
                ErrorKind::kSizeMismatch},
        Refused{"BytesOverflow", V2({kFloats, Int(kHuge), Dims2(1, 1), Dims2(1, 1)}),
                ErrorKind::kSizeMismatch},
        Refused{"SizeOverflows", V2({kFloats, Int(0), Dims2(kHuge, kHuge), Dims2(0, 0)}),
                ErrorKind::kResource},
        Refused{"BytesOfSizeOverflow", V2({kFloats, Int(0), Dims2(kHuge, 1), Dims2(0, 0)}),
                ErrorKind::kResource},
        Refused{"FarTooSmall", V2({kFloats, Int(0), Dims2(1 << 20, 1 << 10), Dims2(0, 0)}),
                ErrorKind::kResource},
        Refused{"StorageMissing", OfStorage({kTag, kClass, Text("1"), Text("cpu"), Int(16)})},
        Refused{"StorageOfAnotherSize", OfStorage({kTag, kClass, Text("0"), Text("cpu"), Int(15)}),
                ErrorKind::kSizeMismatch},
        Refused{"StorageSizeOverflows",
                OfStorage({kTag, kClass, Text("0"), Text("cpu"), Int(kHuge)}),
                ErrorKind::kSizeMismatch},
        Refused{"ShortId", OfStorage({kTag, kClass, Text("0"), Text("cpu")})},
        Refused{"AnotherTag", OfStorage({Text("module"), kClass, Text("0"), Text("cpu"), Int(16)})},
        Refused{"TagOfANumber", OfStorage({Int(1), kClass, Text("0"), Text("cpu"), Int(16)})},
        Refused{"ClassOfText",
                OfStorage({kTag, Text("FloatStorage"), Text("0"), Text("cpu"), Int(16)})},
        Refused{"KeyOfANumber", OfStorage({kTag, kClass, Int(0), Text("cpu"), Int(16)})},
        Refused{"CountOfText", OfStorage({kTag, kClass, Text("0"), Text("cpu"), Text("16")})},
        Refused{"NegativeCount", OfStorage({kTag, kClass, Text("0"), Text("cpu"), Int(-16)})},
        Refused{"NoStorage", V2({Int(0), Int(0), Dims2(4, 4), Dims2(4, 1)})},
        Refused{"NoTuple", V2({[](PickleWriter& w) { w.Text("storage").PersistentId(); }, Int(0),
                               Dims2(4, 4), Dims2(4, 1)})}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ckpt::torch_save
