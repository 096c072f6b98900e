// CudaProgram: its memory on the device, and which batch would fit when there is too little.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/common/error.h"
#include "src/engine/cuda/cuda_program.h"

namespace octet {

MemoryPlan CudaProgram::arena_plan(int images) const {
  std::vector<int> alias;
  std::vector<size_t> bytes;
  for (const Layer& layer : layers_) {
    alias.push_back(layer.buffer);
    bytes.push_back(aligned(layer.image_bytes * images + kernels::kCudaReadSlack, kDeviceAlignment));
  }
  std::vector<BufferLife> lives = lifetimes(graph_, bytes, alias);
  for (const CudaGroup& group : groups_) {  // as one it runs where its last node would, and reads what the first reads
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
  // Lanes behind the last channel may be read, with weights of zero, where no kernel has written them.
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

// Work space is chosen by measurement: that of fewer images is taken to be in proportion.
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

}  // namespace octet
