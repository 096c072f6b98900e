// The QAT graph in evaluation mode, as integers: exact convolutions on codes by LibTorch operators, then the rounding
// rule. It is built from the float weights and qparams alone, never from the Int8Graph or an engine, so that comparing
// its codes with theirs proves something.
#include <ATen/Context.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/common/error.h"
#include "src/qat/quantized_model.h"
#include "src/qat/requantize.h"

namespace octet {
namespace {

/// Sums of integers below this magnitude are exact in float32, in any order of addition.
constexpr double kExactFloat = 1 << 24;

/// One node with everything its arithmetic needs.
struct Layer {
  const Node* node = nullptr;
  Rounding rounding;
  at::Tensor weight;  ///< codes, float32 or float64: the type whose sums are exact
  Folded folded;
  float residual_multiplier = 0;
  std::vector<float> multipliers;  ///< add, concat: one an input; pools, relu: one
};

/// Lower and upper bound of a node's codes: ReLU is the zero point from below, ReLU6 the code of 6 from above.
Rounding rounding_of(const Node& node, const QParams& out, bool float_output) {
  const bool six = node.op == Op::relu6 || node.activation == Activation::relu6;
  const bool relu = six || node.op == Op::relu || node.activation == Activation::relu;
  return {out.zero_point, relu ? std::max(out.quant_min, out.zero_point) : out.quant_min,
          six ? std::min(out.quant_max, quantize(6.0f, out)) : out.quant_max, float_output};
}

/// From codes of one edge, or sums of `count` of them to be averaged, to codes of another; double, rounded once.
float edge_multiplier(float x_scale, double count, float y_scale) {
  return static_cast<float>(x_scale / count / y_scale);
}

at::Tensor nhwc(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

/// Winograd convolutions, NNPACK's, do not add products of codes exactly; oneDNN's direct ones and GEMM do.
class WithoutNnpack {
 public:
  WithoutNnpack() : before_(at::globalContext().userEnabledNNPACK()) {
    at::globalContext().setUserEnabledNNPACK(false);
  }
  ~WithoutNnpack() { at::globalContext().setUserEnabledNNPACK(before_); }
  WithoutNnpack(const WithoutNnpack&) = delete;
  WithoutNnpack& operator=(const WithoutNnpack&) = delete;

 private:
  bool before_;
};

/// Codes of a weight, row-major as in PyTorch; [K, ...] with one scale a channel.
at::Tensor weight_codes(const at::Tensor& weight, const std::vector<float>& scales, int weight_bits) {
  const int bound = weight_bound(weight_bits);
  at::Tensor codes = weight.detach().contiguous().clone();
  float* data = codes.mutable_data_ptr<float>();
  const int64_t channels = codes.size(0), per_channel = codes.numel() / channels;
  for (int64_t k = 0; k < channels; ++k) {
    const QParams q{scales[k], 0, -bound, bound};
    for (int64_t i = k * per_channel; i < (k + 1) * per_channel; ++i)
      data[i] = static_cast<float>(quantize(data[i], q));
  }
  return codes;
}

/// float32 where every sum of code products is provably exact in it, float64 elsewhere.
at::ScalarType exact_type(const at::Tensor& codes, const QParams& x) {
  const double largest = codes.abs().flatten(1).sum(1, /*keepdim=*/false, at::kDouble).max().item<double>();
  const double reach = std::max(x.quant_max - x.zero_point, x.zero_point - x.quant_min);
  return largest * reach < kExactFloat ? at::kFloat : at::kDouble;
}

class QatGraphProgram : public Program {
 public:
  QatGraphProgram(const QuantizedModel& model, const Preprocessing& preprocessing)
      : prepared_(model.prepared()), edges_(model.edges()), last_(last_readers(prepared_.graph)) {
    const FloatParams params = float_params(model.weights()), scales = model.weight_scales();
    for (size_t n = 0; n < prepared_.graph.nodes.size(); ++n) layers_.push_back(make_layer(n, model, params, scales));
    const Shape& shape = prepared_.graph.nodes[0].shape;
    input_table_.resize(static_cast<size_t>(shape.c) * 256);
    for (int c = 0; c < shape.c; ++c)
      for (int p = 0; p < 256; ++p) {
        const float x = normalize_pixel(static_cast<uint8_t>(p), preprocessing.mean.at(c), preprocessing.std.at(c));
        input_table_[c * 256 + p] = static_cast<float>(quantize(x, edges_[0]) - edges_[0].zero_point);
      }
  }

  void run(const uint8_t* images, int batch, float* logits, const NodeTap& tap) override {
    const c10::NoGradGuard no_grad;
    const WithoutNnpack without_nnpack;
    std::vector<at::Tensor> values(layers_.size());
    for (size_t n = 0; n < layers_.size(); ++n) {
      const int node = static_cast<int>(n);
      values[n] = n == 0 ? input(images, batch) : compute(layers_[n], values);
      if (tap) show(node, values[n], tap);
      for (int from : layers_[n].node->inputs)
        if (last_[from] == node) values[from].reset();
    }
    const at::Tensor& out = values.back();
    std::memcpy(logits, out.const_data_ptr(), out.nbytes());
  }

  std::vector<LayerInfo> layers() const override {
    std::vector<LayerInfo> infos;
    for (const Layer& layer : layers_) {
      const bool wide = layer.weight.defined() && layer.weight.scalar_type() == at::kDouble;
      infos.push_back({layer.node->name, "aten_" + std::string(op_name(layer.node->op)) + (wide ? "_f64" : "_f32")});
    }
    return infos;
  }

  size_t arena_bytes() const override { return 0; }  // LibTorch's allocator, nothing planned

 private:
  Layer make_layer(size_t n, const QuantizedModel& model, const FloatParams& params, const FloatParams& scales) const {
    Layer layer;
    const Node& node = prepared_.graph.nodes[n];
    layer.node = &node;
    const QParams& out = edges_[n];
    const bool logits = prepared_.float_output(static_cast<int>(n));
    const float out_scale = logits ? 1.0f : out.scale;
    layer.rounding = rounding_of(node, out, logits);
    const auto multiplier = [&](size_t input, double count) {
      return edge_multiplier(edges_[node.inputs[input]].scale, count, out_scale);
    };
    switch (node.op) {
      case Op::conv2d:
      case Op::linear: {
        const QParams& x = edges_[node.inputs[0]];
        const std::vector<float>& scale = scales.at(node.name);
        at::Tensor codes = weight_codes(model.weights().at(node.name + ".weight"), scale, prepared_.spec.weight_bits);
        layer.weight = codes.to(exact_type(codes, x));
        if (node.op == Op::conv2d) layer.weight = nhwc(layer.weight);
        layer.folded = fold(node, params, x.scale, scale, out_scale);
        if (node.inputs.size() == 2) layer.residual_multiplier = multiplier(1, 1);
        break;
      }
      case Op::add:
      case Op::concat:
      case Op::relu:
      case Op::relu6:
        for (size_t i = 0; i < node.inputs.size(); ++i) layer.multipliers.push_back(multiplier(i, 1));
        break;
      case Op::avg_pool:
        layer.multipliers.push_back(multiplier(0, static_cast<double>(node.window.kernel_h) * node.window.kernel_w));
        break;
      case Op::global_avg_pool: {
        const Shape& shape = prepared_.graph.nodes[node.inputs[0]].shape;
        layer.multipliers.push_back(multiplier(0, static_cast<double>(shape.h) * shape.w));
        break;
      }
      default:
        break;
    }
    return layer;
  }

  /// uint8 [batch, H, W, C] -> centred codes.
  at::Tensor input(const uint8_t* images, int batch) const {
    const Shape& shape = prepared_.graph.nodes[0].shape;
    at::Tensor x =
        at::empty({batch, shape.c, shape.h, shape.w}, at::TensorOptions(at::kFloat), at::MemoryFormat::ChannelsLast);
    float* out = x.mutable_data_ptr<float>();
    for (int64_t i = 0, count = x.numel(); i < count; i += shape.c)
      for (int c = 0; c < shape.c; ++c) out[i + c] = input_table_[c * 256 + images[i + c]];
    return x;
  }

  at::Tensor weighted(const Layer& layer, const std::vector<at::Tensor>& values) const {
    const Node& node = *layer.node;
    const Window& w = node.window;
    const at::Tensor x = values[node.inputs[0]].to(layer.weight.scalar_type());
    const at::Tensor acc = node.op == Op::linear
                               ? at::linear(x.flatten(1), layer.weight).unsqueeze(-1).unsqueeze(-1)
                               : nhwc(at::conv2d(x, layer.weight, c10::nullopt, {w.stride_h, w.stride_w},
                                                 {w.pad_h, w.pad_w}, {w.dilation_h, w.dilation_w}, node.groups));
    ChannelRule rule{static_cast<int>(acc.size(1)), layer.folded.multiplier.data(), layer.folded.bias.data()};
    at::Tensor residual;
    if (node.inputs.size() == 2) {
      residual = nhwc(values[node.inputs[1]]);
      rule.residual = residual.const_data_ptr<float>();
      rule.residual_multiplier = layer.residual_multiplier;
    }
    rule.rounding = layer.rounding;
    const at::Tensor out = at::empty_like(acc, at::kFloat);
    const int64_t rows = acc.numel() / acc.size(1);
    if (acc.scalar_type() == at::kDouble)
      requantize(rule, acc.const_data_ptr<double>(), rows, out.mutable_data_ptr<float>());
    else
      requantize(rule, acc.const_data_ptr<float>(), rows, out.mutable_data_ptr<float>());
    return out;
  }

  at::Tensor rescaled(const Layer& layer, const at::Tensor& sums, float multiplier) const {
    const at::Tensor x = nhwc(sums), out = at::empty_like(x);
    rescale_codes(layer.rounding, multiplier, x.const_data_ptr<float>(), x.numel(), out.mutable_data_ptr<float>());
    return out;
  }

  at::Tensor compute(const Layer& layer, const std::vector<at::Tensor>& values) const {
    const Node& node = *layer.node;
    const Window& w = node.window;
    const at::Tensor& x = values[node.inputs[0]];
    switch (node.op) {
      case Op::conv2d:
      case Op::linear:
        return weighted(layer, values);
      case Op::relu:
      case Op::relu6:
        return rescaled(layer, x, layer.multipliers[0]);
      case Op::add: {
        const at::Tensor a = nhwc(x), b = nhwc(values[node.inputs[1]]), out = at::empty_like(a);
        add_codes({layer.multipliers[0], layer.multipliers[1], layer.rounding}, a.const_data_ptr<float>(),
                  b.const_data_ptr<float>(), a.numel(), out.mutable_data_ptr<float>());
        return out;
      }
      case Op::concat: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < node.inputs.size(); ++i)
          parts.push_back(rescaled(layer, values[node.inputs[i]], layer.multipliers[i]));
        return at::cat(parts, 1);
      }
      case Op::max_pool:
        return at::max_pool2d(x, {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w}, {w.pad_h, w.pad_w},
                              {w.dilation_h, w.dilation_w});
      case Op::avg_pool: {  // divisor 1: exact sums; the multiplier divides
        const at::Tensor sums = at::avg_pool2d(x.to(at::kDouble), {w.kernel_h, w.kernel_w}, {w.stride_h, w.stride_w},
                                               {w.pad_h, w.pad_w}, false, true, 1);
        return rescaled(layer, sums.to(at::kFloat), layer.multipliers[0]);
      }
      case Op::global_avg_pool:
        return rescaled(layer, x.sum({2, 3}, /*keepdim=*/true, at::kDouble).to(at::kFloat), layer.multipliers[0]);
      case Op::flatten:
        return x.flatten(1).unsqueeze(-1).unsqueeze(-1);  // CHW order, as the float weights of the linear after it
      case Op::subsample_pad: {
        const int64_t added = node.out_channels - x.size(1), before = added / 2;
        return at::constant_pad_nd(x.slice(2, 0, c10::nullopt, w.stride_h).slice(3, 0, c10::nullopt, w.stride_w),
                                   {0, 0, 0, 0, before, added - before}, 0);
      }
      case Op::input:
      case Op::batch_norm:
      case Op::dropout:
        break;
    }
    throw promise_error("'" + node.name + "': a " + std::string(op_name(node.op)) + " cannot run on codes");
  }

  /// Hands a node's output to the tap as engines do: HWC bytes, flatten included, or float logits.
  void show(int n, const at::Tensor& value, const NodeTap& tap) const {
    const Layer& layer = layers_[n];
    if (layer.rounding.float_output) return tap(n, value.const_data_ptr(), value.nbytes());
    at::Tensor x = value;
    if (layer.node->op == Op::flatten) {
      const Shape& from = prepared_.graph.nodes[layer.node->inputs[0]].shape;
      x = x.view({x.size(0), from.c, from.h, from.w});
    }
    x = nhwc(x);
    std::vector<uint8_t> codes(x.numel());
    store_codes(x.const_data_ptr<float>(), x.numel(), layer.rounding.zero_point, codes.data());
    tap(n, codes.data(), codes.size());
  }

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
