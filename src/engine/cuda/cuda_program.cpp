#include "src/engine/cuda/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/common/error.h"
#include "src/common/random.h"
#include "src/engine/fusion.h"
#include "src/engine/support.h"

namespace octet {
namespace {

// Batch sizes whose CUDA graphs are kept: training's report uses three (the recipe's, the last of a data set, 1).
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
      layer.buffer = merged[node];  // a tap sees the convolution's codes there first
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
  // Of all batch sizes, so that each is ready when it is run; also after a preparation that failed half-way.
  for (BatchPlan& plan : plans_) {
    if (plan.work_moves != work_.moves()) capture(plan);
  }
  return plans_.front();
}

// Groups' kernels hold weights; those of the largest batch stay, which layers() names.
void CudaProgram::forget_last_plan() {
  const int batch = plans_.back().batch;
  plans_.pop_back();
  if (batch == max_batch_) return;
  for (CudaGroup& group : groups_) group.forget(batch);
}

// Node after node, so that each step measures on what a run leaves in its inputs, and an error names its node.
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
