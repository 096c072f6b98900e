#include "src/graph/window.h"

#include <fmt/format.h>

#include <cstdint>

#include "src/graph/limits.h"

namespace octet {
namespace {

/// One axis of a window.
struct Axis {
  int64_t in, kernel, stride, pad, dilation;
  int64_t extent() const { return dilation * (kernel - 1) + 1; }  ///< pixels from first to last tap
};

Axis vertical(const Window& w, const Shape& in) { return {in.h, w.kernel_h, w.stride_h, w.pad_h, w.dilation_h}; }
Axis horizontal(const Window& w, const Shape& in) { return {in.w, w.kernel_w, w.stride_w, w.pad_w, w.dilation_w}; }

bool in_range(int64_t value, int64_t lo) { return value >= lo && value <= kMaxDimension; }

std::string axis_fault(const Axis& a, bool pool) {
  if (!in_range(a.kernel, 1)) return fmt::format("kernel {} is not in 1..{}", a.kernel, kMaxDimension);
  if (!in_range(a.stride, 1)) return fmt::format("stride {} is not in 1..{}", a.stride, kMaxDimension);
  if (!in_range(a.pad, 0)) return fmt::format("pad {} is not in 0..{}", a.pad, kMaxDimension);
  if (!in_range(a.dilation, 1)) return fmt::format("dilation {} is not in 1..{}", a.dilation, kMaxDimension);
  if (pool && a.dilation != 1) return fmt::format("dilation {}: pooling windows have none", a.dilation);
  if (pool && 2 * a.pad > a.kernel) return fmt::format("pad {} is more than half of kernel {}", a.pad, a.kernel);
  if (a.in + 2 * a.pad < a.extent()) {
    return fmt::format("the window spans {} pixels, the padded image has {}", a.extent(), a.in + 2 * a.pad);
  }
  return "";
}

int axis_output(const Axis& a) { return static_cast<int>((a.in + 2 * a.pad - a.extent()) / a.stride + 1); }

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

std::string window_fault(const Window& window, const Shape& in, bool pool) {
  const std::string fault = axis_fault(vertical(window, in), pool);
  return fault.empty() ? axis_fault(horizontal(window, in), pool) : fault;
}

Shape window_output(const Window& window, const Shape& in) {
  return {0, axis_output(vertical(window, in)), axis_output(horizontal(window, in))};
}

Shape subsample_output(const Window& window, const Shape& in) {
  return {0, (in.h - 1) / window.stride_h + 1, (in.w - 1) / window.stride_w + 1};
}

}  // namespace octet
