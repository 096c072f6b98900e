// SPDX-License-Identifier: Apache-2.0
#include "src/engine/trained_program.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/step.h"

namespace octet {
namespace {

using kernels::RepackedLayer;

template <class T>
DeviceBuffer upload(const std::vector<T>& values, const char* what, const Stream& stream) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return octet::to_device(bytes, what, stream.get());
}

/// Returns CudaRepacking::code as indices into the layer's memory.
std::vector<int32_t> in_memory(std::vector<int32_t> code, const kernels::TrainedLayer& layer) {
  if (layer.channels_last || layer.places == 1) return code;
  const int inputs = layer.per_channel / layer.places;
  for (int32_t& index : code) {
    if (index < 0) continue;
    const int within = index % layer.per_channel;
    index += within % inputs * layer.places + within / inputs - within;
  }
  return code;
}

/// A conv2d or linear: its kernel, and what packs its weights.
struct Convolution {
  kernels::Conv2dShape shape;
  kernels::Conv2dParams params;
  kernels::CudaConv2d chosen;
  DeviceBuffer packed, code, words, codes, tap_sums, constants, workspace;
};

}  // namespace

struct TrainedProgram::Impl {
  Int8Graph graph;
  int images;
  Lowering lowering{graph, kernels::cuda_channel_stride};
  Stream stream;                                           // of the preparation
  std::vector<std::unique_ptr<CudaStep>> steps;            // by node; null for convolutions and what shares memory
  std::vector<std::unique_ptr<Convolution>> convolutions;  // by node
  std::vector<RepackedLayer> layers;
  DeviceBuffer layer_table, channel_blocks, word_blocks;
  WorkSpace work;  // of steps
  kernels::RepackWork repack;

  Impl(Int8Graph of, int count) : graph(std::move(of)), images(count) {}

  size_t bytes(int node) const {
    const Int8Node& n = graph.nodes[node];
    return static_cast<size_t>(images) * n.shape.h * n.shape.w * lowering.output_stride(node) *
               (n.float_output ? sizeof(float) : 1) +
           kernels::kCudaReadSlack;
  }
  /// `x`, `residual` and `y` are memory for those of any node.
  void prepare_layer(int node, const kernels::TrainedLayer& layer, const DeviceBuffer& x, const DeviceBuffer& residual,
                     const DeviceBuffer& y);
  void prepare(const LayerOf& layer_of);
};

void TrainedProgram::Impl::prepare_layer(int node, const kernels::TrainedLayer& layer, const DeviceBuffer& x,
                                         const DeviceBuffer& residual, const DeviceBuffer& y) {
  auto made = std::make_unique<Convolution>();
  Convolution& c = *made;
  c.shape = lowering.conv2d_shape(node);
  c.params = lowering.conv2d_params(node);
  kernels::Conv2dWeights weights = lowering.conv2d_weights(node);
  const std::vector<int8_t> dense(graph.nodes[node].weight.size(), 1);  // no kernel for sparse weights is offered
  weights.weight = dense.data();
  const std::function<void()> alone;
  kernels::CudaConv2dData tensors{.images = images, .x = x.data(), .y = y.data()};
  if (c.params.has_residual) tensors.residual = residual.data();
  c.chosen = choose_conv2d({c.shape, c.params, weights, tensors, alone}, "auto", stream);
  const kernels::CudaRepacking repacking = kernels::cuda_repacking(c.chosen, c.shape, c.params);
  const int taps = c.shape.kernel_h * c.shape.kernel_w;
  c.packed = octet::to_device(repacking.fixed, "weights", stream.get());
  c.code = upload(in_memory(repacking.code, layer), "places of weights", stream);
  c.words = upload(repacking.words, "places of constants", stream);
  c.codes = DeviceBuffer(static_cast<size_t>(layer.channels) * layer.per_channel, "codes of weights");
  c.tap_sums = DeviceBuffer(sizeof(int32_t) * layer.channels * taps, "sums of weights");
  c.constants = DeviceBuffer(sizeof(float) * 2 * layer.channels, "multipliers");
  if (const size_t size = kernels::cuda_conv2d_workspace(c.chosen, c.shape, images); size > 0) {
    c.workspace = DeviceBuffer(size, "partial sums of a convolution");
    fill_device(c.workspace.data(), 0, size, stream.get());
  }
  const Int8Node& n = graph.nodes[node];
  layers.push_back({.layer = layer,
                    .x_scale = lowering.input(node, 0).out.scale,
                    .y_scale = n.float_output ? 1.0f : n.out.scale,
                    .x_zero_point = c.params.x.zero_point,
                    .taps = taps,
                    .code = reinterpret_cast<const int32_t*>(c.code.data()),
                    .words = reinterpret_cast<const kernels::RepackedWord*>(c.words.data()),
                    .codes = reinterpret_cast<int8_t*>(c.codes.data()),
                    .tap_sums = reinterpret_cast<int32_t*>(c.tap_sums.data()),
                    .constants = reinterpret_cast<float*>(c.constants.data()),
                    .packed = c.packed.data(),
                    .packed_words = static_cast<int32_t>(repacking.fixed.size() / 4),
                    .word_count = static_cast<int32_t>(repacking.words.size())});
  convolutions[node] = std::move(made);
}

void TrainedProgram::Impl::prepare(const LayerOf& layer_of) {
  const int count = static_cast<int>(graph.nodes.size());
  size_t largest = 0;
  for (int node = 0; node < count; ++node) largest = std::max(largest, bytes(node));
  std::vector<uint64_t> random(largest / sizeof(uint64_t) + 1);  // zeros would be faster
  Random generator({1});
  for (uint64_t& word : random) word = generator.next();
  const DeviceBuffer x = upload(random, "codes to measure with", stream);
  const DeviceBuffer residual = upload(random, "codes to measure with", stream);
  const DeviceBuffer y(largest, "codes to measure with");
  steps.resize(count);
  convolutions.resize(count);
  for (int node = 1; node < count; ++node) {
    const Int8Node& n = graph.nodes[node];
    try {
      if (n.op == Int8Op::conv2d || n.op == Int8Op::linear) {
        prepare_layer(node, layer_of(node), x, residual, y);
        continue;
      }
      steps[node] = make_cuda_step(lowering, node, "auto");
      if (!steps[node]) continue;
      const uint8_t* const inputs[] = {x.data(), residual.data()};
      steps[node]->prepare({.images = images, .inputs = inputs, .output = y.data()}, stream);
      work.make_room(*steps[node], images, stream);
    } catch (const Error& error) {
      throw Error(error.code(), "node '" + n.name + "': " + error.what());
    }
  }
  const auto channels = kernels::repack_channel_blocks(layers), words = kernels::repack_word_blocks(layers);
  layer_table = upload(layers, "layers", stream);
  channel_blocks = upload(channels, "layers", stream);
  word_blocks = upload(words, "layers", stream);
  repack = {reinterpret_cast<const RepackedLayer*>(layer_table.data()),
            reinterpret_cast<const kernels::RepackBlock*>(channel_blocks.data()),
            reinterpret_cast<const kernels::RepackBlock*>(word_blocks.data()), static_cast<int>(channels.size()),
            static_cast<int>(words.size())};
  stream.wait("preparing a training step on codes");
}

TrainedProgram::TrainedProgram(Int8Graph graph, int images, const LayerOf& layer_of)
    : impl_(std::make_unique<Impl>(std::move(graph), images)) {
  impl_->prepare(layer_of);
}

TrainedProgram::TrainedProgram(TrainedProgram&&) noexcept = default;
TrainedProgram::~TrainedProgram() = default;

size_t TrainedProgram::bytes(int node) const { return impl_->bytes(node); }
int TrainedProgram::stride(int node) const { return impl_->lowering.output_stride(node); }
bool TrainedProgram::shares_memory(int node) const { return impl_->lowering.flatten_is_alias(node); }

void TrainedProgram::pack_weights(CudaStream stream) const { kernels::cuda_repack(impl_->repack, stream); }

void TrainedProgram::launch(int node, const uint8_t* const* inputs, void* output, CudaStream stream) const {
  const Convolution* c = impl_->convolutions[node].get();
  if (c == nullptr) {
    impl_->steps[node]->launch({.images = impl_->images,
                                .inputs = inputs,
                                .output = output,
                                .scratch = impl_->work.scratch(),
                                .zeroed = impl_->work.zeroed()},
                               stream);
    return;
  }
  kernels::cuda_conv2d(c->chosen, c->shape, c->params,
                       {.images = impl_->images,
                        .packed = c->packed.data(),
                        .x = inputs[0],
                        .residual = c->params.has_residual ? inputs[1] : nullptr,
                        .y = output,
                        .workspace = c->workspace.data()},
                       stream);
}

}  // namespace octet
