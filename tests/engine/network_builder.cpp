// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/network_builder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/net/checkpoint.h"
#include "src/net/shapes.h"

namespace octet::test {
namespace {

QParams random_edge(Random& random) {
  const int bits = random.chance(80) ? 8 : random.between(2, 7);
  const int codes = 1 << bits;
  const float scale = static_cast<float>(std::exp(random.uniform(-6, 1)));
  switch (random.between(0, 2)) {
    case 0:  // symmetric_s8
      return {scale, 0, -codes / 2, codes / 2 - 1};
    case 1:  // unsigned_u8
      return {scale, 0, 0, codes - 1};
    default:  // affine_u8, often at an end
      return {scale, random.chance(30) ? random.pick({0, codes - 1}) : random.between(0, codes - 1), 0, codes - 1};
  }
}

int random_divisor(Random& random, int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors[random.between(0, static_cast<int>(divisors.size()) - 1)];
}

// Multipliers that spread sums of that size over the codes; now and then 0, negative or enormous.
float random_multiplier(Random& random, double typical_sum) {
  if (random.chance(2)) return 0;
  if (random.chance(2)) return random.pick({1e28f, -1e28f, 1e-30f});
  const double magnitude = std::exp(random.uniform(2, 5)) / std::max(1.0, typical_sum);
  return static_cast<float>(random.chance(10) ? -magnitude : magnitude);
}

}  // namespace

bool is_small(const Shape& shape) { return shape.h * shape.w <= 44; }

int random_channels(Random& random) {
  if (random.chance(15)) return random.pick({16, 32, 48, 64, 80, 96});
  return random.chance(20) ? random.between(1, 4) : random.between(1, 40);
}

NetworkBuilder::NetworkBuilder(Random& random, const Shape& input) : random_(random) {
  graph_.name = "random";
  for (int c = 0; c < input.c; ++c) {
    graph_.preprocessing.mean.push_back(static_cast<float>(random.uniform(0, 1)));
    graph_.preprocessing.std.push_back(static_cast<float>(random.uniform(0.1, 1)));
  }
  Int8Node n;
  n.op = Int8Op::input, n.shape = input;
  set_edge(n);
  n.clamp_min = n.out.quant_min, n.clamp_max = n.out.quant_max;
  n.out.scale = static_cast<float>(random.uniform(0.005, 0.03));
  push(std::move(n));
}

int NetworkBuilder::push(Int8Node n) {
  const int index = static_cast<int>(graph_.nodes.size());
  n.name = std::string(int8_op_name(n.op)) + "_" + std::to_string(index);
  graph_.nodes.push_back(std::move(n));
  return index;
}

void NetworkBuilder::set_edge(Int8Node& n) {
  n.out = random_edge(random_);
  n.clamp_min = random_.chance(50) ? n.out.zero_point : n.out.quant_min;
  n.clamp_max = random_.chance(80) ? n.out.quant_max : random_.between(n.clamp_min, n.out.quant_max);
}

Window NetworkBuilder::random_window(const Shape& in, Op op) {
  const bool pool = op == Op::max_pool || op == Op::avg_pool;
  Window w;
  for (;;) {
    w.kernel_h = random_.chance(40) ? 1 : random_.between(1, 5);
    w.kernel_w = random_.chance(70) ? w.kernel_h : random_.between(1, 5);
    w.stride_h = random_.chance(60) ? 1 : random_.between(1, 3);
    w.stride_w = random_.chance(70) ? w.stride_h : random_.between(1, 3);
    const auto side = [&](int kernel) { return random_.between(0, pool ? kernel / 2 : kernel); };
    const int pad_w = side(w.kernel_w);
    w.pad = even_padding(side(w.kernel_h), pad_w);
    if (random_.chance(30)) w.pad.bottom = side(w.kernel_h), w.pad.right = side(w.kernel_w);
    if (op == Op::max_pool && random_.chance(30)) w.pad.bottom = random_.between(0, w.kernel_h - 1);
    w.dilation_h = pool || random_.chance(80) ? 1 : random_.between(1, 3);
    w.dilation_w = pool || random_.chance(80) ? 1 : random_.between(1, 3);
    if (window_fault(w, in, op).empty()) return w;
  }
}

int NetworkBuilder::weighted(Int8Node n) {
  const Int8Node& x = graph_.nodes[n.inputs[0]];
  const int per_channel =
      n.op == Int8Op::linear ? x.shape.c : x.shape.c / n.groups * n.window.kernel_h * n.window.kernel_w;
  const bool extreme = random_.chance(10);  // the largest sums a layer of this size can have
  const int largest = extreme || random_.chance(70) ? 127 : random_.between(1, 127);
  n.weight.resize(static_cast<size_t>(n.shape.c) * per_channel);
  int sign = 1;
  for (size_t i = 0; i < n.weight.size(); ++i) {
    if (i % per_channel == 0) sign = random_.pick({-1, 1});
    n.weight[i] = static_cast<int8_t>(extreme ? sign * 127 : random_.between(-largest, largest));
  }
  const int inputs = n.op == Int8Op::linear ? x.shape.c : x.shape.c / n.groups;
  n.two_of_four = inputs % 4 == 0 && random_.chance(30);
  for (size_t i = 0; n.two_of_four && i < n.weight.size(); i += 4) {
    const int first = random_.between(0, 3), second = random_.between(0, 3);
    n.weight[i + first] = n.weight[i + (second == first ? (first + 1) % 4 : second)] = 0;
  }
  n.weight_bits = code_bits(n.weight);
  const double typical = std::sqrt(per_channel) * 0.6 * largest * 0.3 * (x.out.quant_max - x.out.quant_min);
  for (int k = 0; k < n.shape.c; ++k) {
    n.multiplier.push_back(random_multiplier(random_, typical));
    n.bias.push_back(static_cast<float>(random_.uniform(-20, 20)));
    n.weight_scale.push_back(0.01f);
  }
  set_edge(n);
  if (n.inputs.size() > 1) n.residual_multiplier = random_multiplier(random_, 60);
  return push(std::move(n));
}

int NetworkBuilder::convolution(int x, std::optional<int> residual) {
  if (residual) return convolution_like(x, *residual);
  const Shape in = shape(x);
  Int8Node n;
  n.op = Int8Op::conv2d, n.inputs = {x};
  n.window = random_window(in, Op::conv2d);
  n.shape = window_output(n.window, in);
  n.shape.c = random_channels(random_);
  if (random_.chance(20)) {  // depthwise
    n.groups = in.c;
    n.shape.c = in.c * (random_.chance(80) ? 1 : 2);
  } else if (random_.chance(20)) {
    n.groups = random_divisor(random_, in.c);
    n.shape.c = n.groups * random_.between(1, std::max(1, 40 / n.groups));
  }
  return weighted(std::move(n));
}

int NetworkBuilder::convolution_like(int x, int residual) {
  const Shape in = shape(x), out = shape(residual);
  Int8Node n;
  n.op = Int8Op::conv2d, n.inputs = {x, residual}, n.shape = out;
  n.window.kernel_h = n.window.kernel_w = 1;
  if (in.h == out.h && in.w == out.w) {
    const int reach = random_.between(0, 2);  // a "same" window
    n.window.kernel_h = n.window.kernel_w = 2 * reach + 1;
    n.window.pad = even_padding(reach, reach);
  } else {  // a window that leaves exactly the rows and columns wanted
    n.window.pad = even_padding(std::max(0, (out.h - in.h + 1) / 2), std::max(0, (out.w - in.w + 1) / 2));
    n.window.kernel_h = in.h + 2 * n.window.pad.top - out.h + 1;
    n.window.kernel_w = in.w + 2 * n.window.pad.left - out.w + 1;
  }
  if (in.c == out.c && random_.chance(30)) n.groups = in.c;
  return weighted(std::move(n));
}

int NetworkBuilder::linear(int x, int classes) {
  Int8Node n;
  n.op = Int8Op::linear, n.inputs = {x}, n.shape = {classes, 1, 1};
  return weighted(std::move(n));
}

int NetworkBuilder::add(int a, int b) {
  Int8Node n;
  n.op = Int8Op::add, n.inputs = {a, b}, n.shape = shape(a);
  n.multiplier = {random_multiplier(random_, 60), random_multiplier(random_, 60)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::mul(int a, int b) {
  Int8Node n;
  n.op = Int8Op::mul, n.inputs = {a, b}, n.shape = shape(a), n.multiplier = {random_multiplier(random_, 60 * 60)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::concat(const std::vector<int>& inputs) {
  Int8Node n;
  n.op = Int8Op::concat, n.inputs = inputs, n.shape = shape(inputs[0]);
  n.shape.c = 0;
  for (const int input : inputs) {
    n.shape.c += shape(input).c;
    n.multiplier.push_back(random_multiplier(random_, 60));
  }
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::requantize(int x) {
  Int8Node n;
  n.op = Int8Op::requantize, n.inputs = {x}, n.shape = shape(x), n.multiplier = {random_multiplier(random_, 60)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::prelu(int x) {
  Int8Node n;
  n.op = Int8Op::prelu, n.inputs = {x}, n.shape = shape(x);
  n.groups = random_.chance(60) ? n.shape.c : random_divisor(random_, n.shape.c);
  n.multiplier = {random_multiplier(random_, 60)};
  for (int group = 0; group < n.groups; ++group) n.multiplier.push_back(random_multiplier(random_, 60));
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::lookup(int x, bool by_channel) {
  Int8Node n;
  n.op = Int8Op::lookup, n.inputs = {x}, n.shape = shape(x);
  set_edge(n);
  if (n.shape.c > 1 && by_channel) {
    n.groups = n.shape.c;
    for (int scale = 0; scale < 2 * n.groups; ++scale)
      n.multiplier.push_back(static_cast<float>(random_.uniform(0.3, 3)));
  }
  for (int i = 0; i < 256 * n.groups; ++i)
    n.table.push_back(static_cast<uint8_t>(random_.between(n.clamp_min, n.clamp_max)));
  return push(std::move(n));
}

int NetworkBuilder::avg_pool(int x) {
  Int8Node n;
  n.op = Int8Op::avg_pool, n.inputs = {x}, n.window = random_window(shape(x), Op::avg_pool);
  n.shape = window_output(n.window, shape(x)), n.shape.c = shape(x).c;
  n.multiplier = {random_multiplier(random_, 60.0 * n.window.kernel_h * n.window.kernel_w)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::global_avg_pool(int x) {
  Int8Node n;
  n.op = Int8Op::global_avg_pool, n.inputs = {x}, n.shape = {shape(x).c, 1, 1};
  n.multiplier = {random_multiplier(random_, 60.0 * shape(x).h * shape(x).w)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::pass_on(Int8Op op, int x, const Shape& output) {
  Int8Node n;
  n.op = op, n.inputs = {x}, n.shape = output;
  n.out = graph_.nodes[x].out, n.clamp_min = n.out.quant_min, n.clamp_max = n.out.quant_max;
  return push(std::move(n));
}

int NetworkBuilder::max_pool(int x) {
  const Window window = random_window(shape(x), Op::max_pool);
  Shape output = window_output(window, shape(x));
  output.c = shape(x).c;
  const int index = pass_on(Int8Op::max_pool, x, output);
  Int8Node& n = graph_.nodes[index];
  n.window = window;
  if (random_.chance(30)) n.clamp_min = n.out.zero_point;  // a ReLU behind the pool
  if (random_.chance(10)) n.clamp_max = random_.between(n.clamp_min, n.out.quant_max);
  return index;
}

int NetworkBuilder::subsample_pad(int x) {
  Window strides;
  strides.stride_h = random_.between(1, 3), strides.stride_w = random_.between(1, 3);
  Shape output = subsample_output(strides, shape(x));
  output.c = shape(x).c + 2 * random_.between(0, 9);
  const int index = pass_on(Int8Op::subsample_pad, x, output);
  graph_.nodes[index].window = strides;
  return index;
}

int NetworkBuilder::slice(int x) {
  Shape output = shape(x);
  output.c = random_.between(1, shape(x).c);
  const int first = random_.between(0, shape(x).c - output.c), index = pass_on(Int8Op::slice, x, output);
  graph_.nodes[index].first_channel = first;
  return index;
}

int NetworkBuilder::resize(int x) {
  const int factor_h = random_.between(1, 3), factor_w = random_.between(1, 3);
  const int index = pass_on(Int8Op::resize, x, {shape(x).c, shape(x).h * factor_h, shape(x).w * factor_w});
  graph_.nodes[index].factor_h = factor_h, graph_.nodes[index].factor_w = factor_w;
  return index;
}

int NetworkBuilder::resize_bilinear(int x) {
  Int8Node n;
  n.op = Int8Op::resize_bilinear, n.inputs = {x}, n.factor_h = random_.between(1, 4),
  n.factor_w = random_.between(1, 4);
  n.shape = {shape(x).c, shape(x).h * n.factor_h, shape(x).w * n.factor_w};
  n.multiplier = {random_multiplier(random_, 60.0 * 4 * n.factor_h * n.factor_w)};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::matmul(int a, int b, int groups, bool transposed) {
  Int8Node n;
  n.op = Int8Op::matmul, n.inputs = {a, b}, n.groups = groups, n.transposed = transposed;
  n.shape = shape(a);
  n.shape.c = transposed ? groups * shape(b).h * shape(b).w : shape(b).c;
  n.multiplier = {random_multiplier(random_, 60 * 60 * std::sqrt(shape(a).c / groups))};
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::scores(int a, int b) { return matmul(a, b, random_divisor(random_, shape(a).c), true); }

int NetworkBuilder::softmax(int x, int groups) {
  Int8Node n;
  n.op = Int8Op::softmax, n.inputs = {x}, n.groups = groups, n.shape = shape(x);
  n.multiplier = {random_multiplier(random_, 1)};
  const double scale = std::exp(random_.uniform(-6, 0));
  const bool any = random_.chance(20);
  for (int d = 0; d < 256; ++d)
    n.exponentials.push_back(any && d > 0 ? random_.between(0, kExponentialOne)
                                          : static_cast<int32_t>(std::rint(std::exp(-d * scale) * kExponentialOne)));
  set_edge(n);
  return push(std::move(n));
}

int NetworkBuilder::attention(int a, int b, int values) {
  const int groups = random_divisor(random_, std::gcd(shape(a).c, shape(values).c));
  return matmul(softmax(matmul(a, b, groups, true), groups), values, groups, false);
}

int NetworkBuilder::channel_shuffle(int x) {
  const int groups = random_divisor(random_, shape(x).c), index = pass_on(Int8Op::channel_shuffle, x, shape(x));
  graph_.nodes[index].groups = groups;
  return index;
}

int NetworkBuilder::pixels_of_channels(int x, int factor_h, int factor_w) {
  const Shape in = shape(x);
  const int index =
      pass_on(Int8Op::depth_to_space, x, {in.c / (factor_h * factor_w), in.h * factor_h, in.w * factor_w});
  graph_.nodes[index].factor_h = factor_h, graph_.nodes[index].factor_w = factor_w;
  return index;
}

int NetworkBuilder::depth_to_space(int x) {
  const int factor_h = std::gcd(shape(x).c, random_.between(1, 3));
  const int factor_w = std::gcd(shape(x).c / factor_h, random_.between(1, 3));
  return pixels_of_channels(x, factor_h, factor_w);
}

int NetworkBuilder::transposed_convolution(int x) {
  const int factor_h = random_.between(1, 3), factor_w = random_.between(2, 3);
  Int8Node n;
  n.op = Int8Op::conv2d, n.inputs = {x};
  n.window = random_window(shape(x), Op::conv2d);
  n.shape = window_output(n.window, shape(x));
  n.shape.c = factor_h * factor_w * random_.between(1, 12);
  return pixels_of_channels(weighted(std::move(n)), factor_h, factor_w);
}

int NetworkBuilder::flatten(int x) {
  return pass_on(Int8Op::flatten, x, {static_cast<int>(shape(x).elements()), 1, 1});
}

void NetworkBuilder::output(int x) {
  std::vector<int>& outputs = graph_.outputs;
  if (x == 0 || std::find(outputs.begin(), outputs.end(), x) != outputs.end()) return;
  outputs.insert(outputs.begin() + random_.between(0, static_cast<int>(outputs.size())), x);
}

void NetworkBuilder::float_output(int x) {
  const int op = random_.between(0, is_small(shape(x)) ? 8 : 6);
  const int head = op == 0   ? add(x, x)
                   : op == 1 ? concat({x, x})
                   : op == 2 ? avg_pool(x)
                   : op == 3 ? requantize(x)
                   : op == 4 ? mul(x, x)
                   : op == 5 ? resize_bilinear(x)
                   : op == 6 ? convolution(x)
                   : op == 7 ? scores(x, x)
                             : softmax(x, random_divisor(random_, shape(x).c));
  graph_.nodes[head].float_output = true;
  output(head);
}

Int8Graph NetworkBuilder::finish(int x) {
  const int end = random_.between(0, 2), classes = end < 2 ? random_.between(1, 20) : 0;
  const int last = end == 0 && shape(x).elements() <= kMaxDimension ? flatten(x) : global_avg_pool(x);
  if (classes > 0) linear(last, classes);
  graph_.nodes.back().float_output = true;
  output(static_cast<int>(graph_.nodes.size()) - 1);
  validate(graph_);
  return std::move(graph_);
}

}  // namespace octet::test
