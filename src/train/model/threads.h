// SPDX-License-Identifier: Apache-2.0
// LibTorch's threads on the CPU: how many there are, octet's own loops on them, and which cores they run on.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <functional>

namespace octet {

/// Sets how many threads operators and loops use from now on.
void set_threads(int count);
int thread_count();

/// Calls share(begin, end) for equal parts of [0, count), each on a thread of its own: at most one thread for every
/// `grain` begun. An exception of a share is thrown again here.
void share_among_threads(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> share);

/// Binds each of LibTorch's threads to a core of its own while other processes compute. Training then keeps nearly half
/// of its speed when another process takes one of two cores, and loses nothing on a quiet machine.
///
/// An operator ends when the last of its threads does. Unbound, with a third busy thread on two cores, Linux now and
/// then puts both threads of LibTorch on one core, where one spins for the other until its time slice ends (oneDNN's
/// barriers spin whatever OMP_WAIT_POLICY says). Bound threads never share a core, but they cannot give way to the
/// threads that load images, which costs a small network up to 30 %: on a quiet machine they stay unbound. The number
/// of threads never changes, and so no bit does: sums are divided by thread.
///
/// Applies to the thread that made it: thread i of its parallel regions runs on the i-th core of its affinity while
/// other processes keep more than a quarter of a core busy there. That is measured twice a second, when a region
/// begins. It needs as many threads of LibTorch as there are such cores: with fewer, Linux finds free ones. A second
/// one in the same thread does nothing. The destructor, in the same thread, restores all affinities.
class OwnCores {
 public:
  /// `wanted` is false on a GPU, whose host side is one thread, and when several ranks share the cores. `others`
  /// returns how many cores other processes kept busy since its last call; by default from /proc/stat.
  explicit OwnCores(bool wanted, std::function<double()> others = {});
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

 private:
  bool binds_ = false;
};

}  // namespace octet
