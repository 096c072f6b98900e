#include "src/engine/support.h"

#include "src/common/error.h"

namespace octet {
namespace {

bool computes_real_result(Int8Op op) {
  switch (op) {
    case Int8Op::conv2d:
    case Int8Op::linear:
    case Int8Op::add:
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
    case Int8Op::requantize:
      return true;
    default:
      return false;
  }
}

}  // namespace

Support common_support(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  const bool last = node + 1 == static_cast<int>(graph.nodes.size());
  if (n.float_output != last) return {false, "float output belongs to the last node, and only to it"};
  if (n.float_output && !computes_real_result(n.op)) {
    return {false, "float output of " + std::string(int8_op_name(n.op)) + ": it copies codes"};
  }
  if (n.float_output && (n.shape.h != 1 || n.shape.w != 1)) {
    return {false, "logits of " + std::to_string(n.shape.h) + "x" + std::to_string(n.shape.w) + " pixels: needs 1x1"};
  }
  return {true, ""};
}

void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options) {
  const std::string who = "engine " + std::string(engine.name());
  if (options.max_batch < 1) throw usage_error(who + ": max_batch is " + std::to_string(options.max_batch) + ", needs 1 or more");
  if (options.threads < 0) throw usage_error(who + ": threads is " + std::to_string(options.threads) + ", needs 0 (all cores) or more");
  const Support machine = engine.available();
  if (!machine.ok) throw promise_error(who + " cannot run on this machine: " + machine.reason);
  validate(graph);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const Support support = engine.supports(graph, node);
    if (!support.ok) {
      throw promise_error(who + " cannot run node '" + graph.nodes[node].name + "': " + support.reason);
    }
  }
}

void check_batch(int batch, int max_batch) {
  if (batch >= 1 && batch <= max_batch) return;
  throw usage_error("batch of " + std::to_string(batch) + " images: the program was compiled for 1 to " +
                    std::to_string(max_batch));
}

}  // namespace octet
