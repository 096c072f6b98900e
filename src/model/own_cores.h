// LibTorch's threads on the CPU, each on a core of its own while other processes compute: so training keeps nearly half
// of its speed beside a process that takes one of two cores, and loses nothing on a quiet machine.
//
// Every operator ends when the last of its threads does. Left to the kernel, a third busy thread on two cores makes it
// put both threads of LibTorch on one core from time to time, where the one waits, spinning, for the other that does
// not run: each wait takes a time slice, and oneDNN's barriers spin whatever OMP_WAIT_POLICY says. Bound, they never
// share a core. On a quiet machine they stay free: bound ones cannot get out of the way of the threads that load
// pictures (up to 30 % of the speed of a small network). The number of threads never changes, and with it no bit: sums
// are cut by threads.
#pragma once

#include <functional>

namespace octet {

/// While it lives, thread i of those that work for its maker's thread is bound to the i-th core of its affinity
/// whenever other processes keep more than a quarter of a core busy there (looked at twice a second, where a parallel
/// region begins). Only if `wanted` and LibTorch has as many threads as there are such cores: with fewer the kernel
/// finds free ones. A second one of a thread does nothing. It goes in the thread that made it, and all have their
/// affinity back.
class OwnCores {
 public:
  /// Not wanted on a GPU, whose host side is one thread, and beside other ranks, with whom it shares the cores.
  /// `others`: how many cores other processes have kept busy since it was asked last; by default as /proc/stat says.
  explicit OwnCores(bool wanted, std::function<double()> others = {});
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  bool binds_ = false;
};

}  // namespace octet
