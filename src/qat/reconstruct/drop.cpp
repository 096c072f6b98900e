#include "src/qat/reconstruct/drop.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include <mutex>

namespace octet {
namespace {

/// Other numbers than those that choose pictures from the same seed (steps.h).
constexpr uint64_t kOtherStream = 0x9E3779B97F4A7C15;

}  // namespace

Drop::Drop(double share, uint64_t seed, at::Device device) : share_(share) {
  if (!any()) return;
  if (device.is_cpu()) {
    random_ = at::detail::createCPUGenerator(seed ^ kOtherStream);
    return;
  }
  random_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(random_.mutex());
  before_ = random_.get_state();
  random_.set_current_seed(seed ^ kOtherStream);
}

Drop::~Drop() {
  if (!before_.defined()) return;
  const std::lock_guard<std::mutex> lock(random_.mutex());
  random_.set_state(before_);
}

at::Tensor Drop::operator()(const at::Tensor& quantized, const at::Tensor& before) const {
  if (!any()) return quantized;
  const at::Tensor dropped =
      at::empty_like(quantized, quantized.options().dtype(at::kBool)).bernoulli_(share_, random_);
  return at::where(dropped, before, quantized);
}

}  // namespace octet
