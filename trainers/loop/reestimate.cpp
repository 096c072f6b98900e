// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/reestimate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/data/loader.h"
#include "src/train/model/device.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

/// Calls take(images) for each batch of the training images `indices`: augmented if options.train is set, else
/// transformed as for evaluation.
template <class Take>
void for_batches(const QuantizedModel& model, const RunData& data, std::vector<size_t> indices,
                 const LoaderOptions& options, const Take& take) {
  const at::Device device = model.weights().begin()->second.device();
  Loader loader(*data.train_set, std::move(indices), options.train ? data.train_transform : data.evaluation_transform,
                options);
  const FullPrecision full;
  const at::NoGradGuard no_grad;
  for (Batch batch; loader.next(batch);) {
    throw_if_interrupted();
    take(network_input(batch, data, device));
  }
}

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

void reestimate_batch_norm(QuantizedModel& model, const RunData& data, long images, int batch_size, uint64_t seed) {
  const size_t available = std::min<size_t>(images, data.train.size()), batch = std::min<size_t>(available, batch_size);
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> statistics;  // the running tensor, and the sum so far
  for (const auto& [name, tensor] : model.weights()) {
    if (name.ends_with(".running_mean") || name.ends_with(".running_var"))
      statistics.emplace(name, std::pair{tensor, at::zeros_like(tensor, at::kDouble)});
  }
  if (statistics.empty()) return;
  double batches = 0;
  for_batches(model, data, evenly_spaced(data.train, available / batch * batch),
              {.batch_size = static_cast<int>(batch), .train = true, .seed = seed, .workers = data.workers},
              [&](const at::Tensor& x) {
                // Starting from zero, the running tensor gets the momentum's share of this batch's statistics.
                for (auto& [name, pair] : statistics) pair.first.zero_();
                model.forward(x, {.batch_norm_training = true});
                for (auto& [name, pair] : statistics) pair.second.add_(pair.first, 1 / kBatchNormMomentum);
                ++batches;
              });
  const at::NoGradGuard no_grad;
  for (auto& [name, pair] : statistics) pair.first.copy_(pair.second.div_(batches));
}

void observe_again(QuantizedModel& model, const RunData& data, int batch_size) {
  model.restart_observers();
  for_batches(model, data, data.calibration, {.batch_size = batch_size, .workers = data.workers},
              [&](const at::Tensor& x) { model.forward(x, {.observe = true}); });
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
