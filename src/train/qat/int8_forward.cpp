// SPDX-License-Identifier: Apache-2.0
#include "src/train/qat/int8_forward.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <utility>

#include "kernels/training/codes.h"
#include "kernels/training/fake_quantize.h"
#include "src/engine/trained_program.h"
#include "src/quant/convert.h"
#include "src/train/model/device.h"
#include "src/train/model/operators.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

struct Int8Network {
  const Prepared& prepared;
  Weights weights;
  Int8Graph graph;  // scales and bounds of codes
  int64_t images;
  TrainedProgram program;

  const Int8Node& node(int n) const { return graph.nodes[n]; }
  int nodes() const { return static_cast<int>(graph.nodes.size()); }
  long pixels(int n) const { return images * node(n).shape.h * node(n).shape.w; }

  /// Returns the memory of all nodes' outputs: codes, or floats.
  std::vector<at::Tensor> run(const at::Tensor& x) const;
  /// Returns what the codes of a node stand for, [N, C, H, W], in `type`; of a float output the floats.
  at::Tensor values(int n, const std::vector<at::Tensor>& memory, at::ScalarType type) const;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Returns an image [N, C, H, W] whose memory is [N, H, W, C].
at::Tensor empty_image(int64_t images, const Shape& shape, const at::TensorOptions& options) {
  return at::empty({images, shape.c, shape.h, shape.w}, options.memory_format(at::MemoryFormat::ChannelsLast));
}

kernels::TrainedLayer trained_layer(const Prepared& prepared, const Weights& weights, int n, const at::Tensor& scale) {
  const Node& node = prepared.graph.nodes[n];
  const auto pointer = [&](const std::string& name) { return weights.at(name).const_data_ptr<float>(); };
  const at::Tensor& weight = weights.at(node.name + ".weight");
  kernels::TrainedLayer layer{.weight = weight.const_data_ptr<float>(),
                              .scale = scale.const_data_ptr<float>(),
                              .bias = node.bias ? pointer(node.name + ".bias") : nullptr,
                              .epsilon = node.epsilon,
                              .codes = prepared.weight_codes(n),
                              .channels = static_cast<int32_t>(weight.size(0)),
                              .per_channel = static_cast<int32_t>(weight.numel() / weight.size(0)),
                              .places = static_cast<int32_t>(weight_rows(prepared.graph, n).taps),
                              .channels_last = !weight.is_contiguous()};
  if (node.batch_norm.empty()) return layer;
  layer.gamma = pointer(node.batch_norm + ".weight");
  layer.beta = pointer(node.batch_norm + ".bias");
  layer.mean = pointer(node.batch_norm + ".running_mean");
  layer.variance = pointer(node.batch_norm + ".running_var");
  return layer;
}

}  // namespace

std::vector<at::Tensor> Int8Network::run(const at::Tensor& x) const {
  const at::TensorOptions bytes = x.options().dtype(at::kByte);
  const CudaStream stream = current_stream(x.device());
  const c10::DeviceGuard guard(x.device());
  program.pack_weights(stream);
  std::vector<at::Tensor> memory(graph.nodes.size());
  for (int n = 0; n < nodes(); ++n) {
    if (n > 0 && program.shares_memory(n)) {
      memory[n] = memory[node(n).inputs[0]];
      continue;
    }
    memory[n] = at::empty({static_cast<int64_t>(program.bytes(n))}, bytes);
    if (n == 0) {
      const at::Tensor image = x.to(at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
      kernels::cuda_quantize_rows({nullptr, pixels(0), node(0).shape.c, program.stride(0), node(0).out},
                                  image.const_data_ptr<float>(), memory[0].mutable_data_ptr<uint8_t>(), stream);
      continue;
    }
    std::vector<const uint8_t*> inputs;
    for (const int input : node(n).inputs) inputs.push_back(memory[input].const_data_ptr<uint8_t>());
    program.launch(n, inputs.data(), memory[n].mutable_data_ptr(), stream);
  }
  return memory;
}

at::Tensor Int8Network::values(int n, const std::vector<at::Tensor>& memory, at::ScalarType type) const {
  if (node(n).op == Int8Op::flatten)  // engines flatten pixel by pixel, LibTorch channel by channel
    return values(node(n).inputs[0], memory, type).flatten(1).unsqueeze(-1).unsqueeze(-1);
  const Shape& shape = node(n).shape;
  if (node(n).float_output) {
    const at::Tensor floats = memory[n].narrow(0, 0, pixels(n) * shape.c * 4).view(at::kFloat);
    return floats.view({images, shape.h, shape.w, shape.c}).permute({0, 3, 1, 2});
  }
  at::Tensor y = empty_image(images, shape, memory[n].options().dtype(type));
  const c10::DeviceGuard guard(y.device());
  kernels::cuda_real_values({memory[n].const_data_ptr<uint8_t>(), pixels(n), shape.c, program.stride(n), node(n).out},
                            value_type(type), y.mutable_data_ptr(), current_stream(y.device()));
  return y;
}

namespace {

/// The backward pass of one step. Vectors are by node; a weight or gradient that there is not is undefined.
class Int8Backward {
 public:
  Int8Backward(const Int8Network& net, variable_list memory, variable_list weights)
      : net_(net),
        memory_(std::move(memory)),
        weights_(std::move(weights)),
        gradients_(memory_.size()),
        values_(memory_.size()),
        of_weights(memory_.size()),
        of_biases(memory_.size()) {
    for (const at::Tensor& weight : weights_)
      if (weight.defined()) type_ = weight.scalar_type();
  }

  /// of_outputs: the gradient of forward_on_codes()'s result.
  void run(const at::Tensor& of_outputs) {
    int64_t first = 0;
    for (const int n : net_.graph.outputs) {
      const Shape& shape = net_.node(n).shape;
      const at::Tensor mine = of_outputs.narrow(1, first, shape.elements()).to(type_);
      add(n, mine.reshape({net_.images, shape.c, shape.h, shape.w}).contiguous(at::MemoryFormat::ChannelsLast));
      first += shape.elements();
    }
    for (int n = net_.nodes() - 1; n > 0; --n) {
      values_[n].reset();  // all that read it have been left
      if (gradients_[n].empty()) continue;
      const at::Tensor dy = gradient_before_quantizer(n);
      gradients_[n].clear();
      if (weights_[n].defined()) {
        pass_layer(n, dy);
      } else {
        pass_operator(n, dy);
      }
    }
  }

 private:
  const at::Tensor& value(int n) {
    if (!values_[n].defined()) values_[n] = net_.values(n, memory_, type_);
    return values_[n];
  }

  void add(int n, const at::Tensor& gradient) {
    if (n > 0) gradients_[n].push_back(gradient);  // the image has none
  }

  /// Adds the gradients of a node's output up and passes them through its quantizer, if it has one; also sums up that
  /// of a layer's bias.
  at::Tensor gradient_before_quantizer(int n) {
    variable_list& all = gradients_[n];
    for (; all.size() > 2; all.pop_back()) all.front() = at::add(all.front(), all.back());
    for (at::Tensor& each : all) each = each.contiguous(at::MemoryFormat::ChannelsLast);
    const Int8Node& node = net_.node(n);
    if (!net_.prepared.has_edge(n)) {
      at::Tensor sum = all.size() == 2 ? at::add(all[0], all[1]) : all[0];
      if (weights_[n].defined()) of_biases[n] = sum.sum({0, 2, 3}, /*keepdim=*/false, at::kFloat);
      return sum;
    }
    at::Tensor dx = at::empty_like(all[0]);
    const at::TensorOptions floats = dx.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
    const long rows = net_.pixels(n);
    const int channels = node.shape.c;
    of_biases[n] = at::empty({channels}, floats);
    at::Tensor parts = at::empty({kernels::bias_gradient_parts(rows, channels), channels}, floats);
    const c10::DeviceGuard guard(dx.device());
    kernels::cuda_bias_gradient({.dy = all[0].const_data_ptr(),
                                 .dx = dx.mutable_data_ptr(),
                                 .parts = parts.mutable_data_ptr<float>(),
                                 .dbias = of_biases[n].mutable_data_ptr<float>(),
                                 .rows = rows,
                                 .channels = channels,
                                 .type = value_type(dx),
                                 .also = all.size() == 2 ? all[1].const_data_ptr() : nullptr,
                                 .codes = memory_[n].const_data_ptr<uint8_t>(),
                                 .code_stride = net_.program.stride(n),
                                 .signed_codes = node.out.is_signed(),
                                 .code_below = node.clamp_min,
                                 .code_above = node.clamp_max},
                                current_stream(dx.device()));
    return dx;
  }

  void pass_layer(int n, const at::Tensor& dy) {
    const Node& node = net_.prepared.graph.nodes[n];
    const at::Tensor &x = value(node.inputs[0]), &weight = weights_[n];
    const bool to_image = node.inputs[0] == 0;
    if (node.op == Op::linear) {
      const at::Tensor rows = dy.flatten(1);
      of_weights[n] = at::mm(rows.t(), x.flatten(1));
      if (!to_image) add(node.inputs[0], at::mm(rows, weight).view_as(x));
    } else {
      const Window& w = node.window;
      const PaddedImage from = padded(x, w.pad, 0);
      auto [dx, dw, dbias] = at::convolution_backward(dy, from.image, weight, c10::nullopt, {w.stride_h, w.stride_w},
                                                      from.pad, {w.dilation_h, w.dilation_w}, /*transposed=*/false,
                                                      {0, 0}, node.groups, {!to_image, true, false});
      of_weights[n] = dw;
      if (!to_image && !w.pad.is_even()) dx = dx.narrow(2, w.pad.top, x.size(2)).narrow(3, w.pad.left, x.size(3));
      if (!to_image) add(node.inputs[0], dx);
    }
    if (node.inputs.size() == 2) add(node.inputs[1], dy);
  }

  /// Runs the float operator again, and its backward pass.
  void pass_operator(int n, const at::Tensor& dy) {
    const Node& node = net_.prepared.graph.nodes[n];
    const at::AutoGradMode with_gradients(true);
    variable_list inputs;
    for (const int input : node.inputs) inputs.push_back(value(input).detach().requires_grad_());
    const at::Tensor y = walk_node(net_.prepared.graph, net_.weights, n, inputs);
    const variable_list gradients = torch::autograd::grad({y}, inputs, {dy.to(y.scalar_type())});
    for (size_t i = 0; i < inputs.size(); ++i) add(node.inputs[i], gradients[i].to(type_));
  }

  const Int8Network& net_;
  const variable_list memory_, weights_;
  std::vector<variable_list> gradients_;  // of outputs
  variable_list values_;                  // of outputs, while nodes that read them follow
  at::ScalarType type_ = at::kFloat;

 public:
  variable_list of_weights, of_biases;
};

/// What a backward pass needs besides tensors.
struct Taken : torch::CustomClassHolder {
  std::shared_ptr<const Int8Network> network;
  std::vector<int> layers, biased;  // nodes, in the order of weights and biases

  const Graph& graph() const { return network->prepared.graph; }
};

struct OnCodes : torch::autograd::Function<OnCodes> {
  static at::Tensor forward(AutogradContext* ctx, const at::TensorList& weights, const at::TensorList& biases,
                            const at::Tensor& x, const c10::intrusive_ptr<Taken>& taken,
                            const Int8Networks::Look& look) {
    const Int8Network& net = *taken->network;
    variable_list saved = net.run(x), outputs;
    if (look)
      for (int n = 0; n < net.nodes(); ++n) look(n, net.values(n, saved, at::kFloat));
    for (const int n : net.graph.outputs) outputs.push_back(net.values(n, saved, at::kFloat).flatten(1));
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["taken"] = c10::IValue::make_capsule(taken);
    return outputs.size() == 1 ? outputs.front().contiguous() : at::cat(outputs, 1);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& of_outputs) {
    const auto capsule = ctx->saved_data["taken"].toCapsule();
    const Taken& taken = static_cast<const Taken&>(*capsule);
    const variable_list saved = ctx->get_saved_variables();
    const int nodes = taken.network->nodes();
    variable_list weights(nodes), result;
    for (size_t i = 0; i < taken.layers.size(); ++i) weights[taken.layers[i]] = saved[nodes + i];
    Int8Backward pass(*taken.network, {saved.begin(), saved.begin() + nodes}, weights);
    pass.run(of_outputs[0]);
    for (const int n : taken.layers) result.push_back(pass.of_weights[n]);
    for (const int n : taken.biased) result.push_back(pass.of_biases[n]);
    result.resize(result.size() + 3);  // x, taken, look
    return result;
  }
};

/// Returns the graph that the engines would run, whose weights are those of now.
Int8Graph converted(const Prepared& prepared, const Weights& weights, const std::vector<QParams>& edges,
                    const std::vector<LayerParameters>& layers) {
  Weights scales;
  for (size_t n = 0; n < layers.size(); ++n)
    if (layers[n].weight.defined()) scales.emplace(prepared.graph.nodes[n].name, layers[n].scale);
  const auto channels = static_cast<size_t>(prepared.graph.nodes[0].shape.c);
  Preprocessing none;
  none.mean.assign(channels, 0), none.std.assign(channels, 1);
  return convert(prepared, float_params(weights), edges, float_params(scales), none, {});
}

}  // namespace

at::Tensor Int8Networks::forward(const Prepared& prepared, const Weights& weights,
                                 const std::function<std::vector<QParams>()>& edges, const WalkHooks& hooks,
                                 const at::Tensor& x, const Look& look) {
  std::vector<LayerParameters> layers(prepared.graph.nodes.size());
  auto taken = c10::make_intrusive<Taken>();
  variable_list quantized, biases;
  for (int n = 0; n < static_cast<int>(layers.size()); ++n) {
    if (!has_weight(prepared.graph.nodes[n].op)) continue;
    layers[n] = hooks.parameters(n, {});
    taken->layers.push_back(n);
    quantized.push_back(layers[n].weight);
    if (!layers[n].bias.defined()) continue;
    taken->biased.push_back(n);
    biases.push_back(layers[n].bias);
  }
  std::shared_ptr<const Int8Network>& network = networks_[x.size(0)];
  if (!network) {
    const int images = static_cast<int>(x.size(0));
    const c10::DeviceGuard guard(x.device());
    Int8Graph graph = converted(prepared, weights, edges(), layers);
    TrainedProgram program(graph, images, [&](int n) { return trained_layer(prepared, weights, n, layers[n].scale); });
    network.reset(new Int8Network{prepared, weights, std::move(graph), images, std::move(program)});
  }
  taken->network = network;
  return OnCodes::apply(at::TensorList(quantized), at::TensorList(biases), x, taken, look);
}

}  // namespace octet
