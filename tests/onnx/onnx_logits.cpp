// onnx_logits MODEL.onnx INPUT OUTPUT BATCH: float logits of an imported network, for scripts that compare them with
// other runtimes. INPUT holds float32 [BATCH, C, H, W], OUTPUT gets the float32 of all outputs, one behind the other,
// each [BATCH, C, H, W].
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/model/model.h"
#include "src/onnx/import.h"

namespace {

using namespace octet;

void run(const std::string& model, const std::string& input, const std::string& output, int batch) {
  const ImportedNetwork network = import_onnx(model);
  Weights weights;
  for (const auto& [name, tensor] : network.weights.tensors)
    weights[name] = at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.shape, at::kFloat);
  std::string pixels = read_file(input);
  const Shape& shape = network.graph.nodes.front().shape;
  if (batch < 1 || pixels.size() != sizeof(float) * static_cast<size_t>(batch) * static_cast<size_t>(shape.elements()))
    throw usage_error(fmt::format("{}: not {} images of [{}, {}, {}]", input, batch, shape.c, shape.h, shape.w));
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
  write_file_atomically(output, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: onnx_logits MODEL.onnx INPUT OUTPUT BATCH\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], std::atoi(argv[4]));
    return 0;
  } catch (const octet::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
