#include "kernels/conv2d_int8/conv2d_check.h"

#include <string>

#include "kernels/conv2d_int8/padding.h"
#include "src/common/error.h"

namespace octet::kernels {
void require_conv2d(bool ok, const char* who, const char* what) {
  if (!ok) throw promise_error(std::string(who) + " convolution: " + what);
}

void check_conv2d(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w, const char* who) {
  const auto require = [&](bool ok, const char* what) { require_conv2d(ok, who, what); };
  require(g.in_c > 0 && g.in_h > 0 && g.in_w > 0 && g.out_c > 0 && g.out_h > 0 && g.out_w > 0, "empty tensor");
  require(g.kernel_h > 0 && g.kernel_w > 0 && g.stride_h > 0 && g.stride_w > 0 && g.pad_h >= 0 && g.pad_w >= 0 &&
              g.dilation_h > 0 && g.dilation_w > 0,
          "window out of range");
  require(g.groups > 0 && g.in_c % g.groups == 0 && g.out_c % g.groups == 0, "channels not divisible by groups");
  require(pad_bottom(g) > -g.stride_h && pad_right(g) > -g.stride_w, "windows do not reach the image's end");
  require(g.in_stride >= g.in_c && g.out_stride >= g.out_c, "pixel stride below channels");
  require(!p.has_residual || g.residual_stride >= g.out_c, "residual's pixel stride below channels");
  require(w.weight != nullptr && w.multiplier != nullptr && w.bias != nullptr, "parameters missing");
}

}  // namespace octet::kernels
