// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/conv2d_random.h"

#include <algorithm>
#include <cmath>

#include "kernels/conv/conv2d.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

size_t output_elements(const ConvCase& c) {
  return static_cast<size_t>(c.images) * c.shape.out_h * c.shape.out_w * c.shape.out_stride;
}

size_t element_bytes(const ConvCase& c) { return c.params.y.float_output ? sizeof(float) : 1; }

}  // namespace

void ConvCase::bind() { weights = {weight.data(), multiplier.data(), bias.data()}; }

std::string ConvCase::describe() const {
  const Conv2dShape& g = shape;
  auto pair = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  return std::to_string(images) + " images, in " + std::to_string(g.in_c) + " (stride " + std::to_string(g.in_stride) +
         ") " + pair(g.in_h, g.in_w) + ", out " + std::to_string(g.out_c) + " (stride " + std::to_string(g.out_stride) +
         ") " + pair(g.out_h, g.out_w) + ", kernel " + pair(g.kernel_h, g.kernel_w) + ", stride " +
         pair(g.stride_h, g.stride_w) + ", pad " + pair(g.pad_h, g.pad_w) + " and behind " +
         pair(pad_bottom(g), pad_right(g)) + ", dilation " + pair(g.dilation_h, g.dilation_w) + ", groups " +
         std::to_string(g.groups) + ", zx " + std::to_string(params.x.zero_point) +
         (params.has_residual ? ", residual" : "") + (params.y.float_output ? ", float" : "") +
         (lookup ? ", looked up" : "");
}

void infer_output(Conv2dShape& g) {
  g.out_h = (g.in_h + 2 * g.pad_h - g.dilation_h * (g.kernel_h - 1) - 1) / g.stride_h + 1;
  g.out_w = (g.in_w + 2 * g.pad_w - g.dilation_w * (g.kernel_w - 1) - 1) / g.stride_w + 1;
}

void infer_output(Conv2dShape& g, std::mt19937& random) {
  const auto out = [&](int in, int kernel, int stride, int pad, int dilation) {
    const int span = dilation * (kernel - 1) + 1;
    const int least = std::max(0, span - in - pad);
    const int behind = uniform(random, 0, 2) == 0 ? uniform(random, least, std::max(least, pad) + 2) : pad;
    return (in + pad + behind - span) / stride + 1;
  };
  g.out_h = out(g.in_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h);
  g.out_w = out(g.in_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w);
}

void fill_random(ConvCase& c, std::mt19937& random, RandomOptions options) {
  const Conv2dShape& g = c.shape;
  const int taps = g.kernel_h * g.kernel_w * (g.in_c / g.groups);
  c.weight.resize(static_cast<size_t>(g.out_c) * taps);
  for (int8_t& w : c.weight) {
    w = static_cast<int8_t>(options.extreme ? (random() & 1 ? 127 : -127) : uniform(random, -127, 127));
  }
  if (options.extreme && g.out_c > 1) {  // one channel of each sign throughout: the largest accumulators there are
    std::fill_n(c.weight.begin(), taps, int8_t{127});
    std::fill_n(c.weight.begin() + taps, taps, int8_t{-127});
  }
  auto code = [&] { return static_cast<uint8_t>(options.extreme ? (random() & 7 ? 255 : 0) : random() & 255); };
  c.x.resize(static_cast<size_t>(c.images) * g.in_h * g.in_w * g.in_stride + kCpuReadSlack);
  std::generate(c.x.begin(), c.x.end(), code);
  c.residual.resize(c.params.has_residual ? static_cast<size_t>(c.images) * g.out_h * g.out_w * g.residual_stride : 0);
  std::generate(c.residual.begin(), c.residual.end(), code);

  // Accumulators of random codes have a deviation near 5400 * sqrt(taps); aim at +-100 codes, exactly halfway at times.
  std::uniform_real_distribution<float> spread(0.2f, 2.0f), offset(-40.0f, 160.0f);
  const float unit = 100.0f / (5400.0f * std::sqrt(static_cast<float>(taps)));
  c.multiplier.resize(g.out_c);
  c.bias.resize(g.out_c);
  for (int k = 0; k < g.out_c; ++k) {
    const bool halves = uniform(random, 0, 3) == 0;  // multiples of 1/2 or finer: many ties to round
    c.multiplier[k] = halves ? std::ldexp(1.0f, static_cast<int>(std::log2(unit))) : unit * spread(random);
    if (uniform(random, 0, 7) == 0) c.multiplier[k] = -c.multiplier[k];
    c.bias[k] = halves ? static_cast<float>(uniform(random, -80, 320)) / 2 : offset(random);
  }
  if (g.out_c > 2) c.multiplier[g.out_c - 1] = 0;
  c.params.residual_multiplier = spread(random);
  c.bind();
}

void keep_two_of_four(ConvCase& c, std::mt19937& random) {
  const int channels = c.shape.in_c / c.shape.groups;
  for (size_t row = 0; row < c.weight.size(); row += channels) {
    for (int four = 0; four < channels; four += 4) {
      const int gone[] = {uniform(random, 0, 3), uniform(random, 0, 3)};
      for (int i = 0, left = 0; i < std::min(4, channels - four); ++i) {
        int8_t& w = c.weight[row + four + i];
        if (i == gone[0] || i == gone[1] || left == 2) w = 0;
        left += w != 0;
      }
    }
  }
}

ConvCase random_case(std::mt19937& random) {
  ConvCase c;
  Conv2dShape& g = c.shape;
  const int kind = uniform(random, 0, 5);
  const bool depthwise = kind == 0, pointwise = kind == 1, linear = kind == 2;
  g.groups = depthwise ? uniform(random, 1, 100) : (uniform(random, 0, 3) == 0 ? uniform(random, 1, 4) : 1);
  g.in_c = g.groups * (depthwise ? 1 : uniform(random, 1, linear ? 300 : 40));
  g.out_c = g.groups * (depthwise && uniform(random, 0, 3) != 0 ? 1 : uniform(random, 1, 70));
  if (depthwise) g.out_c = std::min(g.out_c, 4 * g.groups);
  auto kernel = [&] { return pointwise || linear ? 1 : uniform(random, 1, uniform(random, 0, 3) == 0 ? 7 : 3); };
  g.kernel_h = kernel();
  g.kernel_w = uniform(random, 0, 2) == 0 ? kernel() : g.kernel_h;
  g.stride_h = uniform(random, 1, 3);
  g.stride_w = uniform(random, 0, 2) == 0 ? uniform(random, 1, 3) : g.stride_h;
  if (pointwise && random() & 1) g.stride_h = g.stride_w = 1;
  g.dilation_h = uniform(random, 0, 3) == 0 ? uniform(random, 1, 3) : 1;
  g.dilation_w = uniform(random, 0, 3) == 0 ? uniform(random, 1, 3) : g.dilation_h;
  g.pad_h = pointwise && random() & 1 ? 0 : uniform(random, 0, g.kernel_h);
  g.pad_w = pointwise && random() & 1 ? 0 : uniform(random, 0, g.kernel_w);
  if (linear) g.pad_h = g.pad_w = 0;
  const int span_h = g.dilation_h * (g.kernel_h - 1) + 1, span_w = g.dilation_w * (g.kernel_w - 1) + 1;
  g.in_h = linear ? 1 : std::max(1, span_h - 2 * g.pad_h) + uniform(random, 0, 12);
  g.in_w = linear ? 1 : std::max(1, span_w - 2 * g.pad_w) + uniform(random, 0, 12);
  linear ? infer_output(g) : infer_output(g, random);
  auto stride = [&](int channels) {
    const int choice = uniform(random, 0, 2);
    return choice == 0 ? channels : choice == 1 ? cpu_channel_stride(channels) : channels + uniform(random, 1, 50);
  };
  g.in_stride = stride(g.in_c);
  g.out_stride = stride(g.out_c);
  g.residual_stride = stride(g.out_c);
  c.images = uniform(random, 1, 3);

  Conv2dParams& p = c.params;
  const int zero_points[] = {0, 128, 255, uniform(random, 0, 255)};
  p.x.zero_point = zero_points[uniform(random, 0, 3)];
  p.y.zero_point = zero_points[uniform(random, 0, 3)];
  p.y.clamp_min = uniform(random, 0, 2) == 0 ? p.y.zero_point : uniform(random, 0, 20);  // ReLU, or a few codes cut
  p.y.clamp_max = std::max(p.y.clamp_min, uniform(random, 0, 2) == 0 ? 255 : uniform(random, 200, 255));
  p.y.float_output = uniform(random, 0, 5) == 0;
  p.has_residual = uniform(random, 0, 2) == 0;
  p.residual.zero_point = zero_points[uniform(random, 0, 3)];
  fill_random(c, random, {.extreme = uniform(random, 0, 5) == 0});
  return c;
}

void draw_lookup(ConvCase& c, std::mt19937& random) {
  c.lookup.emplace();
  for (uint8_t& byte : c.lookup->byte) byte = static_cast<uint8_t>(random());
}

std::vector<uint8_t> run_reference(const ConvCase& c) {
  const Conv2dShape& g = c.shape;
  std::vector<uint8_t> y(output_elements(c) * element_bytes(c), kCanary);
  for (int i = 0; i < c.images; ++i) {
    const size_t pixels = static_cast<size_t>(g.out_h) * g.out_w;
    const uint8_t* residual = c.params.has_residual ? c.residual.data() + i * pixels * g.residual_stride : nullptr;
    conv2d_int8_reference(g, c.params, c.weights, c.x.data() + static_cast<size_t>(i) * g.in_h * g.in_w * g.in_stride,
                          residual, y.data() + i * pixels * g.out_stride * element_bytes(c));
  }
  for (size_t pixel = 0; c.lookup && pixel < static_cast<size_t>(c.images) * g.out_h * g.out_w; ++pixel) {
    uint8_t* codes = y.data() + pixel * g.out_stride;
    lookup_int8_reference(*c.lookup, codes, g.out_c, codes);
  }
  return y;
}

std::vector<uint8_t> run_cpu(const ConvCase& c, CpuIsa isa, Guard guard) {
  const auto conv = CpuConv2d::create(c.shape, c.params, c.weights, isa);
  const size_t y_bytes = output_elements(c) * element_bytes(c);
  const GuardedBytes x(c.x.size(), 0, guard), residual(c.residual.size(), 0, guard), y(y_bytes, kCanary, guard);
  std::copy(c.x.begin(), c.x.end(), x.data());
  std::copy(c.residual.begin(), c.residual.end(), residual.data());
  // Whole lines, so that the workspace is aligned on either side of its page.
  const GuardedBytes workspace((conv->workspace_bytes() + 63) / 64 * 64, 0xEE, guard);
  CpuConv2dBatch batch;
  batch.images = c.images;
  batch.x = x.data();
  if (c.lookup) batch.lookup = &*c.lookup;
  batch.residual = c.params.has_residual ? residual.data() : nullptr;
  batch.y = y.data();
  const int tasks = conv->tasks(c.images), half = tasks / 2;
  conv->run(batch, half, tasks, workspace.data());
  conv->run(batch, 0, half, workspace.data());
  return {y.data(), y.data() + y_bytes};
}

}  // namespace octet::kernels::testing
