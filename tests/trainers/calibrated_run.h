// SPDX-License-Identifier: Apache-2.0
// The tiny run up to QAT, without its float phase.
#pragma once

#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"

namespace octet::testing_trainers {

struct CalibratedRun {
  CalibratedRun(const Recipe& recipe, const std::string& folder, at::Device device = at::kCPU)
      : run(open_run(recipe, {folder}, device)), weights(starting_weights(run)), model(make_quantized(run, weights)) {
    start_run_directory(run.directory, recipe, {.device = device});
    calibrate(model, run);
  }
  Run run;
  Weights weights;
  QuantizedModel model;
};

/// Makes the running statistics those of the images.
inline void make_statistics(CalibratedRun& c) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = validation_inputs(c.run, 32).at(0);
  for (int step = 0; step < 100; ++step) c.model.forward(x, {.batch_norm_training = true, .quantize = false});
}

/// Returns the number of the node of that name.
inline int node_named(const QuantizedModel& model, const std::string& name) {
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  return static_cast<int>(
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.name == name; }) - nodes.begin());
}

}  // namespace octet::testing_trainers
