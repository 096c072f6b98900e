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
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <utility>

#include "kernels/training/fake_quantize.h"
#include "kernels/training/qat_epilogue.h"
#include "src/engine/trained_program.h"
#include "src/quant/convert.h"
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

/// The backward pass of one step. Vectors are by node; a weight or gradient that there is not is undefined. `quantize`
/// quantizes the operators' outputs, as the simulation does.
class Int8Backward {
 public:
  Int8Backward(const Int8Network& net, const WalkHooks& quantize, variable_list memory, variable_list weights)
      : net_(net),
        quantize_(quantize),
        memory_(std::move(memory)),
        weights_(std::move(weights)),
        gradients_(memory_.size()),
        values_(memory_.size()),
        of_weights(memory_.size()),
        of_biases(memory_.size()) {
    for (const at::Tensor& weight : weights_)
      if (weight.defined()) type_ = weight.scalar_type();
  }

  /// of_outputs: the gradient of OnCodes::forward()'s result.
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
      const variable_list all = std::exchange(gradients_[n], {});
      if (all.empty()) continue;
      if (weights_[n].defined()) {
        pass_layer(n, gradient_of_sums(n, all));
      } else {
        pass_operator(n, sum(all));
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

  static at::Tensor sum(const variable_list& all) {
    at::Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = at::add(sum, all[i]);
    return sum.contiguous(at::MemoryFormat::ChannelsLast);
  }

  /// Adds the gradients of a layer's output up, passes them through its quantizer, if it has one, and sums up that of
  /// the bias.
  at::Tensor gradient_of_sums(int n, const variable_list& all) {
    const Int8Node& node = net_.node(n);
    if (!net_.prepared.has_edge(n)) {
      at::Tensor dx = sum(all);
      of_biases[n] = dx.sum({0, 2, 3}, /*keepdim=*/false, at::kFloat);
      return dx;
    }
    const at::Tensor dy = sum({all.begin(), all.end() - (all.size() > 1 ? 1 : 0)});
    const at::Tensor also = all.back().contiguous(at::MemoryFormat::ChannelsLast);  // the last is added in the pass
    at::Tensor dx = at::empty_like(dy);
    const at::TensorOptions floats = dx.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
    const long rows = net_.pixels(n);
    const int channels = node.shape.c;
    of_biases[n] = at::empty({channels}, floats);
    at::Tensor parts = at::empty({kernels::bias_gradient_parts(rows, channels), channels}, floats);
    const c10::DeviceGuard guard(dx.device());
    kernels::cuda_bias_gradient({.dy = dy.const_data_ptr(),
                                 .dx = dx.mutable_data_ptr(),
                                 .parts = parts.mutable_data_ptr<float>(),
                                 .dbias = of_biases[n].mutable_data_ptr<float>(),
                                 .rows = rows,
                                 .channels = channels,
                                 .type = value_type(dx),
                                 .codes = memory_[n].const_data_ptr<uint8_t>(),
                                 .code_stride = net_.program.stride(n),
                                 .signed_codes = node.out.is_signed(),
                                 .code_below = node.clamp_min,
                                 .code_above = node.clamp_max,
                                 .also = all.size() > 1 ? also.const_data_ptr() : nullptr},
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

  /// Runs the float operator and its quantizer again, and their backward pass.
  void pass_operator(int n, const at::Tensor& dy) {
    const at::AutoGradMode with_gradients(true);
    variable_list read(memory_.size()), inputs;  // one that is read twice has one gradient
    std::vector<int> nodes;
    for (const int input : net_.node(n).inputs) {
      if (read[input].defined()) continue;
      read[input] = value(input).detach().requires_grad_();
      inputs.push_back(read[input]);
      nodes.push_back(input);
    }
    const at::Tensor y = walk_node(net_.prepared.graph, net_.weights, n, read, quantize_);
    const variable_list gradients = torch::autograd::grad({y}, inputs, {dy.to(y.scalar_type())});
    for (size_t i = 0; i < inputs.size(); ++i) add(nodes[i], gradients[i].to(type_));
  }

  const Int8Network& net_;
  const WalkHooks& quantize_;
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
  WalkHooks quantize;               // finishes operators
  std::vector<int> layers, biased;  // nodes, in the order of weights and biases
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
    Int8Backward pass(*taken.network, taken.quantize, {saved.begin(), saved.begin() + nodes}, weights);
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

at::Tensor Int8Networks::forward(const Prepared& prepared, const Weights& weights, const WalkHooks& hooks,
                                 const at::Tensor& x, const Look& look) {
  std::vector<LayerParameters> layers(prepared.graph.nodes.size());
  auto taken = c10::make_intrusive<Taken>();
  taken->quantize.finish = hooks.finish;
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
  if (const int now = version(); now != made_) {
    networks_.clear();
    made_ = now;
  }
  std::shared_ptr<const Int8Network>& network = networks_[x.size(0)];
  if (!network) {
    const int images = static_cast<int>(x.size(0));
    const c10::DeviceGuard guard(x.device());
    // Engines allocate outside of LibTorch, which would hold the memory of a step before, or of its recording.
    c10::cuda::CUDACachingAllocator::emptyCache();
    Int8Graph graph = converted(prepared, weights, qparams_, layers);
    TrainedProgram program(graph, images, [&](int n) { return trained_layer(prepared, weights, n, layers[n].scale); });
    network.reset(new Int8Network{prepared, weights, std::move(graph), images, std::move(program)});
  }
  taken->network = network;
  return OnCodes::apply(at::TensorList(quantized), at::TensorList(biases), x, taken, look);
}

}  // namespace octet
