// SPDX-License-Identifier: Apache-2.0
// What training minimizes: one objective for each kind of task (src/eval/evaluate.h). Detectors with a head of YOLOX
// (box_objective.cpp) learn which cells are to find which box (SimOTA), and by the losses of boxes, objectness and
// classes: Ge et al., YOLOX: exceeding YOLO series in 2021, arXiv 2107.08430; Ge et al., OTA, arXiv 2103.14259. All
// images of a batch are taken at once, in shapes that do not depend on what is in them, without waiting for a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "src/detect/decode.h"
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
    ImageSize input;  ///< of its images; 0 x 0: the network's own
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

/// The labels of a batch. N images, G places for boxes in each.
struct BoxTargets {
  at::Tensor valid;    ///< bool [N, G]: whether there is a box
  at::Tensor classes;  ///< int64 [N, G]; 0 where there is none
  at::Tensor boxes;    ///< float [N, G, 4]: centre x, y, width, height in pixels of the input
};

/// Returns the targets of labels as LabelWriter writes them, int64 [N, G, kBoxValues].
BoxTargets box_targets(const at::Tensor& labels);

/// A head's outputs over the A cells of all levels, level by level and row by row; and where the cells are.
struct BoxCells {
  at::Tensor raw;         ///< float [N, A, 4]: b0 .. b3 of BoxHeadKind::yolox
  at::Tensor objectness;  ///< float [N, A], before the sigmoid
  at::Tensor classes;     ///< float [N, A, classes], before the sigmoid
  at::Tensor x, y;        ///< float [A]: of the upper left corner, in cells
  at::Tensor stride;      ///< float [A]: pixels of a cell

  /// Returns the boxes, float [N, A, 4]: centre x, y, width, height in pixels of the input.
  at::Tensor boxes() const;
};

/// Which box each cell is to find.
struct Assignment {
  at::Tensor positive;  ///< bool [N, A]: whether it is to find one
  at::Tensor label;     ///< int64 [N, A], into G
  at::Tensor iou;       ///< float [N, A]: of the cell's box and that label; 0 for other cells
};

/// SimOTA. Candidates are the cells whose centre lies within 1.5 strides of the centre of some box, along both axes. A
/// candidate costs a box: the binary cross-entropy of sqrt(class * objectness), summed over the classes, minus 3
/// log(IoU + 1e-8), and 1e6 more if it is not near the centre of that box. A box takes as many of the cheapest as the
/// sum of its ten largest IoUs, rounded down, at least one; a cell that several take goes to the box that it costs
/// least. Without gradients.
Assignment assign_boxes(const BoxCells& cells, const BoxTargets& targets);

class BoxObjective : public Objective {
 public:
  BoxObjective(const BoxDecoder& decoder, at::Device device);

  /// The loss of a batch is the sum of these, l1 (undefined if not asked for) with Whole::box_l1.
  struct Losses {
    at::Tensor boxes;       ///< 5 (1 - IoU^2), summed over the positive cells
    at::Tensor objectness;  ///< binary cross-entropy over all cells: are they positive?
    at::Tensor classes;  ///< binary cross-entropy over the positive cells; the target of the label's class is the IoU
    at::Tensor
        l1;  ///< the sum of |difference| of b0 .. b3 and those that give the label's box, over the positive cells
    at::Tensor mean_iou;  ///< over the positive cells, without gradient
  };  ///< float32 scalars; each sum is divided by the number of positive cells of the batch, as divisor() says
  Losses losses(const BoxCells& cells, const BoxTargets& targets, const GatherShares* shares = nullptr,
                bool with_l1 = false) const;

  /// Returns a network's outputs [N, elements] as walk() orders them by cell, in float32. input: see Whole.
  BoxCells cells(const at::Tensor& outputs, const ImageSize& input = {}) const;

  Judged judge(const at::Tensor& outputs, const at::Tensor& labels, double smoothing,
               const Whole& whole) const override;

  /// Returns the divergence (Kullback-Leibler) of the teacher's objectness and the outputs', summed over all cells,
  /// plus that of the classes and 5 (1 - IoU^2) of the boxes, weighted by the teacher's objectness; all divided by the
  /// sum of these weights, at least 1. There is no temperature: probabilities of a sigmoid are not softened.
  at::Tensor distill(const at::Tensor& outputs, const at::Tensor& taught, double temperature,
                     const Whole& whole) const override;

 private:
  /// Where the cells are, each [A].
  struct Grid {
    at::Tensor x, y, stride;
  };
  Shape shape_of(int output, const ImageSize& input) const;
  Grid grid_of(const ImageSize& input) const;

  const BoxDecoder decoder_;
  const at::Device device_;
  const Grid grid_;  // of the network's own input
};

}  // namespace octet
