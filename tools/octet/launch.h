// octet train --gpus N: starts and watches the processes that train together on this host, as torchrun would.
#pragma once

#include "src/common/error.h"

namespace octet::cli {

/// This very command N times without its --gpus, with RANK, WORLD_SIZE and the other variables set. Returns when all
/// have ended: the first failure's exit code, after the others were given 15 seconds to stop by themselves, and
/// killed; it waits five more for those that the kernel does not let go. Ctrl-C goes to all of them.
ExitCode launch_ranks(int count);

}  // namespace octet::cli
