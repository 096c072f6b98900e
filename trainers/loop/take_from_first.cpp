#include "trainers/loop/take_from_first.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <string>

namespace octet {

void take_from_first(Ranks& ranks, const Weights& weights, QuantizedModel* quantized) {
  const at::NoGradGuard no_grad;
  ranks.gather(std::vector<uint8_t>());
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, tensor] : weights) values.emplace(name, tensor.detach().to(at::kCPU));
  ranks.copy_from_first(values);
  for (const auto& [name, tensor] : weights) tensor.copy_(values.at(name));
  if (quantized == nullptr) return;
  std::map<std::string, at::Tensor> state = quantized->state();
  ranks.copy_from_first(state);
  quantized->load_state(state);
}

}  // namespace octet
