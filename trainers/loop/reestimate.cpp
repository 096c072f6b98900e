#include "trainers/loop/reestimate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/common/interrupt.h"
#include "src/data/loader.h"
#include "src/model/device.h"

namespace octet {
namespace {

/// Calls take(images) for the batches of `indices` of the training set, as options.train says: augmented, or as
/// pictures are evaluated.
template <class Take>
void for_batches(const QuantizedModel& model, const RunData& data, std::vector<size_t> indices,
                 const LoaderOptions& options, const Take& take) {
  const at::Device device = model.weights().begin()->second.device();
  const Transform& t = options.train ? data.train_transform : data.evaluation_transform;
  Loader loader(*data.train_set, std::move(indices), t, options);
  const FullPrecision full;
  const at::NoGradGuard no_grad;
  for (Batch batch; loader.next(batch);) {
    throw_if_interrupted();
    take(images_to_tensor({batch.images.data(), batch.size, {t.channels, t.height, t.width}}, data.mean, data.std,
                          device));
  }
}

/// So many of the training images, from all over the list: a folder's are sorted by class.
std::vector<size_t> spread(const std::vector<size_t>& train, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(train[i * train.size() / count]);
  return chosen;
}

}  // namespace

void reestimate_batch_norm(QuantizedModel& model, const RunData& data, long images, int batch_size, uint64_t seed) {
  const size_t available = std::min<size_t>(images, data.train.size()), batch = std::min<size_t>(available, batch_size);
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> statistics;  // running, and the average so far
  for (const auto& [name, tensor] : model.weights()) {
    if (name.ends_with(".running_mean") || name.ends_with(".running_var"))
      statistics.emplace(name, std::pair{tensor, at::zeros_like(tensor, at::kDouble)});
  }
  if (statistics.empty()) return;
  double batches = 0;
  for_batches(model, data, spread(data.train, available / batch * batch),
              {.batch_size = static_cast<int>(batch), .train = true, .seed = seed, .workers = data.workers},
              [&](const at::Tensor& x) {
                // What starts from zero is the momentum's share of this batch's statistics.
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

}  // namespace octet
