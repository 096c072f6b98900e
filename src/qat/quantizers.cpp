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
  const bool mse = calibrator == WeightCalibrator::mse;
  // Row-major for the search, whose sums depend on the order; a maximum does not.
  at::Tensor w = weight.is_cpu() ? weight.detach() : to_host(weight.detach());
  if (mse || !w.is_contiguous(at::MemoryFormat::ChannelsLast)) w = w.contiguous();
  const int channels = static_cast<int>(w.size(0));
  const auto search = mse ? weight_scales_mse : static_cast<decltype(&weight_scales_mse)>(weight_scales);
  return search(w.const_data_ptr<float>(), channels, w.numel() / channels,
                {prepared.weight_codes(node), prepared.spec.weight_granularity});
}

}  // namespace octet
