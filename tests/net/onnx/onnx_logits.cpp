// SPDX-License-Identifier: Apache-2.0
// What imported networks compute, for scripts that compare it with other runtimes.
//
// onnx_logits MODEL.onnx INPUT OUTPUT: the float outputs of a float network. INPUT holds float32 [N, C, H, W], OUTPUT
// gets the float32 of all outputs, one behind the other, each [N, C, H, W].
// onnx_logits FOLDER: the same of every NAME.onnx in FOLDER, from NAME.in to NAME.out, with as many images as NAME.in
// holds; a network that is refused gets the message as NAME.error instead. NAME.qdq.onnx is read as a quantized network
// and run by the engine reference: its input is pixel / 255, and outputs that are codes are written as reals.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/engine/engine.h"
#include "src/net/onnx/onnx.h"
#include "src/train/model/model.h"

namespace {

using namespace octet;

/// How many images of `shape` the float32 numbers in `bytes` are.
int count_images(const std::string& file, const std::string& bytes, const Shape& shape) {
  const size_t image = sizeof(float) * static_cast<size_t>(shape.elements());
  if (bytes.empty() || bytes.size() % image != 0)
    throw usage_error(fmt::format("{}: not float32 images of [{}, {}, {}]", file, shape.c, shape.h, shape.w));
  return static_cast<int>(bytes.size() / image);
}

std::string float_outputs(const std::string& model, const std::string& input, std::string pixels) {
  const ImportedNetwork network = import_onnx(model);
  Weights weights;
  for (const auto& [name, tensor] : network.weights.tensors)
    weights[name] = at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.shape, at::kFloat);
  const Shape& shape = network.graph.nodes.front().shape;
  const int batch = count_images(input, pixels, shape);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::from_blob(pixels.data(), {batch, shape.c, shape.h, shape.w}, at::kFloat);
  std::map<int, at::Tensor> values;
  const std::vector<int>& wanted = network.graph.outputs;
  WalkHooks hooks;
  hooks.output = [&](int node, at::Tensor y) {
    if (std::find(wanted.begin(), wanted.end(), node) != wanted.end()) values[node] = y.contiguous();
    return y;
  };
  walk(network.graph, weights, x, {}, hooks);
  std::string bytes;
  for (const int node : wanted)
    bytes.append(static_cast<const char*>(values.at(node).const_data_ptr()), values.at(node).nbytes());
  return bytes;
}

/// [batch, H, W, C], codes or float32, as float32 [batch, C, H, W].
void append_planes(const Int8Node& node, const std::vector<uint8_t>& memory, int batch, std::string& bytes) {
  const int channels = node.shape.c, pixels = node.shape.h * node.shape.w;
  for (int n = 0; n < batch; ++n)
    for (int c = 0; c < channels; ++c)
      for (int pixel = 0; pixel < pixels; ++pixel) {
        const auto at = static_cast<size_t>((n * pixels + pixel) * channels + c);
        const int32_t code = node.out.is_signed() ? static_cast<int8_t>(memory[at]) : memory[at];
        const float real =
            node.float_output ? reinterpret_cast<const float*>(memory.data())[at] : dequantize(code, node.out);
        bytes.append(reinterpret_cast<const char*>(&real), sizeof(real));
      }
}

std::string quantized_outputs(const std::string& model, const std::string& input, const std::string& numbers) {
  const ImportedInt8 network = import_qdq(model);
  const Shape& shape = network.graph.input_shape();
  const int batch = count_images(input, numbers, shape), plane = shape.h * shape.w;
  const auto* x = reinterpret_cast<const float*>(numbers.data());
  std::vector<uint8_t> pixels(numbers.size() / sizeof(float));
  for (int n = 0; n < batch; ++n)
    for (int c = 0; c < shape.c; ++c)
      for (int pixel = 0; pixel < plane; ++pixel)
        pixels[static_cast<size_t>((n * plane + pixel) * shape.c + c)] =
            static_cast<uint8_t>(std::lround(255 * x[(n * shape.c + c) * plane + pixel]));
  const OutputBuffers outputs(network.graph, batch);
  find_engine("reference").compile(network.graph, {.max_batch = batch})->run(pixels.data(), batch, outputs.memory());
  std::string bytes;
  for (size_t i = 0; i < network.graph.outputs.size(); ++i)
    append_planes(network.graph.nodes[static_cast<size_t>(network.graph.outputs[i])], outputs[i], batch, bytes);
  return bytes;
}

void run_folder(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::path file = entry.path();
    if (file.extension() != ".onnx") continue;
    const std::string model = file.string(), input = file.replace_extension(".in").string();
    try {
      const std::string numbers = read_file(input);
      const std::string bytes = model.ends_with(".qdq.onnx") ? quantized_outputs(model, input, numbers)
                                                             : float_outputs(model, input, numbers);
      write_file_atomically(file.replace_extension(".out").string(), bytes);
    } catch (const Error& error) {
      write_file_atomically(file.replace_extension(".error").string(), error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    fmt::print(stderr, "usage: onnx_logits MODEL.onnx INPUT OUTPUT | onnx_logits FOLDER\n");
    return 2;
  }
  try {
    if (argc == 2) run_folder(argv[1]);
    if (argc == 4) write_file_atomically(argv[3], float_outputs(argv[1], argv[2], read_file(argv[2])));
    return 0;
  } catch (const octet::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
