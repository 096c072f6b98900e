#include "src/graph/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/graph/limits.h"

namespace octet {
namespace {

/// One axis of a window.
struct Axis {
  int64_t in, kernel, stride, before, behind, dilation;
  int64_t padded() const { return in + before + behind; }
  int64_t extent() const { return dilation * (kernel - 1) + 1; }  ///< pixels from first to last tap
};

Axis vertical(const Window& w, const Shape& in) {
  return {in.h, w.kernel_h, w.stride_h, w.pad.top, w.pad.bottom, w.dilation_h};
}
Axis horizontal(const Window& w, const Shape& in) {
  return {in.w, w.kernel_w, w.stride_w, w.pad.left, w.pad.right, w.dilation_w};
}

bool in_range(int64_t value, int64_t lo) { return value >= lo && value <= kMaxDimension; }

int axis_output(const Axis& a) { return static_cast<int>((a.padded() - a.extent()) / a.stride + 1); }

std::string axis_fault(const Axis& a, Op op) {
  const bool pool = op == Op::max_pool || op == Op::avg_pool;
  if (!in_range(a.kernel, 1)) return fmt::format("kernel {} is not in 1..{}", a.kernel, kMaxDimension);
  if (!in_range(a.stride, 1)) return fmt::format("stride {} is not in 1..{}", a.stride, kMaxDimension);
  for (const int64_t pad : {a.before, a.behind}) {
    if (!in_range(pad, 0)) return fmt::format("pad {} is not in 0..{}", pad, kMaxDimension);
  }
  const int64_t halved = op == Op::max_pool ? a.before : std::max(a.before, a.behind);
  if (pool && 2 * halved > a.kernel) return fmt::format("pad {} is more than half of kernel {}", halved, a.kernel);
  if (!in_range(a.dilation, 1)) return fmt::format("dilation {} is not in 1..{}", a.dilation, kMaxDimension);
  if (pool && a.dilation != 1) return fmt::format("dilation {}: pooling windows have none", a.dilation);
  if (a.padded() < a.extent()) {
    return fmt::format("the window spans {} pixels, the padded image has {}", a.extent(), a.padded());
  }
  if (pool && (axis_output(a) - int64_t{1}) * a.stride >= a.in + a.before)
    return fmt::format("pad {} behind an image of {} pixels: the last window has none of them", a.behind, a.in);
  return "";
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("[{}, {}, {}]", shape.c, shape.h, shape.w); }

std::string shape_fault(const Shape& shape) {
  for (const int dimension : {shape.c, shape.h, shape.w}) {
    if (!in_range(dimension, 1)) {
      return fmt::format("shape {}: {} is not in 1..{}", to_string(shape), dimension, kMaxDimension);
    }
  }
  if (shape.elements() > kMaxElements) {
    return fmt::format("shape {} has more than {} elements", to_string(shape), kMaxElements);
  }
  return "";
}

std::string window_fault(const Window& window, const Shape& in, Op op) {
  const std::string fault = axis_fault(vertical(window, in), op);
  return fault.empty() ? axis_fault(horizontal(window, in), op) : fault;
}

Shape window_output(const Window& window, const Shape& in) {
  return {0, axis_output(vertical(window, in)), axis_output(horizontal(window, in))};
}

std::string slice_fault(int first, int channels, const Shape& in) {
  if (first >= 0 && channels >= 1 && first <= in.c - channels) return "";
  return fmt::format("{} channels from {} on are not among {}", channels, first, in.c);
}

std::string resize_fault(int factor_h, int factor_w, const Shape& in) {
  for (const auto& [factor, size] : {std::pair{factor_h, in.h}, std::pair{factor_w, in.w}}) {
    if (factor < 1 || factor > kMaxDimension / size)
      return fmt::format("{} pixels cannot become {} times as many", size, factor);
  }
  return "";
}

std::string bilinear_fault(int factor_h, int factor_w, const Shape& in) {
  if (std::string fault = resize_fault(factor_h, factor_w, in); !fault.empty()) return fault;
  constexpr int64_t kExact = int64_t{1} << 24, kLargestCode = 255, kMost = kExact / (4 * kLargestCode);
  const int64_t product = static_cast<int64_t>(factor_h) * factor_w;
  if (product <= kMost) return "";
  return fmt::format("{} x {} times as many pixels: above {} float32 cannot hold the sums; resize in two steps",
                     factor_h, factor_w, kMost);
}

std::string shuffle_fault(int groups, const Shape& in) {
  if (groups >= 1 && in.c % groups == 0) return "";
  return fmt::format("{} channels are not {} groups of one size", in.c, groups);
}

std::string matmul_fault(int groups, bool transposed, const Shape& a, const Shape& b) {
  for (const Shape& shape : {a, b})
    if (std::string fault = shuffle_fault(groups, shape); !fault.empty()) return fault;
  const int64_t pixels = static_cast<int64_t>(b.h) * b.w;
  const int terms = a.c / groups;
  if (transposed && a.c != b.c)
    return fmt::format("cannot multiply {} by the pixels of {}: the channels differ", to_string(a), to_string(b));
  if (!transposed && terms != pixels)
    return fmt::format("cannot multiply {} by {} in {} groups: {} channels a group, needs one for each of {} pixels",
                       to_string(a), to_string(b), groups, terms, pixels);
  if (transposed && pixels > kMaxDimension / groups)
    return fmt::format("{} groups of {} pixels as channels: more than {}", groups, pixels, kMaxDimension);
  if (terms <= kMostMatmulTerms) return "";
  return fmt::format("sums of {} products: above {} they can leave int32", terms, kMostMatmulTerms);
}

std::string softmax_fault(int groups, const Shape& in) {
  if (std::string fault = shuffle_fault(groups, in); !fault.empty()) return fault;
  if (in.c / groups <= kMostSoftmaxChannels) return "";
  return fmt::format("over {} channels: above {} sums can leave int32", in.c / groups, kMostSoftmaxChannels);
}

std::string depth_to_space_fault(int factor_h, int factor_w, const Shape& in) {
  if (std::string fault = resize_fault(factor_h, factor_w, in); !fault.empty()) return fault;
  if (in.c % (static_cast<int64_t>(factor_h) * factor_w) == 0) return "";
  return fmt::format("{} channels are not {} x {} pixels", in.c, factor_h, factor_w);
}

Shape subsample_output(const Window& window, const Shape& in) {
  return {0, (in.h - 1) / window.stride_h + 1, (in.w - 1) / window.stride_w + 1};
}

}  // namespace octet
