#include "src/engine/cuda/timing.h"

#include <algorithm>

namespace octet {
namespace {

// Launches replayed at once: at most so many, and about so many milliseconds of them.
constexpr int kMostLaunches = 20;
constexpr double kReplayMilliseconds = 0.2;
// A launch from the host takes some microseconds, however short its kernel: less than this says nothing of the kernel.
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
  const int launches = std::clamp(static_cast<int>(kReplayMilliseconds / std::max(once, 1e-4)), 1, kMostLaunches);
  const CapturedGraph several(stream, [&] {
    for (int i = 0; i < launches; ++i) launch();
  });
  std::vector<double> milliseconds = time_replays(several, stream, timing.runs);
  const auto median = milliseconds.begin() + timing.runs / 2;
  std::nth_element(milliseconds.begin(), median, milliseconds.end());
  return *median / launches;
}

}  // namespace octet
