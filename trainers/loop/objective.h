// SPDX-License-Identifier: Apache-2.0
// What training minimizes: one objective for each kind of task (src/eval/evaluate.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "src/eval/evaluate.h"
#include "src/train/model/model.h"

namespace octet {

class Objective {
 public:
  virtual ~Objective() = default;

  struct Judged {
    at::Tensor loss;   ///< to be minimized, a float32 scalar
    at::Tensor plain;  ///< the same without label smoothing and without gradient
    /// A float64 scalar without gradient: of classes correct_images(), of boxes N times the mean IoU of the boxes that
    /// are trained and their labels.
    at::Tensor right;
  };
  /// What a batch is beside its outputs and labels.
  struct Whole {
    PictureSize input;  ///< of its images; 0 x 0: the network's own
    /// Sums over the processes that share the batch: they have equal numbers of its images, but maybe not of labelled
    /// pixels or boxes, and the mean of their losses is to be the batch's. Null: the batch is whole.
    const GatherShares* shares = nullptr;
    bool box_l1 = false;  ///< of boxes: with the L1 loss that YOLOX has in its last epochs
  };
  /// Judges the outputs [N, elements] of a network, as walk() returns them, by the labels of a batch, as LabelWriter
  /// orders them. Waits for no GPU. smoothing: as mean_loss() has it; boxes have none.
  virtual Judged judge(const at::Tensor& outputs, const at::Tensor& labels, double smoothing,
                       const Whole& whole) const = 0;

  /// Returns how far the outputs are from those of a teacher, a float32 scalar: the loss of distillation.
  virtual at::Tensor distill(const at::Tensor& outputs, const at::Tensor& taught, double temperature,
                             const Whole& whole) const = 0;
};

/// Returns what a sum over a batch is divided by, whose parts several processes may have: `mine`, or the mean of all
/// theirs; at least 1, or what is left of 1 for one of several.
at::Tensor divisor(const at::Tensor& mine, const GatherShares* shares);

/// Returns the objective of classes, of images or of pixels, which the shape of the labels tells apart; it distills
/// those of images.
const Objective& class_objective();

/// Returns the objective of a task for a network on `device`.
std::shared_ptr<const Objective> make_objective(const Task& task, at::Device device);

/// Returns the mean cross-entropy over the labels, a float32 scalar. logits: [N, classes] as walk() returns them, or
/// [N, classes * H * W] for pixels. labels: int64 [N], of mixed images [N, kMixedValues], or [N, H, W] where pixels
/// with kNoLabel do not count; the mean is 0 if no pixel counts. smoothing: share of the target spread over all classes
/// (Szegedy et al. 2016). pixels: what sums over labelled pixels are divided by; undefined: their number, at least 1.
at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing,
                     const at::Tensor& pixels = {});

/// Returns how many images are classified correctly, a float64 scalar; of mixed ones the weight of the class found
/// counts. For pixels it is N times the share of labelled
/// pixels that are correct; pixels as in mean_loss().
at::Tensor correct_images(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& pixels = {});

}  // namespace octet
