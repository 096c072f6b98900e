#include "src/eval/task.h"

#include <fmt/format.h>

#include "src/common/error.h"
#include "src/graph/outputs_text.h"
#include "src/graph/window.h"

namespace octet {
namespace {

/// `Network`: Graph or Int8Graph.
template <typename Network>
void require_output(const Task& task, const std::string& name, const Network& network) {
  const Shape& first = network.nodes[network.outputs.front()].shape;
  const bool one = network.outputs.size() == 1;
  if (one && first == task.output) return;
  const bool classifies = first.h == 1 && first.w == 1;
  const std::string cure =
      !one                          ? "; train one output"
      : task.pixels() && classifies ? "; data.labels: pixels wants a network of segmentation, such as model.name: unet"
      : !task.pixels() && !classifies ? "; a network that answers for every pixel learns from data.labels: pixels"
                                      : "";
  throw usage_error(fmt::format("{}: gives {}, the data set has {} classes for {}, so it must give one output, {}{}",
                                name, outputs_text(network), task.classes(),
                                task.pixels() ? "each pixel" : "each picture", to_string(task.output), cure));
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

void require_answers(const Task& task, const Graph& graph) { require_output(task, "model " + graph.name, graph); }

void require_answers(const Task& task, const Int8Graph& graph, const std::string& name) {
  require_output(task, name, graph);
  if (graph.nodes[graph.outputs.front()].float_output) return;
  throw usage_error(fmt::format("{}: its output '{}' gives codes, the answers must be float logits", name,
                                graph.nodes[graph.outputs.front()].name));
}

}  // namespace octet
