// What the headers of a run's picture files say, before anything is trained on them.
#pragma once

#include <string>
#include <vector>

#include "src/run/run_data.h"

namespace octet {

/// Reads the header of every picture that the lists of `data` name, by data.workers threads. Throws Error(data), naming
/// the file, for the first one that is no picture or that its transform cannot take: after hours of training it would
/// be too late for a test image. Returns what the user should know, a sentence each: how many pictures carry an
/// orientation and what becomes of it, and 16-bit PNGs that are nearly black. Data sets whose pictures are no files
/// have no headers.
std::vector<std::string> check_pictures(const RunData& data);

}  // namespace octet
