#include "trainers/loop/loss.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>

#include <cstdint>

namespace octet {
namespace {

bool of_pixels(const at::Tensor& labels) { return labels.dim() == 3; }

/// [N, classes, H, W]
at::Tensor as_pixels(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.reshape({labels.size(0), -1, labels.size(1), labels.size(2)});
}

at::Tensor labelled(const at::Tensor& labels) { return labels.ge(0); }

/// The mean's divisor.
at::Tensor count(const at::Tensor& labels) { return labelled(labels).sum().clamp_min(1); }

/// Written out, because LibTorch's for images (nll_loss2d) has no deterministic form on the GPU. No class equals
/// kNoLabel, so such a pixel's target is all zeros.
at::Tensor pixels_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  const at::Tensor log_shares = at::log_softmax(as_pixels(logits, labels).to(at::kFloat), 1);
  const int64_t classes = log_shares.size(1);
  const at::Tensor numbers = at::arange(classes, labels.options()).view({1, -1, 1, 1});
  at::Tensor target = labels.unsqueeze(1).eq(numbers).to(at::kFloat);
  if (smoothing > 0) {
    const at::Tensor spread =
        labelled(labels).unsqueeze(1).to(at::kFloat).mul(smoothing / static_cast<double>(classes));
    target = target.mul(1 - smoothing).add(spread);
  }
  return log_shares.mul(target).sum().neg().div(count(labels));
}

}  // namespace

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  if (of_pixels(labels)) return pixels_loss(logits, labels, smoothing);
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean, /*ignore_index=*/-100, smoothing);
}

at::Tensor right_pictures(const at::Tensor& logits, const at::Tensor& labels) {
  if (!of_pixels(labels)) return logits.argmax(1).eq(labels).sum().to(at::kDouble);
  const at::Tensor right = as_pixels(logits, labels).argmax(1).eq(labels).sum();
  return right.to(at::kDouble).mul(static_cast<double>(labels.size(0))).div(count(labels));
}

}  // namespace octet
