// SPDX-License-Identifier: Apache-2.0
#include "src/train/proof/deployed_network.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>

#include "src/quant/convert.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

int lowest_byte(const QParams& codes) { return codes.is_signed() ? -128 : 0; }

std::vector<bool> all_nodes(const QuantizedModel& model) {
  return std::vector<bool>(model.prepared().graph.nodes.size(), true);
}

}  // namespace

Preprocessing pixels_are_codes(const QParams& codes, int channels) {
  Preprocessing p;
  p.fit = Fit::tensor;
  const int zero = codes.zero_point - lowest_byte(codes);
  p.mean.assign(static_cast<size_t>(channels), static_cast<float>(zero) / 255.0f);
  p.std.assign(static_cast<size_t>(channels), static_cast<float>(1 / (255.0 * codes.scale)));
  return p;
}

std::vector<uint8_t> pixels_of(const at::Tensor& x, const QParams& codes) {
  constexpr int64_t kGrain = 16384;  // a thread takes at least so many values
  const at::Tensor last = x.permute({0, 2, 3, 1}).contiguous();
  const float* values = last.const_data_ptr<float>();
  std::vector<uint8_t> pixels(static_cast<size_t>(last.numel()));
  share_among_threads(last.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      pixels[i] = static_cast<uint8_t>(quantize(values[i], codes) - lowest_byte(codes));
  });
  return pixels;
}

DeployedNetwork::DeployedNetwork(QuantizedModel& model, int max_batch) : model_(model), max_batch_(max_batch) {
  if (!device_of(model.weights()).is_cpu()) return;
  const int channels = model.prepared().graph.nodes.front().shape.c;
  graph_ = model.convert(pixels_are_codes(model.edges().front(), channels), {});
  compile();
}

void DeployedNetwork::change_edges() {
  if (!program_) return;  // the simulation reads the model's
  program_.reset();       // before there is another one: each holds the weights
  Weights small = model_.weights();
  for (const Node& node : model_.prepared().graph.nodes)
    if (has_weight(node.op)) small.erase(node.name + ".weight");
  octet::change_edges(graph_, model_.prepared(), float_params(small), model_.edges());
  graph_.preprocessing = pixels_are_codes(graph_.nodes.front().out, graph_.nodes.front().shape.c);
  compile();
}

void DeployedNetwork::compile() {
  program_ = preferred_engine(EngineDevices::cpu).compile(graph_, {.max_batch = max_batch_, .threads = thread_count()});
}

at::Tensor DeployedNetwork::values(int node, const void* data, int64_t batch) const {
  const Int8Node& n = graph_.nodes[node];
  const Shape& shape = n.shape;
  const Shape& stored = n.op == Int8Op::flatten ? graph_.nodes[n.inputs[0]].shape : shape;
  const at::ScalarType type = n.float_output ? at::kFloat : n.out.is_signed() ? at::kChar : at::kByte;
  const at::Tensor codes =
      at::from_blob(const_cast<void*>(data), {batch, stored.h, stored.w, stored.c}, type).permute({0, 3, 1, 2});
  const at::Tensor y = n.float_output ? codes.clone() : (codes.to(at::kFloat) - n.out.zero_point).mul_(n.out.scale);
  return y.reshape({batch, shape.c, shape.h, shape.w});
}

std::vector<at::Tensor> DeployedNetwork::outputs(const at::Tensor& x) {
  if (!program_) return partly_quantized_outputs(model_, x, all_nodes(model_));
  const int batch = static_cast<int>(x.size(0));
  const OutputBuffers buffers(graph_, batch);
  program_->run(pixels_of(x, graph_.nodes.front().out).data(), batch, buffers.memory());
  std::vector<at::Tensor> result;
  for (size_t o = 0; o < graph_.outputs.size(); ++o)
    result.push_back(values(graph_.outputs[o], buffers[o].data(), batch));
  return result;
}

void DeployedNetwork::run(const at::Tensor& x, const QuantizedModel::Look& look) {
  if (!program_) {
    model_.forward_partly(x, all_nodes(model_), look);
    return;
  }
  const int batch = static_cast<int>(x.size(0));
  const OutputBuffers buffers(graph_, batch);
  program_->run(pixels_of(x, graph_.nodes.front().out).data(), batch, buffers.memory(),
                [&](int node, const void* data, size_t) { look(node, values(node, data, batch)); });
}

int largest_batch(const std::vector<at::Tensor>& x) {
  int64_t most = 0;
  for (const at::Tensor& batch : x) most = std::max(most, batch.size(0));
  return static_cast<int>(most);
}

std::vector<at::Tensor> partly_quantized_outputs(QuantizedModel& model, const at::Tensor& x,
                                                 const std::vector<bool>& quantized, int after) {
  const std::vector<int>& of = model.prepared().graph.outputs;
  std::vector<at::Tensor> result(of.size());
  const auto keep = [&](int node, const at::Tensor& y) {
    for (size_t o = 0; o < of.size(); ++o)
      if (of[o] == node) result[o] = y.detach().clone();
  };
  model.forward_partly(x, quantized, keep, after);
  return result;
}

}  // namespace octet
