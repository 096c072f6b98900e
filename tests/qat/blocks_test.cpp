// Rounding learned block by block: what a block gives comes nearer to the float network's, on pictures it never saw
// too, and no code moves by more than 1.
#include "src/qat/reconstruct/blocks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/quant/fuse.h"
#include "tests/qat/networks.h"

namespace octet {
namespace {

using Codes = std::vector<std::vector<int8_t>>;

Graph resnet8() { return build_model(test::family("resnet8", 32)); }

at::Tensor pictures(int count, int seed) {
  at::manual_seed(seed);
  const at::Tensor coarse = at::randn({count, 3, 8, 8});  // neighbouring pixels hang together, as in photographs
  return at::upsample_bilinear2d(coarse, {32, 32}, false).contiguous(at::MemoryFormat::ChannelsLast);
}

Codes codes(const QuantizedModel& model) {
  Codes all;
  for (const Int8Node& node : model.convert(test::preprocessing_for(model.prepared().graph.nodes[0].shape), {}).nodes)
    if (!node.weight.empty()) all.push_back(node.weight);
  return all;
}

Weights copy_of(const Weights& weights) {
  Weights copy = weights;
  for (auto& [name, tensor] : copy) tensor = tensor.detach().clone();
  return copy;
}

/// What a block of the model gives before it is quantized.
at::Tensor output_of(QuantizedModel& model, const GraphPart& part, const at::Tensor& x) {
  WalkHooks hooks = model.quantizing_hooks({});
  hooks.output = [&part, quantize = hooks.output](int n, at::Tensor y) {
    return n == part.last ? y : quantize(n, std::move(y));
  };
  return walk_part(model.prepared().graph, model.weights(), part, x, {}, hooks);
}

/// Of each block, with weights rounded to nearest and as learned, the squared error of what it gives for what reaches
/// it in the network as learned.
struct Errors {
  double nearest, rounded;
};
std::vector<Errors> errors(QuantizedModel& nearest, QuantizedModel& rounded, const Weights& floats,
                           const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const Graph& graph = rounded.prepared().graph;
  std::vector<Errors> result;
  at::Tensor plain = x, quantized = x;
  for (const GraphPart& part : blocks_of(graph)) {
    plain = walk_part(graph, floats, part, plain, {});
    const auto error = [&](QuantizedModel& model) {
      return (output_of(model, part, quantized) - plain).square().mean().item<double>();
    };
    result.push_back({error(nearest), error(rounded)});
    quantized = walk_part(graph, rounded.weights(), part, quantized, {}, rounded.quantizing_hooks({}));
  }
  return result;
}

TEST(Blocks, AreWhatLiesBetweenEdgesThatEverythingPasses) {
  const Graph graph = fuse(resnet8());
  std::vector<int> layers;
  int last = 0;
  for (const GraphPart& part : blocks_of(graph)) {
    EXPECT_EQ(part.first, last) << "blocks follow each other";
    last = part.last;
    layers.push_back(0);
    for (int n = part.first + 1; n <= part.last; ++n) layers.back() += has_weight(graph.nodes[n].op);
  }
  EXPECT_EQ(last, graph.outputs.front());
  // The stem, a block of two layers, two with a convolution beside them, the last layer.
  EXPECT_EQ(layers, (std::vector<int>{1, 2, 3, 3, 1}));
}

TEST(Blocks, HeldOutPicturesComeNearerAndCodesMoveByAtMostOne) {
  const Graph graph = resnet8();
  const QuantSpec quant{.activation_bits = 8, .weight_bits = 3, .last_layer_bits = 3};
  const Weights weights = test::random_weights(graph, 3), floats = copy_of(weights);
  QuantizedModel model = test::calibrated(graph, weights, quant, CalibrationMethod::mse);
  QuantizedModel nearest = test::calibrated(graph, copy_of(weights), quant, CalibrationMethod::mse);
  const Codes before = codes(model);
  std::vector<RoundedLayer> blocks;
  reconstruct_blocks(model, pictures(64, 1), {{.steps = 300, .batch_size = 16}, 0.5},
                     [&](const RoundedLayer& block) { blocks.push_back(block); });
  const std::vector<Errors> unseen = errors(nearest, model, floats, pictures(32, 2));
  ASSERT_EQ(blocks.size(), unseen.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_LT(blocks[i].rounded, blocks[i].nearest) << blocks[i].name;
    EXPECT_LT(unseen[i].rounded, unseen[i].nearest) << blocks[i].name;
    RecordProperty(blocks[i].name, std::to_string(unseen[i].rounded / unseen[i].nearest));
  }
  const Codes after = codes(model);
  int64_t moved = 0, reported = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    for (size_t w = 0; w < after[i].size(); ++w) {
      EXPECT_LE(std::abs(after[i][w] - before[i][w]), 1) << i << " " << w;
      moved += after[i][w] != before[i][w];
    }
  }
  for (const RoundedLayer& block : blocks) reported += block.moved;
  EXPECT_EQ(moved, reported);
  EXPECT_GT(moved, 0);
}

/// With no step to learn in, h is the nearest code's: nothing is better, and everything stays.
TEST(Blocks, ABlockThatGainsNothingKeepsWhatItHas) {
  const Graph graph = resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
  const Codes before = codes(model);
  reconstruct_blocks(model, pictures(8, 1), {{.steps = 0, .batch_size = 8}, 0.5}, [](const RoundedLayer& block) {
    EXPECT_EQ(block.moved, 0) << block.name;
    EXPECT_EQ(block.rounded, block.nearest) << block.name;
  });
  EXPECT_EQ(codes(model), before);
}

TEST(Blocks, TheSameSeedGivesTheSameBitsAndDroppingCounts) {
  const Graph graph = resnet8();
  std::vector<Codes> results;
  for (const auto& [seed, drop] : {std::pair(1, 0.5), {1, 0.5}, {2, 0.5}, {1, 0.0}}) {
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(3, 3));
    reconstruct_blocks(model, pictures(16, 1),
                       {{.steps = 20, .batch_size = 8, .seed = static_cast<uint64_t>(seed)}, drop},
                       [](const RoundedLayer&) {});
    results.push_back(codes(model));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
  EXPECT_NE(results[0], results[3]);
}

}  // namespace
}  // namespace octet
