// A run whose process ended without a word: killed, out of memory, the machine switched off.
#pragma once

#include "src/run/run_directory.h"

namespace octet::cli {

/// To be called by whoever looks at a run. Where its page still says that it is running, but no process is at work in
/// its folder, the page is rewritten and the user told. A folder that cannot be written, or on a file system that
/// cannot say who works in it, is left as it is.
void tell_ended_run(const RunDirectory& directory);

}  // namespace octet::cli
