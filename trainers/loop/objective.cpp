// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/objective.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>

#include "src/data/labels.h"
#include "src/train/repair/learned_codes.h"

namespace octet {
namespace {

bool of_pixels(const at::Tensor& labels) { return labels.dim() == 3; }

/// Whether images have two classes each (kMixedValues).
bool of_mixed(const at::Tensor& labels) { return labels.dim() == 2; }

/// The classes of mixed images [N] and the weights of the second ones [N], float.
struct Mixed {
  at::Tensor own, other, weight;
};

Mixed mixed(const at::Tensor& labels) {
  return {labels.select(1, 0), labels.select(1, 1), labels.select(1, 2).to(at::kFloat) / kMixedUnits};
}

/// The cross-entropy of the weighted classes.
at::Tensor mixed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  const Mixed of = mixed(labels);
  const at::Tensor numbers = at::arange(logits.size(1), labels.options());
  const auto share = [&](const at::Tensor& classes, const at::Tensor& weight) {
    return classes.unsqueeze(1).eq(numbers) * weight.unsqueeze(1);
  };
  const at::Tensor target = share(of.own, 1 - of.weight) + share(of.other, of.weight);
  return at::cross_entropy_loss(logits.to(at::kFloat), target, /*weight=*/{}, at::Reduction::Mean,
                                /*ignore_index=*/-100, smoothing);
}

/// Returns the logits as [N, classes, H, W].
at::Tensor as_pixels(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.reshape({labels.size(0), -1, labels.size(1), labels.size(2)});
}

at::Tensor labelled(const at::Tensor& labels) { return labels.ge(0); }

/// Returns the number that sums over labelled pixels are divided by: the given one, or of these labels.
at::Tensor pixels_or_own(const at::Tensor& pixels, const at::Tensor& labels) {
  return pixels.defined() ? pixels : divisor(labelled(labels).sum(), nullptr);
}

/// The cross-entropy written out, because LibTorch's for images (nll_loss2d) has no deterministic form on the GPU. No
/// class equals kNoLabel, so the target of such a pixel is all zeros.
at::Tensor pixels_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing, const at::Tensor& pixels) {
  const at::Tensor log_shares = at::log_softmax(as_pixels(logits, labels).to(at::kFloat), 1);
  const int64_t classes = log_shares.size(1);
  const at::Tensor numbers = at::arange(classes, labels.options()).view({1, -1, 1, 1});
  at::Tensor target = labels.unsqueeze(1).eq(numbers).to(at::kFloat);
  if (smoothing > 0) {
    const at::Tensor spread =
        labelled(labels).unsqueeze(1).to(at::kFloat).mul(smoothing / static_cast<double>(classes));
    target = target.mul(1 - smoothing).add(spread);
  }
  return log_shares.mul(target).sum().neg().div(pixels_or_own(pixels, labels));
}

}  // namespace

at::Tensor divisor(const at::Tensor& mine, const GatherShares* shares) {
  if (shares == nullptr) return mine.clamp_min(1);
  const at::Tensor all = (*shares)(mine.to(at::kDouble));
  return all.sum(0).clamp_min(1).div(all.size(0)).to(at::kFloat);
}

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing, const at::Tensor& pixels) {
  if (of_pixels(labels)) return pixels_loss(logits, labels, smoothing, pixels);
  if (of_mixed(labels)) return mixed_loss(logits, labels, smoothing);
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean, /*ignore_index=*/-100, smoothing);
}

at::Tensor correct_images(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& pixels) {
  if (of_mixed(labels)) {
    const Mixed of = mixed(labels);
    const at::Tensor found = logits.argmax(1);
    return (found.eq(of.own) * (1 - of.weight) + found.eq(of.other) * of.weight).sum().to(at::kDouble);
  }
  if (!of_pixels(labels)) return logits.argmax(1).eq(labels).sum().to(at::kDouble);
  const at::Tensor right = as_pixels(logits, labels).argmax(1).eq(labels).sum();
  return right.to(at::kDouble).mul(static_cast<double>(labels.size(0))).div(pixels_or_own(pixels, labels));
}

namespace {

class ClassObjective : public Objective {
 public:
  /// classes: of pixels; 0: of images.
  explicit ClassObjective(int64_t classes) : classes_(classes) {}

  Judged judge(const at::Tensor& outputs, const at::Tensor& labels, double smoothing,
               const Whole& whole) const override {
    // Exchanged once in a step, although three sums are divided by it.
    const at::Tensor pixels = of_pixels(labels) ? divisor(labelled(labels).sum(), whole.shares) : at::Tensor();
    const at::Tensor loss = mean_loss(outputs, labels, smoothing, pixels);
    const at::NoGradGuard no_grad;  // validation measures it without smoothing
    const at::Tensor plain = smoothing > 0 ? mean_loss(outputs.detach(), labels, 0, pixels) : loss.detach();
    return {loss, plain, correct_images(outputs.detach(), labels, pixels)};
  }

  at::Tensor distill(const at::Tensor& outputs, const at::Tensor& taught, double temperature,
                     const Whole&) const override {
    const auto by_pixel = [&](const at::Tensor& logits) {
      return classes_ > 0 ? logits.reshape({logits.size(0), classes_, -1}) : logits;
    };
    return distillation_loss(by_pixel(outputs), by_pixel(taught), temperature);
  }

 private:
  const int64_t classes_;
};

}  // namespace

const Objective& class_objective() {
  static const ClassObjective objective(0);
  return objective;
}

std::shared_ptr<const Objective> make_objective(const Task& task, at::Device device) {
  if (task.labels == Labels::boxes) return std::make_shared<BoxObjective>(*task.detector, device);
  return std::make_shared<ClassObjective>(task.pixels() ? task.classes() : 0);
}

}  // namespace octet
