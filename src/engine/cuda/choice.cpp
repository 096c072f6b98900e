// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "kernels/conv/conv2d.h"
#include "kernels/core/cuda.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/kernel_cache.h"

namespace octet {
namespace {

// A replay has at most so many launches, and takes about so many milliseconds.
constexpr int kMaxLaunches = 20;
constexpr double kReplayMilliseconds = 0.2;
// A launch from the host takes some microseconds, however short its kernel: a shorter time says nothing of the kernel.
constexpr double kHostMilliseconds = 0.05;

}  // namespace

std::vector<double> time_replays(const CapturedGraph& graph, const Stream& stream, int runs) {
  graph.replay(stream.get());
  std::vector<Event> events(static_cast<size_t>(runs) + 1);
  events[0].record(stream.get());
  for (int run = 1; run <= runs; ++run) {
    graph.replay(stream.get());
    events[run].record(stream.get());
  }
  events.back().wait("timing on the GPU");
  std::vector<double> milliseconds;
  for (int run = 1; run <= runs; ++run) milliseconds.push_back(events[run].milliseconds_since(events[run - 1]));
  return milliseconds;
}

double time_launches(const Stream& stream, const std::function<void()>& launch, const LaunchTiming& timing) {
  // Twice: the first launch of a kernel loads it.
  launch();
  Event before, after;
  before.record(stream.get());
  launch();
  after.record(stream.get());
  after.wait("timing on the GPU");
  const double once = after.milliseconds_since(before);
  if (once > std::max(timing.slow_ms, kHostMilliseconds)) return once;
  const int launches = std::clamp(static_cast<int>(kReplayMilliseconds / std::max(once, 1e-4)), 1, kMaxLaunches);
  const CapturedGraph several(stream, [&] {
    for (int i = 0; i < launches; ++i) launch();
  });
  std::vector<double> milliseconds = time_replays(several, stream, timing.runs);
  const auto median = milliseconds.begin() + timing.runs / 2;
  std::nth_element(milliseconds.begin(), median, milliseconds.end());
  return *median / launches;
}

size_t fastest_candidate(const std::vector<std::string>& names, const CandidateSearch& search,
                         const TimeCandidate& time) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<size_t> best;
  double least = std::numeric_limits<double>::max();
  std::string refusals;
  std::optional<OutOfGpuMemory> no_room;
  for (size_t candidate = 0; candidate < names.size(); ++candidate) {
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
    if (best && passed.count() > search.milliseconds) break;
    try {
      const double milliseconds = time(candidate, best ? search.slow_ratio * least : least);
      if (best && milliseconds >= least) continue;
      best = candidate;
      least = milliseconds;
    } catch (const kernels::LaunchRefused& refusal) {
      refusals += fmt::format("; {}: {}", names[candidate], refusal.what());
    } catch (const OutOfGpuMemory& error) {
      if (!no_room || error.asked() < no_room->asked()) no_room = error;
    }
  }
  if (!best && no_room) throw OutOfGpuMemory(*no_room);
  if (!best) throw promise_error(fmt::format("this GPU launches none of {} kernels{}", names.size(), refusals));
  return *best;
}

namespace {

// Incremented when the method of timing or what is kept changes, so that older choices are measured again.
constexpr int kTiming = 4;

/// Returns the key of a choice. It contains a hash of the kernels' sources, as a changed kernel may keep its name.
std::string signature(const std::string& work, const std::vector<std::string>& names) {
  const GpuStatus& gpu = gpu_status();
  return fmt::format("octet {}, kernels {}, timing {}, {}, {} multiprocessors of {}, driver {}, runtime {}: {}: {}",
                     OCTET_VERSION, OCTET_KERNEL_SOURCES, kTiming, gpu.name, gpu.multiprocessors, this_gpu().capability,
                     gpu.driver, gpu.runtime, work, fmt::join(names, " "));
}

}  // namespace

size_t remembered_choice(const std::string& work, const std::vector<std::string>& names,
                         const std::function<MeasuredChoice()>& measure) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // names by signature
  if (names.size() == 1) return 0;
  const std::string key = signature(work, names), folder = kernel_cache();
  const auto index_of = [&](const std::string& name) -> std::optional<size_t> {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? std::nullopt : std::optional(static_cast<size_t>(found - names.begin()));
  };
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return *index_of(found->second);
  }
  std::optional<size_t> chosen = index_of(cached_kernel(folder, key).value_or(""));
  if (!chosen) {
    const MeasuredChoice measured = measure();
    chosen = measured.fastest;
    if (measured.for_later) cache_kernel(folder, key, names[*chosen]);
  }
  const std::scoped_lock lock(mutex);
  return *index_of(known.emplace(key, names[*chosen]).first->second);
}

}  // namespace octet
