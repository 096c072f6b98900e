// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/group_steps.h"

#include <utility>

#include "kernels/groups/groups.h"
#include "src/cuda/device.h"

namespace octet {
namespace {

using Constants = std::shared_ptr<SharedConstants>;

/// Makes a step of each choice of a kernel: `launch(choice, data, packed, stream)` launches it.
template <class Choice, class Launch>
CudaSteps steps_of(const std::vector<Choice>& choices, const Constants& constants, const Launch& launch) {
  CudaSteps steps;
  for (const Choice& choice : choices) {
    std::string name;
    if constexpr (requires { choice.name(); }) {
      name = choice.name();
    } else {
      name = choice.name;
    }
    const auto launch_choice = [launch, choice](const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
      launch(choice, data, packed, stream);
    };
    steps.push_back(std::make_unique<KernelStep>(CudaKernel{std::move(name), launch_choice, constants}));
  }
  return steps;
}

/// A layer of a group as kernels take it: its shape, parameters and weights.
kernels::ConvNode layer_of(const Lowering& lowering, int node) {
  return {lowering.conv2d_shape(node), lowering.conv2d_params(node), lowering.conv2d_weights(node)};
}

/// A first layer and its max-pool.
GroupKernels conv_max_pool_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int conv = group.nodes[0], pool = group.nodes[1];
  const auto layers = std::make_shared<const kernels::ConvMaxPool>(
      kernels::ConvMaxPool{lowering.conv2d_shape(conv), lowering.conv2d_params(conv), lowering.conv2d_weights(conv),
                           lowering.pool_shape(pool), lowering.max_pool_params(pool)});
  const auto choices = kernels::cuda_conv_max_pool_choices(*layers);
  if (choices.empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>("weights", [layers] { return kernels::cuda_conv_max_pool_pack(*layers); });
  return [layers, choices, constants](int) {
    return steps_of(
        choices, constants,
        [layers](const auto& choice, const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
          kernels::cuda_conv_max_pool(choice, *layers, {data.images, packed, data.inputs[0], data.output}, stream);
        });
  };
}

/// An inverted residual, with two convolutions or three.
GroupKernels inverted_residual_kernels(const Lowering& lowering, const NodeGroup& group) {
  const std::vector<int>& nodes = group.nodes;
  const auto layer = [&](int node) { return layer_of(lowering, node); };
  kernels::InvertedResidual convolutions{
      .has_expand = nodes.size() == 3, .depthwise = layer(nodes[nodes.size() - 2]), .project = layer(nodes.back())};
  if (nodes.size() == 3) convolutions.expand = layer(nodes.front());
  if (!kernels::cuda_runs_inverted_residual(convolutions, 1, this_gpu())) return nullptr;
  const auto block = std::make_shared<const kernels::InvertedResidual>(std::move(convolutions));
  const auto constants =
      std::make_shared<SharedConstants>("weights", [block] { return kernels::cuda_inverted_residual_pack(*block); });
  return [block, constants](int images) {
    return steps_of(
        kernels::cuda_inverted_residual_choices(*block, images, this_gpu()), constants,
        [block](const auto& choice, const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
          const uint8_t* residual = block->project.params.has_residual ? data.inputs[1] : nullptr;
          kernels::cuda_inverted_residual(
              choice, *block,
              {.images = data.images, .packed = packed, .x = data.inputs[0], .residual = residual, .y = data.output},
              stream);
        });
  };
}

/// The convolution that ends a ResNet's bottleneck and the one that begins the next.
GroupKernels expand_reduce_kernels(const Lowering& lowering, const NodeGroup& group) {
  const auto layer = [&](int node) { return layer_of(lowering, node); };
  const auto layers = std::make_shared<const kernels::ExpandReduce>(
      kernels::ExpandReduce{layer(group.nodes[0]), layer(group.nodes[1])});
  if (kernels::cuda_expand_reduce_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>("weights", [layers] { return kernels::cuda_expand_reduce_pack(*layers); });
  return [layers, constants](int images) {
    return steps_of(kernels::cuda_expand_reduce_choices(*layers, images, this_gpu()), constants,
                    [layers](const auto& choice, const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
                      const uint8_t* residual = layers->expand.params.has_residual ? data.inputs[1] : nullptr;
                      kernels::cuda_expand_reduce(
                          choice, *layers,
                          {data.images, packed, data.inputs[0], residual, data.first_output, data.output}, stream);
                    });
  };
}

/// A network's global average and linear layer.
GroupKernels pool_linear_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int pool = group.nodes[0], linear = group.nodes[1];
  const auto layers = std::make_shared<const kernels::PoolLinear>(
      kernels::PoolLinear{lowering.pool_shape(pool), lowering.avg_pool_params(pool), lowering.conv2d_shape(linear),
                          lowering.conv2d_params(linear), lowering.conv2d_weights(linear)});
  if (kernels::cuda_pool_linear_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>("weights", [layers] { return kernels::cuda_pool_linear_pack(*layers); });
  return [layers, constants](int images) {
    return steps_of(
        kernels::cuda_pool_linear_choices(*layers, images, this_gpu()), constants,
        [layers](const auto& choice, const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
          kernels::cuda_pool_linear(choice, *layers, {data.images, packed, data.inputs[0], data.output}, stream);
        });
  };
}

GroupKernels all_kernels(const Lowering& lowering, const NodeGroup& group) {
  switch (group.kind) {
    case GroupKind::conv_max_pool:
      return conv_max_pool_kernels(lowering, group);
    case GroupKind::inverted_residual:
      return inverted_residual_kernels(lowering, group);
    case GroupKind::expand_reduce:
      return expand_reduce_kernels(lowering, group);
    case GroupKind::pool_linear:
      return pool_linear_kernels(lowering, group);
  }
  return nullptr;
}

}  // namespace

CudaGroupFactory cuda_group_steps(const std::string& kernels) {
  if (kernels == kSeparateKernels) return [](const Lowering&, const NodeGroup&) { return GroupKernels(); };
  return [part = kernels_of_nodes(kernels)](const Lowering& lowering, const NodeGroup& group) {
    GroupKernels all = all_kernels(lowering, group);
    if (part == "auto" || !all) return all;
    return GroupKernels([part, all](int images) {
      CudaSteps steps = all(images);
      std::erase_if(steps, [&](const auto& step) { return step->kernel(images).find(part) == std::string::npos; });
      return steps;
    });
  };
}

std::string kernels_of_nodes(const std::string& kernels) {
  return kernels == kSeparateKernels || kernels == kFusedKernels ? "auto" : kernels;
}

}  // namespace octet
