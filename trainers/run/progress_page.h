// report.html of a run that goes on: what is known so far, and at its top what the run is doing. The finished report
// takes its place.
#pragma once

#include <string>

#include "src/report/report.h"
#include "trainers/run/run.h"

namespace octet {

/// What a report says of a run before anything is measured on test images.
Report report_so_far(const Run& run);

/// "calibrating", with the time. Written atomically, by the first rank alone, as the other one is.
void show_running(const Run& run, const std::string& doing);

/// The run ended without a report: why. Where that cannot be written it is told: the caller has an error of its own.
void show_stopped(const Run& run, const std::string& why);

}  // namespace octet
