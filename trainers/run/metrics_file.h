// metrics.jsonl: one JSON object an epoch, keys as the members of EpochMetrics.
#pragma once

#include <string>
#include <vector>

#include "src/report/report.h"

namespace octet {

/// Adds a line, atomically. A line of the same phase and epoch, or of a later epoch of that phase, is replaced: a
/// resumed run may repeat an epoch's validation.
void add_metrics(const std::string& path, const EpochMetrics& metrics);

/// Throws Error(data) naming the file and line of one that cannot be read. A missing file has no lines.
std::vector<EpochMetrics> read_metrics(const std::string& path);

}  // namespace octet
