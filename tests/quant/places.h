// SPDX-License-Identifier: Apache-2.0
// Where the elements that an operator's output is made of are in its inputs, CHW: for the walks of walks.h, in double
// and in integers alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "src/net/int8_graph.h"

namespace octet::testing {

/// Calls body(weight offset, input offset) for every tap of output (k, y, x) that lies inside the image; CHW.
template <typename Body>
void taps(const Window& w, int groups, const Shape& in, const Shape& out, int k, int y, int x, const Body& body) {
  const int per_group = in.c / groups, group = k / (out.c / groups);
  for (int c = 0; c < per_group; ++c) {
    for (int r = 0; r < w.kernel_h; ++r) {
      for (int s = 0; s < w.kernel_w; ++s) {
        const int iy = y * w.stride_h - w.pad.top + r * w.dilation_h,
                  ix = x * w.stride_w - w.pad.left + s * w.dilation_w;
        if (iy < 0 || iy >= in.h || ix < 0 || ix >= in.w) continue;
        body(c, r, s, (static_cast<size_t>(group * per_group + c) * in.h + iy) * in.w + ix);
      }
    }
  }
}

template <typename Body>
void pixels_of(const Shape& shape, const Body& body) {
  size_t at = 0;
  for (int k = 0; k < shape.c; ++k) {
    for (int y = 0; y < shape.h; ++y) {
      for (int x = 0; x < shape.w; ++x) body(k, y, x, at++);
    }
  }
}

/// Returns where an operator that copies (AnyNode: Node or Int8Node) finds element (k, y, x) of its output in its
/// input, both CHW.
template <typename AnyNode>
size_t picked(const AnyNode& n, const Shape& in, int k, int y, int x) {
  using O = decltype(n.op);
  int channel = n.first_channel + k;
  if (n.op == O::channel_shuffle) channel = k % n.groups * (in.c / n.groups) + k / n.groups;
  if (n.op == O::depth_to_space) channel += (y % n.factor_h * n.factor_w + x % n.factor_w) * n.shape.c;
  const auto row = static_cast<size_t>(channel) * in.h + static_cast<size_t>(y / n.factor_h);
  return row * in.w + static_cast<size_t>(x / n.factor_w);
}

/// Returns the weight of input pixel `in` in output pixel `out` of a bilinear resize along one axis, times 2 * factor:
/// a triangle that is 1 at the input pixel's centre and 0 at its neighbours'. The pixels at the edge continue outside.
inline int64_t hat(int out, int in, int factor, int size) {
  const auto weight = [&](int at) {
    return std::max<int64_t>(0, 2 * factor - std::abs(2 * out + 1 - factor * (2 * at + 1)));
  };
  return weight(in) + (in == 0 ? weight(-1) : 0) + (in == size - 1 ? weight(size) : 0);
}

/// Calls body(weight, input offset) for every pixel that output (k, y, x) is made of; CHW.
template <typename AnyNode, typename Body>
void around(const AnyNode& n, const Shape& in, int k, int y, int x, const Body& body) {
  const int row = y / n.factor_h, column = x / n.factor_w;  // the others are too far
  for (int iy = std::max(0, row - 1); iy <= std::min(in.h - 1, row + 1); ++iy) {
    for (int ix = std::max(0, column - 1); ix <= std::min(in.w - 1, column + 1); ++ix) {
      const int64_t weight = hat(y, iy, n.factor_h, in.h) * hat(x, ix, n.factor_w, in.w);
      if (weight != 0) body(weight, (static_cast<size_t>(k) * in.h + iy) * in.w + ix);
    }
  }
}

/// Calls body(offset in a, offset in b) for every product that output (k, y, x) of a matmul adds up; CHW.
template <typename AnyNode, typename Body>
void pairs(const AnyNode& n, const Shape& a, const Shape& b, int k, int y, int x, const Body& body) {
  const int columns = n.shape.c / n.groups, terms = a.c / n.groups, head = k / columns, column = k % columns;
  const int b_pixels = b.h * b.w;
  for (int term = 0; term < terms; ++term) {
    const int channel = head * terms + term;
    body((static_cast<size_t>(channel) * a.h + y) * a.w + x,
         n.transposed ? static_cast<size_t>(channel) * b_pixels + column
                      : static_cast<size_t>(head * columns + column) * b_pixels + term);
  }
}

/// Calls body(offset) for every channel that is in the group of channel k; CHW.
template <typename AnyNode, typename Body>
void group_of(const AnyNode& n, int k, int y, int x, const Body& body) {
  const int channels = n.shape.c / n.groups, first = k / channels * channels;
  for (int c = first; c < first + channels; ++c) body((static_cast<size_t>(c) * n.shape.h + y) * n.shape.w + x);
}

inline Window whole(const Shape& in) { return {.kernel_h = in.h, .kernel_w = in.w}; }

}  // namespace octet::testing
