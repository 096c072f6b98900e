#include "src/qat/torch_program.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "src/common/error.h"
#include "src/engine/support.h"
#include "src/model/device.h"

namespace octet {

void TorchProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) try {
  check_outputs(outputs, graph().outputs.size());
  const c10::NoGradGuard no_grad;
  std::optional<FullPrecision> full_precision;
  if (full_precision_) full_precision.emplace();
  const std::vector<at::Tensor> values = forward({images, batch, graph().nodes[0].shape}, tap);
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor bytes = to_host(values[i].permute({0, 2, 3, 1}));
    std::memcpy(outputs[i], bytes.const_data_ptr(), bytes.nbytes());
  }
} catch (const c10::OutOfMemoryError& error) {
  throw promise_error(fmt::format("{}: {} images at once do not fit on the GPU; set evaluate.batch_size lower ({})",
                                  what_, batch, error.what_without_backtrace()));
} catch (const c10::Error& error) {
  throw promise_error(fmt::format("{}: {}", what_, error.what_without_backtrace()));
}

void show(int node, const at::Tensor& output, const NodeTap& tap) {
  const at::Tensor bytes = to_host(output.permute({0, 2, 3, 1}));
  tap(node, bytes.const_data_ptr(), bytes.nbytes());
}

at::Tensor unflatten(const Graph& graph, int node, const at::Tensor& x) {
  const Node& n = graph.nodes[node];
  if (n.op != Op::flatten) return x;
  const Shape& from = graph.nodes[n.inputs[0]].shape;
  return x.reshape({x.size(0), from.c, from.h, from.w});
}

}  // namespace octet
