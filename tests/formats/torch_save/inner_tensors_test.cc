// Tensors where no state dict leads, and DTensors; each object is the text of a pickle.
#include "formats/torch_save/internal/inner_tensors.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "formats/pickle/reader.h"
#include "formats/torch_save/internal/distributed_tensor.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOkAndHolds;

const std::string kInnerTensor = "ctorch._utils\n_rebuild_tensor_v2\n)R";

// "holder | path" of each, with a star where it belongs to a mesh.
Result<std::vector<std::string>> Inner(std::string_view pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle), "p"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<InnerTensor> found,
                        FindInnerTensors(parsed.graph, parsed.root));
  std::vector<std::string> texts;
  for (const InnerTensor& tensor : found) {
    const std::string holder = tensor.holder == pickle::kNoNode ? "-" : tensor.holder_key;
    texts.push_back(holder + " | " + tensor.path + (tensor.of_mesh ? "*" : ""));
  }
  return texts;
}

TEST(InnerTensorsTest, NamesTheHolderAndThePathInIt) {
  EXPECT_THAT(Inner("}Va\n](N" + kInnerTensor + "es."), IsOkAndHolds(ElementsAre("- | a.1")));
  // An attribute, in a dict and in slots; an argument; what is inside of something inside.
  EXPECT_THAT(Inner("}Va\ncm\nC\n)\x81}Vw\n" + kInnerTensor + "sbs."),
              IsOkAndHolds(ElementsAre("a | w")));
  EXPECT_THAT(Inner("cm\nC\n)\x81N}Vw\n" + kInnerTensor +
                    "s\x86"
                    "b."),
              IsOkAndHolds(ElementsAre(" | w")));
  EXPECT_THAT(Inner("}Va\ncm\nC\n(N" + kInnerTensor + "tRs."), IsOkAndHolds(ElementsAre("a | 1")));
  EXPECT_THAT(Inner("}Va\ncm\nC\n(cm\nD\n)\x81}Vw\n" + kInnerTensor + "sbtRs."),
              IsOkAndHolds(ElementsAre("a | 0.w")));
  // A storage without a tensor is its own holder.
  EXPECT_THAT(Inner("}Va\n(Vstorage\ntQs."), IsOkAndHolds(ElementsAre("a | ")));
  EXPECT_THAT(Inner("](K\1Vx\n}e."), IsOkAndHolds(IsEmpty()));
}

TEST(InnerTensorsTest, EntersWhatIsSharedAndCyclesOnce) {
  EXPECT_THAT(Inner("]q\1(h\1" + kInnerTensor + "q\2h\2e."), IsOkAndHolds(ElementsAre("- | 1")));
  EXPECT_THAT(Inner("cm\nC\n)\x81q\1}Vme\nh\1sb."), IsOkAndHolds(IsEmpty()));
}

std::string TensorOf(const std::string& size) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\ntQI0\n(" + size + "t)tR";
}

// torchao's class around a weight.
std::string Float8Weight(const std::string& size) {
  return "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
         "ctorchao.float8.fsdp_utils\nWeightWithDynamicFloat8CastTensor\n(NN(" +
         size + "tt}V_tensor\n" + TensorOf(size) + "stR";
}

// A DTensor of this global size whose only placement is of this class.
std::string DTensor(const std::string& local, const std::string& global,
                    const std::string& placement) {
  const std::string mesh = "cm\nDeviceMesh\n)\x81}Vmesh\n" + kInnerTensor + "sb";
  const std::string spec =
      "cm\nDTensorSpec\n)\x81}(Vmesh\n" + mesh + "Vplacements\ncm\n" + placement + "\n)\x81\x85ub";
  return "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
         "ctorch.distributed.tensor\nDTensor\n(NN(" +
         global + "ttN}(V_local_tensor\n" + local + "V_spec\n" + spec + "u\x86tR";
}

Result<TensorForm> FormOf(const std::string& pickle) {
  CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                        pickle::ParsePickle(AsBytes(pickle + "."), "p"));
  return TensorFormOf(parsed.graph, parsed.root);
}

TEST(DistributedTensorTest, IsATensorExactlyIfAllOfItIsThere) {
  EXPECT_THAT(FormOf(DTensor(TensorOf("K\3K\4"), "K\3K\4", "Shard")),
              IsOkAndHolds(TensorForm::kDense));
  EXPECT_THAT(FormOf(DTensor(TensorOf("K\3K\4"), "K\3K\4", "Replicate")),
              IsOkAndHolds(TensorForm::kDense));
  EXPECT_THAT(FormOf(DTensor(TensorOf("K\2K\4"), "K\4K\4", "Shard")),
              IsOkAndHolds(TensorForm::kOther));
  EXPECT_THAT(FormOf(DTensor(TensorOf("K\3"), "K\3K\4", "Shard")),
              IsOkAndHolds(TensorForm::kOther));
  EXPECT_THAT(FormOf(DTensor(TensorOf("K\3K\4"), "K\3K\4", "Partial")),
              IsOkAndHolds(TensorForm::kOther));
}

TEST(DistributedTensorTest, ALocalWeightToCastIsTheWeight) {
  EXPECT_THAT(FormOf(DTensor(Float8Weight("K\3K\4"), "K\3K\4", "Shard")),
              IsOkAndHolds(TensorForm::kDense));
  EXPECT_THAT(FormOf(DTensor(Float8Weight("K\2K\4"), "K\4K\4", "Shard")),
              IsOkAndHolds(TensorForm::kOther));
  EXPECT_THAT(Inner("}Vw\n" + DTensor(Float8Weight("K\2"), "K\4", "Shard") + "s."),
              IsOkAndHolds(ElementsAre("w | ", "w | mesh.mesh*")));
}

TEST(DistributedTensorTest, ItsMeshIsNoTensorOfTheCheckpoint) {
  EXPECT_THAT(Inner("}Vw\n" + DTensor(TensorOf("K\4"), "K\4", "Shard") + "s."),
              IsOkAndHolds(ElementsAre("- | w", "w | mesh.mesh*")));
  EXPECT_THAT(Inner("}Vw\n" + DTensor(TensorOf("K\2"), "K\4", "Shard") + "s."),
              IsOkAndHolds(ElementsAre("w | ", "w | mesh.mesh*")));
}

}  // namespace
}  // namespace ckpt::torch_save
