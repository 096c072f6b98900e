// SPDX-License-Identifier: Apache-2.0
// What a run writes about itself while it goes on: metrics.jsonl, TensorBoard's event file, the page report.html.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/report/report.h"
#include "trainers/run/run.h"

namespace octet {

// metrics.jsonl: a JSON object for each epoch, with the members of EpochMetrics as keys; those of
// validation only where the epoch was validated.

/// Adds a line, atomically. It replaces the lines of the same phase from this epoch on: a resumed run may validate an
/// epoch again.
void add_metrics(const std::string& path, const EpochMetrics& metrics);

/// Returns all lines; none if the file is missing. Throws Error(data) naming file and line of one that is no metrics.
std::vector<EpochMetrics> read_metrics(const std::string& path);

// Events for `tensorboard --logdir RUN`. A step is an epoch, counted through all phases.

/// Opens the event file for Run::events, once the run's directory exists. A resumed run continues after the epochs of
/// metrics.jsonl.
std::shared_ptr<EventFile> open_events(const RunDirectory& directory);

/// Records the metrics of the last epoch of metrics.jsonl and the range of every edge of `model`. model: null in a
/// float phase, and after an epoch that was not validated, whose ranges may not be those of averaged weights.
void record_epoch(const Run& run, const EpochMetrics& metrics, const QuantizedModel* model);

/// Records the scores on the test images and the histograms of the report's layers, at the end of a run.
void record_report(const Run& run, const Report& report);

// report.html, until the finished report replaces it. Only the first rank writes it, atomically.

/// Returns what a report says about a run before anything is measured on test images.
Report report_so_far(const Run& run);

/// Shows what the run is doing, "calibrating", with the time.
void show_running(const Run& run, const std::string& doing);

/// Shows why the run ended without a report. Prints a line if the page cannot be written, instead of an exception: the
/// caller has an error of its own.
void show_stopped(const Run& run, const std::string& why);

}  // namespace octet
