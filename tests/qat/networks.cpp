#include "tests/qat/networks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>
#include <random>

namespace octet::test {
namespace {

/// Grows a Graph node by node; `shape` is that of the last one.
class Grower {
 public:
  explicit Grower(uint64_t seed) : random_(seed) {
    graph_.name = "random";
    Node input;
    input.name = "input";
    input.shape = {between(1, 20), between(5, 18), between(5, 18)};
    graph_.nodes.push_back(input);
  }

  int between(int low, int high) { return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(int percent) { return between(0, 99) < percent; }
  const Shape& shape() const { return graph_.nodes.back().shape; }
  int last() const { return static_cast<int>(graph_.nodes.size()) - 1; }

  void push(
      Op op, const std::function<void(Node&)>& change = [](Node&) {}) {
    Node node;
    node.op = op;
    node.name = "n" + std::to_string(graph_.nodes.size());
    node.inputs = {last()};
    change(node);
    graph_.nodes.push_back(node);
    infer_shapes(graph_);
  }

  void convolution() {
    const int c = shape().c;
    push(Op::conv2d, [&](Node& n) {
      n.window = window(3);
      n.window.dilation_h = n.window.kernel_h * 2 <= shape().h ? between(1, 2) : 1;
      n.window.dilation_w = n.window.kernel_w * 2 <= shape().w ? between(1, 2) : 1;
      n.groups = chance(30) ? c : chance(40) && c % 2 == 0 ? 2 : 1;
      n.out_channels = n.groups * between(n.groups == 1 ? 2 : 1, std::max(1, 24 / n.groups));  // one would be dead
      n.bias = chance(50);
    });
    if (chance(60)) push(Op::batch_norm);
    if (chance(60)) push(chance(50) ? Op::relu : Op::relu6);
  }

  /// A branch that comes back: convolution of the same shape, or an activation, and the sum or concat of both.
  void branch() {
    const int from = last();
    const int c = shape().c;
    if (chance(60)) {
      push(Op::conv2d, [&](Node& n) {
        n.window.kernel_h = 3;
        n.window.pad_h = 1;
        n.out_channels = c;
        n.bias = true;
      });
    } else {
      push(chance(50) ? Op::relu : Op::relu6);
    }
    const bool order = chance(50);
    const int to = last();
    push(chance(60) ? Op::add : Op::concat, [&](Node& n) {
      n.inputs = order ? std::vector<int>{from, to} : std::vector<int>{to, from};
    });
  }

  void pool() {
    push(chance(50) ? Op::max_pool : Op::avg_pool, [&](Node& n) { n.window = window(3); });
  }

  Graph finish() {
    if (chance(50)) push(Op::global_avg_pool);
    push(Op::flatten);
    push(Op::linear, [&](Node& n) {
      n.out_channels = 10;
      n.bias = true;
    });
    return graph_;
  }

 private:
  Window window(int largest) {
    Window w;
    w.kernel_h = between(1, std::min(largest, shape().h));
    w.kernel_w = between(1, std::min(largest, shape().w));
    w.stride_h = between(1, 2);
    w.stride_w = between(1, 2);
    w.pad_h = between(0, w.kernel_h / 2);
    w.pad_w = between(0, w.kernel_w / 2);
    return w;
  }

  std::mt19937_64 random_;
  Graph graph_;
};

}  // namespace

ModelSpec family(const std::string& name, int size) {
  ModelSpec spec;
  spec.name = name;
  spec.input = {3, size, size};
  return spec;
}

std::vector<ModelSpec> families() {
  std::vector<ModelSpec> all = {family("small_cnn", 28),    family("resnet8", 32),  family("resnet8", 32),
                                family("resnet18", 33),     family("resnet50", 32), family("mobilenet_v2", 32),
                                family("mobilenet_v2", 64), family("vgg11_bn", 32), family("squeezenet1_1", 64)};
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

Graph random_graph(uint64_t seed) {
  Grower grower(seed);
  grower.convolution();
  for (int i = grower.between(1, 4); i > 0; --i) {
    const int kind = grower.between(0, 9);
    if (kind < 5)
      grower.convolution();
    else if (kind < 7)
      grower.branch();
    else if (kind < 9)
      grower.pool();
    else
      grower.push(Op::subsample_pad, [&](Node& n) {
        n.window.stride_h = n.window.stride_w = 2;
        n.out_channels = grower.shape().c + 4;
      });
  }
  return grower.finish();
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

QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec, CalibrationMethod method) {
  QuantizedModel model(prepare(fuse(graph), spec), weights, ObserverKind::moving_average, 0.01, false);
  const Shape& shape = graph.nodes[0].shape;
  const Preprocessing preprocessing = preprocessing_for(shape);
  constexpr int kImages = 6;
  const std::vector<uint8_t> images = random_images(shape, kImages, 77);
  const c10::NoGradGuard no_grad;
  model.forward(images_to_tensor(images.data(), kImages, shape, preprocessing.mean, preprocessing.std),
                {.observe = true, .quantize = false});
  model.calibrate(method, 99.9);
  return model;
}

std::map<int, std::string> all_bytes(Program& program, const std::vector<uint8_t>& images, int batch, int classes) {
  std::map<int, std::string> bytes;
  std::vector<float> logits(batch * classes);
  program.run(images.data(), batch, logits.data(), [&](int node, const void* data, size_t size) {
    bytes[node].assign(static_cast<const char*>(data), size);
  });
  bytes[-1].assign(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  return bytes;
}

}  // namespace octet::test
