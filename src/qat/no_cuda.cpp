// Quantizers on the GPU in a build without CUDA: refused.
#include "src/common/error.h"
#include "src/qat/cuda_fake_quantize.h"
#include "src/qat/cuda_quantizers.h"
#include "src/quant/prepare.h"

namespace octet {
namespace {

[[noreturn]] void refuse() {
  throw usage_error(
      "this build of octet has no CUDA: keep weights and images on the CPU, or configure with "
      "-DOCTET_CUDA=ON");
}

}  // namespace

at::Tensor cuda_fake_quantize(const at::Tensor&, const TensorQuantizer&) { refuse(); }

at::Tensor cuda_fake_quantize(const at::Tensor&, const at::Tensor&, const at::Tensor&, const TensorQuantizer&) {
  refuse();
}

std::vector<at::Tensor> cuda_quantize_weights(const std::vector<at::Tensor>&, const WeightQuantizer&, at::ScalarType) {
  refuse();
}

std::unique_ptr<CudaQuantizers> make_cuda_quantizers(const Prepared&, const CudaQuantizersOptions&, at::Device) {
  refuse();
}

}  // namespace octet
