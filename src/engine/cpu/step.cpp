#include "src/engine/cpu/step.h"

#include <memory>
#include <optional>

#include "src/engine/cpu/image_step.h"

namespace octet {
namespace {

class ConvStep final : public CpuStep {
 public:
  ConvStep(const Lowering& lowering, int node, kernels::CpuIsa isa)
      : conv_(kernels::CpuConv2d::create(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                         lowering.conv2d_weights(node), isa)),
        has_residual_(lowering.graph.nodes[node].inputs.size() > 1) {}
  std::string kernel() const override { return conv_->name() + (lookup_ ? "_lookup" : ""); }
  size_t workspace_bytes() const override { return conv_->workspace_bytes(); }
  int tasks(int images) const override { return conv_->tasks(images); }
  void run(const StepData& data, kernels::Range tasks, void* workspace) const override {
    const kernels::CpuConv2dBatch batch{data.images, data.inputs[0], has_residual_ ? data.inputs[1] : nullptr,
                                        data.output, lookup_ ? &*lookup_ : nullptr};
    conv_->run(batch, tasks.begin, tasks.end, workspace);
  }

  std::unique_ptr<CpuStep> with_lookup(const kernels::LookupTable& table) const override {
    auto step = std::make_unique<ConvStep>(*this);
    step->lookup_ = table;
    return step;
  }

 private:
  std::shared_ptr<const kernels::CpuConv2d> conv_;
  bool has_residual_;
  std::optional<kernels::LookupTable> lookup_;
};

}  // namespace

std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  switch (lowering.graph.nodes[node].op) {
    case Int8Op::input:
      return make_input_step(lowering, node);
    case Int8Op::conv2d:
    case Int8Op::linear:
      return std::make_unique<ConvStep>(lowering, node, isa);
    case Int8Op::add:
      return make_add_step(lowering, node, isa);
    case Int8Op::mul:
      return make_mul_step(lowering, node, isa);
    case Int8Op::concat:
    case Int8Op::requantize:
      return make_requantize_step(lowering, node, isa);
    case Int8Op::max_pool:
      return make_max_pool_step(lowering, node, isa);
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
      return make_avg_pool_step(lowering, node, isa);
    case Int8Op::resize_bilinear:
      return make_bilinear_step(lowering, node, isa);
    case Int8Op::matmul:
      return make_matmul_step(lowering, node, isa);
    case Int8Op::softmax:
      return make_softmax_step(lowering, node, isa);
    case Int8Op::lookup:
      return make_lookup_step(lowering, node, isa);
    case Int8Op::subsample_pad:
      return make_subsample_pad_step(lowering, node);
    case Int8Op::slice:
    case Int8Op::resize:
    case Int8Op::channel_shuffle:
    case Int8Op::depth_to_space:
      return make_pick_step(lowering, node);
    case Int8Op::flatten:
      return lowering.flatten_is_alias(node) ? nullptr : make_flatten_step(lowering, node);
  }
  throw no_step(lowering.graph.nodes[node], "cpu");
}

}  // namespace octet
