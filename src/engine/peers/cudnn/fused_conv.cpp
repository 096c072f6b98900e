// SPDX-License-Identifier: Apache-2.0
// Fused convolutions by cuDNN's graph API, documented in NVIDIA's "cuDNN Frontend Developer Guide" and "cuDNN Backend
// API" (runtime fusion engines). This is the only file that includes cudnn_frontend, which is large.
#include "src/engine/peers/operations.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/threads.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/peers/peer.h"

namespace octet {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum TensorId : int64_t { kX = 1, kWeight, kMultiplier, kBias, kResidual, kResidualMultiplier, kY };

constexpr int64_t kMaxWorkspace = int64_t{1} << 30;  ///< plans that need more bytes are not used

[[noreturn]] void fail(const std::string& what, const std::string& reason) {
  throw promise_error(fmt::format("{}: {}: {}", cudnn_version(), what, reason));
}

void check(const fe::error_t& status, const char* what) {
  if (status.is_bad()) fail(what, status.err_msg);
}

/// cuDNN's handle of one GPU and the lock that its users take. It is never freed, because at exit the CUDA runtime may
/// be gone before statics are.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t get = nullptr;
};
/// Returns the handle of the thread's current GPU: cuDNN binds a handle to the GPU that is current when it is created.
Handle& handle() {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, Handle>;  // by GPU
  const std::lock_guard lock(mutex);
  Handle& of_gpu = handles[current_gpu()];
  if (of_gpu.get == nullptr) {
    const cudnnStatus_t status = fe::detail::create_handle(&of_gpu.get);
    if (status != CUDNN_STATUS_SUCCESS) fail("cudnnCreate", fe::detail::get_error_string(status));
  }
  return of_gpu;
}

/// Returns a text of everything in a spec that a plan depends on: specs with the same text share plans.
std::string describe(const FusedConvSpec& spec) {
  const kernels::Conv2dShape& s = spec.shape;
  return fmt::format(
      "{} {} images {}x{}x{} -> {}x{}x{}, kernel {}x{}, stride {}x{}, pad {}x{}, dilation {}x{}, "
      "groups {}{}, clamp {}..{}{}",
      spec.type == FusedConvSpec::Type::int8 ? "int8" : "fp16", spec.images, s.in_c, s.in_h, s.in_w, s.out_c, s.out_h,
      s.out_w, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_h, s.pad_w, s.dilation_h, s.dilation_w, s.groups,
      spec.residual ? ", residual" : "", spec.clamp_min, spec.clamp_max, spec.every_plan ? "" : ", first plan");
}

using Dims = std::vector<int64_t>;

/// Returns the strides of a dense channels-last tensor; cuDNN orders dimensions as N, C, H, W.
Dims channels_last(const Dims& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }

fe::graph::Pointwise_attributes pointwise(fe::PointwiseMode_t mode) {
  return fe::graph::Pointwise_attributes().set_mode(mode).set_compute_data_type(fe::DataType_t::FLOAT);
}

std::shared_ptr<fe::graph::Graph> operation_graph(const FusedConvSpec& spec) {
  const kernels::Conv2dShape& s = spec.shape;
  const bool int8 = spec.type == FusedConvSpec::Type::int8;
  const fe::DataType_t io = int8 ? fe::DataType_t::INT8 : fe::DataType_t::HALF, real = fe::DataType_t::FLOAT;
  const fe::DataType_t sum = int8 ? fe::DataType_t::INT32 : real;
  const Dims y_dims = {spec.images, s.out_c, s.out_h, s.out_w};
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_intermediate_data_type(real).set_compute_data_type(real);
  const auto tensor = [&](TensorId id, const Dims& dims, fe::DataType_t type) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_name(std::to_string(id))
                             .set_dim(dims)
                             .set_stride(channels_last(dims))
                             .set_data_type(type));
  };
  const auto apply = [&](fe::PointwiseMode_t mode, const Tensor& a, const Tensor& b) {
    Tensor result = graph->pointwise(a, b, pointwise(mode));
    result->set_data_type(real);
    return result;
  };

  Tensor t = graph->conv_fprop(tensor(kX, {spec.images, s.in_c, s.in_h, s.in_w}, io),
                               tensor(kWeight, {s.out_c, s.in_c / s.groups, s.kernel_h, s.kernel_w}, io),
                               fe::graph::Conv_fprop_attributes()
                                   .set_padding({s.pad_h, s.pad_w})
                                   .set_stride({s.stride_h, s.stride_w})
                                   .set_dilation({s.dilation_h, s.dilation_w})
                                   .set_compute_data_type(sum));
  t->set_data_type(sum);
  t = apply(fe::PointwiseMode_t::MUL, t, tensor(kMultiplier, {1, s.out_c, 1, 1}, real));
  t = apply(fe::PointwiseMode_t::ADD, t, tensor(kBias, {1, s.out_c, 1, 1}, real));
  if (spec.residual) {
    const Tensor scaled =
        apply(fe::PointwiseMode_t::MUL, tensor(kResidual, y_dims, io), tensor(kResidualMultiplier, {1, 1, 1, 1}, real));
    t = apply(fe::PointwiseMode_t::ADD, t, scaled);
  }
  // The conversion to int8 saturates, so only a narrower clamp needs an operation.
  const bool clamps = int8 ? spec.clamp_min > -128 || spec.clamp_max < 127 : spec.clamp_min == 0;
  if (clamps) {
    fe::graph::Pointwise_attributes relu = pointwise(fe::PointwiseMode_t::RELU_FWD);
    if (spec.clamp_min != 0) relu.set_relu_lower_clip(static_cast<float>(spec.clamp_min));
    if (int8 && spec.clamp_max < 127) relu.set_relu_upper_clip(static_cast<float>(spec.clamp_max));
    t = graph->pointwise(t, relu);
  }
  t->set_output(true).set_uid(kY).set_data_type(io).set_dim(y_dims).set_stride(channels_last(y_dims));
  return graph;
}

/// The plans of one spec, which are built, then timed.
class Plans final : public FusedConv {
 public:
  explicit Plans(const FusedConvSpec& spec) : what_(describe(spec)), residual_(spec.residual) { build(spec); }

  std::string name() const override { return name_; }
  size_t workspace_bytes() const override { return workspace(fastest_); }
  void launch(const FusedConvTensors& tensors, CudaStream stream) const override {
    check(execute(fastest_, tensors, stream), what_.c_str());
  }

  void choose(const FusedConvTensors& tensors, const Stream& stream) {
    const std::lock_guard lock(choosing_);
    if (fastest_ >= 0) return;
    if (built_.size() == 1) {
      keep(built_.front());
      return;
    }
    std::vector<std::string> names;
    for (const int64_t plan : built_) names.push_back(plan_name(plan));
    keep(built_[fastest_candidate(names, {.slow_ratio = kPlanSlowRatio}, [&](size_t candidate, double slow_ms) {
      const int64_t plan = built_[candidate];
      const auto launch = [&](void* workspace) {
        FusedConvTensors with_workspace = tensors;
        with_workspace.workspace = workspace;
        check(execute(plan, with_workspace, stream.get()), what_.c_str());
      };
      return time_library_plan(stream, "cuDNN", plan_name(plan), workspace(plan), slow_ms, launch);
    })]);
  }

 private:
  void keep(int64_t plan) {
    fastest_ = plan;
    name_ = plan_name(plan) + (built_.size() > 1 ? fmt::format(", fastest of {}", built_.size()) : "");
  }

  void build(const FusedConvSpec& spec) {
    graph_ = operation_graph(spec);
    {
      const std::lock_guard lock(handle().mutex);
      check(graph_->validate(), what_.c_str());
      check(graph_->build_operation_graph(handle().get), what_.c_str());
      // The fallbacks are slow kernels, for shapes that the heuristics have no plan for.
      fe::error_t status = graph_->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B});
      if (status.is_bad()) status = graph_->create_execution_plans({fe::HeurMode_t::FALLBACK});
      check(status, what_.c_str());
    }
    std::string refusal = "it proposes no plan";
    std::set<std::string> seen;  // both modes may propose the same plan
    for (int64_t plan = 0; plan < graph_->get_execution_plan_count(); ++plan) {
      if (!seen.insert(plan_name(plan)).second) continue;
      throw_if_interrupted();  // cuDNN compiles each for seconds
      const fe::error_t status = graph_->build_plan_at_index(plan);
      if (status.is_bad()) {
        refusal = status.err_msg;
      } else if (workspace(plan) <= static_cast<size_t>(kMaxWorkspace)) {
        built_.push_back(plan);
        if (!spec.every_plan) break;
      }
    }
    if (built_.empty()) fail(what_, refusal);
  }

  std::string plan_name(int64_t plan) const {
    std::string name;
    check(graph_->get_plan_name_at_index(plan, name), what_.c_str());
    return name;
  }

  size_t workspace(int64_t plan) const {
    return static_cast<size_t>(std::max<int64_t>(graph_->get_workspace_size_plan_at_index(plan), 0));
  }

  fe::error_t execute(int64_t plan, const FusedConvTensors& t, CudaStream stream) const {
    const auto pointer = [](const void* data) { return const_cast<void*>(data); };
    std::unordered_map<int64_t, void*> pack = {{kX, pointer(t.x)},
                                               {kWeight, pointer(t.weight)},
                                               {kMultiplier, pointer(t.multiplier)},
                                               {kBias, pointer(t.bias)},
                                               {kY, t.y}};
    if (residual_) {
      pack[kResidual] = pointer(t.residual);
      pack[kResidualMultiplier] = pointer(t.residual_multiplier);
    }
    const std::lock_guard lock(handle().mutex);
    const cudnnStatus_t status = fe::detail::set_stream(handle().get, stream);
    if (status != CUDNN_STATUS_SUCCESS) fail("cudnnSetStream", fe::detail::get_error_string(status));
    return graph_->execute_plan_at_index(handle().get, pack, t.workspace, plan);
  }

  std::string what_, name_;
  bool residual_;
  std::shared_ptr<fe::graph::Graph> graph_;
  std::vector<int64_t> built_;
  int64_t fastest_ = -1;
  std::mutex choosing_;
};

/// The plans of this process; never freed, like the handle.
struct Cache {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, std::shared_ptr<Plans>> plans;  ///< by GPU and describe()
};
Cache& cache() {
  static Cache& kCache = *new Cache;
  return kCache;
}

std::shared_ptr<Plans> plans_of(const FusedConvSpec& spec) {
  const std::string text = describe(spec);
  const auto key = std::pair(current_gpu(), text);
  {
    const std::lock_guard lock(cache().mutex);
    const auto found = cache().plans.find(key);
    if (found != cache().plans.end()) return found->second;
  }
  auto built = with_errors(fmt::format("{}: {}", cudnn_version(), text), [&] { return std::make_shared<Plans>(spec); });
  const std::lock_guard lock(cache().mutex);
  return cache().plans.emplace(key, std::move(built)).first->second;
}

}  // namespace

std::shared_ptr<const FusedConv> cudnn_conv(const FusedConvSpec& spec, const FusedConvTensors& tensors,
                                            const Stream& stream) {
  const std::shared_ptr<Plans> plans = plans_of(spec);
  plans->choose(tensors, stream);
  return plans;
}

void build_plans(const std::vector<FusedConvSpec>& specs) {
  std::map<std::string, const FusedConvSpec*> distinct;
  for (const FusedConvSpec& spec : specs) distinct.emplace(describe(spec), &spec);
  std::vector<const FusedConvSpec*> work;
  for (const auto& [key, spec] : distinct) work.push_back(spec);
  const int gpu = current_gpu();
  ThreadPool pool(0);
  pool.run(static_cast<int>(work.size()), [&](int task, int) {
    try {
      const GpuGuard on_gpu(gpu);  // this thread has one of its own: cuDNN loads code into it
      plans_of(*work[task]);
    } catch (const std::exception&) {
      // No exception may leave a thread of the pool. cudnn_conv() meets the same refusal and can name the node.
    }
  });
}

}  // namespace octet
