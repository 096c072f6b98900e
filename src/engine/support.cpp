#include "src/engine/support.h"

#include "src/common/error.h"

namespace octet {

void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Engine* fallback) {
  const std::string who = "engine " + std::string(engine.name());
  if (options.max_batch < 1 || options.threads < 0) {
    throw usage_error(who + ": max_batch " + std::to_string(options.max_batch) + " must be 1 or more, threads " +
                      std::to_string(options.threads) + " 0 (all cores) or more");
  }
  const Support machine = engine.available();
  if (!machine.ok) throw promise_error(who + " cannot run on this machine: " + machine.reason);
  validate(graph);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const Support support = engine.supports(graph, node);
    if (!support.ok && !(fallback && fallback->supports(graph, node).ok)) {
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
