// SPDX-License-Identifier: Apache-2.0
// A network cut into stages trains as the whole one does that takes the same micro-batches.
#include "trainers/parallel/stages.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <ostream>

#include "src/quant/plan.h"
#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"

namespace octet {
namespace {

using testing_trainers::Comparable;
using testing_trainers::distance;
using testing_trainers::expect_part;
using testing_trainers::expect_same_end;
using testing_trainers::Folder;
using testing_trainers::Kind;
using testing_trainers::message_of;
using testing_trainers::run_and_stop;
using testing_trainers::run_ranks;
using testing_trainers::short_recipe;
using testing_trainers::tiny_graph;

/// A block with a shortcut between two convolutions.
Graph with_shortcut() {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {1, 8, 8};
  spec.classes = 4;
  const std::map<std::string, double> conv{{"out_channels", 8}, {"kernel", 3}, {"pad", 1}};
  spec.graph = {
      {"stem", "conv2d", {}, conv}, {"relu0", "relu", {}, {}},           {"conv1", "conv2d", {}, conv},
      {"relu1", "relu", {}, {}},    {"conv2", "conv2d", {}, conv},       {"add", "add", {"conv2", "relu0"}, {}},
      {"relu2", "relu", {}, {}},    {"pool", "global_avg_pool", {}, {}}, {"fc", "linear", {}, {{"out_channels", 4}}}};
  return fuse(build_model(spec));
}

std::string refusal(const std::vector<std::string>& layers) {
  return message_of(ExitCode::usage, [&] { stages_of(with_shortcut(), layers); });
}

TEST(Stages, AreCutWhereOneValueCrosses) {
  const Graph graph = with_shortcut();
  const std::vector<GraphPart> parts = stages_of(graph, {"stem", "conv2"});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].first, 0);
  EXPECT_EQ(graph.nodes[parts[0].last].name, "stem");
  EXPECT_EQ(parts[1].first, parts[0].last);
  EXPECT_EQ(graph.nodes[parts[1].last].name, "conv2");
  EXPECT_EQ(graph.nodes[parts[2].last].name, "fc");
  expect_part(refusal({"conv1"}), "a cut behind 'conv1' would part several values (stem, conv1)");
  expect_part(refusal({"conv9"}), "has no layer 'conv9'; it may be cut behind stem, conv2");
  expect_part(refusal({"conv2", "stem"}), "'stem' is not behind 'conv2'");
  expect_part(refusal({"stem", "stem"}), "'stem' is not behind 'stem'");
  expect_part(refusal({"fc"}), "would part an output of the network (fc)");
}

TEST(Stages, PartsOneAfterTheOtherAreTheWhole) {
  const Graph graph = with_shortcut();
  const Weights weights = initial_weights(graph, 3);
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 1, 8, 8});
  at::Tensor value = x;
  for (const GraphPart& part : stages_of(graph, {"stem", "conv2"})) value = walk_part(graph, weights, part, value, {});
  EXPECT_TRUE(value.flatten(1).equal(walk(graph, weights, x, {})));
}

TEST(Stages, FillAndEmptyInOrder) {
  EXPECT_EQ(StagedPass::ahead(0, 2, 8), 2);
  EXPECT_EQ(StagedPass::ahead(1, 2, 8), 0);
  EXPECT_EQ(StagedPass::ahead(0, 4, 8), 6);
  EXPECT_EQ(StagedPass::ahead(0, 4, 3), 3);
  EXPECT_EQ(StagedPass::ahead(3, 4, 3), 0);
}

OptimizerRecipe recipe() {
  OptimizerRecipe r = short_recipe();
  r.ema = 0.9;
  r.clip_gradient = 1;
  return r;
}

/// What a test of stages varies.
struct Cut {
  std::string name;
  Kind kind;
  std::vector<std::string> layers{"conv1"};
  int micro_batches = 4;
  OptimizerKind optimizer = OptimizerKind::sgd;
  int replicas = 1;  ///< of the cut network, each with its share of the micro-batches
};
void PrintTo(const Cut& cut, std::ostream* out) { *out << cut.name; }

struct Staged : Comparable {
  Staged(const Cut& cut, const std::string& checkpoint) : Comparable(recipe(), checkpoint, cut.kind) {
    recipe_.sync_batch_norm = false;
    recipe_.optimizer = cut.optimizer;
    if (cut.optimizer == OptimizerKind::adamw) recipe_.learning_rate = 0.005;
    phase.parallel.stages = cut.layers;
    phase.parallel.micro_batches = cut.micro_batches;
  }
};

class StagedTraining : public ::testing::TestWithParam<Cut> {};

/// Without BatchNorm's running statistics.
Weights learned(const Weights& weights) {
  Weights values;
  for (const auto& [name, tensor] : weights)
    if (tensor.requires_grad()) values.emplace(name, tensor);
  return values;
}

TEST_P(StagedTraining, EndsAsOneProcessWithTheSameMicroBatches) {
  const Cut& cut = GetParam();
  const Folder folder("stages");
  Staged alone(cut, folder.path() + "/alone.safetensors");
  Weights before;
  for (const auto& [name, tensor] : alone.weights) before[name] = tensor.detach().clone();
  alone.run();
  std::vector<std::unique_ptr<Staged>> ranks_of;
  const int count = cut.replicas * (static_cast<int>(cut.layers.size()) + 1);
  for (int i = 0; i < count; ++i) {
    ranks_of.push_back(std::make_unique<Staged>(cut, folder.path() + "/all.safetensors"));
    ranks_of.back()->phase.parallel.micro_batches /= cut.replicas;
  }
  EXPECT_EQ(run_ranks(count,
                      [&](Ranks& ranks) {
                        at::set_num_threads(1);
                        Staged& mine = *ranks_of[ranks.rank()];
                        mine.phase.ranks = &ranks;
                        mine.run();
                      }),
            std::vector<std::string>(count));
  for (int i = 1; i < count; ++i) expect_same_end(*ranks_of[0], *ranks_of[i]);
  EXPECT_GT(distance(before, alone.weights), 0.02);
  EXPECT_LT(distance(learned(alone.weights), learned(ranks_of[0]->weights)), 1e-6);
  // Replicas follow BatchNorm's statistics from fewer micro-batches each, and keep the mean.
  const bool of_fewer = cut.replicas > 1 && cut.kind.live_batch_norm;
  EXPECT_LT(distance(alone.weights, ranks_of[0]->weights), of_fewer ? 0.5 : 1e-6);
  if (alone.quantized && cut.replicas == 1)  // whose sums are made in another order
    testing_trainers::expect_same_bits(alone.quantized->state(), ranks_of[0]->quantized->state());
  if (alone.quantized)
    EXPECT_LT(distance(alone.quantized->learned_scales(), ranks_of[0]->quantized->learned_scales()), 1e-6);
  EXPECT_NEAR(alone.epochs.back().train_loss, ranks_of[0]->epochs.back().train_loss, 1e-6);
  EXPECT_EQ(alone.epochs.back().train_top1, ranks_of[0]->epochs.back().train_top1);
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, StagedTraining,
    ::testing::Values(
        Cut{"float", {.live_batch_norm = true}}, Cut{"frozen", {}}, Cut{"qat", {.qat = true}},
        Cut{"qat_live", {.qat = true, .live_batch_norm = true}},
        Cut{"learned", {.qat = true, .scales = EdgeScales::lsq}},
        Cut{"learned_offsets", {.qat = true, .scales = EdgeScales::lsq_plus}},
        Cut{"three", {.qat = true, .live_batch_norm = true}, {"conv1", "conv2"}},
        Cut{"three_adamw", {.qat = true, .scales = EdgeScales::lsq}, {"conv1", "conv2"}, 8, OptimizerKind::adamw},
        Cut{"one_micro_batch", {.qat = true}, {"conv1", "conv2"}, 1}, Cut{"many", {.qat = true}, {"conv2"}, 16},
        Cut{"replicas", {.live_batch_norm = true}, {"conv1"}, 4, OptimizerKind::sgd, 2},
        Cut{"replicas_qat", {.qat = true}, {"conv2"}, 8, OptimizerKind::adamw, 2},
        Cut{"replicas_learned",
            {.qat = true, .scales = EdgeScales::lsq},
            {"conv1", "conv2"},
            8,
            OptimizerKind::sgd,
            2}),
    [](const auto& info) { return info.param.name; });

/// One micro-batch is the batch.
TEST(Stages, OneMicroBatchIsTheWholeBatch) {
  const Folder folder("stages_whole");
  const Cut cut{"whole", {.qat = true, .live_batch_norm = true}, {"conv1"}, 1};
  Staged staged(cut, folder.path() + "/staged.safetensors"), plain(cut, folder.path() + "/plain.safetensors");
  plain.phase.parallel.stages.clear();
  staged.run();
  plain.run();
  expect_same_end(staged, plain);
}

TEST(Stages, AfterAStopOneProcessGoesOn) {
  const Folder folder("stages_resume");
  const Cut cut{"resume", {.qat = true, .live_batch_norm = true}};
  Staged alone(cut, folder.path() + "/alone.safetensors");
  alone.run();
  const std::string state = folder.path() + "/state.safetensors";
  Staged first(cut, state), second(cut, state), rest(cut, state);
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    Staged& mine = ranks.first() ? first : second;
    mine.phase.ranks = &ranks;
    if (!ranks.first()) return mine.run();  // it stops because rank 0 does
    run_and_stop(mine, 6);
  });
  EXPECT_EQ(thrown[0], "");
  EXPECT_EQ(thrown[1], "interrupted in phase qat, epoch 2, step 2");
  rest.phase.resume = true;
  rest.run();
  EXPECT_LT(distance(alone.weights, rest.weights), 1e-6);
}

}  // namespace
}  // namespace octet
