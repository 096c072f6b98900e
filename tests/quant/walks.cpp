// SPDX-License-Identifier: Apache-2.0
#include "tests/quant/walks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>

#include "src/quant/node_constants.h"
#include "tests/quant/places.h"

namespace octet::testing {
namespace {

double act(double value, Activation activation) {
  if (activation == Activation::none) return value;
  return std::min(std::max(value, 0.0), activation == Activation::relu6 ? 6.0 : INFINITY);
}

double normalize(double value, const FloatParams& p, const Node& node, const std::string& name, size_t c) {
  const double gain = p.at(name + ".weight")[c] / std::sqrt(p.at(name + ".running_var")[c] + node.epsilon);
  return (value - p.at(name + ".running_mean")[c]) * gain + p.at(name + ".bias")[c];
}

}  // namespace

NodeSpec conv_of(const std::string& name, int channels, int kernel, int groups, int bias) {
  return {name,
          "conv2d",
          {},
          {{"out_channels", channels}, {"kernel", kernel}, {"pad", kernel / 2}, {"groups", groups}, {"bias", bias}}};
}

NodeSpec node_of(const std::string& name, const std::string& op, std::vector<std::string> inputs) {
  return {name, op, std::move(inputs), {}};
}

Graph graph_of(const std::vector<NodeSpec>& nodes, const Shape& input) {
  Graph graph;
  graph.nodes.push_back({.name = "input", .op = Op::input, .shape = input});
  for (const NodeSpec& spec : nodes) {
    const auto number = [&](const char* key, double fallback) {
      const auto found = spec.attributes.find(key);
      return static_cast<int>(found == spec.attributes.end() ? fallback : found->second);
    };
    const std::optional<FunctionKind> function = find_function(spec.op);
    Node node{.name = spec.name, .op = function ? Op::lookup : op_from_name(spec.op)};
    node.function.kind = function.value_or(FunctionKind{});
    const int kernel = number("kernel", 1), stride = number("stride", 1), pad = number("pad", 0);
    node.window = {kernel, kernel, stride, stride, even_padding(pad, pad)};
    node.out_channels = number("out_channels", 0);
    node.groups = number("groups", 1);
    node.transposed = number("transposed", 0) != 0;
    if (spec.attributes.contains("scale")) node.scale = static_cast<float>(spec.attributes.at("scale"));
    node.factor_h = node.factor_w = number("factor", 1);
    node.bias = number("bias", 0) != 0;
    if (spec.attributes.contains("epsilon")) node.epsilon = spec.attributes.at("epsilon");
    if (spec.inputs.empty()) node.inputs = {static_cast<int>(graph.nodes.size()) - 1};
    for (const std::string& input_name : spec.inputs) {
      const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                      [&](const Node& earlier) { return earlier.name == input_name; });
      node.inputs.push_back(static_cast<int>(found - graph.nodes.begin()));
    }
    graph.nodes.push_back(node);
  }
  infer_shapes(graph);
  return graph;
}

std::vector<Image> walk_float(const Graph& graph, const FloatParams& params, const Image& image, const Hook& hook) {
  std::vector<Image> values;
  for (const Node& node : graph.nodes) {
    const Shape& out = node.shape;
    Image result(static_cast<size_t>(out.elements()));
    const auto input = [&](size_t i) -> const Image& { return values[node.inputs[i]]; };
    const Shape in = node.inputs.empty() ? Shape{} : graph.nodes[node.inputs[0]].shape;
    switch (node.op) {
      case Op::input:
        result = image;
        break;
      case Op::conv2d:
      case Op::linear: {
        const std::vector<float>& weight = params.at(node.name + ".weight");
        const size_t row = weight.size() / out.c;
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          double sum = node.bias ? params.at(node.name + ".bias")[k] : 0.0;
          taps(node.window, node.groups, in, out, k, y, x, [&](int c, int r, int s, size_t from) {
            const size_t tap = (static_cast<size_t>(c) * node.window.kernel_h + r) * node.window.kernel_w + s;
            sum += input(0)[from] * weight[k * row + tap];
          });
          if (!node.batch_norm.empty()) sum = normalize(sum, params, node, node.batch_norm, k);
          result[at] = node.inputs.size() > 1 ? sum + input(1)[at] : sum;
        });
        break;
      }
      case Op::batch_norm:
        pixels_of(
            out, [&](int k, int, int, size_t at) { result[at] = normalize(input(0)[at], params, node, node.name, k); });
        break;
      case Op::relu:
      case Op::relu6:
        for (size_t i = 0; i < result.size(); ++i) {
          result[i] = act(input(0)[i], node.op == Op::relu ? Activation::relu : Activation::relu6);
        }
        break;
      case Op::add:
        for (size_t i = 0; i < result.size(); ++i) result[i] = input(0)[i] + input(1)[i];
        break;
      case Op::mul:
        for (size_t i = 0; i < result.size(); ++i) {
          result[i] = input(0)[i] * input(1)[i * input(1).size() / result.size()];  // CHW: the pixel's channel
        }
        break;
      case Op::concat:
        result.clear();
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          result.insert(result.end(), input(i).begin(), input(i).end());
        }
        break;
      case Op::max_pool:
      case Op::avg_pool:
      case Op::global_avg_pool: {
        const Window w = node.op == Op::global_avg_pool ? whole(in) : node.window;
        const bool max = node.op == Op::max_pool;
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          double value = max ? -INFINITY : 0.0;
          taps(w, in.c, in, out, k, y, x, [&](int, int, int, size_t from) {
            value = max ? std::max(value, input(0)[from]) : value + input(0)[from];
          });
          result[at] = max ? value : value / (w.kernel_h * w.kernel_w);
        });
        break;
      }
      case Op::flatten:
      case Op::dropout:
      case Op::requantize:
        result = input(0);
        break;
      case Op::slice:
      case Op::resize:
      case Op::channel_shuffle:
      case Op::depth_to_space:
        pixels_of(out, [&](int k, int y, int x, size_t at) { result[at] = input(0)[picked(node, in, k, y, x)]; });
        break;
      case Op::resize_bilinear:
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          around(node, in, k, y, x, [&](int64_t weight, size_t from) {
            result[at] += input(0)[from] * weight / (4.0 * node.factor_h * node.factor_w);
          });
        });
        break;
      case Op::matmul:
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          pairs(node, in, graph.nodes[node.inputs[1]].shape, k, y, x,
                [&](size_t a, size_t b) { result[at] += input(0)[a] * input(1)[b] * node.scale; });
        });
        break;
      case Op::softmax:
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          double sum = 0;
          group_of(node, k, y, x, [&](size_t from) { sum += std::exp(input(0)[from] - input(0)[at]); });
          result[at] = 1 / sum;
        });
        break;
      case Op::prelu:
        pixels_of(out, [&](int k, int, int, size_t at) {
          const double x = input(0)[at];
          result[at] = x < 0 ? x * params.at(node.name + ".weight")[k / (out.c / node.groups)] : x;
        });
        break;
      case Op::lookup:
        pixels_of(out, [&](int k, int, int, size_t at) {
          const auto scale = [&](const char* name) { return node.groups > 1 ? params.at(node.name + name)[k] : 1.0f; };
          result[at] = scale(".output_scale") * evaluate(node.function, scale(".input_scale") * input(0)[at]);
        });
        break;
      case Op::subsample_pad:
        pixels_of(out, [&](int k, int y, int x, size_t at) {
          const int c = k - (out.c - in.c) / 2;
          if (c < 0 || c >= in.c) return;
          const size_t row = static_cast<size_t>(c) * in.h + static_cast<size_t>(y) * node.window.stride_h;
          result[at] = input(0)[row * in.w + static_cast<size_t>(x) * node.window.stride_w];
        });
        break;
    }
    for (double& value : result) value = act(value, node.activation);
    if (hook) hook(static_cast<int>(values.size()), result);
    values.push_back(std::move(result));
  }
  return values;
}

std::vector<Image> walk_int8(const Int8Graph& graph, const std::vector<uint8_t>& pixels) {
  std::vector<std::vector<int32_t>> codes;  // CHW; after a flatten the memory order of the contract, HWC
  std::vector<Image> values;
  for (const Int8Node& node : graph.nodes) {
    const Shape& out = node.shape;
    std::vector<int32_t> result(static_cast<size_t>(out.elements()));
    Image real(result.size());
    const Int8Node& first = graph.nodes[node.inputs.empty() ? 0 : node.inputs[0]];
    const Shape in = first.shape;
    const auto code = [&](size_t i, size_t at) { return codes[node.inputs[i]][at]; };
    const auto centred = [&](size_t i, size_t at) { return code(i, at) - graph.nodes[node.inputs[i]].out.zero_point; };
    const auto finish = [&](size_t at, float t) {
      if (node.float_output) {
        real[at] = t;
      } else {
        result[at] = round_code(t, node.out.zero_point, node.clamp_min, node.clamp_max);
      }
    };
    pixels_of(out, [&](int k, int y, int x, size_t at) {
      switch (node.op) {
        case Int8Op::input: {
          const float value = normalize_pixel(pixels[(static_cast<size_t>(y) * out.w + x) * out.c + k],
                                              graph.preprocessing.mean[k], graph.preprocessing.std[k]);
          result[at] = quantize(value, node.out);
          break;
        }
        case Int8Op::conv2d:
        case Int8Op::linear: {
          const size_t per_group = static_cast<size_t>(in.c / node.groups), row = node.weight.size() / out.c;
          int32_t acc = 0;
          taps(node.window, node.groups, in, out, k, y, x, [&](int c, int r, int s, size_t from) {
            const size_t tap = static_cast<size_t>(r) * node.window.kernel_w + s;
            acc += centred(0, from) * node.weight[k * row + tap * per_group + c];
          });
          float t = rescale(acc, node.multiplier[k], node.bias[k]);
          if (node.inputs.size() > 1) t = std::fma(static_cast<float>(centred(1, at)), node.residual_multiplier, t);
          finish(at, t);
          break;
        }
        case Int8Op::add: {
          const float t = static_cast<float>(centred(0, at)) * node.multiplier[0];
          finish(at, std::fma(static_cast<float>(centred(1, at)), node.multiplier[1], t));
          break;
        }
        case Int8Op::mul: {
          const bool one_pixel = codes[node.inputs[1]].size() != result.size();
          const int32_t product = centred(0, at) * centred(1, one_pixel ? static_cast<size_t>(k) : at);
          finish(at, static_cast<float>(product) * node.multiplier[0]);
          break;
        }
        case Int8Op::concat: {
          size_t i = 0, offset = 0;
          while (at - offset >= codes[node.inputs[i]].size()) offset += codes[node.inputs[i++]].size();
          finish(at, static_cast<float>(centred(i, at - offset)) * node.multiplier[i]);
          break;
        }
        case Int8Op::max_pool: {
          int32_t best = node.out.quant_min;
          taps(node.window, in.c, in, out, k, y, x,
               [&](int, int, int, size_t from) { best = std::max(best, code(0, from)); });
          result[at] = best;
          break;
        }
        case Int8Op::avg_pool:
        case Int8Op::global_avg_pool: {
          int32_t sum = 0;
          taps(node.op == Int8Op::avg_pool ? node.window : whole(in), in.c, in, out, k, y, x,
               [&](int, int, int, size_t from) { sum += centred(0, from); });
          finish(at, static_cast<float>(sum) * node.multiplier[0]);
          break;
        }
        case Int8Op::subsample_pad: {
          const int c = k - (out.c - in.c) / 2;
          result[at] = node.out.zero_point;
          if (c < 0 || c >= in.c) break;
          const size_t from = static_cast<size_t>(c) * in.h + static_cast<size_t>(y) * node.window.stride_h;
          result[at] = code(0, from * in.w + static_cast<size_t>(x) * node.window.stride_w);
          break;
        }
        case Int8Op::slice:
        case Int8Op::resize:
        case Int8Op::channel_shuffle:
        case Int8Op::depth_to_space:
          result[at] = code(0, picked(node, in, k, y, x));
          break;
        case Int8Op::resize_bilinear: {
          int64_t sum = 0;
          around(node, in, k, y, x, [&](int64_t weight, size_t from) { sum += weight * centred(0, from); });
          finish(at, static_cast<float>(sum) * node.multiplier[0]);
          break;
        }
        case Int8Op::matmul: {
          int64_t sum = 0;
          pairs(node, in, graph.nodes[node.inputs[1]].shape, k, y, x,
                [&](size_t a, size_t b) { sum += static_cast<int64_t>(centred(0, a)) * centred(1, b); });
          finish(at, static_cast<float>(sum) * node.multiplier[0]);
          break;
        }
        case Int8Op::softmax: {
          int32_t largest = first.out.quant_min;
          int64_t sum = 0;
          group_of(node, k, y, x, [&](size_t from) { largest = std::max(largest, code(0, from)); });
          const auto exponential = [&](size_t from) { return node.exponentials[largest - code(0, from)]; };
          group_of(node, k, y, x, [&](size_t from) { sum += exponential(from); });
          finish(at, static_cast<float>(exponential(at)) / static_cast<float>(sum) * node.multiplier[0]);
          break;
        }
        case Int8Op::flatten: {
          const size_t pixel = at / in.c, c = at % in.c;
          result[at] = code(0, c * (static_cast<size_t>(in.h) * in.w) + pixel);
          break;
        }
        case Int8Op::lookup: {
          const uint8_t byte = node.table[256 * (node.groups > 1 ? k : 0) + static_cast<uint8_t>(code(0, at))];
          result[at] = node.out.is_signed() ? static_cast<int8_t>(byte) : byte;
          break;
        }
        case Int8Op::prelu: {
          const int32_t value = centred(0, at);
          finish(at, static_cast<float>(value) * node.multiplier[value < 0 ? 1 + k / (out.c / node.groups) : 0]);
          break;
        }
        case Int8Op::requantize:
          finish(at, static_cast<float>(centred(0, at)) * node.multiplier[0]);
          break;
      }
    });
    if (!node.float_output) {
      for (size_t i = 0; i < result.size(); ++i) real[i] = dequantize(result[i], node.out);
    }
    codes.push_back(std::move(result));
    values.push_back(std::move(real));
  }
  return values;
}

FloatParams random_params(const Graph& graph, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  FloatParams params;
  for (const ParameterSpec& spec : parameters(graph)) {
    size_t count = 1, fan_in = 1;
    for (size_t i = 0; i < spec.shape.size(); ++i) {
      count *= static_cast<size_t>(spec.shape[i]);
      if (i > 0) fan_in *= static_cast<size_t>(spec.shape[i]);
    }
    std::vector<float>& values = params[spec.name];
    for (size_t i = 0; i < count; ++i) {
      switch (spec.kind) {
        case ParameterSpec::Kind::conv_weight:
        case ParameterSpec::Kind::linear_weight:
          values.push_back(normal(engine) * std::sqrt(2.0f / static_cast<float>(fan_in)));
          break;
        case ParameterSpec::Kind::bn_weight:
          values.push_back(uniform(engine) * (engine() % 4 == 0 ? -1.0f : 1.0f));
          break;
        case ParameterSpec::Kind::bn_var:
          values.push_back(uniform(engine));
          break;
        default:
          values.push_back(0.2f * normal(engine));
      }
    }
  }
  return params;
}

Image normalized(const std::vector<uint8_t>& pixels, const Shape& shape, const Preprocessing& preprocessing) {
  Image image(static_cast<size_t>(shape.elements()));
  pixels_of(shape, [&](int k, int y, int x, size_t at) {
    image[at] = normalize_pixel(pixels[(static_cast<size_t>(y) * shape.w + x) * shape.c + k], preprocessing.mean[k],
                                preprocessing.std[k]);
  });
  return image;
}

std::vector<uint8_t> random_pixels(const Shape& shape, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.elements()));
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(engine());
  return pixels;
}

}  // namespace octet::testing
