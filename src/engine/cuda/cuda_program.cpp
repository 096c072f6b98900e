// SPDX-License-Identifier: Apache-2.0
// CudaProgram: compiling steps, groups and memory; preparing a batch size; launches.
#include "src/engine/cuda/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/conv/conv2d.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/engine/fusion.h"
#include "src/engine/support.h"

namespace octet {
namespace {

// The CUDA graphs of so many batch sizes are kept: training's report uses three (the recipe's, a data set's last, 1).
constexpr size_t kPlansKept = 8;

}  // namespace

CudaProgram::CudaProgram(const Int8Graph& graph, const CompileOptions& options, const CudaStepFactory& make_step,
                         CudaGroupFactory make_group)
    : graph_(graph),
      lowering_{graph_, kernels::cuda_channel_stride},
      max_batch_(options.max_batch),
      make_group_(std::move(make_group)),
      always_fused_(options.kernels == kFusedKernels) {
  const std::vector<NodeGroup> groups = node_groups(graph_);  // make_layers() rewrites what lookups read
  make_layers(make_step);
  make_groups(groups);
  make_arena();
  plan_for(max_batch_);
}

void CudaProgram::make_layers(const CudaStepFactory& make_step) {
  const std::vector<int> merged = merged_convolutions(graph_);
  for (int node = 0; node < static_cast<int>(graph_.nodes.size()); ++node) {
    Int8Node& n = graph_.nodes[node];
    Layer layer;
    if (const int convolution = merged[node]; convolution >= 0) {
      layer.step = layers_[convolution].step->with_lookup(lowering_.lookup_table(node));
    }
    if (layer.step) {
      layer.buffer = merged[node];  // for a tap the convolution's own codes lie there first
      layers_[merged[node]].lookup = node;
      n.inputs = graph_.nodes[merged[node]].inputs;
    } else {
      layer.step = make_step(lowering_, node);
      layer.buffer = layer.step ? node : layers_[n.inputs[0]].buffer;
    }
    layer.image_bytes = static_cast<size_t>(n.shape.h) * n.shape.w * lowering_.output_stride(node) *
                        (n.float_output ? sizeof(float) : 1);
    layers_.push_back(std::move(layer));
  }
}

void CudaProgram::make_groups(const std::vector<NodeGroup>& groups) {
  for (const NodeGroup& group : groups) {
    GroupKernels kernels = make_group_(lowering_, group);
    if (!kernels) continue;
    for (const int node : group.nodes) layers_[node].group = static_cast<int>(groups_.size());
    groups_.emplace_back(graph_, group, std::move(kernels));
  }
}

MemoryPlan CudaProgram::arena_plan(int images) const {
  std::vector<int> alias;
  std::vector<size_t> bytes;
  for (const Layer& layer : layers_) {
    alias.push_back(layer.buffer);
    bytes.push_back(aligned(layer.image_bytes * images + kernels::kCudaReadSlack, kDeviceAlignment));
  }
  std::vector<BufferLife> lives = lifetimes(graph_, bytes, alias);
  for (const CudaGroup& group :
       groups_) {  // a group's kernel runs in its last node's place and reads the first's inputs
    for (const int node : graph_.nodes[group.first()].inputs) {
      BufferLife& input = lives[alias[node]];
      input.last = std::max(input.last, group.last());
    }
  }
  return plan_memory(lives);
}

void CudaProgram::make_arena() {
  const size_t pixels = graph_.input_shape().elements() * max_batch_;
  const MemoryPlan memory = arena_plan(max_batch_);
  try {
    arena_ = DeviceBuffer(memory.bytes, fmt::format("activations of {} images", max_batch_));
    images_ = DeviceBuffer(pixels + kernels::kCudaReadSlack, fmt::format("{} images", max_batch_));
  } catch (const OutOfGpuMemory& error) {
    throw does_not_fit(error, max_batch_, 0);
  }
  // Lanes behind the last channel may be read, multiplied by zero weights, although no kernel has written them.
  fill_device(arena_.data(), 0, arena_.bytes(), stream_.get());
  for (size_t node = 0; node < layers_.size(); ++node) {
    layers_[node].output = arena_.data() + memory.offsets[layers_[node].buffer];
    for (const int input : graph_.nodes[node].inputs) layers_[node].inputs.push_back(layers_[input].output);
  }
  layers_.front().inputs = {images_.data()};
  for (CudaGroup& group : groups_) {
    group.inputs = layers_[group.first()].inputs;
    const std::vector<const uint8_t*>& last = layers_[group.last()].inputs;
    group.inputs.insert(group.inputs.end(), last.begin() + 1, last.end());
  }
  size_t largest = pixels;
  for (const int output : graph_.outputs) largest = std::max(largest, layers_[output].image_bytes * max_batch_);
  host_ = HostCopies(largest);
}

// The work space of fewer images is not known before measurement: it is assumed to be in proportion.
Error CudaProgram::does_not_fit(const OutOfGpuMemory& error, int images, size_t work) const {
  const auto pixels = [&](int batch) { return graph_.input_shape().elements() * batch + kernels::kCudaReadSlack; };
  size_t weights = 0, uploaded = 0;
  for (const Int8Node& node : graph_.nodes) weights += node.weight.size();
  for (const Layer& layer : layers_) uploaded += layer.step ? layer.step->constant_bytes() : 0;
  for (const CudaGroup& group : groups_) uploaded += group.constant_bytes();
  const size_t room = error.free() + arena_.bytes() + images_.bytes() + work_.bytes() + uploaded;
  const int fits = largest_batch(room, images, [&](int batch) {
    return arena_plan(batch).bytes + pixels(batch) + std::max(weights, uploaded) + work / images * batch;
  });
  const auto gigabytes = [](size_t bytes) { return static_cast<double>(bytes) / 1e9; };
  return promise_error(fmt::format(
      "{}; planned for {} images: activations {:.3f} GB, images {:.3f} GB, weights {:.3f} GB; {}", error.what(),
      max_batch_, gigabytes(arena_plan(max_batch_).bytes), gigabytes(pixels(max_batch_)), gigabytes(weights),
      fits > 0 ? fmt::format("a batch of {} would fit", fits) : std::string("not even a batch of 1 would fit")));
}

void CudaProgram::at_node(size_t node, const std::function<void()>& work) const {
  const auto named = [&](const Error& error) {
    return fmt::format("node '{}': {}", graph_.nodes[node].name, error.what());
  };
  try {
    work();
  } catch (const OutOfGpuMemory& error) {
    throw OutOfGpuMemory(named(error), error.asked(), error.free());
  } catch (const Error& error) {
    throw Error(error.code(), named(error));
  }
}

CudaStepData CudaProgram::data(size_t node, int batch) const {
  return {.images = batch,
          .inputs = layers_[node].inputs.data(),
          .output = layers_[node].output,
          .scratch = work_.scratch(),
          .zeroed = work_.zeroed()};
}

CudaStepData CudaProgram::data(const CudaGroup& group, int batch) const {
  CudaStepData of_group = data(group.last(), batch);
  of_group.inputs = group.inputs.data();
  of_group.first_output = layers_[group.first()].output;
  return of_group;
}

const CudaGroup* CudaProgram::fused_group(size_t node, int batch) const {
  const int group = layers_[node].group;
  return group >= 0 && groups_[group].fused(batch) != nullptr ? &groups_[group] : nullptr;
}

bool CudaProgram::launch(size_t node, int batch, bool beside) const {
  if (!layers_[node].step) return false;
  CudaStepData of_node = data(node, batch);
  of_node.beside = beside;
  at_node(node, [&] { layers_[node].step->launch(of_node, stream_.get()); });
  return true;
}

bool CudaProgram::launches_in_run(size_t node, int batch) const {
  const CudaGroup* group = fused_group(node, batch);
  return layers_[node].lookup < 0 && layers_[node].step && (!group || group->last() == static_cast<int>(node));
}

bool CudaProgram::launch_in_run(size_t node, int batch, bool alone) const {
  if (!launches_in_run(node, batch)) return false;
  const CudaGroup* group = fused_group(node, batch);
  if (group == nullptr) return launch(node, batch, !alone && layers_[node].beside.contains(batch));
  at_node(node, [&] { group->fused(batch)->launch(data(*group, batch), stream_.get()); });
  return true;
}

CudaProgram::BatchPlan& CudaProgram::plan_for(int batch) {
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const BatchPlan& p) { return p.batch == batch; });
  if (known != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, known);
  } else {
    prepare_steps(batch);
    plans_.push_front({.batch = batch});
    if (plans_.size() > kPlansKept) forget_last_plan();
  }
  // The graphs of all batch sizes are captured again if work space has moved, also by a preparation that failed.
  for (BatchPlan& plan : plans_) {
    if (plan.work_moves != work_.moves()) capture(plan);
  }
  return plans_.front();
}

// Groups' kernels hold weights, which go with the plan. Those of max_batch stay, as layers() names them.
void CudaProgram::forget_last_plan() {
  const int batch = plans_.back().batch;
  plans_.pop_back();
  if (batch == max_batch_) return;
  for (CudaGroup& group : groups_) group.forget(batch);
}

// Prepares and runs node after node, so that each step measures on realistic inputs, and an error names its node.
void CudaProgram::prepare_steps(int batch) {
  upload_random_images(batch);
  for (Layer& layer : layers_) layer.beside.erase(batch);
  std::function<void()> before;
  try {
    for (size_t node = 0; node < layers_.size(); ++node) {
      CudaStep* step = layers_[node].step.get();
      if (step == nullptr || layers_[node].lookup >= 0) continue;
      at_node(node, [&] {
        CudaStepData of_node = data(node, batch);
        of_node.before = before;
        step->prepare(of_node, stream_);
        work_.make_room(*step, batch, stream_);
        step->launch(data(node, batch), stream_.get());
        stream_.wait("its first run on the GPU");
        const int group = layers_[node].group;
        if (group >= 0 && groups_[group].last() == static_cast<int>(node)) choose_group(groups_[group], batch);
      });
      before = [this, node, batch] { launch_in_run(node, batch); };
    }
    choose_beside(batch);
  } catch (const OutOfGpuMemory& error) {
    throw does_not_fit(error, batch, work_.bytes() + error.asked());
  }
}

void CudaProgram::capture(BatchPlan& plan) {
  plan.graph = std::make_unique<CapturedGraph>(stream_, [&] {
    for (size_t node = 0; node < layers_.size(); ++node) launch_in_run(node, plan.batch);
  });
  plan.work_moves = work_.moves();
}

void CudaProgram::upload_random_images(int batch) {
  Random random({1});
  std::vector<uint64_t> words(graph_.input_shape().elements() * batch / sizeof(uint64_t) + 1);
  for (uint64_t& word : words) word = random.next();
  host_.upload(images_.data(), words.data(), graph_.input_shape().elements() * batch, stream_);
}

void CudaProgram::prepare(int batch) {
  check_batch(batch, max_batch_);
  plan_for(batch);
}

}  // namespace octet
