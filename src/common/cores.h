// How many cores this process may keep busy, the one rule by which octet chooses numbers of threads; and which ones.
#pragma once

#include <string>
#include <vector>

namespace octet {

inline constexpr int kMostThreads = 1024;  ///< that can be asked for; more is taken for a slip of the hand

/// The cores that the affinity names (taskset, cpuset, a batch system), but no more than the CPU quota of the cgroup
/// allows (`docker --cpus=2`: 2; `--cpus=1.5`: 2); at least 1. Asked anew by every call.
int usable_cores();

/// The CPU quota of this process in cores, rounded up: the least of its cgroup (v2 `cpu.max`, v1 `cpu.cfs_quota_us`)
/// and of those around it; 0 where there is none. `root` is put before /proc/self/cgroup and /sys/fs/cgroup: for tests.
int quota_cores(const std::string& root = "");

/// Numbers of the cores in the calling thread's affinity, rising; where bind_to_core() changed it, of those before.
std::vector<int> affinity();

/// Seconds that these cores have worked since the machine started, for any process: /proc/stat, whose ticks are 10 ms;
/// 0 where it cannot be read. `root` is put before its name: for tests.
double busy_seconds(const std::vector<int>& cores, const std::string& root = "");

/// Binds the calling thread to one core until unbind(), where the system lets it. What start_thread() starts meanwhile
/// is not bound; any other thread, and any process, that the calling thread starts is.
void bind_to_core(int core);
bool is_bound();
void unbind();  ///< gives the calling thread the affinity that it had before bind_to_core()
void bind_to_cores(const std::vector<int>& cores);  ///< for good

/// "2 cores", or "64 cores, of which octet may use 2".
std::string described_cores();

}  // namespace octet
