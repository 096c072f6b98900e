#include "src/eval/task.h"

#include <fmt/format.h>

#include "src/common/error.h"
#include "src/graph/window.h"

namespace octet {
namespace {

/// `given`: the only output, or empty for several.
void require_output(const Task& task, const std::string& network, const std::vector<Shape>& given) {
  if (given.size() == 1 && given.front() == task.output) return;
  std::string shapes;
  for (const Shape& shape : given) shapes += (shapes.empty() ? "" : ", ") + to_string(shape);
  const bool classifies = given.size() == 1 && given.front().h == 1 && given.front().w == 1;
  const std::string cure =
      task.pixels() && classifies ? "; data.labels: pixels wants a network of segmentation, such as model.name: unet"
      : !task.pixels() && !classifies ? "; a network that answers for every pixel learns from data.labels: pixels"
                                      : "";
  throw usage_error(fmt::format("{}: gives {}, the data set has {} classes for {}, so it must give one output, {}{}",
                                network, shapes, task.classes(), task.pixels() ? "each pixel" : "each picture",
                                to_string(task.output), cure));
}

}  // namespace

Task task_of(const Dataset& dataset, const Transform& transform) {
  const auto classes = static_cast<int>(dataset.class_names().size());
  const bool pixels = dataset.labels() == Labels::pixels;
  return {dataset.labels(), {classes, pixels ? transform.height : 1, pixels ? transform.width : 1}};
}

const ScoreNames& score_names(Labels labels) {
  static constexpr ScoreNames kImage{"top-1", "top-1", "top-5", "top1"};
  static constexpr ScoreNames kPixels{"mean IoU", "pixels", "pixels", "mean_iou"};
  return labels == Labels::image ? kImage : kPixels;
}

void require_answers(const Task& task, const Graph& graph) {
  std::vector<Shape> shapes;
  for (const int output : graph.outputs) shapes.push_back(graph.nodes[output].shape);
  require_output(task, "model " + graph.name, shapes);
}

void require_answers(const Task& task, const Int8Graph& graph, const std::string& name) {
  std::vector<Shape> shapes;
  for (const int output : graph.outputs) shapes.push_back(graph.nodes[output].shape);
  require_output(task, name, shapes);
  if (graph.nodes[graph.outputs.front()].float_output) return;
  throw usage_error(fmt::format("{}: its output '{}' are codes, the answers must be float logits", name,
                                graph.nodes[graph.outputs.front()].name));
}

}  // namespace octet
