// SPDX-License-Identifier: Apache-2.0
// Slice and Split of activations along their channels, Slice of rows and columns, Resize by integer factors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "src/net/onnx/rules.h"
#include "src/net/shapes.h"

namespace octet::onnx_rules {
namespace {

OnnxValue channels_of(NodeReader& node, const OnnxValue& x, int64_t first, int64_t count,
                      const std::vector<std::string>& names) {
  return node.network().append({.op = Op::slice,
                                .inputs = {x.node},
                                .out_channels = static_cast<int>(count),
                                .first_channel = static_cast<int>(first)},
                               names, x.rank);
}

/// What a Slice takes along an axis of `size` elements: `count` elements from `first` on, every step-th.
struct Range {
  int64_t size = 1, first = 0, step = 1, count = 1;
  bool is_whole() const { return first == 0 && step == 1 && count == size; }
  bool is_every_nth() const { return first == 0 && count == (size - 1) / step + 1; }
  /// Returns the smallest window that contains `first` and fits `count` times.
  int64_t window() const { return std::max(first + 1, size - count * step + 1); }
};

/// Takes rows and columns that do not begin at the first pixel or end before the last, as in YOLOv5's first layer.
OnnxValue later_pixels(NodeReader& node, const OnnxValue& x, const Range& rows, const Range& columns) {
  const Window window{.kernel_h = static_cast<int>(rows.window()),
                      .kernel_w = static_cast<int>(columns.window()),
                      .stride_h = static_cast<int>(rows.step),
                      .stride_w = static_cast<int>(columns.step)};
  return pick_pixels(node, x, window, {static_cast<int>(rows.first * columns.window() + columns.first)}, node.names());
}

/// Takes channels in any order: slices of those that follow each other, one behind the other.
OnnxValue channels_in_order(NodeReader& node, const OnnxValue& x, const std::vector<int64_t>& order,
                            const std::vector<std::string>& names) {
  constexpr size_t kMostPieces = 256;
  std::vector<std::pair<int64_t, int64_t>> pieces;  // first channel, count
  for (const int64_t channel : order) {
    if (!pieces.empty() && channel == pieces.back().first + pieces.back().second) {
      ++pieces.back().second;
    } else {
      pieces.emplace_back(channel, 1);
    }
  }
  if (pieces.empty() || pieces.size() > kMostPieces)
    node.refuse(
        fmt::format("takes {} channels in {} pieces; expected 1 to {}", order.size(), pieces.size(), kMostPieces));
  if (pieces.size() == 1) return channels_of(node, x, pieces[0].first, pieces[0].second, names);
  Node joined{.op = Op::concat};
  for (const auto& [first, count] : pieces) {
    const std::string name = fmt::format("{}/{}", node.name_of_output(0), joined.inputs.size());
    joined.inputs.push_back(channels_of(node, x, first, count, {name}).node);
  }
  return node.network().append(std::move(joined), names, x.rank);
}

/// Takes every step-th channel: a shuffle makes channels of the same remainder contiguous.
OnnxValue channels_in_steps(NodeReader& node, const OnnxValue& x, const Range& channels,
                            const std::vector<std::string>& names) {
  if (channels.step == 1) return channels_of(node, x, channels.first, channels.count, names);
  if (channels.size % channels.step != 0) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < channels.count; ++i) order.push_back(channels.first + i * channels.step);
    return channels_in_order(node, x, order, names);
  }
  const int64_t each = channels.size / channels.step;
  const OnnxValue shuffled =
      node.network().append({.op = Op::channel_shuffle, .inputs = {x.node}, .groups = static_cast<int>(each)},
                            {node.name_of_output(0) + "/turns"}, x.rank);
  return channels_of(node, shuffled, channels.first % channels.step * each + channels.first / channels.step,
                     channels.count, names);
}

/// Whether the mode puts pixels at their centres. The three modes differ only if the output has one pixel or is not an
/// integer multiple of the input.
bool is_half_pixel(const std::string& coordinates) {
  return coordinates == "half_pixel" || coordinates == "pytorch_half_pixel" || coordinates == "half_pixel_symmetric";
}

/// Resize of opset 10 and Upsample have no coordinate modes: they are asymmetric, rounded down.
bool is_old_resize(NodeReader& node) { return node.op() == "Upsample" || node.opset() < 11; }

/// Whether the output's pixel i is the input's pixel i / factor for every integer factor.
bool repeats_pixels(const std::string& coordinates, const std::string& rounding) {
  if (coordinates == "asymmetric") return rounding == "floor";
  return is_half_pixel(coordinates) && (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
}

bool is_bilinear(const std::string& mode, const std::string& coordinates) {
  return mode == "linear" && is_half_pixel(coordinates);
}

/// Whether the image has one pixel, which every interpolation repeats.
bool repeats_one_pixel(const Shape& in, const std::string& mode, const std::string& coordinates) {
  return in.h == 1 && in.w == 1 && (mode == "nearest" || mode == "linear") && coordinates != "tf_crop_and_resize";
}

/// Reads the vertical and horizontal factor of x, an image or a row.
std::array<double, 2> read_factors(NodeReader& node, const OnnxValue& x) {
  const Shape& in = node.network().shape(x);
  std::vector<int64_t> every(static_cast<size_t>(x.rank));
  std::iota(every.begin(), every.end(), 0);
  std::vector<int64_t> axes = node.integers("axes", every);
  for (int64_t& axis : axes) axis = positive_axis(node, axis, x.rank);
  if (axes != every && axes != std::vector<int64_t>(every.begin() + 2, every.end()))
    node.refuse(fmt::format("axes {}; expected height and width, [2, 3]", dims_text(axes)));
  const size_t first = axes.size() == every.size() ? 2 : 0;  // of height and width
  if (node.has_input(3)) {
    const std::vector<int64_t> sizes = node.integers_input(3);
    if (sizes.size() != axes.size() || (first == 2 && sizes[1] != in.c))
      node.refuse(fmt::format("sizes {}; expected [N, {}, height, width]", dims_text(sizes), in.c));
    return {x.rank == 3 ? 1 : static_cast<double>(sizes[first]) / in.h, static_cast<double>(sizes.back()) / in.w};
  }
  std::vector<float> scales;
  const int input = is_old_resize(node) ? 1 : 2;
  if (const onnx::AttributeProto* given = node.attribute("scales"); given != nullptr && !node.has_input(input)) {
    scales.assign(given->floats().begin(), given->floats().end());
  } else if (node.constant(input).real) {
    scales = node.constant(input).reals;
  }
  if (scales.size() != axes.size() || (first == 2 && (scales[0] != 1 || scales[1] != 1)))
    node.refuse("scales of something else; expected [1, 1, vertical, horizontal]");
  return {x.rank == 3 ? 1 : scales[first], scales.back()};
}

/// A Resize to fewer pixels: every n-th, or the means of two, that lie between them.
void shrink(NodeReader& node, const OnnxValue& x, const std::array<double, 2>& factors, bool nearest,
            const std::string& coordinates) {
  const Shape& in = node.network().shape(x);
  const auto down = std::lround(1 / factors[0]), across = std::lround(1 / factors[1]);
  const bool whole = std::abs(down * factors[0] - 1) < 1e-6 && std::abs(across * factors[1] - 1) < 1e-6 &&
                     in.h % down == 0 && in.w % across == 0;
  const bool one_pixel = coordinates == "pytorch_half_pixel" && (in.h == down || in.w == across);  // takes the first
  const bool means = down <= 2 && across <= 2 && !one_pixel && node.integer("antialias", 0) == 0;
  if (!whole || !(nearest ? coordinates == "asymmetric" : means))
    node.refuse(
        fmt::format("by {} x {}; expected integers, 1 / n of n pixels each (nearest, asymmetric, floor), or 1 / 2 "
                    "(linear, half_pixel)",
                    factors[0], factors[1]));
  const int stride_h = static_cast<int>(down), stride_w = static_cast<int>(across);
  const Window two{.kernel_h = stride_h, .kernel_w = stride_w, .stride_h = stride_h, .stride_w = stride_w};
  if (nearest) return node.result(subsample(node, x, stride_h, stride_w, /*more_channels=*/0));
  node.make({.op = Op::avg_pool, .inputs = {x.node}, .window = two}, x.rank);
}

}  // namespace

/// Successive slices of rows and columns and a Pad of channels become one copy, if no other node reads the earlier one.
/// Only strides of 1 are multiplied by others, so no product is too large.
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
                        node.names(), x.rank);
}

OnnxValue pick_pixels(NodeReader& node, const OnnxValue& x, const Window& window, const std::vector<int>& taps,
                      const std::vector<std::string>& names) {
  Network& network = node.network();
  const auto channels = static_cast<int64_t>(network.shape(x).c), outputs = channels * std::ssize(taps);
  const size_t size = static_cast<size_t>(window.kernel_h) * static_cast<size_t>(window.kernel_w);
  if (outputs > kMaxDimension)
    node.refuse(fmt::format("gives {} channels; octet has at most {}", outputs, kMaxDimension));
  network.check_room(static_cast<size_t>(outputs) * size * sizeof(float));
  const OnnxValue y = network.append({.op = Op::conv2d,
                                      .inputs = {x.node},
                                      .window = window,
                                      .out_channels = static_cast<int>(outputs),
                                      .groups = static_cast<int>(channels)},
                                     names, x.rank);
  std::vector<float> ones(static_cast<size_t>(outputs) * size, 0.0f);
  for (size_t k = 0; k < static_cast<size_t>(outputs); ++k)
    ones[k * size + static_cast<size_t>(taps[k % taps.size()])] = 1;
  const std::string name = network.node(y).name;
  network.put(name, "weight", {outputs, 1, window.kernel_h, window.kernel_w}, ones);
  if (QdqMarks* marks = network.marks) {
    marks->weight_scales[name].assign(static_cast<size_t>(outputs), 1.0f);
    marks->picks.insert(name);
  } else {
    network.note(name + ": pixels picked from others become a convolution of ones, each on its own");
  }
  return y;
}

/// A Gather along the channels, as x[:, [2, 1, 0]] is exported.
void gather_channels(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  const int64_t channels = node.network().shape(x).c;
  if (positive_axis(node, node.integer("axis", 0), x.rank) != 1 || node.constant(1).shape.size() != 1)
    node.refuse("of an activation; expected a row of channels, axis 1");
  std::vector<int64_t> order = node.integers_input(1);
  for (int64_t& channel : order) channel = positive_axis(node, channel, channels);
  node.result(channels_in_order(node, x, order, node.names()));
}

void slice_activation(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  Network& network = node.network();
  const Shape shape = network.shape(x);
  const std::vector<int64_t> starts = node.row(1, "starts"), ends = node.row(2, "ends");
  std::vector<int64_t> axes = node.row(3, "axes");
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  const std::vector<int64_t> steps = node.has_input(4) ? node.integers_input(4) : std::vector<int64_t>(axes.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    node.invalid("starts, ends, axes and steps differ in length");
  constexpr int64_t kMaxImages = std::numeric_limits<int32_t>::max();
  const int64_t images = network.batch > 0 ? network.batch : kMaxImages;
  std::array<Range, 4> ranges;
  for (size_t axis = 0; const int64_t size : {images, int64_t{shape.c}, int64_t{shape.h}, int64_t{shape.w}})
    ranges[axis++] = {.size = size, .count = size};
  bool seen[4] = {};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(positive_axis(node, axes[i], x.rank));
    Range& range = ranges[x.rank == 3 && axis == 2 ? 3 : axis];
    if (std::exchange(seen[axis], true)) node.refuse(fmt::format("names axis {} twice", axis));
    if (steps[i] < 1)
      node.refuse(fmt::format("step {}; expected 1 and more, octet copies nothing backwards", steps[i]));
    range.first = clamped(starts[i], range.size);
    const int64_t taken = clamped(ends[i], range.size) - range.first;
    range.step = std::min(steps[i], range.size);  // a larger one takes the first alone, too
    range.count = taken <= 0 ? 0 : (taken - 1) / range.step + 1;
    if (range.count == 0) node.refuse(fmt::format("takes nothing of axis {}", axis));
  }
  if (!ranges[0].is_whole()) node.refuse("of some images of the batch; expected all of them");
  const Range &rows = ranges[2], &columns = ranges[3];
  const bool all_pixels = rows.is_whole() && columns.is_whole();
  OnnxValue y = x;
  if (all_pixels || !ranges[1].is_whole()) {
    std::vector<std::string> names = node.names();
    if (!all_pixels) names = {node.name_of_output(0) + "/channels"};
    y = channels_in_steps(node, x, ranges[1], names);
  }
  if (all_pixels) return node.result(y);
  y = rows.is_every_nth() && columns.is_every_nth()
          ? subsample(node, y, static_cast<int>(rows.step), static_cast<int>(columns.step), /*more_channels=*/0)
          : later_pixels(node, y, rows, columns);
  node.result(y);
}

void split(NodeReader& node) {
  if (node.input(0).heads != 0) return split_heads(node);
  const OnnxValue x = node.activation(0);
  if (positive_axis(node, node.integer("axis", 0), x.rank) != 1)
    node.refuse(fmt::format("along axis {}; expected 1, the channels", node.integer("axis", 0)));
  split_channels(node, node.network().shape(x).c, [&](int64_t first, int64_t size, const std::string& name) {
    return channels_of(node, x, first, size, {name});
  });
}

void split_channels(NodeReader& node, int64_t channels,
                    const std::function<OnnxValue(int64_t first, int64_t size, const std::string& name)>& part) {
  const int64_t outputs = node.outputs();
  std::vector<int64_t> sizes = node.row(1, "split");
  if (sizes.empty()) {
    const int64_t each = (channels + outputs - 1) / outputs;  // the last part may be smaller
    for (int64_t i = 0; i < outputs; ++i) sizes.push_back(std::min(each, channels - each * i));
  }
  const bool fit = node.integer("num_outputs", outputs) == outputs && sizes.size() == static_cast<size_t>(outputs) &&
                   std::all_of(sizes.begin(), sizes.end(), [&](int64_t s) { return s >= 1 && s <= channels; }) &&
                   std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == channels;
  if (!fit) node.invalid(fmt::format("{} channels into {} outputs of {}", channels, outputs, dims_text(sizes)));
  int64_t first = 0;
  for (size_t i = 0; i < sizes.size(); first += sizes[i++]) {
    const std::string& name = node.name_of_output(static_cast<int>(i));
    if (!name.empty()) node.result(part(first, sizes[i], name), static_cast<int>(i));
  }
}

void resize(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  if (x.rank < 3) node.refuse("its input is not [N, C, H, W] or [N, C, W]");
  const std::string mode = node.text("mode", "nearest");
  const bool old = is_old_resize(node);
  const std::string coordinates = node.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::string rounding = node.text("nearest_mode", old ? "floor" : "round_prefer_floor");
  for (const char* unused : {"cubic_coeff_a", "extrapolation_value"}) node.real(unused, 0);  // of other modes
  node.integer("exclude_outside", 0);
  node.integer("antialias", 0);
  if (const std::string policy = node.text("keep_aspect_ratio_policy", "stretch"); policy != "stretch")
    node.refuse(fmt::format("keep_aspect_ratio_policy '{}'; expected stretch", shown_name(policy)));
  const bool repeats = (mode == "nearest" && repeats_pixels(coordinates, rounding)) ||
                       repeats_one_pixel(node.network().shape(x), mode, coordinates);
  if (!repeats && !is_bilinear(mode, coordinates)) {
    node.refuse(
        fmt::format("mode '{}', {}, {}; expected pixels repeated (nearest, asymmetric, floor) or bilinear (linear, "
                    "half_pixel)",
                    shown_name(mode), shown_name(coordinates), shown_name(rounding)));
  }
  const std::array<double, 2> factors = read_factors(node, x);
  if (factors[0] <= 1 && factors[1] <= 1 && factors[0] * factors[1] < 1)
    return shrink(node, x, factors, mode == "nearest", coordinates);
  for (const double factor : factors) {
    if (!(factor >= 1 && factor <= kMaxDimension) || factor != std::floor(factor))
      node.refuse(fmt::format("by {} x {}; expected integers", factors[0], factors[1]));
  }
  node.make({.op = repeats ? Op::resize : Op::resize_bilinear,
             .inputs = {x.node},
             .factor_h = static_cast<int>(factors[0]),
             .factor_w = static_cast<int>(factors[1])},
            x.rank);
}

}  // namespace octet::onnx_rules
