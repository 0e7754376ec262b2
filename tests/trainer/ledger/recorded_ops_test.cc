#include "trainer/ledger/recorded_ops.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/rehearsal/idle_ops.h"

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

// What a call asks for. Operands have sizes and a place, and no elements.
class OpWorkTest : public ::testing::Test {
 protected:
  OpWorkTest() : device_(MakeHostDevice({})), queue_(device_->MakeQueue("compute")) {}

  static Tensor Of(DType dtype, std::initializer_list<std::int64_t> sizes) {
    static std::byte place;
    return {&place, dtype, sizes};
  }
  static Tensor Bf16(std::initializer_list<std::int64_t> sizes) {
    return Of(DType::kBfloat16, sizes);
  }
  static Tensor Fp32(std::initializer_list<std::int64_t> sizes) {
    return Of(DType::kFloat32, sizes);
  }

  template <typename Call>
  OpWork WorkOf(const Call& call) {
    const auto record = device_->RecordWork();
    EXPECT_THAT(record, IsOk());
    ops_.Begin(**record);
    call(ops_, *queue_);
    const std::vector<OpWork> calls = ops_.End();
    EXPECT_EQ(calls.size(), 1U);
    return calls.front();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Ops> idle_ = MakeIdleOps();
  RecordedOps ops_{*idle_};
};

TEST_F(OpWorkTest, AProductReadsTwoMatricesAndWritesOne) {
  const OpWork forward = WorkOf([](Ops& ops, Queue& queue) {
    ops.Gemm(queue, {.transpose_b = true}, Bf16({10, 30}), Bf16({20, 30}), Bf16({10, 20}));
  });
  EXPECT_STREQ(forward.name, "GemmForward");
  EXPECT_THAT(forward.product, ElementsAre(10, 20, 30));
  EXPECT_EQ(forward.bytes, 2 * (300 + 600 + 200));
  EXPECT_EQ(forward.flops, 2 * 10 * 20 * 30);
  const OpWork weights = WorkOf([](Ops& ops, Queue& queue) {
    ops.Gemm(queue, {.transpose_a = true, .accumulate = true}, Bf16({10, 20}), Bf16({10, 30}),
             Fp32({20, 30}));
  });
  EXPECT_STREQ(weights.name, "GemmWeights");
  EXPECT_THAT(weights.product, ElementsAre(20, 30, 10));
  EXPECT_EQ(weights.bytes, 2 * (200 + 300) + 2 * 4 * 600);  // the sum is read and written
}

TEST_F(OpWorkTest, ExpertsShareTheRows) {
  const Tensor offsets = Of(DType::kInt32, {5});
  const OpWork forward = WorkOf([&](Ops& ops, Queue& queue) {
    ops.GroupedForward(queue, Bf16({80, 30}), Bf16({4, 20, 30}), offsets, 1, Bf16({80, 20}));
  });
  EXPECT_THAT(forward.product, ElementsAre(20, 20, 30));
  EXPECT_EQ(forward.num_products, 4);
  EXPECT_EQ(forward.bytes, 2 * (80 * 30 + 4 * 20 * 30 + 80 * 20) + 4 * 5);
  EXPECT_EQ(forward.flops, 2 * 80 * 20 * 30);
  const OpWork weights = WorkOf([&](Ops& ops, Queue& queue) {
    ops.GroupedBackwardWeights(queue, Bf16({82, 20}), Bf16({82, 30}), offsets, 1,
                               {.tensor = Fp32({4, 20, 30})});
  });
  EXPECT_THAT(weights.product, ElementsAre(20, 30, 20));
  EXPECT_EQ(weights.flops, 2 * 82 * 20 * 30);  // of all rows, though experts have 20.5
}

// 2 sequences of 4 queries, which see 1, 2, 3 and 4 keys, or with a window 1, 2, 2 and 2.
TEST_F(OpWorkTest, AttentionCountsTheKeysThatAQuerySees) {
  AttentionShape shape = {
      .batch = 2, .seq = 4, .num_heads = 6, .num_kv_heads = 3, .qk_dim = 10, .v_dim = 5};
  const Tensor q = Bf16({8, 6, 10});
  const Tensor k = Bf16({8, 3, 10});
  const Tensor v = Bf16({8, 3, 5});
  const Tensor o = Bf16({8, 6, 5});
  const Tensor lse = Fp32({2, 6, 4});
  const auto forward = [&](Ops& ops, Queue& queue) {
    ops.Attention(queue, shape, q, k, v, o, lse);
  };
  EXPECT_EQ(WorkOf(forward).flops, 2 * (2 * 6) * 10 * (10 + 5));
  EXPECT_EQ(WorkOf(forward).bytes, 2 * (480 + 240 + 120 + 240) + 4 * 48);
  shape.window = 2;
  EXPECT_EQ(WorkOf(forward).flops, 2 * (2 * 6) * 7 * (10 + 5));
  // Scores, dq and dk; dp and dv.
  const OpWork backward = WorkOf([&](Ops& ops, Queue& queue) {
    ops.AttentionBackward(queue, shape, o, q, k, v, o, lse, q, k, v);
  });
  EXPECT_EQ(backward.flops, 2 * (2 * 6) * 7 * (3 * 10 + 2 * 5));
}

// 30 bytes a weight with gradients in float32, 28 in bfloat16.
TEST_F(OpWorkTest, AnUpdateReadsAndWritesTheState) {
  const Tensor state = Fp32({1000});
  const auto update = [&](const Tensor& gradient) {
    return WorkOf([&](Ops& ops, Queue& queue) {
      ops.AdamW(queue, {}, {}, gradient, state, state, state, Bf16({1000}));
    });
  };
  EXPECT_EQ(update(state).bytes, 30'000);
  EXPECT_EQ(update(Bf16({1000})).bytes, 28'000);
}

TEST_F(OpWorkTest, WhatIsAbsentIsNotMoved) {
  const auto activate = [&](const ActivationRows& rows) {
    return WorkOf([&](Ops& ops, Queue& queue) {
             ops.SwiGlu(queue, Bf16({10, 40}), rows, Bf16({10, 20}));
           })
        .bytes;
  };
  EXPECT_EQ(activate({}), 2 * (400 + 200));
  EXPECT_EQ(activate({.weights = Fp32({10})}), 2 * (400 + 200) + 40);
}

// Queues that run at once, and those that run later, in the order of the calls.
TEST(HostRecordTest, NotesWhenOperationsRan) {
  for (const QueueMode mode : {QueueMode::kInline, QueueMode::kThreads}) {
    const auto device = MakeHostDevice({.queues = mode});
    const auto queue = device->MakeQueue("compute");
    const auto idle = MakeIdleOps();
    RecordedOps ops(*idle);
    std::array<float, 4> values{};
    const Tensor x(values.data(), DType::kFloat32, {4});
    ops.Fill(*queue, x, 1);  // before the record
    const auto record = device->RecordWork();
    ASSERT_THAT(record, IsOk());
    ops.Begin(**record);
    ops.Fill(*queue, x, 1);
    ops.Add(*queue, x, x, x);
    EXPECT_EQ(ops.End().size(), 2U);
    ops.Fill(*queue, x, 1);  // after it
    ASSERT_THAT(queue->Synchronize(), IsOk());
    const auto work = (*record)->Finish();
    ASSERT_THAT(work, IsOk());
    ASSERT_EQ(work->size(), 2U);
    EXPECT_EQ((*work)[0].operation, 0);
    EXPECT_EQ((*work)[1].operation, 1);
    EXPECT_LE((*work)[0].begin_ns, (*work)[0].end_ns);
    EXPECT_LE((*work)[0].end_ns, (*work)[1].begin_ns);
  }
}

}  // namespace
}  // namespace ckpt::trainer
