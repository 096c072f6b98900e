#include "tests/qat/networks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <random>

namespace octet::test {

Weights random_weights(const Graph& graph, uint64_t seed) {
  Weights weights = initial_weights(graph, seed);
  at::Generator generator = at::detail::createCPUGenerator(seed + 1);
  const c10::NoGradGuard no_grad;
  using Kind = ParameterSpec::Kind;
  for (const ParameterSpec& spec : parameters(graph)) {
    at::Tensor& t = weights.at(spec.name);
    if (spec.kind == Kind::bn_weight) {
      t.normal_(0.8, 0.5, generator);
      t[0] = 0;
    }
    if (spec.kind == Kind::bias || spec.kind == Kind::bn_bias || spec.kind == Kind::bn_mean)
      t.normal_(0, 0.3, generator);
    if (spec.kind == Kind::bn_var) t.uniform_(0.5, 2, generator);
  }
  return weights;
}

std::vector<uint8_t> random_images(const Shape& shape, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> images(count * shape.elements());
  for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(random() >> 56);
  return images;
}

Preprocessing preprocessing_for(const Shape& shape) {
  Preprocessing preprocessing;
  for (int c = 0; c < shape.c; ++c) {
    preprocessing.mean.push_back(0.4f + 0.05f * c);
    preprocessing.std.push_back(0.2f + 0.03f * c);
  }
  return preprocessing;
}

QuantizedModel calibrated(const Graph& graph, const Weights& weights, const QuantSpec& spec, CalibrationMethod method) {
  QuantizedModel model(prepare(fuse(graph), spec), weights, ObserverKind::moving_average, 0.01, false);
  const Shape& shape = graph.nodes[0].shape;
  const Preprocessing preprocessing = preprocessing_for(shape);
  constexpr int kImages = 6;
  const std::vector<uint8_t> images = random_images(shape, kImages, 77);
  const c10::NoGradGuard no_grad;
  model.forward(images_to_tensor(images.data(), kImages, shape, preprocessing.mean, preprocessing.std),
                {.observe = true, .quantize = false});
  model.calibrate(method, 99.9);
  return model;
}

std::map<int, std::string> all_bytes(Program& program, const std::vector<uint8_t>& images, int batch, int classes) {
  std::map<int, std::string> bytes;
  std::vector<float> logits(batch * classes);
  program.run(images.data(), batch, logits.data(), [&](int node, const void* data, size_t size) {
    bytes[node].assign(static_cast<const char*>(data), size);
  });
  bytes[-1].assign(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  return bytes;
}

}  // namespace octet::test
