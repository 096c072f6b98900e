// SPDX-License-Identifier: Apache-2.0
#include "tests/train/networks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <random>

#include "src/engine/engine.h"
#include "src/quant/plan.h"

namespace octet::test {

ModelSpec family(const std::string& name, int size) {
  ModelSpec spec;
  spec.name = name;
  spec.input = {3, size, size};
  return spec;
}

Graph resnet8() { return build_model(family("resnet8", 32)); }

at::Tensor random_batch(int seed) {
  at::manual_seed(seed);
  return at::randn({4, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
}

std::vector<ModelSpec> families() {
  std::vector<ModelSpec> all = {family("small_cnn", 28),
                                family("resnet8", 32),
                                family("resnet8", 32),
                                family("resnet18", 33),
                                family("resnet50", 32),
                                family("mobilenet_v2", 32),
                                family("mobilenet_v2", 64),
                                family("vgg11_bn", 32),
                                family("squeezenet1_1", 64),
                                family("efficientnet_b0", 32),
                                family("mobilenet_v3_large", 32),
                                family("shufflenet_v2_x0_5", 32)};
  all[0].input.c = 1;
  all[1].shortcut = 'A';
  all[3].stem = all[4].stem = "imagenet";
  all[5].width = 0.5;
  all[6].width = 0.35;
  all[6].folded = true;
  return all;
}

ModelSpec other_operators() {
  ModelSpec spec = family("graph", 12);
  spec.classes = 6;
  spec.graph = {
      {"a", "conv2d", {"input"}, {{"out_channels", 20}, {"kernel", 3}, {"pad", 1}}},
      {"r", "relu6", {"a"}, {}},
      {"m", "max_pool", {"a"}, {{"kernel", 3}, {"stride", 1}, {"pad", 1}}},
      {"s", "add", {"r", "m"}, {}},
      {"p", "avg_pool", {"s"}, {{"kernel", 3}, {"stride", 2}, {"pad", 1}}},
      {"g", "conv2d", {"p"}, {{"out_channels", 10}, {"kernel", 3}, {"dilation", 2}, {"pad", 2}, {"groups", 5}}},
      {"c", "concat", {"g", "p"}, {}},
      {"q", "relu", {"c"}, {}},
      {"f", "flatten", {"q"}, {}},
      {"l1", "linear", {"f"}, {{"out_channels", 17}}},
      {"l1r", "relu", {"l1"}, {}},
      {"l2", "linear", {"l1r"}, {{"out_channels", 6}}},
  };
  return spec;
}

Graph residual_logits() {
  ModelSpec spec = family("graph", 9);
  spec.classes = 10;
  spec.graph = {{"a", "conv2d", {"input"}, {{"out_channels", 10}, {"kernel", 3}, {"pad", 1}}},
                {"r", "relu", {}, {}},
                {"g", "global_avg_pool", {}, {}},
                {"l", "conv2d", {"g"}, {{"out_channels", 10}, {"kernel", 1}}},
                {"s", "add", {"l", "g"}, {}},
                {"f", "flatten", {}, {}}};
  return build_model(spec);
}

Graph large_sums(int groups) {
  ModelSpec spec = family("graph", groups > 0 ? 5 : 44);
  spec.input.c = groups > 0 ? 600 : 2;
  spec.classes = 4;
  const int kernel = groups > 0 ? 3 : 41;
  spec.graph = {{"a",
                 "conv2d",
                 {"input"},
                 {{"out_channels", 8}, {"kernel", kernel}, {"pad", kernel / 2}, {"groups", groups > 0 ? groups : 2}}},
                {"g", "global_avg_pool", {}, {}},
                {"f", "flatten", {}, {}},
                {"l", "linear", {}, {{"out_channels", 4}}}};
  return build_model(spec);
}

Weights large_weights(const Graph& graph) {
  Weights weights = initial_weights(graph, 1);
  const c10::NoGradGuard no_grad;
  weights.at("a.weight").uniform_(0.3, 0.5, at::detail::createCPUGenerator(1));
  weights.at("a.weight")[4].mul_(-1);
  return weights;
}

Weights random_weights(const Graph& graph, uint64_t seed) {
  Weights weights = initial_weights(graph, seed);
  at::Generator generator = at::detail::createCPUGenerator(seed + 1);
  const c10::NoGradGuard no_grad;
  using Kind = ParameterSpec::Kind;
  for (const ParameterSpec& spec : parameters(graph)) {
    at::Tensor& t = weights.at(spec.name);
    if (spec.kind == Kind::bn_weight) {
      t.normal_(0.8, 0.5, generator);
      t[0] = 0;
    }
    if (spec.kind == Kind::bias || spec.kind == Kind::bn_bias || spec.kind == Kind::bn_mean)
      t.normal_(0, 0.3, generator);
    if (spec.kind == Kind::bn_var) t.uniform_(0.5, 2, generator);
    if (spec.kind == Kind::slope) t.normal_(0.2, 0.3, generator);
  }
  return weights;
}

std::vector<uint8_t> random_images(const Shape& shape, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> images(count * shape.elements());
  for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(random() >> 56);
  return images;
}

Preprocessing preprocessing_for(const Shape& shape) {
  Preprocessing preprocessing;
  for (int c = 0; c < shape.c; ++c) {
    preprocessing.mean.push_back(0.4f + 0.05f * c);
    preprocessing.std.push_back(0.2f + 0.03f * c);
  }
  return preprocessing;
}

QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec, CalibrationMethod method,
                          const QuantizerOptions& options) {
  QuantizedModel model(prepare(fuse(graph), spec), weights, options);
  const Shape& shape = graph.nodes[0].shape;
  const Preprocessing preprocessing = preprocessing_for(shape);
  constexpr int kImages = 6;
  const std::vector<uint8_t> images = random_images(shape, kImages, 77);
  const c10::NoGradGuard no_grad;
  model.forward(images_to_tensor({images.data(), kImages, shape}, preprocessing.mean, preprocessing.std),
                {.observe = true, .quantize = false});
  model.calibrate(method, 99.9);
  return model;
}

bool learn_at_random(const QuantizedModel& model, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const c10::NoGradGuard no_grad;
  const Weights scales = model.learned_scales();
  for (const auto& [name, values] : scales) {
    at::Tensor factor = at::empty(values.sizes());
    factor.uniform_(0.6, 1.5, generator);
    at::Tensor(values).mul_(factor.to(values.device()));
    if (name != "edges.offset") continue;
    at::Tensor steps = at::empty(values.sizes());  // of the zero point: some beyond the codes
    steps.uniform_(-2, 2.4, generator);
    at::Tensor(values).sub_(scales.at("edges.scale").mul(steps.to(values.device())));
  }
  return !scales.empty();
}

std::map<int, std::string> all_bytes(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images,
                                     int batch) {
  std::map<int, std::string> bytes;
  const OutputBuffers outputs(graph, batch);
  program.run(images.data(), batch, outputs.memory(), [&](int node, const void* data, size_t size) {
    bytes[node].assign(static_cast<const char*>(data), size);
  });
  for (const std::vector<uint8_t>& output : outputs.all()) {
    bytes[-1 - static_cast<int>(&output - outputs.all().data())].assign(output.begin(), output.end());
  }
  return bytes;
}

}  // namespace octet::test
