// What a network is asked: the class of each picture (a classifier), or of each of its pixels (segmentation). The one
// place that says what follows: how many answers a picture has, what the network must give, which figure is its score.
#pragma once

#include <string>

#include "src/data/loader.h"
#include "src/graph/int8_graph.h"

namespace octet {

struct Task {
  Labels labels = Labels::image;
  Shape output;  ///< what the network gives, and nothing else: float logits [classes, 1, 1] or [classes, height, width]

  bool pixels() const { return labels == Labels::pixels; }
  int classes() const { return output.c; }
  size_t answers() const { return static_cast<size_t>(output.h) * output.w; }  ///< of a picture: labels, arg maxima
};

Task task_of(const Dataset& dataset, const Transform& transform);

/// Words for a figure. score: what networks are judged, chosen and compared by; share: of the answers that are right.
/// second: the figure shown beside the score.
struct ScoreNames {
  const char *score, *share, *second;
  const char* key;  ///< of the score, in files: "top1"
};
const ScoreNames& score_names(Labels labels);  ///< top-1, top-1, top-5; mean IoU, pixels, pixels

/// Throws Error(usage) unless the network gives what the task asks. `name`: of the network, for the message.
void require_answers(const Task& task, const Graph& graph);
void require_answers(const Task& task, const Int8Graph& graph, const std::string& name);

}  // namespace octet
