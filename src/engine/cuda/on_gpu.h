// Programs that stay on the GPU they were compiled for, whichever is current in the thread that calls them.
#pragma once

#include <functional>
#include <memory>

#include "src/engine/engine.h"

namespace octet {

/// Calls `compile` with GPU `gpu` (or kCurrentGpu) current. So is that GPU while the program that it returns is called
/// and while it is destroyed, in whatever threads; afterwards the thread's own one is again (GpuGuard).
std::unique_ptr<Program> compile_on_gpu(int gpu, const std::function<std::unique_ptr<Program>()>& compile);

}  // namespace octet
