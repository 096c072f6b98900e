// Checks a convolution against the contract of cpu_conv2d.h and picks the path that runs it.
#include "kernels/conv2d_int8/cpu_conv2d.h"

#include "kernels/conv2d_int8/conv2d_check.h"
#include "kernels/conv2d_int8/cpu/paths.h"
#include "kernels/elementwise_int8/lookup_int8.h"
#include "src/common/error.h"

namespace octet::kernels {
namespace {

void require(bool ok, const char* what) { require_conv2d(ok, "cpu", what); }

void check(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  check_conv2d(g, p, w, "cpu");
  require(!p.x.is_signed && !p.y.is_signed && !p.residual.is_signed,
          "activations are uint8; shift signed edges by +128");
  require(p.x.zero_point >= 0 && p.x.zero_point <= 255, "input zero point outside [0, 255]");
  require(p.y.float_output || (p.y.clamp_min >= 0 && p.y.clamp_max <= 255 && p.y.clamp_min <= p.y.clamp_max),
          "clamp outside [0, 255]");
}

}  // namespace

void look_up_rows(CpuIsa isa, const LookupTable& table, uint8_t* y, int rows, ptrdiff_t stride, int channels) {
  if (stride == channels) return cpu_lookup_u8(isa, table, y, static_cast<long>(rows) * channels, y);
  for (int row = 0; row < rows; ++row, y += stride) cpu_lookup_u8(isa, table, y, channels, y);
}

std::unique_ptr<CpuConv2d> CpuConv2d::create(const Conv2dShape& shape, const Conv2dParams& params,
                                             const Conv2dWeights& weights, CpuIsa isa) {
  check(shape, params, weights);
  if (!cpu_isa_available(isa)) {
    throw usage_error("this machine cannot run the " + std::string(cpu_isa_name(isa)) +
                      " kernels; the fastest it can is " + std::string(cpu_isa_name(best_cpu_isa())));
  }
#if defined(__x86_64__)
  if (isa != CpuIsa::portable) {
    const bool depthwise = shape.groups == shape.in_c && shape.out_c == shape.in_c && shape.in_c > 1;
    if (depthwise && !params.y.float_output) {
      return make_depthwise_conv2d(shape, params, weights, isa);
    }
    return make_gemm_conv2d(shape, params, weights, isa);
  }
#endif
  return make_portable_conv2d(shape, params, weights);
}

}  // namespace octet::kernels
