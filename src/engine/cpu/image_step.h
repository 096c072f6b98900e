// Steps that work on one image at a time, and the functions that make them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/engine/cpu/step.h"

namespace octet {

/// A step whose images are cut into `units` pieces of about the same work: rows, blocks of channels, or whole images.
class ImageStep : public CpuStep {
 public:
  ImageStep(const Lowering& lowering, int node, std::string kernel, int units)
      : kernel_(std::move(kernel)), units_(units) {
    const Int8Node& n = lowering.graph.nodes[node];
    for (const int input : n.inputs) {
      const Shape& shape = lowering.graph.nodes[input].shape;
      input_bytes_.push_back(static_cast<size_t>(shape.h) * shape.w * lowering.stride(shape.c));
    }
    output_bytes_ = static_cast<size_t>(n.shape.h) * n.shape.w * lowering.output_stride(node) *
                    (n.float_output ? sizeof(float) : 1);
  }
  std::string kernel() const override { return kernel_; }
  int tasks(int images) const override { return images * units_; }
  void run(const StepData& data, kernels::Range tasks, void*) const override {
    for (int task = tasks.begin; task < tasks.end;) {
      const int image = task / units_, first = task % units_;
      const int count = std::min(units_ - first, tasks.end - task);
      run_image(data, image, {first, first + count});
      task += count;
    }
  }

 protected:
  virtual void run_image(const StepData& data, int image, kernels::Range units) const = 0;
  const uint8_t* input(const StepData& data, size_t index, int image) const {
    return data.inputs[index] + input_bytes_[index] * image;
  }
  uint8_t* output(const StepData& data, int image) const {
    return static_cast<uint8_t*>(data.output) + output_bytes_ * image;
  }

 private:
  std::string kernel_;
  int units_;
  std::vector<size_t> input_bytes_;  // of one image
  size_t output_bytes_ = 0;
};

/// "max_pool_avx2", for LayerInfo.
inline std::string kernel_name(std::string_view op, kernels::CpuIsa isa) {
  return std::string(op) + "_" + std::string(kernels::cpu_isa_name(isa));
}

std::unique_ptr<CpuStep> make_max_pool_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
/// avg_pool and global_avg_pool.
std::unique_ptr<CpuStep> make_avg_pool_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_bilinear_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_matmul_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_softmax_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_add_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_mul_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
/// requantize, and concat: one requantize an input.
std::unique_ptr<CpuStep> make_requantize_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_input_step(const Lowering& lowering, int node);
std::unique_ptr<CpuStep> make_lookup_step(const Lowering& lowering, int node, kernels::CpuIsa isa);
std::unique_ptr<CpuStep> make_subsample_pad_step(const Lowering& lowering, int node);
/// slice, resize, channel_shuffle, depth_to_space.
std::unique_ptr<CpuStep> make_pick_step(const Lowering& lowering, int node);
std::unique_ptr<CpuStep> make_flatten_step(const Lowering& lowering, int node);

}  // namespace octet
