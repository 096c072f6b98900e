// SPDX-License-Identifier: Apache-2.0
// The tiny run up to QAT, without its float phase.
#pragma once

#include <string>

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

}  // namespace octet::testing_trainers
