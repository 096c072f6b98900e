// What TensorBoard shows of a run: `tensorboard --logdir RUN`. A step is an epoch, counted through all phases.
#pragma once

#include <vector>

#include "src/report/report.h"
#include "trainers/run/run.h"

namespace octet {

/// For Run::events, once the run's directory is there; a resumed run goes on behind the epochs of metrics.jsonl.
std::shared_ptr<EventFile> open_events(const RunDirectory& directory);

/// The metrics of the epoch that metrics.jsonl ends with, and in QAT (`model`) the range of every edge.
void record_epoch(const Run& run, const EpochMetrics& metrics, const QuantizedModel* model);

/// At the end: scores on the test images, and the histograms of the report's layers.
void record_report(const Run& run, const Report& report);

}  // namespace octet
