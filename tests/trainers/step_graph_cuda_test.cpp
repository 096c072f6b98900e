// SPDX-License-Identifier: Apache-2.0
// A recorded step is replayed, not launched again, and does the same work.
#include "src/train/model/step_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/cuda/gpu.h"
#include "tests/trainers/training.h"
#include "trainers/gpu.h"
#include "trainers/loop/step.h"

namespace octet {
namespace {

using testing_trainers::kGpu;

TEST(StepGraph, RecordsOnceAModeAndReplays) {
  OCTET_NEEDS_GPU();
  const OwnStream stream(kGpu);
  StepGraph graph(/*capture=*/true);
  const at::Tensor sum = at::zeros({3}, kGpu);
  int launched = 0;
  const auto launches = [&] {
    ++launched;
    sum.add_(at::rand({3}, kGpu).add_(1).floor_());  // with a temporary, as in a step: 1 each time
  };
  for (int i = 0; i < 10; ++i) graph.run(0, launches);
  EXPECT_EQ(launched, StepGraph::kWarmUps + 1);
  EXPECT_EQ(sum[2].item<float>(), 10.0f);
  for (int i = 0; i < 10; ++i) graph.run(1, launches);
  EXPECT_EQ(launched, 2 * (StepGraph::kWarmUps + 1));
  EXPECT_EQ(sum[2].item<float>(), 20.0f);
  graph.forget();
  graph.run(1, launches);
  EXPECT_EQ(launched, 2 * (StepGraph::kWarmUps + 1) + 1);
}

/// Steps of three sizes in mixed order do their own work each, and none takes memory beside the largest.
TEST(StepGraph, SizesShareOneMemory) {
  OCTET_NEEDS_GPU();
  const OwnStream stream(kGpu);
  constexpr int64_t kLargest = 48 << 20;
  const at::Tensor sums = at::zeros({4}, kGpu);
  const auto held_after = [&](const std::vector<int>& course) {
    release_cached(kGpu);
    const size_t before = gpu_memory(kGpu).held;
    sums.zero_();
    StepGraph graph(/*capture=*/true);
    std::vector<int> launched(4), run(4);
    at::Tensor kept;  // as gradients are kept until the next step
    for (const int quarters : course) {
      ++run[quarters];
      graph.run(
          0,
          [&] {
            ++launched[quarters];
            kept = at::Tensor();
            kept = at::ones({kLargest * quarters / 3}, kGpu);
            sums[quarters].add_(at::mul(kept, 2).max());
          },
          quarters);
    }
    for (int size = 1; size < 4; ++size) {
      EXPECT_EQ(sums[size].item<float>(), 2.0f * static_cast<float>(run[size])) << size;
      if (run[size] > 8) {
        EXPECT_LT(launched[size], run[size]) << "nothing was replayed";
      }
    }
    return gpu_memory(kGpu).held - before;
  };
  const std::vector<int> one(10, 3);
  std::vector<int> mixed;
  for (int i = 0; i < 60; ++i) mixed.push_back(1 + (i * i + i / 3) % 3);
  const size_t alone = held_after(one), of_three = held_after(mixed);
  EXPECT_GE(alone, kLargest * sizeof(float));
  EXPECT_LE(static_cast<double>(of_three), 1.25 * static_cast<double>(alone));
}

/// A size that comes late is launched beside the recordings of others, which go on being replayed.
TEST(StepGraph, ANewSizeLeavesTheRecordings) {
  OCTET_NEEDS_GPU();
  const OwnStream stream(kGpu);
  StepGraph graph(/*capture=*/true);
  const at::Tensor sums = at::zeros({3}, kGpu);
  std::vector<int> launched(3);
  const auto run = [&](int size) {
    graph.run(
        0,
        [&] {
          ++launched[size];
          sums[size].add_(at::ones({size << 20}, kGpu).max());
        },
        size);
  };
  for (int i = 0; i < 10; ++i) run(2);
  for (int i = 0; i < 10; ++i) run(1), run(2);
  EXPECT_EQ(launched[2], StepGraph::kWarmUps + 1);
  EXPECT_EQ(launched[1], StepGraph::kWarmUps + 1);
  EXPECT_EQ(sums[2].item<float>(), 20.0f);
  EXPECT_EQ(sums[1].item<float>(), 10.0f);
}

/// Returns all weights, and in QAT the observed ranges, after 60 steps on images of three sizes in mixed order.
Weights after_steps_of_three_sizes(at::Device device, bool qat, bool recorded) {
  ModelSpec spec{.name = "graph", .input = {1, 8, 8}, .classes = 4};
  std::vector<NodeSpec> nodes = testing_trainers::tiny_nodes();
  nodes[6] = {"pool", "global_avg_pool", {}, {}};  // in place of flatten, so that it takes any size
  nodes[7] = {"flatten", "flatten", {}, {}};
  spec.graph = nodes;
  const Graph graph = build_model(spec);
  Weights weights = to_device(initial_weights(graph, 7), device);
  OptimizerRecipe recipe = testing_trainers::short_recipe();
  recipe.ema = 0.9;
  Phase phase;
  phase.name = qat ? "qat" : "float";
  phase.recipe = &recipe;
  phase.graph = &graph;
  phase.weights = &weights;
  std::unique_ptr<QuantizedModel> quantized;
  if (qat) {
    quantized = std::make_unique<QuantizedModel>(prepare(fuse(graph), QuantSpec()), weights,
                                                 QuantizerOptions{.averaging = 0.1});
    phase.quantized = quantized.get();
  }
  TrainStep step(phase);
  const OwnStream stream(device);
  StepGraph steps(recorded);
  std::map<int, at::Tensor> images;  // by size, each in memory of its own
  const at::Tensor labels = at::zeros({recipe.batch_size}, at::TensorOptions(device).dtype(at::kLong));
  step.begin_epoch({});
  for (int i = 0; i < 60; ++i) {
    const int side = 8 * (1 + (i * i + i / 3) % 3);
    at::manual_seed(i);
    const at::Tensor drawn = at::rand({recipe.batch_size, 1, side, side});
    if (!images[side].defined()) images[side] = drawn.to(device).contiguous(at::MemoryFormat::ChannelsLast);
    images[side].copy_(drawn);
    labels.copy_(at::randint(4, {recipe.batch_size}, at::kLong));
    step.set(0.05, i);
    steps.run(
        0, [&] { step.launch(images[side], labels, {.observe = qat}); }, images[side].numel());
  }
  Weights all = copies_of(weights);
  if (qat)
    for (const auto& [name, tensor] : quantized->state()) all["quantizer." + name] = tensor.clone();
  return all;
}

TEST(StepGraph, StepsOfSeveralSizesGiveTheBitsOfLaunchedOnes) {
  OCTET_NEEDS_GPU();
  set_switches(kGpu, {.deterministic = true});
  for (const bool qat : {false, true}) {
    SCOPED_TRACE(qat ? "qat" : "float");
    testing_trainers::expect_same_bits(after_steps_of_three_sizes(kGpu, qat, false),
                                       after_steps_of_three_sizes(kGpu, qat, true));
  }
}

/// Needs no GPU.
TEST(StepGraph, OnACpuItOnlyCalls) {
  for (const bool qat : {false, true}) {
    const Weights weights = after_steps_of_three_sizes(at::kCPU, qat, false);
    for (const auto& [name, tensor] : weights) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
  }
}

TEST(StepGraph, AFailedRecordingLeavesTheStreamUsable) {
  OCTET_NEEDS_GPU();
  const OwnStream stream(kGpu);
  StepGraph graph(/*capture=*/true);
  at::Tensor sum = at::zeros({3}, kGpu);
  int launched = 0;
  const auto launches = [&] {
    sum.add_(1);
    if (++launched > StepGraph::kWarmUps) throw std::runtime_error("in the recording");
  };
  for (int i = 0; i < StepGraph::kWarmUps; ++i) graph.run(0, launches);
  EXPECT_THROW(graph.run(0, launches), std::runtime_error);
  EXPECT_EQ(sum[0].item<float>(), static_cast<float>(StepGraph::kWarmUps));
}

/// Ends the process: 1 if a step that reads from the GPU cannot be recorded. (LibTorch's generator stays in the broken
/// recording.)
[[noreturn]] void record_a_read() {
  const OwnStream stream(kGpu);
  StepGraph graph(/*capture=*/true);
  const at::Tensor value = at::zeros({}, kGpu);
  const auto launches = [&] { value.add_(1).item<float>(); };
  for (int i = 0; i < StepGraph::kWarmUps; ++i) graph.run(0, launches);
  try {
    graph.run(0, launches);
  } catch (const std::exception&) {
    std::_Exit(1);
  }
  std::_Exit(0);
}

/// What the proof "no host synchronization in a step" rests on.
TEST(StepGraphDeathTest, AReadFromTheGpuCannotBeRecorded) {
  OCTET_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(record_a_read(), testing::ExitedWithCode(1), "");
}

/// The whole step (forward, backward, scaler, clipping, optimizer, average), captured in global mode: a wait for the
/// GPU is refused on every thread, autograd's too, where training's own capture, of one thread, would not see each.
TEST(StepGraph, AWholeStepIsRecordedWhileEveryThreadIsWatched) {
  OCTET_NEEDS_GPU();
  using testing_trainers::Variant;
  for (const Variant& variant :
       {Variant{.name = "float", .precision = Precision::fp16, .ema = 0.9, .clip_gradient = 1},
        Variant{.name = "qat", .qat = true, .precision = Precision::fp16, .ema = 0.9},
        Variant{.name = "learned", .qat = true, .learn = true, .precision = Precision::fp16, .ema = 0.9},
        Variant{.name = "lsq_plus",
        .qat = true,
        .learn = true,
        .edges = EdgeScales::lsq_plus,
        .precision = Precision::fp16,
        .ema = 0.9},
        Variant{.name = "sparse", .qat = true, .sparse = true, .precision = Precision::fp16},
        Variant{.name = "adamw", .qat = true, .optimizer = OptimizerKind::adamw, .precision = Precision::bf16}}) {
    SCOPED_TRACE(variant.name);
    const OptimizerRecipe recipe = recipe_of(variant);
    const testing_trainers::Training training(recipe, "", variant, kGpu);
    TrainStep step(training.phase);
    const OwnStream stream(kGpu);
    const at::TensorOptions on_gpu(kGpu);
    const at::Tensor images = at::rand({recipe.batch_size, 1, 8, 8}, on_gpu).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor labels = at::zeros({recipe.batch_size}, on_gpu.dtype(at::kLong));
    step.begin_epoch({});
    step.set(0.01, 0);
    for (TrainStep::Mode mode : {TrainStep::Mode{}, {.batch_norm_training = false, .observe = false}}) {
      mode.observe = mode.observe && !variant.learn;
      const auto launch = [&] { step.launch(images, labels, mode); };
      for (int i = 0; i < StepGraph::kWarmUps; ++i) launch();
      const double before = step.totals()[0].item<double>();
      at::cuda::CUDAGraph graph;
      graph.capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeGlobal);
      launch();
      graph.capture_end();
      graph.replay();
      EXPECT_GT(step.totals()[0].item<double>(), before);
    }
  }
}

}  // namespace
}  // namespace octet
