// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/cuda_group.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "kernels/conv/conv2d.h"
#include "kernels/groups/groups.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/choice.h"

namespace octet {
namespace {

constexpr CandidateSearch kSearch{.slow_ratio = 2, .milliseconds = 120};
constexpr int kRuns = 7;

std::string edge(const Int8Node& n) {
  return fmt::format("{} {} {}, {} {} {}", n.shape.c, n.shape.h, n.shape.w, n.out.is_signed(), n.out.zero_point != 0,
                     n.float_output);
}

/// Returns the line of one node. Whether a clamp cuts codes off matters: it costs an instruction or two for each code.
std::string described(const Int8Node& n) {
  const Window& w = n.window;
  return fmt::format("{} {} {}{}, {}x{} by {} {} at {} {} over {} {}, {} groups", int8_op_name(n.op), edge(n),
                     n.clamp_min > n.out.quant_min, n.clamp_max < n.out.quant_max, w.kernel_h, w.kernel_w, w.stride_h,
                     w.stride_w, w.pad.top, w.pad.left, w.dilation_h, w.dilation_w, n.groups);
}

std::vector<uint8_t*> outputs_of(const GroupProblem& problem) {
  std::vector<uint8_t*> outputs;
  for (const GroupNode& node : problem.nodes) outputs.push_back(node.output);
  return outputs;
}

}  // namespace

std::string described_nodes(const Int8Graph& graph, const std::vector<int>& nodes) {
  std::string all;
  for (const int node : nodes) {
    all += (all.empty() ? "" : "; ") + described(graph.nodes[node]);
    for (const int input : graph.nodes[node].inputs) all += " < " + edge(graph.nodes[input]);
  }
  return all;
}

CudaGroup::CudaGroup(const Int8Graph& graph, NodeGroup nodes, GroupKernels kernels)
    : group_(std::move(nodes)),
      kernels_(std::move(kernels)),
      description_(fmt::format("{}; {}", group_name(group_.kind), described_nodes(graph, group_.nodes))) {}

void CudaGroup::choose(const GroupProblem& problem, WorkSpace& work, const Stream& stream) {
  CudaSteps alternatives = kernels_(problem.images);
  std::vector<std::string> names;
  for (const auto& step : alternatives) names.push_back(step->kernel(problem.images));
  if (!problem.always || alternatives.empty()) {
    std::string separate;
    for (const GroupNode& node : problem.nodes) separate += "+" + node.step->kernel(problem.images);
    alternatives.insert(alternatives.begin(), nullptr);
    names.insert(names.begin(), separate);
  }
  const size_t chosen = remembered_choice(fmt::format("{} images of {}", problem.images, description_), names,
                                          [&] { return fastest(problem, alternatives, names, work, stream); });
  if (alternatives[chosen]) make_ready(*alternatives[chosen], problem, work, stream);
  launch(alternatives[chosen].get(), problem, outputs_of(problem), work, stream);
  stream.wait("its first run on the GPU, together with the nodes before it");
  chosen_[problem.images] = std::move(alternatives[chosen]);
}

MeasuredChoice CudaGroup::fastest(const GroupProblem& problem, const CudaSteps& alternatives,
                                  const std::vector<std::string>& names, WorkSpace& work, const Stream& stream) const {
  // As for a convolution (conv_step.cpp), outputs go into memory of their own, if there is room, so that the kernel
  // before the group reads what it reads in a run. The nodes' own steps have overwritten that: everything before runs
  // again.
  std::vector<DeviceBuffer> own_memory;
  std::vector<uint8_t*> outputs;
  bool in_sequence = true, room = true;
  try {
    for (const GroupNode& node : problem.nodes) {
      own_memory.emplace_back(node.bytes + kernels::kCudaReadSlack, "the output of a group's node apart");
      fill_device(own_memory.back().data(), 0, own_memory.back().bytes(), stream.get());
      outputs.push_back(own_memory.back().data());
    }
  } catch (const OutOfGpuMemory&) {
    in_sequence = false;
    own_memory.clear();
    outputs = outputs_of(problem);
  }
  problem.run_earlier();
  const size_t best = fastest_candidate(names, kSearch, [&](size_t chosen, double slow_ms) {
    try {
      if (alternatives[chosen]) make_ready(*alternatives[chosen], problem, work, stream);
    } catch (const OutOfGpuMemory&) {
      room = false;
      throw;
    }
    return time_launches(stream,
                         [&] {
                           if (in_sequence) problem.run_before();
                           launch(alternatives[chosen].get(), problem, outputs, work, stream);
                         },
                         {.runs = kRuns, .slow_ms = slow_ms});
  });
  return {best, in_sequence && room};
}

void CudaGroup::make_ready(CudaStep& step, const GroupProblem& problem, WorkSpace& work, const Stream& stream) const {
  step.prepare({.images = problem.images, .inputs = inputs.data(), .output = problem.nodes.back().output}, stream);
  work.make_room(step, problem.images, stream);
}

void CudaGroup::launch(const CudaStep* step, const GroupProblem& problem, const std::vector<uint8_t*>& outputs,
                       const WorkSpace& work, const Stream& stream) const {
  CudaStepData data{.images = problem.images, .scratch = work.scratch(), .zeroed = work.zeroed()};
  if (step != nullptr) {
    data.inputs = inputs.data(), data.output = outputs.back(), data.first_output = outputs.front();
    step->launch(data, stream.get());
    return;
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    std::vector<const uint8_t*> of_node = problem.nodes[i].inputs;
    if (i > 0) of_node[0] = outputs[i - 1];
    data.inputs = of_node.data(), data.output = outputs[i];
    problem.nodes[i].step->launch(data, stream.get());
  }
}

const CudaStep* CudaGroup::fused(int images) const {
  const auto found = chosen_.find(images);
  return found == chosen_.end() ? nullptr : found->second.get();
}

size_t CudaGroup::constant_bytes() const {
  std::vector<const CudaStep*> steps;  // whose constants differ where a kernel packs them its own way (conv_lookup)
  for (const auto& [images, step] : chosen_) steps.push_back(step.get());
  return distinct_constant_bytes(steps);
}

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

/// A convolution and its lookup of one table a channel. Each tile has constants of its own.
GroupKernels conv_lookup_kernels(const Lowering& lowering, const NodeGroup& group) {
  const auto layers = std::make_shared<const kernels::ConvLookup>(
      kernels::ConvLookup{layer_of(lowering, group.nodes[0]), lowering.channel_tables(group.nodes[1])});
  if (kernels::cuda_conv_lookup_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  const auto by_variant = std::make_shared<std::map<int, Constants>>();
  return [layers, by_variant](int images) {
    CudaSteps steps;
    for (const kernels::CudaConv2d& choice : kernels::cuda_conv_lookup_choices(*layers, images, this_gpu())) {
      Constants& constants = (*by_variant)[choice.variant];
      if (!constants) {
        constants = std::make_shared<SharedConstants>(
            "weights and tables", [layers, choice] { return kernels::cuda_conv_lookup_pack(choice, *layers); });
      }
      const auto launch = [layers](const auto& chosen, const CudaStepData& data, const uint8_t* packed,
                                   CudaStream stream) {
        kernels::cuda_conv_lookup(chosen, *layers, {data.images, packed, data.inputs[0], data.output}, stream);
      };
      CudaSteps of_choice = steps_of(std::vector{choice}, constants, launch);
      steps.push_back(std::move(of_choice.front()));
    }
    return steps;
  };
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
    case GroupKind::conv_lookup:
      return conv_lookup_kernels(lowering, group);
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
