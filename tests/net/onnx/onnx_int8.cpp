// SPDX-License-Identifier: Apache-2.0
// onnx_int8 MODEL.onnx CHECKPOINT: an imported network with any outputs, calibrated on random images (all they gave),
// for scripts that hold engines against each other.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/onnx.h"
#include "src/quant/plan.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"

namespace {

using namespace octet;

constexpr int kImages = 4;

void convert(const std::string& file, const std::string& checkpoint) {
  const ImportedNetwork network = import_onnx(file);
  Weights weights;
  for (const auto& [name, tensor] : network.weights.tensors)
    weights[name] = at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.shape, at::kFloat);
  QuantSpec spec;
  spec.activation = ActivationScheme::affine_u8;
  QuantizedModel model(prepare(fuse(network.graph), spec), weights, {});
  const Shape& shape = network.graph.nodes.front().shape;
  std::vector<uint8_t> pixels(static_cast<size_t>(kImages * shape.elements()));
  Random random({1});
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random.below(256));
  const auto channels = static_cast<size_t>(shape.c);
  const Preprocessing preprocessing{.mean = std::vector<float>(channels, 0.5f),
                                    .std = std::vector<float>(channels, 0.25f)};
  const at::NoGradGuard no_grad;
  model.forward(images_to_tensor({pixels.data(), kImages, shape}, preprocessing.mean, preprocessing.std, at::kCPU),
                {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  write_checkpoint(checkpoint, model.convert(preprocessing, {}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: onnx_int8 MODEL.onnx CHECKPOINT\n");
    return 2;
  }
  try {
    convert(argv[1], argv[2]);
    return 0;
  } catch (const octet::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
