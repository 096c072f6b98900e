// SPDX-License-Identifier: Apache-2.0
// CudaProgram: choices by measurement (which kernels run a group, which convolutions run concurrently with the kernel
// before them), runs in one piece or in two halves, with or without a tap, and timing.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/base/error.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr const char* kRunning = "running the network on the GPU";

}  // namespace

void CudaProgram::choose_group(CudaGroup& group, int batch) {
  const std::vector<int>& nodes = group.group().nodes;
  std::vector<size_t> earlier;  // launched before the group's kernel, which runs in the last node's place
  for (int node = 0; node < group.last(); ++node) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end() && launches_in_run(node, batch)) {
      earlier.push_back(node);
    }
  }
  GroupProblem problem{.images = batch, .always = always_fused_};
  for (const int node : nodes) {
    const Layer& layer = layers_[node];
    problem.nodes.push_back({layer.step.get(), layer.inputs, layer.output, layer.image_bytes * batch});
  }
  problem.run_earlier = [&] {
    for (const size_t node : earlier) launch_in_run(node, batch);
  };
  problem.run_before = [&] { launch_in_run(earlier.back(), batch); };
  group.choose(problem, work_, stream_);
}

Traffic CudaProgram::traffic(size_t node, int batch) const {
  const auto output = [&](int n) { return ByteRange{layers_[n].output, layers_[n].image_bytes * batch}; };
  const CudaGroup* group = fused_group(node, batch);
  return group != nullptr ? traffic_of(graph_, group->group(), output)
                          : traffic_of(graph_, static_cast<int>(node), output);
}

bool CudaProgram::may_run_beside(size_t before, size_t node, int batch) const {
  return layers_[node].step->can_run_beside(batch) && !layers_[before].beside.contains(batch) &&
         independent(traffic(before, batch), traffic(node, batch));
}

// Called after all groups have been chosen, so that the launch before a node is known.
void CudaProgram::choose_beside(int batch) {
  constexpr int kRuns = 7;
  // Describes the launch at a node: nodes, shapes and kernel.
  const auto described = [&](size_t node) {
    if (const CudaGroup* group = fused_group(node, batch)) {
      return fmt::format("{} by {}", group->description(), group->fused(batch)->kernel(batch));
    }
    // A merged lookup is launched with its convolution, whose memory it shares.
    std::vector<int> nodes = {static_cast<int>(node)};
    if (layers_[node].buffer != nodes[0]) nodes.insert(nodes.begin(), layers_[node].buffer);
    return fmt::format("{} by {}", described_nodes(graph_, nodes), layers_[node].step->kernel(batch));
  };
  std::optional<size_t> before;
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (!launches_in_run(node, batch)) continue;
    if (before && fused_group(node, batch) == nullptr && may_run_beside(*before, node, batch)) {
      const auto milliseconds = [&](bool beside) {
        const auto both = [&] { launch_in_run(*before, batch), launch(node, batch, beside); };
        return time_launches(stream_, both, {.runs = kRuns});
      };
      const size_t chosen = remembered_choice(
          fmt::format("{} images, {} behind {}", batch, described(node), described(*before)), {"apart", "beside"},
          [&] { return MeasuredChoice{milliseconds(true) < milliseconds(false) ? size_t{1} : 0}; });
      if (chosen == 1) layers_[node].beside.insert(batch);
    }
    before = node;
  }
}

template <typename Work>
void CudaProgram::at_batch(int batch, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    queue_.reset();
    try {
      stream_.wait("");
    } catch (const Error&) {  // the same failure
    }
    throw Error(error.code(), fmt::format("{}, {} images: {}", graph_.name, batch, error.what()));
  }
}

template <typename Copy>
void CudaProgram::hand_over(size_t node, int batch, void* to, const Copy& copy) {
  const size_t bytes = layers_[node].image_bytes * batch;
  if (layers_[node].image_bytes == graph_.nodes[node].image_bytes()) return copy(to, bytes);
  gapped_.resize(bytes);
  copy(gapped_.data(), bytes);
  close_gaps(node, batch, gapped_.data(), to);
}

void CudaProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) {
  check_run(batch, max_batch_, outputs, graph_.outputs.size());
  const BatchPlan& plan = plan_for(batch);
  at_batch(batch, [&] {
    host_.upload(images_.data(), images, graph_.input_shape().elements() * batch, stream_);
    if (tap) {
      run_with_tap(batch, tap);
    } else {
      plan.graph->replay(stream_.get());
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      download(graph_.outputs[i], batch, outputs[i], kRunning);
    }
  });
}

void CudaProgram::submit(const uint8_t* images, int batch) {
  check_batch(batch, max_batch_);
  check_submit(queue_ ? queue_->size() : 0);
  const BatchPlan& plan = plan_for(batch);
  at_batch(batch, [&] {
    if (!queue_) {
      std::vector<size_t> bytes;
      for (const int output : graph_.outputs) bytes.push_back(layers_[output].image_bytes * max_batch_);
      queue_ = std::make_unique<BatchQueue>(graph_.input_shape().elements() * max_batch_, bytes);
    }
    queue_->upload(images, graph_.input_shape().elements() * batch, images_.data(), stream_);
    plan.graph->replay(stream_.get());
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Layer& layer = layers_[graph_.outputs[i]];
      queue_->keep(i, layer.output, layer.image_bytes * batch, stream_);
    }
    queue_->push(batch, stream_);
  });
}

void CudaProgram::collect(const OutputMemory& outputs) {
  check_outputs(outputs, graph_.outputs.size());
  check_collect(queue_ ? queue_->size() : 0);
  at_batch(queue_->first_images(), [&] {
    const BatchQueue::Batch& done = queue_->pop(kRunning);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      hand_over(graph_.outputs[i], done.images, outputs[i],
                [&](void* to, size_t bytes) { queue_->read(to, done.outputs[i], bytes, kRunning); });
    }
  });
}

void CudaProgram::run_with_tap(int batch, const NodeTap& tap) {
  for (size_t node = 0; node < layers_.size(); ++node) {
    // A node that another node's kernel computes in a run is shown by its own step.
    if (!launch_in_run(node, batch, /*alone=*/true)) launch(node, batch);
    show(tap, node, batch);
  }
}

void CudaProgram::close_gaps(size_t node, int batch, const uint8_t* from, void* to) const {
  const Shape& shape = graph_.nodes[node].shape;
  const size_t pixels = static_cast<size_t>(shape.h) * shape.w;
  const size_t bytes = graph_.nodes[node].image_bytes() / pixels, stride = layers_[node].image_bytes / pixels;
  for (size_t pixel = 0; pixel < pixels * batch; ++pixel) {
    std::copy_n(from + pixel * stride, bytes, static_cast<uint8_t*>(to) + pixel * bytes);
  }
}

void CudaProgram::download(size_t node, int batch, void* to, const char* what) {
  hand_over(node, batch, to,
            [&](void* host, size_t bytes) { host_.download(host, layers_[node].output, bytes, stream_, what); });
}

void CudaProgram::show(const NodeTap& tap, size_t node, int batch) {
  const size_t bytes = graph_.nodes[node].image_bytes() * batch;
  if (shown_.bytes() < bytes) shown_ = {}, shown_ = PinnedBuffer(bytes);
  at_node(node, [&] { download(node, batch, shown_.data(), "running it on the GPU"); });
  tap(static_cast<int>(node), shown_.data(), bytes);
}

std::vector<LayerInfo> CudaProgram::layers() const {
  std::vector<LayerInfo> layers;
  for (size_t node = 0; node < layers_.size(); ++node) {
    const int lookup = layers_[node].lookup;
    const CudaStep* step = layers_[lookup < 0 ? node : lookup].step.get();
    const char* beside = layers_[lookup < 0 ? node : lookup].beside.contains(max_batch_) ? "_beside" : "";
    layers.push_back(
        {graph_.nodes[node].name, step ? step->kernel(max_batch_) + beside : "alias", step ? step->engine() : ""});
  }
  for (const Layer& layer : layers_) {
    if (layer.lookup >= 0) layers[layer.lookup].kernel = "merged";
  }
  for (const CudaGroup& group : groups_) {
    const CudaStep* fused = group.fused(max_batch_);
    if (fused == nullptr) continue;
    for (const int node : group.group().nodes) layers[node].kernel = "merged";
    layers[group.first()].kernel = fused->kernel(max_batch_);
  }
  return layers;
}

std::vector<double> CudaProgram::time_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  const BatchPlan& plan = plan_for(batch);
  upload_random_images(batch);
  return time_replays(*plan.graph, stream_, runs);
}

// Every node is launched once, in order, before it is timed: so its inputs are a run's, although layers share memory.
std::vector<double> CudaProgram::time_layers_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  plan_for(batch);
  upload_random_images(batch);
  std::vector<double> medians(layers_.size());
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (!launch_in_run(node, batch, /*alone=*/true)) continue;
    medians[node] = time_launches(stream_, [&] { launch_in_run(node, batch, /*alone=*/true); }, {.runs = runs});
  }
  return medians;
}

}  // namespace octet
