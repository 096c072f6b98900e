#include "trainers/loop/sum_histograms.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/common/error.h"

namespace octet {
namespace {

/// One observer as it travels, and the bins of its histogram behind it, if it has one.
struct Row {
  double lo, hi;
  float histogram_lo, histogram_hi;
  int32_t seen, bins;
};

void append(std::vector<uint8_t>& bytes, const void* data, size_t size) {
  const auto* const begin = static_cast<const uint8_t*>(data);
  bytes.insert(bytes.end(), begin, begin + size);
}

std::vector<uint8_t> pack(const std::vector<Observer>& observers) {
  std::vector<uint8_t> bytes;
  for (const Observer& observer : observers) {
    const Statistics& s = observer.statistics();
    const Row row{s.lo, s.hi, s.histogram_lo, s.histogram_hi, s.seen, static_cast<int32_t>(s.histogram.size())};
    append(bytes, &row, sizeof row);
    append(bytes, s.histogram.data(), s.histogram.size() * sizeof(double));
  }
  return bytes;
}

void add(const std::vector<uint8_t>& bytes, std::vector<Observer>& observers) {
  size_t at = 0;
  const auto require = [](bool fits) {
    if (!fits) throw promise_error("calibration: another rank observed another network");
  };
  const auto take = [&](void* data, size_t size) {
    require(size <= bytes.size() - at);
    std::memcpy(data, bytes.data() + at, size);
    at += size;
  };
  for (Observer& observer : observers) {
    Row row;
    take(&row, sizeof row);
    require(row.bins == 0 || row.bins == kHistogramBins);
    Statistics s{.lo = row.lo, .hi = row.hi, .seen = row.seen};
    s.histogram.resize(static_cast<size_t>(row.bins));
    take(s.histogram.data(), s.histogram.size() * sizeof(double));
    s.histogram_lo = row.histogram_lo;
    s.histogram_hi = row.histogram_hi;
    observer.add(s);
  }
  require(at == bytes.size());
}

}  // namespace

void sum_histograms(Ranks& ranks, std::vector<Observer>& observers) {
  const std::vector<std::vector<uint8_t>> all = ranks.gather(pack(observers));
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (rank != ranks.rank()) add(all[static_cast<size_t>(rank)], observers);
}

}  // namespace octet
