#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/batch_norm/cuda_batch_norm.h"
#include "src/model/batch_norm_passes.h"
#include "src/model/device.h"
#include "src/model/value_types.h"

namespace octet {
namespace {

/// The kernels see rows of channels.
at::Tensor in_rows(const at::Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

kernels::BatchNormShare share_of(const at::Tensor& x) {
  return {.x = x.const_data_ptr(),
          .rows = x.numel() / x.size(1),
          .channels = static_cast<int>(x.size(1)),
          .type = value_type(x)};
}

struct Sums {
  explicit Sums(const at::Tensor& x)
      : parts(at::empty({kernels::batch_norm_parts(x.numel() / x.size(1), static_cast<int>(x.size(1))), 2, x.size(1)},
                        x.options().dtype(at::kFloat))),
        mine(at::empty({2, x.size(1)}, parts.options())) {}
  at::Tensor parts, mine;
};

float* pointer(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

}  // namespace

NormalizedBatch cuda_batch_norm(const at::Tensor& input, const BatchNormTensors& t, const BatchNormNumbers& numbers,
                                const GatherShares& gather) {
  const at::Tensor x = in_rows(input);
  if (x.numel() == 0) throw too_few_values();  // the kernels divide rows among blocks
  const c10::DeviceGuard guard(x.device());
  const CudaStream stream = current_stream(x.device());
  const kernels::BatchNormShare share = share_of(x);
  const Sums moments(x);
  kernels::cuda_batch_norm_moments(share, pointer(moments.parts), pointer(moments.mine), stream);
  const at::Tensor all = gather(moments.mine);
  count_in(x, all.size(0));
  const NormalizedBatch result{at::empty_like(x), at::empty_like(moments.mine)};
  kernels::cuda_batch_norm_normalize(share,
                                     {.moments = all.const_data_ptr<float>(),
                                      .shares = static_cast<int>(all.size(0)),
                                      .weight = t.weight.const_data_ptr<float>(),
                                      .bias = t.bias.const_data_ptr<float>(),
                                      .running_mean = pointer(t.running_mean),
                                      .running_var = pointer(t.running_var),
                                      .momentum = static_cast<float>(numbers.momentum),
                                      .epsilon = static_cast<float>(numbers.epsilon),
                                      .kept = pointer(result.kept),
                                      .y = result.y.mutable_data_ptr()},
                                     stream);
  return result;
}

BatchNormGradients cuda_batch_norm_backward(const at::Tensor& of_output, const at::Tensor& input,
                                            const at::Tensor& weight, const at::Tensor& kept,
                                            const GatherShares& gather) {
  const at::Tensor x = in_rows(input), dy = in_rows(of_output.to(x.scalar_type()));
  const c10::DeviceGuard guard(x.device());
  const CudaStream stream = current_stream(x.device());
  const kernels::BatchNormShare share = share_of(x);
  const kernels::BatchNormBackward backward{
      .dy = dy.const_data_ptr(), .kept = kept.const_data_ptr<float>(), .weight = weight.const_data_ptr<float>()};
  const Sums sums(x);
  const BatchNormGradients result{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  kernels::cuda_batch_norm_gradient_sums(share, backward, pointer(sums.parts), pointer(sums.mine),
                                         pointer(result.weight), pointer(result.bias), stream);
  const at::Tensor all = gather(sums.mine);
  kernels::cuda_batch_norm_gradient(share, backward, all.const_data_ptr<float>(), static_cast<int>(all.size(0)),
                                    result.x.mutable_data_ptr(), stream);
  return result;
}

}  // namespace octet
