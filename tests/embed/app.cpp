// SPDX-License-Identifier: Apache-2.0
// app CHECKPOINT: runs one random image and prints its logits.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"

int main(int count, char** arguments) try {
  if (count != 2) throw octet::usage_error("usage: app CHECKPOINT");
  const octet::Int8Graph graph = octet::read_checkpoint(arguments[1]);
  const auto program = octet::find_engine("cpu").compile(graph, {.max_batch = 1});
  std::mt19937 random(1);
  std::vector<uint8_t> image(graph.input_shape().elements());
  for (uint8_t& value : image) value = static_cast<uint8_t>(random());
  std::vector<float> logits(graph.classes());
  program->run(image.data(), 1, logits.data());
  for (const float logit : logits) std::printf("%g\n", static_cast<double>(logit));
} catch (const octet::Error& error) {
  std::fprintf(stderr, "app: %s\n", error.what());
  return static_cast<int>(error.code());
}
