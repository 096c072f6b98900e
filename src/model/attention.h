// matmul and softmax on tensors [N, C, H, W], whose groups of channels are the heads of attention: views of them are
// matrices [pixels, channels of a head], for values and for codes alike. Results come in channels-last memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/softmax.h>

#include "src/graph/graph.h"

namespace octet {

/// [N, C, H, W] as [N, heads, H * W, C / heads].
inline at::Tensor as_heads(const at::Tensor& x, int heads) {
  const at::Tensor pixels = x.permute({0, 2, 3, 1});
  return pixels.reshape({x.size(0), x.size(2) * x.size(3), heads, x.size(1) / heads}).transpose(1, 2);
}

/// And back, [N, heads, H * W, channels] to the picture that the node gives.
inline at::Tensor from_heads(const at::Tensor& x, const Node& node) {
  return x.transpose(1, 2).reshape({x.size(0), node.shape.h, node.shape.w, node.shape.c}).permute({0, 3, 1, 2});
}

/// Of values or, exact in double, of codes without their zero points; without the scale.
inline at::Tensor head_sums(const at::Tensor& a, const at::Tensor& b, const Node& node) {
  const at::Tensor rows = as_heads(a, node.groups), columns = as_heads(b, node.groups);
  return from_heads(at::matmul(rows, node.transposed ? columns.transpose(2, 3) : columns), node);
}

inline at::Tensor head_products(const at::Tensor& a, const at::Tensor& b, const Node& node) {
  const at::Tensor sums = head_sums(a, b, node);
  return node.scale == 1 ? sums : at::mul(sums, node.scale);
}

inline at::Tensor head_softmax(const at::Tensor& x, const Node& node) {
  return from_heads(at::softmax(as_heads(x, node.groups), 3), node);
}

}  // namespace octet
