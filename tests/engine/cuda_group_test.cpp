// SPDX-License-Identifier: Apache-2.0
// Engine cuda: groups of nodes that one step computes, with steps made here.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

struct Behaviour {
  int times = 1;       ///< it computes the group so often: a slow one
  bool wrong = false;  ///< and then writes 0x11 everywhere
};

/// Computes a group by its nodes' own steps, in memory of its own. Its output is overwritten first, so that an input
/// that has to be there still cannot lie in it.
class GroupStep final : public CudaStep {
 public:
  GroupStep(const Lowering& lowering, const NodeGroup& group, Behaviour behaviour) : behaviour_(behaviour) {
    for (const int node : group.nodes) {
      steps_.push_back(make_cuda_step(lowering, node, "direct"));
      const Shape& shape = lowering.graph.nodes[node].shape;
      image_bytes_.push_back(static_cast<size_t>(shape.h) * shape.w * lowering.output_stride(node));
      residual_ = lowering.graph.nodes[node].inputs.size() > 1;
    }
  }
  std::string kernel(int) const override { return "of_test"; }
  void prepare(const CudaStepData& data, const Stream& stream) override {
    inner_.clear();
    for (const size_t bytes : image_bytes_) inner_.emplace_back(bytes * data.images + 256, "a test");
    each(data, [&](CudaStep& step, const CudaStepData& of_step) { step.prepare(of_step, stream); });
  }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    const size_t bytes = image_bytes_.back() * data.images;
    fill_device(data.output, 0xEE, bytes, stream);
    for (int time = 0; time < behaviour_.times; ++time) {
      each(data, [&](const CudaStep& step, const CudaStepData& of_step) { step.launch(of_step, stream); });
    }
    if (behaviour_.wrong) fill_device(data.output, 0x11, bytes, stream);
  }

 private:
  template <typename Call>
  void each(const CudaStepData& data, const Call& call) const {
    const uint8_t* inputs[] = {data.inputs[0], residual_ ? data.inputs[1] : nullptr};
    for (size_t i = 0; i < steps_.size(); ++i) {
      CudaStepData of_step = data;
      of_step.inputs = inputs;
      if (i + 1 < steps_.size()) of_step.output = inner_[i].data();
      call(*steps_[i], of_step);
      inputs[0] = static_cast<const uint8_t*>(of_step.output);
    }
  }

  Behaviour behaviour_;
  std::vector<std::unique_ptr<CudaStep>> steps_;
  std::vector<size_t> image_bytes_;
  std::vector<DeviceBuffer> inner_;
  bool residual_ = false;
};

CudaProgram program(const Int8Graph& graph, int batch, const std::string& kernels, Behaviour behaviour) {
  return CudaProgram(
      graph, {.max_batch = batch, .kernels = kernels},
      [](const Lowering& lowering, int node) { return make_cuda_step(lowering, node, "auto"); },
      [=](const Lowering& lowering, const NodeGroup& group) -> GroupKernels {
        return [=, &lowering](int) {
          CudaSteps steps;
          steps.push_back(std::make_unique<GroupStep>(lowering, group, behaviour));
          return steps;
        };
      });
}

Int8Graph network_with_groups(const char* model) {
  const int side = std::string_view(model).starts_with("vgg") ? 32 : 64;
  return random_int8_graph(build_model({.name = model, .input = {3, side, side}, .folded = true}), {}, 1);
}

/// Returns the nodes that another node's kernel computes.
std::vector<int> merged_nodes(const CudaProgram& program) {
  std::vector<int> merged;
  const std::vector<LayerInfo> layers = program.layers();
  for (int node = 0; node < static_cast<int>(layers.size()); ++node) {
    if (layers[node].kernel == "merged") merged.push_back(node);
  }
  return merged;
}

long kernels_that_start_with(std::string_view start, const Program& program) {
  const std::vector<LayerInfo> layers = program.layers();
  return std::count_if(layers.begin(), layers.end(),
                       [&](const LayerInfo& layer) { return layer.kernel.starts_with(start); });
}

TEST(CudaGroups, GiveTheReferencesBytesWithAndWithoutATap) {
  OCTET_NEEDS_GPU();
  constexpr int kBatch = 3;
  for (const char* model : {"resnet18", "mobilenet_v2", "efficientnet_b0", "vgg16_bn"}) {
    const Int8Graph graph = network_with_groups(model);
    const std::vector<uint8_t> images = random_images(graph, kBatch, 1);
    const Trace expected =
        trace(*find_engine("reference").compile(graph, {.max_batch = kBatch}), graph, images, kBatch);
    CudaProgram fused = program(graph, kBatch, kFusedKernels, {});
    EXPECT_EQ(difference(graph, expected, trace(fused, graph, images, kBatch)), "") << model;
    EXPECT_TRUE(outputs_of(fused, graph, images, kBatch) == expected.outputs) << model;
    size_t merged = 0;
    for (const NodeGroup& group : node_groups(graph)) merged += group.nodes.size() - 1;
    for (const int convolution : merged_convolutions(graph)) merged += convolution >= 0;
    EXPECT_EQ(merged_nodes(fused).size(), merged) << model;
  }
}

// By their kernel wherever there is one, also where that is slower.
TEST(CudaGroups, InvertedResidualsGiveTheReferencesBytes) {
  OCTET_NEEDS_GPU();
  for (const auto scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    SCOPED_TRACE(static_cast<int>(scheme));
    const Graph network = build_model({.name = "mobilenet_v2", .input = {3, 64, 64}, .folded = true});
    const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, 1);
    for (const int batch : {1, 3}) {
      const std::vector<uint8_t> images = random_images(graph, batch, 1);
      const Trace expected =
          trace(*find_engine("reference").compile(graph, {.max_batch = batch}), graph, images, batch);
      const auto fused = find_engine("cuda").compile(graph, {.max_batch = batch, .kernels = kFusedKernels});
      EXPECT_EQ(difference(graph, expected, trace(*fused, graph, images, batch)), "") << batch;
      EXPECT_TRUE(outputs_of(*fused, graph, images, batch) == expected.outputs) << batch;
      EXPECT_EQ(kernels_that_start_with("inverted_residual_", *fused), 16);  // all but the last, of 320 channels
      EXPECT_EQ(kernels_that_start_with("avg_pool_linear", *fused), 1) << batch;
    }
  }
}

// Others read what the first convolution of a pair writes, too.
TEST(CudaGroups, BottlenecksGiveTheReferencesBytes) {
  OCTET_NEEDS_GPU();
  for (const auto scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    const Graph network = build_model({.name = "resnet50", .input = {3, 109, 86}, .folded = true});
    const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, 1);
    for (const int batch : {1, 2}) {
      const std::vector<uint8_t> images = random_images(graph, batch, 1);
      const Trace expected = trace(*find_engine("cpu").compile(graph, {.max_batch = batch}), graph, images, batch);
      const auto fused = find_engine("cuda").compile(graph, {.max_batch = batch, .kernels = kFusedKernels});
      EXPECT_EQ(difference(graph, expected, trace(*fused, graph, images, batch)), "") << batch;
      EXPECT_TRUE(outputs_of(*fused, graph, images, batch) == expected.outputs) << batch;
      EXPECT_EQ(kernels_that_start_with("expand_reduce_", *fused), this_gpu().capability == 90 ? 12 : 0) << batch;
    }
  }
}

// YOLOX-S with a table of its own for each channel of its functions, as octet quantize makes them.
TEST(CudaGroups, TablesOfChannelsGiveTheReferencesBytes) {
  OCTET_NEEDS_GPU();
  const Graph network = build_model({.name = "yolox_s", .input = {3, 96, 96}, .classes = 80, .folded = true});
  Int8Graph graph = random_int8_graph(network, {}, 1);
  Random random(3);
  for (Int8Node& n : graph.nodes) {
    if (n.op != Int8Op::lookup) continue;
    n.groups = n.shape.c;
    n.multiplier.assign(2 * static_cast<size_t>(n.groups), 1.0f);
    n.table.resize(256 * static_cast<size_t>(n.groups));
    for (uint8_t& code : n.table) code = static_cast<uint8_t>(random.between(n.clamp_min, n.clamp_max));
  }
  for (const int batch : {1, 3}) {
    const std::vector<uint8_t> images = random_images(graph, batch, 1);
    const Trace expected = trace(*find_engine("cpu").compile(graph, {.max_batch = batch}), graph, images, batch);
    for (const char* kernels : {"auto", kSeparateKernels, kFusedKernels}) {
      const auto program = find_engine("cuda").compile(graph, {.max_batch = batch, .kernels = kernels});
      EXPECT_EQ(difference(graph, expected, trace(*program, graph, images, batch)), "") << kernels << ", " << batch;
      EXPECT_TRUE(outputs_of(*program, graph, images, batch) == expected.outputs) << kernels << ", " << batch;
      const std::vector<LayerInfo> layers = program->layers();
      const auto tables = std::count_if(layers.begin(), layers.end(), [](const LayerInfo& layer) {
        return layer.kernel.ends_with("_channel_lookup") && layer.kernel.starts_with("wgmma");
      });
      if (kernels == std::string_view(kSeparateKernels)) EXPECT_EQ(tables, 0);
      if (kernels == std::string_view(kFusedKernels)) EXPECT_EQ(tables, this_gpu().capability == 90 ? 73 : 0);
    }
  }
}

// Each image reads all weights there.
TEST(CudaGroups, TheEndOfManyImagesIsNotOneKernel) {
  OCTET_NEEDS_GPU();
  const auto fused =
      find_engine("cuda").compile(network_with_groups("mobilenet_v2"), {.max_batch = 9, .kernels = kFusedKernels});
  EXPECT_EQ(kernels_that_start_with("avg_pool_linear", *fused), 0);
}

TEST(CudaGroups, ATapSeesWhatTheGroupsKernelWrote) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = network_with_groups("resnet18");
  const NodeGroup group = node_groups(graph).at(0);
  const std::vector<uint8_t> images = random_images(graph, 2, 1);
  const Trace expected = trace(*find_engine("cpu").compile(graph, {.max_batch = 2}), graph, images, 2);
  CudaProgram wrong = program(graph, 2, kFusedKernels, {.wrong = true});
  const Trace shown = trace(wrong, graph, images, 2);
  EXPECT_TRUE(shown.nodes[group.nodes[0]] == expected.nodes[group.nodes[0]]) << "the inner node, by its own kernel";
  const std::vector<uint8_t>& last = shown.nodes[group.nodes[1]];
  EXPECT_EQ(std::count(last.begin(), last.end(), 0x11), static_cast<long>(last.size()));
  EXPECT_TRUE(outputs_of(wrong, graph, images, 2) == shown.outputs);
}

TEST(CudaGroups, KernelsOfTheirOwnGiveTheReferencesBytes) {
  OCTET_NEEDS_GPU();
  constexpr int kBatch = 7;
  for (const char* model : {"resnet18", "shufflenet_v2_x1_0", "squeezenet1_1"}) {
    for (const auto scheme :
         {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
      const Graph network = build_model({.name = model, .input = {3, 109, 86}, .folded = true});
      const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, 1);
      const std::vector<uint8_t> images = random_images(graph, kBatch, 1);
      const Trace expected = trace(*find_engine("cpu").compile(graph, {.max_batch = kBatch}), graph, images, kBatch);
      const auto fused = find_engine("cuda").compile(graph, {.max_batch = kBatch, .kernels = kFusedKernels});
      EXPECT_EQ(difference(graph, expected, trace(*fused, graph, images, kBatch)), "") << model;
      EXPECT_TRUE(outputs_of(*fused, graph, images, kBatch) == expected.outputs) << model;
      EXPECT_NE(fused->layers()[1].kernel.find("max_pool"), std::string::npos) << model;
    }
  }
}

TEST(CudaGroups, RunSeparatelyWhereThatIsFasterOrWanted) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = network_with_groups("resnet18");
  EXPECT_TRUE(merged_nodes(program(graph, 2, "auto", {.times = 50})).empty());
  const auto engine = find_engine("cuda").compile(graph, {.max_batch = 2, .kernels = kSeparateKernels});
  for (const LayerInfo& layer : engine->layers()) EXPECT_NE(layer.kernel, "merged") << layer.name;
}

/// A step whose constants are at an address, in no memory.
class StepWithConstants final : public CudaStep {
 public:
  StepWithConstants(const void* constants, size_t bytes) : constants_(constants), bytes_(bytes) {}
  std::string kernel(int) const override { return "of_test"; }
  size_t constant_bytes() const override { return bytes_; }
  const void* constants() const override { return constants_; }
  void launch(const CudaStepData&, CudaStream) const override {}

 private:
  const void* constants_;
  size_t bytes_;
};

// What the advice counts where a batch does not fit. Needs no GPU.
TEST(CudaGroups, ConstantsOfSeveralNumbersOfImagesCountOnceWhereTheyAreShared) {
  const char tiles[2] = {};
  const StepWithConstants small(&tiles[0], 1000), same(&tiles[0], 1000), large(&tiles[1], 3000), none(nullptr, 0);
  const StepWithConstants own(nullptr, 50);
  EXPECT_EQ(distinct_constant_bytes({&small, nullptr, &same}), 1000u);
  EXPECT_EQ(distinct_constant_bytes({&small, &large, &same, &none}), 4000u);
  EXPECT_EQ(distinct_constant_bytes({&own, &own}), 100u) << "of an unknown address";
}

// What remembered times go by. Needs no GPU.
TEST(CudaGroups, DescribedNodesHaveAllThatTimesDependOn) {
  const Int8Graph graph = network_with_groups("resnet18");
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Int8Node& n) { return n.op == Int8Op::conv2d && n.inputs.size() > 1; });
  ASSERT_NE(found, graph.nodes.end()) << "a convolution with a residual";
  const int node = static_cast<int>(found - graph.nodes.begin());
  const auto described_with = [&](auto&& change) {
    Int8Graph changed = graph;
    change(changed.nodes[node]);
    return described_nodes(changed, {node});
  };
  const std::string as_it_is = described_with([](Int8Node&) {});
  EXPECT_NE(described_with([](Int8Node& n) { n.window.kernel_h += 2; }), as_it_is);
  EXPECT_NE(described_with([](Int8Node& n) { n.window.stride_w += 1; }), as_it_is);
  EXPECT_NE(described_with([](Int8Node& n) { n.window.pad.top += 1; }), as_it_is);
  EXPECT_NE(described_with([](Int8Node& n) { n.window.dilation_w += 1; }), as_it_is);
  EXPECT_NE(described_with([](Int8Node& n) { n.groups *= 2; }), as_it_is);
  EXPECT_NE(described_with([](Int8Node& n) { n.inputs.pop_back(); }), as_it_is);
  EXPECT_EQ(as_it_is.find('\n'), std::string::npos) << "a key is one line";
}

TEST(CudaGroups, HaveTheirTimeAtTheirLastNode) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = network_with_groups("resnet18");
  const NodeGroup group = node_groups(graph).at(0);
  CudaProgram fused = program(graph, 2, kFusedKernels, {});
  const std::vector<double> times = fused.time_layers_on_device(2, 5);
  EXPECT_EQ(times[group.nodes[0]], 0);
  EXPECT_GT(times[group.nodes[1]], 0);
  EXPECT_EQ(merged_nodes(fused), (std::vector{group.nodes[1], node_groups(graph).at(1).nodes[1]}));
  EXPECT_EQ(fused.layers()[group.nodes[0]].kernel, "of_test");
}

}  // namespace
}  // namespace octet::test
