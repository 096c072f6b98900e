#include "src/qat/quantizers.h"

#include "src/model/device.h"

namespace octet {

std::unique_ptr<Quantizers> make_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                            at::Device device) {
  if (device.is_cpu()) return make_cpu_quantizers(prepared, options);
#if OCTET_CUDA
  return make_cuda_quantizers(prepared, options, device);
#else
  throw no_cuda(device);
#endif
}

std::vector<float> weight_scales(const Prepared& prepared, int node, const at::Tensor& weight,
                                 WeightCalibrator calibrator) {
  const bool mse = least_squares(calibrator);
  // Row-major for the search, whose sums depend on the order; a maximum does not.
  at::Tensor w = weight.is_cpu() ? weight.detach() : to_host(weight.detach());
  if (mse || !w.is_contiguous(at::MemoryFormat::ChannelsLast)) w = w.contiguous();
  const int channels = static_cast<int>(w.size(0));
  const float* values = w.const_data_ptr<float>();
  const WeightSpec spec{prepared.weight_codes(node), prepared.spec.weight_granularity};
  return mse ? weight_scales_mse(values, channels, w.numel() / channels, spec)
             : weight_scales(values, channels, w.numel() / channels, spec);
}

std::vector<at::Tensor> by_node(const at::Tensor& weights, const Graph& graph) {
  std::vector<at::Tensor> parts(graph.nodes.size());
  if (!weights.defined()) return parts;
  std::vector<int64_t> sizes;
  for (const Node& node : graph.nodes) sizes.push_back(has_weight(node.op) ? node.out_channels : 0);
  return weights.split_with_sizes(sizes);
}

}  // namespace octet
