// Checks a convolution against the contract of cpu_conv2d.h and picks the path that runs it.
#include "kernels/conv2d_int8/cpu_conv2d.h"

#include "kernels/conv2d_int8/cpu_paths.h"
#include "src/common/error.h"

namespace octet::kernels {
namespace {

int output_size(int in, int kernel, int stride, int pad, int dilation) {
  return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

void require(bool ok, const char* what) {
  if (!ok) throw promise_error(std::string("cpu convolution: ") + what);
}

void check(const Conv2dShape& g, const Conv2dParams& p) {
  require(g.in_c > 0 && g.in_h > 0 && g.in_w > 0 && g.out_c > 0 && g.out_h > 0 && g.out_w > 0, "empty tensor");
  require(g.kernel_h > 0 && g.kernel_w > 0 && g.stride_h > 0 && g.stride_w > 0 && g.pad_h >= 0 && g.pad_w >= 0 &&
              g.dilation_h > 0 && g.dilation_w > 0,
          "window out of range");
  require(g.groups > 0 && g.in_c % g.groups == 0 && g.out_c % g.groups == 0, "channels not divisible by groups");
  require(g.out_h == output_size(g.in_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h) &&
              g.out_w == output_size(g.in_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w),
          "output size does not follow from the window");
  require(g.in_stride >= g.in_c && g.out_stride >= g.out_c, "pixel stride below channels");
  require(!p.has_residual || g.residual_stride >= g.out_c, "residual's pixel stride below channels");
  require(p.weight != nullptr && p.multiplier != nullptr && p.bias != nullptr, "parameters missing");
  require(!p.x_signed && !p.out_signed && !p.residual_signed, "activations are uint8; shift signed edges by +128");
  require(p.x_zero_point >= 0 && p.x_zero_point <= 255, "input zero point outside [0, 255]");
  require(p.float_output || (p.clamp_min >= 0 && p.clamp_max <= 255 && p.clamp_min <= p.clamp_max),
          "clamp outside [0, 255]");
}

}  // namespace

std::unique_ptr<CpuConv2d> CpuConv2d::create(const Conv2dShape& shape, const Conv2dParams& params, CpuIsa isa) {
  check(shape, params);
  if (!cpu_isa_available(isa)) {
    throw usage_error("this machine cannot run the " + std::string(cpu_isa_name(isa)) +
                      " kernels; the fastest it can is " + std::string(cpu_isa_name(best_cpu_isa())));
  }
#if defined(__x86_64__)
  const bool wide = isa == CpuIsa::avx512_vnni;
  if (isa != CpuIsa::portable) {
    const bool depthwise = shape.groups == shape.in_c && shape.out_c == shape.in_c && shape.in_c > 1;
    if (depthwise && !params.float_output) {
      return make_depthwise_conv2d(shape, params, wide ? avx512_depthwise_kernels() : avx2_depthwise_kernels());
    }
    return make_gemm_conv2d(shape, params, wide ? avx512_gemm_kernels() : avx2_gemm_kernels());
  }
#endif
  return make_portable_conv2d(shape, params);
}

}  // namespace octet::kernels
