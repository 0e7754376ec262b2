// What a file of a nested state holds is found again under its key, objects too.
#include "formats/torch_save/internal/state_file.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/io/memory_storage.h"
#include "core/plan/plan_check.h"
#include "formats/pickle/from_json.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"
#include "formats/torch_save/torch_save_source.h"
#include "formats/zip/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::SizeIs;

TargetTensor Tensor(std::string key) {
  return {.key = std::move(key), .dtype = DType::kUint8, .shape = {3}};
}

PickledEntry Object(std::string key, const std::string& json) {
  return {.key = std::move(key), .value = {.pickle = pickle::PickleFromJson(json, "o").value()}};
}

// {"step": a tensor of one float32}
PickledEntry WithTensor(std::string key, float number) {
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict().Text("step");
  WriteTensor(0, DType::kFloat32, {}, pickle);
  pickle.EndDict();
  PickledEntry object = {.key = std::move(key), .value = {.pickle = pickle.Take()}};
  AppendLe(number, object.value.storages.emplace_back());
  return object;
}

// The file of the plan. Element i of every tensor is i.
Bytes FileOf(const WritePlan& plan) {
  Bytes file(plan.files[0].size_bytes);
  const auto put = [&](std::uint64_t offset, const Bytes& bytes) {
    std::ranges::copy(bytes, file.begin() + static_cast<std::ptrdiff_t>(offset));
  };
  std::vector<WrittenItem> written;
  for (const WriteItem& item : plan.items) {
    Bytes elements;
    for (std::uint8_t i = 0; i < item.payload_bytes; ++i) AppendLe(i, elements);
    put(item.payload_offset, elements);
    written.push_back(
        {.extent = {item.offset_bytes, item.size_bytes}, .payload_crc32 = Crc32(elements)});
  }
  for (const WriteLiteral& literal : plan.literals) put(literal.offset_bytes, literal.bytes);
  for (const WriteLiteral& literal : plan.late_bytes->encode(plan, written)) {
    put(literal.offset_bytes, literal.bytes);
  }
  return file;
}

class StateFileTest : public ::testing::Test {
 protected:
  // Plans, writes and opens the file, and compares every checksum.
  void Write(StateFile state) {
    state.name = "state.pt";
    const auto plan = PlanStateFile(std::move(state));
    ASSERT_THAT(plan, IsOk());
    EXPECT_THAT(CheckWritePlan(*plan), IsOk());
    const Bytes file = FileOf(*plan);
    const auto archive = zip::Archive::Open(MakeMemoryFile("f", Bytes(file)), 0, file.size());
    ASSERT_THAT(archive, IsOk());
    for (const zip::Record& record : archive->records()) {
      EXPECT_THAT(archive->Verify(record), IsOk()) << record.name;
    }
    has_record_ = archive->Find("ckptkit_objects.json") != nullptr;
    ASSERT_THAT(storage_->RemoveAll("/state.pt"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/state.pt", file), IsOk());
    auto opened = TorchSaveSource::Open(*storage_, "/state.pt");
    ASSERT_THAT(opened, IsOk());
    source_ = *std::move(opened);
    EXPECT_THAT(index().problems(), IsEmpty());
  }

  [[nodiscard]] const CheckpointIndex& index() const { return source_->index(); }

  [[nodiscard]] std::vector<std::string> tensors() const {
    std::vector<std::string> keys;
    for (const GlobalTensor& tensor : index().tensors()) keys.push_back(tensor.key);
    std::ranges::sort(keys);
    return keys;
  }
  [[nodiscard]] std::vector<std::string> objects() const {
    std::vector<std::string> keys;
    for (const ObjectEntry& object : index().objects()) keys.push_back(object.key);
    std::ranges::sort(keys);
    return keys;
  }
  // An object of the file as text.
  [[nodiscard]] Result<std::string> Json(const std::string& key) const {
    const ObjectEntry* const object = index().FindObject(key);
    if (object == nullptr) return Error(ErrorKind::kNotFound, "no such object");
    CKPT_ASSIGN_OR_RETURN(RenderedObject rendered, source_->ReadObject(*object));
    return std::move(rendered.json);
  }
  // All of the file's object as text.
  [[nodiscard]] std::string Whole() const { return source_->ReadObject({.key = ""}).value().json; }

  const std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  std::unique_ptr<TorchSaveSource> source_;
  bool has_record_ = false;
};

TEST_F(StateFileTest, HoldsWhatItIsGivenOnTop) {
  Write({.tensors = {Tensor("model.a"), Tensor("b")},
         .known_tensors = {{.key = "step", .shape = {}, .values = Bytes(4)}},
         .objects = {Object("iteration", "7"), Object("betas", R"({"$tuple":[0.9,0.99]})"),
                     Object("text", R"("ü")")}});
  EXPECT_THAT(tensors(), ElementsAre("b", "model.a", "step"));
  EXPECT_THAT(objects(), ElementsAre("betas", "iteration", "text"));
  EXPECT_THAT(Json("betas"), IsOkAndHolds(R"({"$tuple":[0.9,0.99]})"));
  // Any reader of torch's files divides it like this.
  EXPECT_FALSE(has_record_);
}

TEST_F(StateFileTest, NestsThemWhereTheyStood) {
  const std::string optim = "optim";
  const std::string groups = "param_groups";
  const std::int64_t first = 0;
  Write({.tensors = {Tensor("model.a.b"), Tensor("optim.state.0.exp_avg")},
         .objects = {Object("optim.param_groups.0.lr", "0.5"), Object("top", "1")},
         .paths = {{"model.a.b", {std::string("model"), std::string("a.b")}},
                   {"optim.state.0.exp_avg",
                    {optim, std::string("state"), NumberKey{.number = 0}, std::string("exp_avg")}},
                   {"optim.param_groups.0.lr", {optim, groups, first, std::string("lr")}}}});
  EXPECT_THAT(tensors(), ElementsAre("model.a.b", "optim.state.0.exp_avg"));
  EXPECT_THAT(objects(), ElementsAre("optim.param_groups.0.lr", "top"));
  EXPECT_FALSE(has_record_);
  const std::string whole = Whole();
  EXPECT_NE(whole.find(R"("state":{"$dict":[[0,{"exp_avg":)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("param_groups":[{"lr":0.5}])"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("model":{"a.b":)"), std::string::npos) << whole;
}

TEST_F(StateFileTest, KeepsConstantsAndTextsApart) {
  const EntryPaths places = {{"None.a", {ConstantKey::kNone, std::string("a")}},
                             {"None.b", {std::string("None"), std::string("b")}},
                             {"True.a", {ConstantKey::kTrue, std::string("a")}},
                             {"True.b", {std::string("True"), std::string("b")}}};
  Write({.tensors = {Tensor("True.a"), Tensor("True.b"), Tensor("None.a")},
         .objects = {Object("None.b", "1")},
         .paths = places});
  EXPECT_THAT(tensors(), ElementsAre("None.a", "True.a", "True.b"));
  EXPECT_THAT(objects(), ElementsAre("None.b"));
  EXPECT_EQ(source_->Paths(), places);
  const std::string whole = Whole();
  EXPECT_NE(whole.find(R"([true,{"a":)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"(["None",{"b":1}])"), std::string::npos) << whole;
  EXPECT_FALSE(has_record_);
}

TEST_F(StateFileTest, SetsAttributesOfMappings) {
  const AttributeName attribute = {.name = "_metadata"};
  Write({.tensors = {Tensor("model.w")},
         .objects = {Object("model._metadata", R"({"":{"version":1}})"), Object("_metadata", "2")},
         .paths = {{"model.w", {std::string("model"), std::string("w")}},
                   {"model._metadata", {std::string("model"), attribute}},
                   {"_metadata", {attribute}}}});
  EXPECT_THAT(tensors(), ElementsAre("model.w"));
  EXPECT_THAT(objects(), IsEmpty());
  const std::vector<ObjectEntry> attributes = source_->Attributes();
  ASSERT_THAT(attributes, SizeIs(2));
  EXPECT_EQ(attributes[0].key, "model._metadata");
  EXPECT_EQ(source_->ReadObject(attributes[0]).value().json, R"({"":{"version":1}})");
  EXPECT_EQ(attributes[1].key, "_metadata");
  EXPECT_FALSE(has_record_);
}

TEST_F(StateFileTest, SetsAttributesWhereEntriesStandOnTop) {
  // The two tensors have no place in one nested object.
  Write({.tensors = {Tensor("x"), Tensor("y")},
         .objects = {Object("model._metadata", "2")},
         .paths = {{"x", {std::string("model")}},
                   {"y", {std::string("model"), std::string("w")}},
                   {"model._metadata", {std::string("model"), AttributeName{"_metadata"}}}}});
  EXPECT_THAT(tensors(), ElementsAre("x", "y"));
  EXPECT_THAT(objects(), IsEmpty());
  ASSERT_THAT(source_->Attributes(), SizeIs(1));
  EXPECT_EQ(source_->Attributes()[0].key, "model._metadata");
}

TEST_F(StateFileTest, FillsListsOfWhichSomeWasChosen) {
  Write({.tensors = {Tensor("l.2")}, .paths = {{"l.2", {std::string("l"), std::int64_t{2}}}}});
  EXPECT_THAT(tensors(), ElementsAre("l.2"));
  EXPECT_THAT(objects(), ElementsAre("l.0", "l.1"));
}

TEST_F(StateFileTest, KeepsObjectsWhole) {
  const std::string nested = R"({"args":{"lr":0.5},"groups":[{"step":3}]})";
  Write({.tensors = {Tensor("w")},
         .objects = {Object("common", nested), Object("plain", "[1,2]"), WithTensor("held", 2),
                     Object("rng", R"([{"a":null}])")}});
  EXPECT_THAT(tensors(), ElementsAre("w"));
  EXPECT_THAT(objects(), ElementsAre("common", "held", "plain", "rng"));
  EXPECT_TRUE(has_record_);
  EXPECT_THAT(Json("common"), IsOkAndHolds(nested));
  EXPECT_THAT(source_->VerifyRest(), IsOk());
  // The numbers inside came along.
  const auto held = source_->ReadObject(*index().FindObject("held"));
  ASSERT_THAT(held, IsOk());
  ASSERT_THAT(held->numbers, SizeIs(1));
  EXPECT_EQ(held->numbers.begin()->second, 2);
}

TEST_F(StateFileTest, AnObjectThatIsATensorIsStillOne) {
  PickledEntry object = WithTensor("step", 3);
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  WriteTensor(0, DType::kFloat32, {}, pickle);
  object.value.pickle = pickle.Take();
  Write({.tensors = {Tensor("w")}, .objects = {std::move(object)}});
  EXPECT_THAT(tensors(), ElementsAre("w"));
  EXPECT_THAT(objects(), ElementsAre("step"));
}

TEST_F(StateFileTest, ReadsAnObjectAgainWithItsStorages) {
  Write({.tensors = {Tensor("w")}, .objects = {WithTensor("a", 1), WithTensor("b", 2)}});
  const auto first = source_->ReadPickled(*index().FindObject("b"));
  ASSERT_THAT(first, IsOk());
  ASSERT_TRUE(first->has_value());
  EXPECT_THAT((*first)->storages, ElementsAre(WithTensor("b", 2).value.storages.front()));
  const std::string before = Json("b").value();
  Write({.objects = {{.key = "b", .value = **first}}});
  EXPECT_THAT(Json("b"), IsOkAndHolds(before));
}

TEST_F(StateFileTest, PutsOnTopWhatWouldNotBeFoundInPlace) {
  // A list of numbers alone is one entry for a reader; here each is one.
  const std::string list = "l";
  Write({.tensors = {Tensor("w")},
         .objects = {Object("l.0", "1"), Object("l.1", "2")},
         .paths = {{"l.0", {list, std::int64_t{0}}}, {"l.1", {list, std::int64_t{1}}}}});
  EXPECT_THAT(objects(), ElementsAre("l.0", "l.1"));
  // Places that are not what the keys say.
  Write({.tensors = {Tensor("w"), Tensor("x.y")}, .paths = {{"x.y", {std::string("z")}}}});
  EXPECT_THAT(tensors(), ElementsAre("w", "x.y"));
  // Places that exclude each other, or are no one's.
  Write({.tensors = {Tensor("a"), Tensor("a.b")},
         .paths = {{"a.b", {std::string("a"), std::string("b")}}}});
  EXPECT_THAT(tensors(), ElementsAre("a", "a.b"));
  EntryPath deep(100'000, std::string("k"));
  Write({.tensors = {Tensor("a")}, .paths = {{"a", std::move(deep)}}});
  EXPECT_THAT(tensors(), ElementsAre("a"));
  Write({.tensors = {Tensor("l.4000000")},
         .paths = {{"l.4000000", {list, std::int64_t{4'000'000}}}}});
  EXPECT_THAT(objects(), IsEmpty());
}

TEST_F(StateFileTest, RefusesKeysThatComeTwice) {
  EXPECT_THAT(PlanStateFile({.tensors = {Tensor("a")}, .objects = {Object("a", "1")}}),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(PlanStateFile({.objects = {Object("a", "1"), Object("a", "1")}}),
              FailsWith(ErrorKind::kAlreadyExists));
}

TEST_F(StateFileTest, RefusesObjectsThatCallSomething) {
  PickledEntry object = Object("a", "1");
  object.value.pickle = Bytes();
  Append("cos\nsystem\n(Vls\ntR.", object.value.pickle);
  EXPECT_THAT(PlanStateFile({.objects = {std::move(object)}}), FailsWith(ErrorKind::kUnsafePickle));
}

}  // namespace
}  // namespace ckpt::torch_save
