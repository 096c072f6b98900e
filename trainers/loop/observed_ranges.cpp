// SPDX-License-Identifier: Apache-2.0
// Observed ranges read anew for averaged weights, and how ranks agree on ranges and weights.
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <cstring>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/train/model/device.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/train.h"

namespace octet {
namespace {

/// An observer as it is sent to other ranks. The bins of its histogram follow, if it has one.
struct PackedObserver {
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
    const PackedObserver packed{s.lo,           s.hi,   s.histogram_lo,
                                s.histogram_hi, s.seen, static_cast<int32_t>(s.histogram.size())};
    append(bytes, &packed, sizeof packed);
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
    PackedObserver packed;
    take(&packed, sizeof packed);
    require(packed.bins == 0 || packed.bins == kHistogramBins);
    Statistics s{.lo = packed.lo, .hi = packed.hi, .seen = packed.seen};
    s.histogram.resize(static_cast<size_t>(packed.bins));
    take(s.histogram.data(), s.histogram.size() * sizeof(double));
    s.histogram_lo = packed.histogram_lo;
    s.histogram_hi = packed.histogram_hi;
    observer.add(s);
  }
  require(at == bytes.size());
}

}  // namespace

void observe_again(QuantizedModel& model, const RunData& data, int batch_size) {
  model.restart_observers();
  const FullPrecision full;
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model.weights());
  for_inputs(data, *data.train_set, data.calibration, batch_size, device, [&](const at::Tensor& x) {
    throw_if_interrupted();
    model.forward(x, {.observe = true});
  });
}

void while_observed_again(QuantizedModel& model, const RunData& data, int batch_size,
                          const std::function<void()>& body) {
  const std::map<std::string, at::Tensor> before = model.state();
  observe_again(model, data, batch_size);
  body();
  model.load_state(before);
}

void take_from_first(Ranks& ranks, const Weights& weights, QuantizedModel* quantized) {
  const at::NoGradGuard no_grad;
  ranks.gather(std::vector<uint8_t>());  // waits until all ranks are here, however long they take
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, tensor] : weights) values.emplace(name, tensor.detach().to(at::kCPU));
  ranks.copy_from_first(values);
  for (const auto& [name, tensor] : weights) tensor.copy_(values.at(name));
  if (quantized == nullptr) return;
  std::map<std::string, at::Tensor> state = quantized->state();
  ranks.copy_from_first(state);
  quantized->load_state(state);
}

void sum_histograms(Ranks& ranks, std::vector<Observer>& observers) {
  const std::vector<std::vector<uint8_t>> all = ranks.gather(pack(observers));
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (rank != ranks.rank()) add(all[static_cast<size_t>(rank)], observers);
}

}  // namespace octet
