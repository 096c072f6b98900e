#include "src/engine/cuda/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/common/error.h"
#include "src/common/random.h"
#include "src/engine/cuda/timing.h"
#include "src/engine/fusion.h"
#include "src/engine/support.h"

namespace octet {
namespace {

// Batch sizes whose CUDA graphs are kept: training's report uses three (the recipe's, the last of a data set, 1).
constexpr size_t kPlansKept = 8;

}  // namespace

CudaProgram::CudaProgram(const Int8Graph& graph, const CompileOptions& options, const CudaStepFactory& make_step)
    : graph_(graph), lowering_{graph_, kernels::cuda_channel_stride}, max_batch_(options.max_batch) {
  make_layers(make_step);
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

MemoryPlan CudaProgram::arena_plan(int images) const {
  std::vector<int> alias;
  std::vector<size_t> bytes;
  for (const Layer& layer : layers_) {
    alias.push_back(layer.buffer);
    bytes.push_back(aligned(layer.image_bytes * images + kernels::kCudaReadSlack, kDeviceAlignment));
  }
  return plan_memory(lifetimes(graph_, bytes, alias));
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
  // Lanes behind the last channel may be read, with weights of zero, where no kernel has written them.
  fill_device(arena_.data(), 0, arena_.bytes(), stream_.get());
  for (size_t node = 0; node < layers_.size(); ++node) {
    layers_[node].output = arena_.data() + memory.offsets[layers_[node].buffer];
    for (const int input : graph_.nodes[node].inputs) layers_[node].inputs.push_back(layers_[input].output);
  }
  layers_.front().inputs = {images_.data()};
  size_t largest = pixels;
  for (const int output : graph_.outputs) largest = std::max(largest, layers_[output].image_bytes * max_batch_);
  host_ = HostCopies(largest);
}

// Work space is chosen by measurement: that of fewer images is taken to be in proportion.
Error CudaProgram::does_not_fit(const OutOfGpuMemory& error, int images, size_t work) const {
  const auto pixels = [&](int batch) { return graph_.input_shape().elements() * batch + kernels::kCudaReadSlack; };
  size_t weights = 0, uploaded = 0;
  for (const Int8Node& node : graph_.nodes) weights += node.weight.size();
  for (const Layer& layer : layers_) uploaded += layer.step ? layer.step->constant_bytes() : 0;
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
  return {batch, layers_[node].inputs.data(), layers_[node].output, work_.scratch(), work_.zeroed()};
}

bool CudaProgram::launch(size_t node, int batch, bool beside) const {
  if (!layers_[node].step) return false;
  CudaStepData of_node = data(node, batch);
  of_node.beside = beside;
  at_node(node, [&] { layers_[node].step->launch(of_node, stream_.get()); });
  return true;
}

CudaProgram::BatchPlan& CudaProgram::plan_for(int batch) {
  const auto known = std::find_if(plans_.begin(), plans_.end(), [&](const BatchPlan& p) { return p.batch == batch; });
  if (known != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, known);
  } else {
    prepare_steps(batch);
    plans_.push_front({.batch = batch});
    if (plans_.size() > kPlansKept) plans_.pop_back();
  }
  // Of all batch sizes, so that each is ready when it is run; also after a preparation that failed half-way.
  for (BatchPlan& plan : plans_) {
    if (plan.work_moves != work_.moves()) capture(plan);
  }
  return plans_.front();
}

// Node after node, so that each step measures on what a run leaves in its inputs, and an error names its node.
void CudaProgram::prepare_steps(int batch) {
  upload_random_images(batch);
  std::function<void()> before;
  size_t last = 0;  // of those launched
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
        if (before) choose_beside(last, node, batch);
      });
      last = node;
      before = [this, node, batch] { launch(node, batch); };
    }
  } catch (const OutOfGpuMemory& error) {
    throw does_not_fit(error, batch, work_.bytes() + error.asked());
  }
}

bool CudaProgram::may_run_beside(size_t before, size_t node, int batch) const {
  const Layer &a = layers_[before], &b = layers_[node];
  if (!b.step->can_run_beside(batch) || a.beside.contains(batch)) return false;
  const auto reads = [&](size_t reader, const Layer& written) {
    for (size_t i = 0; i < graph_.nodes[reader].inputs.size(); ++i) {
      const uint8_t* input = layers_[reader].inputs[i];
      const size_t bytes = layers_[graph_.nodes[reader].inputs[i]].image_bytes * batch;
      if (input < written.output + written.image_bytes * batch && written.output < input + bytes) return true;
    }
    return false;
  };
  const bool both_write = a.output < b.output + b.image_bytes * batch && b.output < a.output + a.image_bytes * batch;
  return !both_write && !reads(before, b) && !reads(node, a);
}

void CudaProgram::choose_beside(size_t before, size_t node, int batch) {
  constexpr int kRuns = 7;
  layers_[node].beside.erase(batch);
  if (!may_run_beside(before, node, batch)) return;
  const auto milliseconds = [&](bool beside) {
    return time_launches(stream_, [&] { launch(before, batch), launch(node, batch, beside); }, {.runs = kRuns});
  };
  if (const double apart = milliseconds(false); milliseconds(true) < apart) layers_[node].beside.insert(batch);
}

void CudaProgram::capture(BatchPlan& plan) {
  plan.graph = std::make_unique<CapturedGraph>(stream_, [&] {
    for (size_t node = 0; node < layers_.size(); ++node) {
      if (layers_[node].lookup < 0) launch(node, plan.batch, layers_[node].beside.contains(plan.batch));
    }
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
  return layers;
}

std::vector<double> CudaProgram::time_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  const BatchPlan& plan = plan_for(batch);
  upload_random_images(batch);
  return time_replays(*plan.graph, stream_, runs);
}

// In order, once each before it is timed: its inputs hold what a run leaves there, although layers share memory.
std::vector<double> CudaProgram::time_layers_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  plan_for(batch);
  upload_random_images(batch);
  std::vector<double> medians(layers_.size());
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (layers_[node].lookup >= 0) continue;
    if (launch(node, batch)) medians[node] = time_launches(stream_, [&] { launch(node, batch); }, {.runs = runs});
  }
  return medians;
}

}  // namespace octet
