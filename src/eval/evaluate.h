// Measures a Program on a data set. Float models, the simulation, the QAT graph and engines all come here as Programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/engine/engine.h"

namespace octet {

struct Evaluation {
  std::string name;  ///< "float", "ptq", "simulation", "qat_graph", "cpu", "reference"
  long images = 0;
  double top1 = 0, top5 = 0;     ///< shares, 0..1
  double loss = 0;               ///< mean cross-entropy
  double images_per_second = 0;  ///< of run() alone, without decoding
  double latency_median_ms = 0,
         latency_p99_ms = 0;     ///< of single images (batch 1), measured on some of them; 0: not measured
  std::vector<int> predictions;  ///< arg max by position in the data set's index list
  std::vector<float> logits;     ///< [images, classes]
  std::vector<long> confusion;   ///< [classes, classes], row: label
};

struct EvaluateOptions {
  int batch_size = 64;
  int latency_images = 100;  ///< 0: no latency measurement
  int workers = 2;
};

/// Runs `program` over the indices in order, with a progress bar.
Evaluation evaluate(const std::string& name, Program& program, int classes, const Dataset& dataset,
                    const std::vector<size_t>& indices, const Transform& transform, const EvaluateOptions& options);

/// Number of positions where the two disagree (over the shorter of both lists).
long differing_predictions(const Evaluation& a, const Evaluation& b);

}  // namespace octet
