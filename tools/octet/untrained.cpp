// SPDX-License-Identifier: Apache-2.0
// trained.h in a build without LibTorch: commands do without what was trained, or refuse.
#include "src/base/progress.h"
#include "tools/octet/trained.h"

namespace octet::cli {

TrainedSide trained_side(const Recipe&, const RunDirectory&, const std::string&, const Int8Graph&) {
  say("this build has no LibTorch (-DOCTET_TRAINING=OFF): the QAT graph is left out, engines are held against each "
      "other");
  return {};
}

std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe&, const RunDirectory&,
                                                                                   const std::string&) {
  say("this build has no LibTorch (-DOCTET_TRAINING=OFF): engines only");
  return {};
}

FloatFile float_file(const Common&, const MeasureOptions& options, bool) {
  throw usage_error(options.run +
                    ": is a float network, and this build has no LibTorch (-DOCTET_TRAINING=OFF), which computes it");
}

ExitCode inspect_stages(const Common&, const std::string&, int) {
  throw usage_error(
      "this build has no LibTorch (-DOCTET_TRAINING=OFF), which measures a training step; --stages needs it");
}

}  // namespace octet::cli
