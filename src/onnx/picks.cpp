// Slice and Split of activations along their channels, Slice of every n-th row and column, Resize by whole factors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "src/graph/limits.h"
#include "src/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

OnnxValue channels_of(NodeReader& node, const OnnxValue& x, int64_t first, int64_t count,
                      const std::vector<std::string>& names) {
  OnnxValue y = node.network().append({.op = Op::slice,
                                       .inputs = {x.node},
                                       .out_channels = static_cast<int>(count),
                                       .first_channel = static_cast<int>(first)},
                                      names);
  y.rank = x.rank;
  return y;
}

/// Rows and columns that a Slice takes: from the one at `first` on, every step-th.
struct Pixels {
  int64_t first[2] = {0, 0}, step[2] = {1, 1};  ///< vertical, horizontal
  bool all() const { return first[0] + first[1] == 0 && step[0] * step[1] == 1; }
};

/// From a later pixel than the first on octet has no such copy but a depthwise convolution with a single 1, which gives
/// the same numbers. YOLOv5's first layer.
OnnxValue later_pixels(NodeReader& node, const OnnxValue& x, const Pixels& pixels) {
  Network& network = node.network();
  const int channels = network.shape(x).c;
  const Window window{.kernel_h = static_cast<int>(pixels.first[0]) + 1,
                      .kernel_w = static_cast<int>(pixels.first[1]) + 1,
                      .stride_h = static_cast<int>(pixels.step[0]),
                      .stride_w = static_cast<int>(pixels.step[1])};
  const OnnxValue y = network.append(
      {.op = Op::conv2d, .inputs = {x.node}, .window = window, .out_channels = channels, .groups = channels},
      node.names());
  const std::string name = network.node(y).name;
  const size_t size = static_cast<size_t>(window.kernel_h) * static_cast<size_t>(window.kernel_w);
  network.check_room(static_cast<size_t>(channels) * size * sizeof(float));
  std::vector<float> ones(static_cast<size_t>(channels) * size, 0.0f);
  for (size_t i = size - 1; i < ones.size(); i += size) ones[i] = 1;
  network.put(name, "weight", {channels, 1, window.kernel_h, window.kernel_w}, ones);
  network.note(name + ": a Slice of pixels from a later one than the first on becomes a depthwise convolution");
  return y;
}

/// Whether the output's pixel i is the input's i / factor, for every whole factor.
bool repeats_pixels(const std::string& coordinates, const std::string& rounding) {
  if (coordinates == "asymmetric") return rounding == "floor";
  return coordinates == "half_pixel" && (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
}

/// With whole factors the two are one: they differ where the output has one pixel.
bool is_bilinear(const std::string& mode, const std::string& coordinates) {
  return mode == "linear" && (coordinates == "half_pixel" || coordinates == "pytorch_half_pixel");
}

/// Between the pixels of a one-pixel image there is nothing else, however they are weighted.
bool repeats_one_pixel(const Shape& in, const std::string& mode, const std::string& coordinates) {
  return in.h == 1 && in.w == 1 && (mode == "nearest" || mode == "linear") && coordinates != "tf_crop_and_resize";
}

/// Vertical and horizontal.
std::array<double, 2> read_factors(NodeReader& node, const Shape& in) {
  if (node.has_input(3)) {
    const std::vector<int64_t> sizes = node.integers_input(3);
    if (sizes.size() != 4 || sizes[1] != in.c)
      node.fail(fmt::format("sizes {}; expected [N, {}, height, width]", dims_text(sizes), in.c));
    return {static_cast<double>(sizes[2]) / in.h, static_cast<double>(sizes[3]) / in.w};
  }
  const Constant& scales = node.constant(2);
  if (!scales.real || scales.reals.size() != 4 || scales.reals[0] != 1 || scales.reals[1] != 1)
    node.fail("scales of something else; expected [1, 1, vertical, horizontal]");
  return {scales.reals[2], scales.reals[3]};
}

}  // namespace

/// Slices of rows and columns, one behind the other, and a Pad of channels behind them are one copy: the earlier node
/// is left out when nothing else reads it. Strides multiply only by 1: no product is too large.
OnnxValue subsample(NodeReader& node, const OnnxValue& x, int stride_h, int stride_w, int64_t more_channels) {
  Network& network = node.network();
  int from = x.node;
  const Node& before = network.node(x);
  const Window& strides = before.window;
  if (x.direct && before.op == Op::subsample_pad && node.readers(0) == 1 &&
      before.out_channels == network.graph().nodes[static_cast<size_t>(before.inputs[0])].shape.c &&
      (stride_h == 1 || strides.stride_h == 1) && (stride_w == 1 || strides.stride_w == 1)) {
    from = before.inputs[0];
    stride_h *= strides.stride_h;
    stride_w *= strides.stride_w;
  }
  return network.append({.op = Op::subsample_pad,
                         .inputs = {from},
                         .window = {.stride_h = stride_h, .stride_w = stride_w},
                         .out_channels = static_cast<int>(network.shape(x).c + more_channels)},
                        node.names());
}

void slice_activation(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const Shape& shape = node.network().shape(x);
  const std::vector<int64_t> starts = node.integers_input(1), ends = node.integers_input(2);
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (node.has_input(3)) axes = node.integers_input(3);
  const std::vector<int64_t> steps = node.has_input(4) ? node.integers_input(4) : std::vector<int64_t>(axes.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    node.fail("starts, ends, axes and steps differ in length");
  constexpr int64_t kImages = std::numeric_limits<int32_t>::max();  // however many there are
  const int64_t sizes[] = {kImages, shape.c, shape.h, shape.w};
  bool seen[4] = {};
  int64_t first = 0, end = shape.c;
  Pixels pixels;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(positive_axis(node, axes[i], x.rank));
    const int64_t from = clamped(starts[i], sizes[axis]), to = clamped(ends[i], sizes[axis]);
    const bool steps_over = axis >= 2 && steps[i] > 1 && steps[i] <= kMaxDimension && from < steps[i];
    const bool whole = steps_over || (steps[i] == 1 && from == 0);
    if ((axis == 1 ? steps[i] != 1 : !whole || to != sizes[axis]) || std::exchange(seen[axis], true))
      node.fail("expected one range of channels, in steps of 1, or every n-th row or column");
    if (axis == 1) first = from, end = to;
    if (axis >= 2) pixels.first[axis - 2] = from, pixels.step[axis - 2] = steps[i];
  }
  if (pixels.all()) return node.result(channels_of(node, x, first, end - first, node.names()));
  if (first != 0 || end != shape.c) node.fail("of channels and pixels at once; expected one after the other");
  if (pixels.first[0] + pixels.first[1] == 0)
    return node.result(
        subsample(node, x, static_cast<int>(pixels.step[0]), static_cast<int>(pixels.step[1]), /*more_channels=*/0));
  if (node.network().marks != nullptr) node.fail("of codes; expected every n-th row or column from the first on");
  node.result(later_pixels(node, x, pixels));
}

void split(NodeReader& node) {
  if (node.input(0).heads != 0) return split_heads(node);
  const OnnxValue x = node.activation(0);
  if (positive_axis(node, node.integer("axis", 0), x.rank) != 1)
    node.fail(fmt::format("along axis {}; expected 1, the channels", node.integer("axis", 0)));
  split_channels(node, node.network().shape(x).c, [&](int64_t first, int64_t size, const std::string& name) {
    return channels_of(node, x, first, size, {name});
  });
}

void split_channels(NodeReader& node, int64_t channels,
                    const std::function<OnnxValue(int64_t first, int64_t size, const std::string& name)>& part) {
  const int64_t outputs = node.outputs();
  std::vector<int64_t> sizes = node.has_input(1) ? node.integers_input(1) : node.integers("split", {});
  if (sizes.empty()) {
    const int64_t each = (channels + outputs - 1) / outputs;  // the last part may be smaller
    for (int64_t i = 0; i < outputs; ++i) sizes.push_back(std::min(each, channels - each * i));
  }
  const bool fit = node.integer("num_outputs", outputs) == outputs && sizes.size() == static_cast<size_t>(outputs) &&
                   std::all_of(sizes.begin(), sizes.end(), [&](int64_t s) { return s >= 1 && s <= channels; }) &&
                   std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == channels;
  if (!fit) node.fail(fmt::format("{} channels into {} outputs of {}", channels, outputs, dims_text(sizes)));
  int64_t first = 0;
  for (size_t i = 0; i < sizes.size(); first += sizes[i++]) {
    const std::string& name = node.name_of_output(static_cast<int>(i));
    if (!name.empty()) node.result(part(first, sizes[i], name), static_cast<int>(i));
  }
}

void resize(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  if (x.rank != 4) node.fail("its input is not [N, C, H, W]");
  const std::string mode = node.text("mode", "nearest");
  const std::string coordinates = node.text("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = node.text("nearest_mode", "round_prefer_floor");
  for (const char* unused : {"cubic_coeff_a", "extrapolation_value"}) node.real(unused, 0);  // of other modes
  node.integer("exclude_outside", 0);
  node.integer("antialias", 0);
  if (const std::string policy = node.text("keep_aspect_ratio_policy", "stretch"); policy != "stretch")
    node.fail(fmt::format("keep_aspect_ratio_policy '{}'; expected stretch", shown_name(policy)));
  const bool repeats = (mode == "nearest" && repeats_pixels(coordinates, rounding)) ||
                       repeats_one_pixel(node.network().shape(x), mode, coordinates);
  if (!repeats && !is_bilinear(mode, coordinates)) {
    node.fail(
        fmt::format("mode '{}', {}, {}; expected pixels repeated (nearest, asymmetric, floor) or bilinear (linear, "
                    "half_pixel)",
                    shown_name(mode), shown_name(coordinates), shown_name(rounding)));
  }
  const std::array<double, 2> factors = read_factors(node, node.network().shape(x));
  for (const double factor : factors) {
    if (!(factor >= 1 && factor <= kMaxDimension) || factor != std::floor(factor))
      node.fail(fmt::format("by {} x {}; expected whole numbers", factors[0], factors[1]));
  }
  node.result(node.network().append({.op = repeats ? Op::resize : Op::resize_bilinear,
                                     .inputs = {x.node},
                                     .factor_h = static_cast<int>(factors[0]),
                                     .factor_w = static_cast<int>(factors[1])},
                                    node.names()));
}

}  // namespace octet::onnx_rules
