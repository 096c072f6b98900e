// SPDX-License-Identifier: Apache-2.0
#include "src/engine/support.h"

#include <algorithm>
#include <string>

#include "src/base/error.h"
#include "src/base/threads.h"

namespace octet {
namespace {

/// Throws Error(promise) if the engine supports no node of the graph, so that the fallback would run them all.
void require_own_node(const Engine& engine, const Int8Graph& graph, const Engine& fallback) {
  int weighted = -1;  // the first node with weights: its reason tells more than that of an input or a pool
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    if (engine.supports(graph, node).ok) return;
    if (weighted < 0 && !graph.nodes[node].weight.empty()) weighted = node;
  }
  const int shown = std::max(weighted, 0);
  throw promise_error("engine " + std::string(engine.name()) + " runs no node of " + graph.name + ", engine " +
                      std::string(fallback.name()) + " would run them all: node '" + graph.nodes[shown].name +
                      "': " + engine.supports(graph, shown).reason);
}

}  // namespace

void Engine::check(const Int8Graph& graph, const CompileOptions& options) const {
  check_compile(*this, graph, options);
}

void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Fallback& fallback) {
  const std::string who = "engine " + std::string(engine.name());
  if (options.max_batch < 1 || options.threads < 0 || options.threads > kMostThreads) {
    throw usage_error(who + ": max_batch " + std::to_string(options.max_batch) + " must be 1 or more, threads " +
                      std::to_string(options.threads) + " 0 (all cores) to " + std::to_string(kMostThreads));
  }
  const Support machine = engine.available_on(options.gpu);
  if (!machine.ok) throw promise_error(who + " cannot run on this machine: " + machine.reason);
  validate(graph);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const Support support = engine.supports(graph, node);
    if (support.ok || (fallback.engine && fallback.engine->supports(graph, node).ok)) continue;
    throw promise_error(who + " cannot run node '" + graph.nodes[node].name + "': " + support.reason +
                        (fallback.cure.empty() ? "" : "; " + fallback.cure));
  }
  if (fallback.engine) require_own_node(engine, graph, *fallback.engine);
}

void check_outputs(const OutputMemory& outputs, size_t expected) {
  if (outputs.size() == expected) return;
  throw usage_error("memory for " + std::to_string(outputs.size()) + " outputs: the network gives " +
                    std::to_string(expected));
}

void check_run(int batch, int max_batch, const OutputMemory& outputs, size_t expected) {
  check_batch(batch, max_batch);
  check_outputs(outputs, expected);
}

void check_batch(int batch, int max_batch) {
  if (batch >= 1 && batch <= max_batch) return;
  throw usage_error("batch of " + std::to_string(batch) + " images: max_batch allows 1 to " +
                    std::to_string(max_batch));
}

void check_submit(size_t submitted) {
  if (submitted < Program::kMostSubmitted) return;
  throw usage_error(std::to_string(submitted) + " batches are submitted: collect one before the next");
}

void check_collect(size_t submitted) {
  if (submitted == 0) throw usage_error("nothing to collect: submit a batch first");
}

void Program::submit(const uint8_t* images, int batch) {
  check_submit(submitted_.size());
  submitted_.push_back({images, batch});
}

void Program::collect(const OutputMemory& outputs) {
  check_collect(submitted_.size());
  const Submitted first = submitted_.front();
  submitted_.pop_front();
  run(first.images, first.batch, outputs);
}

}  // namespace octet
