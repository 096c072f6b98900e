// LibTorch's threads on the CPU, each on a core of its own: training keeps half of its speed beside a busy process.
//
// Every operator ends when the last of its threads does. Left to the kernel, a third busy thread on two cores makes it
// put both threads of LibTorch on one core from time to time, where the one waits, spinning, for the other that does
// not run: each wait takes a time slice, and oneDNN's barriers spin whatever OMP_WAIT_POLICY says. Bound, they never
// share a core, and the other process takes half of one core from one of them. The number of threads stays as it is,
// and with it every bit: reductions are cut by threads.
#pragma once

namespace octet {

/// While it lives, thread i of those that work for its maker's thread is bound to the i-th core of its affinity, if
/// `wanted` and LibTorch has as many threads as there are such cores; with fewer the kernel finds free cores. A second
/// one of a thread does nothing. It goes in the thread that made it, and all threads have their affinity back.
class OwnCores {
 public:
  /// Not wanted on a GPU, whose host side is one thread, and beside other ranks, with whom it shares the cores.
  explicit OwnCores(bool wanted);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  bool binds_ = false;
};

}  // namespace octet
