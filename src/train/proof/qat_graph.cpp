// SPDX-License-Identifier: Apache-2.0
// The QAT graph in evaluation mode, as integers: exact sums of codes by LibTorch's operators, then the rounding rule.
// It is built from the float weights and qparams alone, never from the Int8Graph or an engine, so that equal codes
// prove that what runs is what was trained. It runs where the model's weights are; between nodes values are float32, so
// that a batch that can be trained fits.
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/take.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/operators.h"
#include "src/train/model/threads.h"
#include "src/train/proof/exact_operators.h"
#include "src/train/proof/torch_program.h"
#include "src/train/qat/quantized_model.h"

namespace octet {
namespace {

using kernels::Rounding;

/// One node with all constants of its arithmetic.
struct Layer {
  const Node* node = nullptr;
  at::Tensor weight;  ///< codes in the type whose sums are exact, float32 or float64
  RequantizeRule epilogue;
  std::vector<float> multipliers;  ///< add, concat: one an input; others: one
  at::Tensor table;                ///< float32 [256]: lookup ([groups * 256]): centred codes by the input's byte;
                                   ///< softmax: exponentials; prelu [groups]: multipliers of negative values
};

/// Returns a node's zero point and bounds: ReLU's lower bound is the zero point, ReLU6's upper bound the code of 6.
Rounding rounding_of(const Node& node, const QParams& out, bool float_output) {
  const bool six = node.op == Op::relu6 || node.activation == Activation::relu6;
  const bool relu = six || node.op == Op::relu || node.activation == Activation::relu;
  return {out.zero_point, relu ? std::max(out.quant_min, out.zero_point) : out.quant_min,
          six ? std::min(out.quant_max, quantize(6.0f, out)) : out.quant_max, float_output};
}

/// Returns the multiplier from codes of one edge, or from sums of `count` of them to be averaged, to codes of another.
/// It is computed in double and rounded once.
float edge_multiplier(float x_scale, double count, float y_scale) {
  return static_cast<float>(x_scale / count / y_scale);
}

/// Returns the codes of a weight [K, ...] with one scale a channel, on the CPU and row-major.
at::Tensor weight_codes(const at::Tensor& weight, const std::vector<float>& scales, const WeightCodes& range) {
  at::Tensor codes = to_host(weight.detach()).clone();
  float* data = codes.mutable_data_ptr<float>();
  const int64_t channels = codes.size(0), per_channel = codes.numel() / channels;
  share_among_threads(channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const QParams q = range.qparams(scales[k]);
      for (int64_t i = k * per_channel; i < (k + 1) * per_channel; ++i)
        data[i] = static_cast<float>(quantize(data[i], q));
    }
  });
  return codes;
}

/// Returns a table of stored bytes as centred codes.
std::vector<float> centred_table(const std::vector<uint8_t>& table, const QParams& out) {
  std::vector<float> codes;
  for (const uint8_t byte : table) {
    const int32_t code = out.is_signed() ? static_cast<int8_t>(byte) : byte;
    codes.push_back(static_cast<float>(code - out.zero_point));
  }
  return codes;
}

at::Tensor tensor_of(const std::vector<float>& values, at::Device device) { return at::tensor(values).to(device); }

class QatGraphProgram : public TorchProgram {
 public:
  QatGraphProgram(const QuantizedModel& model, const Preprocessing& preprocessing)
      : TorchProgram("the QAT graph"),
        device_(device_of(model.weights())),
        prepared_(model.prepared()),
        edges_(model.edges()),
        last_(last_readers(prepared_.graph)) {
    const Weights weights = model.used_weights();
    const FloatParams params = float_params(weights), scales = model.weight_scales();
    for (size_t n = 0; n < prepared_.graph.nodes.size(); ++n) layers_.push_back(make_layer(n, weights, params, scales));
    const Shape& shape = prepared_.graph.nodes[0].shape;
    input_table_.resize(static_cast<size_t>(shape.c) * 256);
    for (int c = 0; c < shape.c; ++c)
      for (int p = 0; p < 256; ++p) {
        const float x = normalize_pixel(static_cast<uint8_t>(p), preprocessing.mean.at(c), preprocessing.std.at(c));
        input_table_[c * 256 + p] = static_cast<float>(quantize(x, edges_[0]) - edges_[0].zero_point);
      }
  }

  std::vector<LayerInfo> layers() const override {
    std::vector<LayerInfo> infos;
    for (const Layer& layer : layers_) {
      const bool wide = layer.weight.defined() && layer.weight.scalar_type() == at::kDouble;
      infos.push_back({layer.node->name, "aten_" + std::string(op_name(layer.node->op)) + (wide ? "_f64" : "_f32")});
    }
    return infos;
  }

 protected:
  std::vector<at::Tensor> forward(const Images& images, const NodeTap& tap) override {
    std::vector<at::Tensor> values(layers_.size());
    for (size_t n = 0; n < layers_.size(); ++n) {
      const int node = static_cast<int>(n);
      values[n] = n == 0 ? look_up_pixels(images, input_table_, device_) : compute(layers_[n], values);
      if (tap) show(node, stored(node, values[n]), tap);
      for (int from : layers_[n].node->inputs)
        if (last_[from] == node) values[from].reset();
    }
    std::vector<at::Tensor> outputs;
    for (const int output : graph().outputs) outputs.push_back(stored(output, values[output]));
    return outputs;
  }
  const Graph& graph() const override { return prepared_.graph; }

 private:
  Layer make_layer(size_t n, const Weights& weights, const FloatParams& params, const FloatParams& scales) const {
    Layer layer;
    const Node& node = prepared_.graph.nodes[n];
    layer.node = &node;
    const QParams& out = edges_[n];
    const bool logits = prepared_.float_output(static_cast<int>(n));
    const float out_scale = logits ? 1.0f : out.scale;
    layer.epilogue.rounding = rounding_of(node, out, logits);
    const auto multiplier = [&](size_t input, double count) {
      return edge_multiplier(edges_[node.inputs[input]].scale, count, out_scale);
    };
    switch (node.op) {
      case Op::conv2d:
      case Op::linear: {
        const QParams& x = edges_[node.inputs[0]];
        const std::vector<float>& scale = scales.at(node.name);
        const at::Tensor codes =
            weight_codes(weights.at(node.name + ".weight"), scale, prepared_.weight_codes(static_cast<int>(n)));
        const double reach = std::max(x.quant_max - x.zero_point, x.zero_point - x.quant_min);
        layer.weight = codes.to(device_, exact_type(codes, reach));
        if (node.op == Op::conv2d) layer.weight = nhwc(layer.weight);
        const Folded folded = fold(node, params, x.scale, scale, out_scale);
        layer.epilogue.multiplier = tensor_of(folded.multiplier, device_);
        layer.epilogue.bias = tensor_of(folded.bias, device_);
        if (node.inputs.size() == 2) layer.epilogue.residual_multiplier = multiplier(1, 1);
        break;
      }
      case Op::add:
      case Op::concat:
      case Op::relu:
      case Op::relu6:
      case Op::requantize:
        for (size_t i = 0; i < node.inputs.size(); ++i) layer.multipliers.push_back(multiplier(i, 1));
        break;
      case Op::mul:
      case Op::matmul:
        layer.multipliers.push_back(static_cast<float>(static_cast<double>(edges_[node.inputs[0]].scale) *
                                                       edges_[node.inputs[1]].scale * node.scale / out_scale));
        break;
      case Op::prelu:
        layer.multipliers =
            prelu_multipliers(node, params.at(node.name + ".weight"), edges_[node.inputs[0]].scale, out_scale);
        layer.table = tensor_of({layer.multipliers.begin() + 1, layer.multipliers.end()}, device_);
        break;
      case Op::softmax: {
        const std::vector<int32_t> exponentials = softmax_table(edges_[node.inputs[0]]);
        layer.table = tensor_of({exponentials.begin(), exponentials.end()}, device_);
        layer.multipliers.push_back(static_cast<float>(1.0 / out_scale));
        break;
      }
      case Op::avg_pool:
        layer.multipliers.push_back(multiplier(0, static_cast<double>(node.window.kernel_h) * node.window.kernel_w));
        break;
      case Op::global_avg_pool: {
        const Shape& shape = prepared_.graph.nodes[node.inputs[0]].shape;
        layer.multipliers.push_back(multiplier(0, static_cast<double>(shape.h) * shape.w));
        break;
      }
      case Op::resize_bilinear:
        layer.multipliers.push_back(multiplier(0, 4.0 * node.factor_h * node.factor_w));
        break;
      case Op::lookup: {
        const Rounding& r = layer.epilogue.rounding;
        const std::vector<uint8_t> tables =
            lookup_tables(node.function, function_scales(node, params), edges_[node.inputs[0]], out, {r.lo, r.hi});
        layer.table = tensor_of(centred_table(tables, out), device_);
        break;
      }
      default:
        break;
    }
    return layer;
  }

  at::Tensor compute(const Layer& layer, const std::vector<at::Tensor>& values) const {
    const Node& node = *layer.node;
    const Window& w = node.window;
    const at::Tensor& x = values[node.inputs[0]];
    const auto rescaled = [&](const at::Tensor& sums, size_t input) {
      return rescale_codes({layer.multipliers[input], layer.epilogue.rounding}, sums);
    };
    switch (node.op) {
      case Op::conv2d:
        return requantize(layer.epilogue, exact_conv2d(x, layer.weight, w, node.groups), residual(node, values));
      case Op::linear: {
        const at::Tensor sums = exact_linear(x.flatten(1), layer.weight).unsqueeze(-1).unsqueeze(-1);
        return requantize(layer.epilogue, sums, residual(node, values));
      }
      case Op::relu:
      case Op::relu6:
      case Op::requantize:
        return rescaled(x, 0);
      case Op::add:
        return add_codes({layer.multipliers[0], layer.multipliers[1], layer.epilogue.rounding}, x,
                         values[node.inputs[1]]);
      case Op::mul:  // exact in float32; + 0: 0 times a negative code is +0, as integers have it
        return rescaled(at::mul(x, values[node.inputs[1]]).add_(0), 0);
      case Op::concat: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(rescaled(values[node.inputs[i]], i));
        return at::cat(parts, 1);
      }
      case Op::max_pool: {
        const PaddedImage from = padded(x, w.pad, -std::numeric_limits<double>::infinity());
        return at::max_pool2d(from.image, {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, from.pad,
                              {w.dilation_h, w.dilation_w});
      }
      case Op::avg_pool: {  // divisor 1: exact sums; the multiplier divides
        const PaddedImage from = padded(x.to(at::kDouble), w.pad, 0);
        const at::Tensor sums =
            at::avg_pool2d(from.image, {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, from.pad, false, true, 1);
        return rescaled(sums.to(at::kFloat), 0);
      }
      case Op::global_avg_pool:
        return rescaled(x.sum({2, 3}, /*keepdim=*/true, at::kDouble).to(at::kFloat), 0);
      case Op::flatten:
        return x.flatten(1).unsqueeze(-1).unsqueeze(-1);  // CHW order, as the float weights of the linear after it
      case Op::subsample_pad:
        return subsampled_padded(x, node);
      case Op::slice:
        return picked_channels(x, node);
      case Op::resize:
        return repeated_pixels(x, node);
      case Op::resize_bilinear:  // sums below 2^24: exact in float32
        return rescaled(interpolated_sums(x, node), 0);
      case Op::channel_shuffle:
        return shuffled_channels(x, node);
      case Op::depth_to_space:
        return channels_to_pixels(x, node);
      case Op::matmul:  // sums below 2^31: exact in double; + 0: no sum is -0, as integers have it
        return rescaled(
            head_sums(x.to(at::kDouble), values[node.inputs[1]].to(at::kDouble), node).add_(0).to(at::kFloat), 0);
      case Op::softmax: {  // exponentials are integers, whose sums are exact in double
        const at::Tensor codes = as_heads(x, node.groups);
        const at::Tensor below = at::sub(at::amax(codes, {3}, /*keepdim=*/true), codes);
        const at::Tensor parts = at::take(layer.table, below.to(at::kLong));
        const at::Tensor sums = at::sum(parts, {3}, /*keepdim=*/true, at::kDouble).to(at::kFloat);
        return rescaled(from_heads(at::div(parts, sums), x.size(2), x.size(3)), 0);
      }
      case Op::prelu: {  // each product rounded once, as engines do; rescaling by 1 only rounds to codes
        const at::Tensor slopes = channel_slopes(x, layer.table).view({-1, 1, 1});
        const at::Tensor t = at::where(x.lt(0), at::mul(x, slopes), at::mul(x, layer.multipliers[0]));
        return rescale_codes({1.0f, layer.epilogue.rounding}, t);
      }
      case Op::lookup: {  // bytes are what engines would have read
        at::Tensor index = store_codes(edges_[node.inputs[0]].zero_point, x).to(at::kLong);
        if (node.groups > 1) index += at::arange(node.groups, index.options()).mul_(256).view({1, -1, 1, 1});
        return at::take(layer.table, index);
      }
      case Op::input:
      case Op::batch_norm:
      case Op::dropout:
        break;
    }
    throw promise_error("'" + node.name + "': a " + std::string(op_name(node.op)) + " cannot run on codes");
  }

  static at::Tensor residual(const Node& node, const std::vector<at::Tensor>& values) {
    return node.inputs.size() == 2 ? values[node.inputs[1]] : at::Tensor();
  }

  /// Returns a node's output as engines store it: bytes, or floats.
  at::Tensor stored(int n, const at::Tensor& value) const {
    const kernels::Rounding& rounding = layers_[n].epilogue.rounding;
    return rounding.float_output ? value : store_codes(rounding.zero_point, unflatten(graph(), n, value));
  }

  at::Device device_;
  Prepared prepared_;
  std::vector<QParams> edges_;
  std::vector<int> last_;
  std::vector<Layer> layers_;
  std::vector<float> input_table_;  ///< [channels][256] centred codes
};

}  // namespace

std::unique_ptr<Program> qat_graph_program(const QuantizedModel& model, const Preprocessing& preprocessing) {
  return std::make_unique<QatGraphProgram>(model, preprocessing);
}

}  // namespace octet
