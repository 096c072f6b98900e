// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/objective.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "src/data/labels.h"

namespace octet {
namespace {

constexpr double kCentre = 1.5;          // strides
constexpr double kIouCost = 3;           // factor of -log(IoU)
constexpr double kFar = 1e6;             // cost of a cell that is not near the box's centre
constexpr int64_t kMostCells = 10;       // of a box
constexpr int64_t kMostPairs = 1 << 22;  // of cells and boxes that are compared at a time: 0.3 GB
constexpr double kBoxWeight = 5;         // of 1 - IoU^2
constexpr double kLeastSide = 1e-3;      // pixels, of a place without a box
constexpr double kMostExponent = 20;     // of a box's size in strides, as in src/detect/decode.cpp

/// Returns intersection over union along the last dimension of a and b, [..., 4] as centre and size, which broadcast.
at::Tensor overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto at = [](const at::Tensor& box, int64_t value) { return box.select(-1, value); };
  const auto shared = [&](int64_t axis) {
    const at::Tensor half_a = at(a, axis + 2) / 2, half_b = at(b, axis + 2) / 2;
    const at::Tensor low = at::maximum(at(a, axis) - half_a, at(b, axis) - half_b);
    const at::Tensor high = at::minimum(at(a, axis) + half_a, at(b, axis) + half_b);
    return (high - low).clamp_min(0);
  };
  const at::Tensor both = shared(0) * shared(1);
  return both / (at(a, 2) * at(a, 3) + at(b, 2) * at(b, 3) - both + 1e-16);
}

/// Returns by cell and label [N, A, G] the binary cross-entropy of probabilities [N, A, classes] and the label's class,
/// summed over the classes: that of no class at all, with the term of the label's class exchanged.
at::Tensor class_cost(const at::Tensor& probability, const at::Tensor& label_classes) {
  constexpr double kLeastLog = -100;  // as LibTorch's binary cross-entropy
  const at::Tensor yes = at::log(probability).clamp_min(kLeastLog);
  const at::Tensor no = at::log(1 - probability).clamp_min(kLeastLog);
  const at::Tensor index = label_classes.unsqueeze(1).expand({-1, probability.size(1), -1});
  return (no - yes).gather(2, index) - no.sum(2, /*keepdim=*/true);
}

/// Returns of each row of the last dimension the value at `index` [...], int64.
at::Tensor pick(const at::Tensor& values, const at::Tensor& index) {
  return values.gather(-1, index.unsqueeze(-1)).squeeze(-1);
}

/// Returns the labels' boxes of the cells, [N, A, 4].
at::Tensor boxes_of(const BoxTargets& targets, const at::Tensor& label) {
  return targets.boxes.gather(1, label.unsqueeze(-1).expand({-1, -1, 4}));
}

at::Tensor cross_entropies(const at::Tensor& logits, const at::Tensor& target) {
  return at::binary_cross_entropy_with_logits(logits, target, {}, {}, at::Reduction::None);
}

/// Returns by cell [N, A] how far its four numbers are from those of the box wanted [N, A, 4], summed. The
/// sides of a place without a box are no zeros here, so that all are finite.
at::Tensor distances(const BoxCells& cells, const at::Tensor& wanted) {
  const at::Tensor strides = cells.stride.unsqueeze(1);  // [A, 1]
  const at::Tensor corner = at::stack({cells.x, cells.y}, 1);
  const at::Tensor centre = wanted.narrow(2, 0, 2) / strides - corner;
  const at::Tensor size = at::log(wanted.narrow(2, 2, 2).clamp_min(kLeastSide) / strides + 1e-8);
  return (cells.raw - at::cat({centre, size}, 2)).abs().sum(2);
}

/// Returns the divergence of probabilities sigmoid(taught) from sigmoid(logits), by element.
at::Tensor divergences(const at::Tensor& logits, const at::Tensor& taught) {
  const at::Tensor p = at::sigmoid(taught);
  const auto expected = [&](const at::Tensor& of) { return p * at::log_sigmoid(of) + (1 - p) * at::log_sigmoid(-of); };
  return expected(taught) - expected(logits);
}

}  // namespace

BoxTargets box_targets(const at::Tensor& labels) {
  const at::Tensor lengths = labels.narrow(2, 1, 4).to(at::kFloat) / kBoxUnits;  // left, top, width, height
  const at::Tensor size = lengths.narrow(2, 2, 2);
  const at::Tensor classes = labels.select(2, 0);
  return {classes.ge(0), classes.clamp_min(0), at::cat({lengths.narrow(2, 0, 2) + size / 2, size}, 2)};
}

at::Tensor BoxCells::boxes() const {
  const at::Tensor size = raw.narrow(2, 2, 2).clamp_max(kMostExponent).exp() * stride.unsqueeze(1);
  const at::Tensor centre_x = (raw.select(2, 0) + x) * stride, centre_y = (raw.select(2, 1) + y) * stride;
  return at::cat({centre_x.unsqueeze(2), centre_y.unsqueeze(2), size}, 2);
}

namespace {

/// Which boxes take the cells, as known from some of the boxes. N images, A cells.
struct Takers {
  at::Tensor count;     ///< int64 [N, A]: boxes that take the cell
  at::Tensor first;     ///< int64 [N, A]: the first of them, if there is one
  at::Tensor cheapest;  ///< int64 [N, A]: the box, taking or not, that it costs least
  at::Tensor cost;      ///< double [N, A]: what it costs that one

  /// Takes in the boxes behind those that are known.
  void add(const Takers& more) {
    first = at::where(count.gt(0), first, more.first);
    count = count + more.count;
    cheapest = at::where(more.cost.lt(cost), more.cheapest, cheapest);
    cost = at::minimum(cost, more.cost);
  }
};

/// Assigns the boxes of some images, so many at a time that few pairs of cells and boxes are in memory.
class Assigner {
 public:
  Assigner(const BoxCells& cells, const BoxTargets& targets)
      : cells_(cells), targets_(targets), boxes_(cells.boxes().detach()) {
    const at::Tensor score = at::sigmoid(cells.classes) * at::sigmoid(cells.objectness).unsqueeze(2);
    root_ = score.detach().sqrt();
    for_parts([&](const BoxTargets& part, int64_t) {
      const at::Tensor any = at_centre(part).any(1, /*keepdim=*/true);
      candidate_ = candidate_.defined() ? candidate_.logical_or(any) : any;
    });
  }

  Assignment assign() const {
    Takers takers;
    for_parts([&](const BoxTargets& part, int64_t first) {
      Takers found = takers_of(part);
      found.first.add_(first);
      found.cheapest.add_(first);
      if (first == 0)
        takers = found;
      else
        takers.add(found);
    });
    const at::Tensor label = at::where(takers.count.gt(1), takers.cheapest, takers.first);
    const at::Tensor positive = takers.count.gt(0);
    return {positive, label, overlap(boxes_of(targets_, label), boxes_) * positive};
  }

 private:
  /// Calls work(part, number of its first box) for parts of the boxes of all images.
  template <class Work>
  void for_parts(const Work& work) const {
    const int64_t all = targets_.valid.size(1),
                  part = std::clamp<int64_t>(kMostPairs / root_.select(2, 0).numel(), 1, all);
    for (int64_t first = 0; first < all; first += part) {
      const auto of = [&](const at::Tensor& whole) { return whole.narrow(1, first, std::min(part, all - first)); };
      work({of(targets_.valid), of(targets_.classes), of(targets_.boxes)}, first);
    }
  }

  /// Returns which cells lie near the centre of which box, [N, G, A], as what follows is.
  at::Tensor at_centre(const BoxTargets& part) const {
    const auto near = [&](const at::Tensor& corner, int64_t axis) {
      const at::Tensor away = (corner + 0.5) * cells_.stride - part.boxes.select(2, axis).unsqueeze(2);
      return away.abs().lt(cells_.stride * kCentre);
    };
    return near(cells_.x, 0).logical_and(near(cells_.y, 1)).logical_and(part.valid.unsqueeze(2));
  }

  Takers takers_of(const BoxTargets& part) const {
    const at::Tensor possible = candidate_.logical_and(part.valid.unsqueeze(2));
    const at::Tensor iou = overlap(part.boxes.unsqueeze(2), boxes_.unsqueeze(1)) * possible;
    // In double, so that 1e6 takes no digits from the rest.
    const at::Tensor of_class = class_cost(root_, part.classes).transpose(1, 2);
    const at::Tensor all =
        of_class.to(at::kDouble) - kIouCost * at::log(iou + 1e-8) + kFar * at_centre(part).logical_not();
    const at::Tensor cost = all.masked_fill(possible.logical_not(), std::numeric_limits<double>::infinity());

    const int64_t most = std::min(kMostCells, iou.size(2));
    const at::Tensor count = std::get<0>(iou.topk(most, 2)).sum(2).to(at::kLong).clamp(1, most);
    const at::Tensor cheapest = std::get<0>(cost.topk(most, 2, /*largest=*/false));
    const at::Tensor limit = pick(cheapest, count - 1).unsqueeze(2);
    const at::Tensor taken = cost.le(limit).logical_and(possible), best = cost.argmin(1);
    return {taken.sum(1), taken.to(at::kByte).argmax(1), best, cost.gather(1, best.unsqueeze(1)).squeeze(1)};
  }

  const BoxCells& cells_;
  const BoxTargets& targets_;
  const at::Tensor boxes_;  // [N, A, 4]
  at::Tensor root_;         // [N, A, classes]: of the scores
  at::Tensor candidate_;    // bool [N, 1, A]: near the centre of some box
};

Assignment assign_part(const BoxCells& cells, const BoxTargets& targets) {
  const at::NoGradGuard no_grad;
  return Assigner(cells, targets).assign();
}

}  // namespace

Assignment assign_boxes(const BoxCells& cells, const BoxTargets& targets) {
  const int64_t images = targets.valid.size(0), pairs = targets.valid.size(1) * cells.objectness.size(1);
  const int64_t part = std::clamp<int64_t>(kMostPairs / pairs, 1, images);
  if (part == images) return assign_part(cells, targets);
  std::vector<at::Tensor> positive, label, iou;
  for (int64_t first = 0; first < images; first += part) {
    const auto of = [&](const at::Tensor& all) { return all.narrow(0, first, std::min(part, images - first)); };
    const Assignment assigned =
        assign_part({of(cells.raw), of(cells.objectness), of(cells.classes), cells.x, cells.y, cells.stride},
                    {of(targets.valid), of(targets.classes), of(targets.boxes)});
    positive.push_back(assigned.positive);
    label.push_back(assigned.label);
    iou.push_back(assigned.iou);
  }
  return {at::cat(positive), at::cat(label), at::cat(iou)};
}

BoxObjective::BoxObjective(const BoxDecoder& decoder, at::Device device)
    : decoder_(decoder), device_(device), grid_(grid_of({})) {}

/// Returns the shape of an output for an input of that size.
Shape BoxObjective::shape_of(int output, const ImageSize& input) const {
  Shape shape = decoder_.outputs[static_cast<size_t>(output)].shape;
  if (input.height == 0) return shape;
  shape.h = shape.h * input.height / decoder_.transform.height;
  shape.w = shape.w * input.width / decoder_.transform.width;
  return shape;
}

BoxObjective::Grid BoxObjective::grid_of(const ImageSize& input) const {
  const at::TensorOptions floats = at::TensorOptions(device_).dtype(at::kFloat);  // no copy, which no graph records
  std::vector<at::Tensor> x, y, strides;
  for (const BoxHead::Level& level : decoder_.head.levels) {
    const Shape shape = shape_of(level.boxes, input);
    x.push_back(at::arange(shape.w, floats).repeat({shape.h}));
    y.push_back(at::arange(shape.h, floats).unsqueeze(1).expand({shape.h, shape.w}).reshape({-1}));
    strides.push_back(at::full({static_cast<int64_t>(shape.h) * shape.w}, level.stride, floats));
  }
  return {at::cat(x), at::cat(y), at::cat(strides)};
}

BoxCells BoxObjective::cells(const at::Tensor& outputs, const ImageSize& size) const {
  const bool own = size == ImageSize{decoder_.transform.height, decoder_.transform.width};
  const ImageSize input = own ? ImageSize{} : size;
  std::vector<at::Tensor> all;  // [N, cells, channels]
  int64_t first = 0;
  for (size_t o = 0; o < decoder_.outputs.size(); ++o) {
    const Shape shape = shape_of(static_cast<int>(o), input);
    const at::Tensor flat = outputs.narrow(1, first, shape.elements()).to(at::kFloat);
    all.push_back(flat.reshape({outputs.size(0), shape.c, -1}).transpose(1, 2));
    first += shape.elements();
  }
  std::vector<at::Tensor> raw, objectness, classes;
  for (const BoxHead::Level& level : decoder_.head.levels) {
    raw.push_back(all[static_cast<size_t>(level.boxes)]);
    objectness.push_back(all[static_cast<size_t>(level.objectness)]);
    classes.push_back(all[static_cast<size_t>(level.classes)]);
  }
  const Grid grid = input.height == 0 ? grid_ : grid_of(input);
  return {at::cat(raw, 1), at::cat(objectness, 1).squeeze(2), at::cat(classes, 1), grid.x, grid.y, grid.stride};
}

BoxObjective::Losses BoxObjective::losses(const BoxCells& cells, const BoxTargets& targets, const GatherShares* shares,
                                          bool with_l1) const {
  const Assignment assigned = assign_boxes(cells, targets);
  const at::Tensor positive = assigned.positive.to(at::kFloat), count = divisor(positive.sum(), shares);
  const at::Tensor wanted = boxes_of(targets, assigned.label);
  const at::Tensor numbers = at::arange(cells.classes.size(2), targets.classes.options());
  const at::Tensor of_class = targets.classes.gather(1, assigned.label).unsqueeze(2).eq(numbers);
  const at::Tensor lost = 1 - overlap(cells.boxes(), wanted).square();
  const at::Tensor classes = cross_entropies(cells.classes, of_class * assigned.iou.unsqueeze(2));
  return {.boxes = kBoxWeight * at::where(assigned.positive, lost, at::zeros_like(lost)).sum() / count,
          .objectness = cross_entropies(cells.objectness, positive).sum() / count,
          .classes = (classes * positive.unsqueeze(2)).sum() / count,
          .l1 = with_l1 ? (distances(cells, wanted) * positive).sum() / count : at::Tensor(),
          .mean_iou = assigned.iou.sum() / count};
}

Objective::Judged BoxObjective::judge(const at::Tensor& outputs, const at::Tensor& labels, double,
                                      const Whole& whole) const {
  const Losses all = losses(cells(outputs, whole.input), box_targets(labels), whole.shares, whole.box_l1);
  at::Tensor loss = all.boxes + all.objectness + all.classes;
  if (whole.box_l1) loss = loss + all.l1;
  return {loss, loss.detach(), all.mean_iou.to(at::kDouble) * static_cast<double>(labels.size(0))};
}

at::Tensor BoxObjective::distill(const at::Tensor& outputs, const at::Tensor& taught, double,
                                 const Whole& whole) const {
  const BoxCells own = cells(outputs, whole.input), wanted = cells(taught, whole.input);
  const at::Tensor weight = at::sigmoid(wanted.objectness);  // [N, A]
  const at::Tensor lost = kBoxWeight * (1 - overlap(own.boxes(), wanted.boxes()).square());
  const at::Tensor classes = divergences(own.classes, wanted.classes).sum(2);
  const at::Tensor sum = divergences(own.objectness, wanted.objectness).sum() + (weight * (classes + lost)).sum();
  return sum / divisor(weight.sum(), whole.shares);
}

}  // namespace octet
