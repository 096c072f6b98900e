// SPDX-License-Identifier: Apache-2.0
#include "src/engine/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace octet {
namespace {

bool overlap(const BufferLife& a, const BufferLife& b) { return a.first <= b.last && b.first <= a.last; }

struct Block {
  size_t begin, end;
};

// Returns the start of the smallest gap of at least `bytes` between the `taken` blocks, which are sorted by begin; or
// the end of them all.
size_t best_fit(const std::vector<Block>& taken, size_t bytes) {
  size_t end = 0, best = 0, best_size = SIZE_MAX;
  for (const Block& block : taken) {
    if (block.begin > end && block.begin - end >= bytes && block.begin - end < best_size) {
      best = end;
      best_size = block.begin - end;
    }
    end = std::max(end, block.end);
  }
  return best_size == SIZE_MAX ? end : best;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<BufferLife>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });

  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;
  for (const size_t buffer : order) {
    std::vector<Block> taken;
    for (const size_t other : placed) {
      if (!overlap(buffers[buffer], buffers[other])) continue;
      taken.push_back({plan.offsets[other], plan.offsets[other] + aligned(buffers[other].bytes)});
    }
    std::sort(taken.begin(), taken.end(), [](const Block& a, const Block& b) { return a.begin < b.begin; });
    const size_t bytes = aligned(buffers[buffer].bytes);
    plan.offsets[buffer] = best_fit(taken, bytes);
    plan.bytes = std::max(plan.bytes, plan.offsets[buffer] + bytes);
    placed.push_back(buffer);
  }
  return plan;
}

std::vector<BufferLife> lifetimes(const Int8Graph& graph, const std::vector<size_t>& bytes,
                                  const std::vector<int>& alias) {
  const int nodes = static_cast<int>(graph.nodes.size());
  std::vector<BufferLife> lives(nodes);
  for (int node = 0; node < nodes; ++node) {
    const bool own = alias[node] == node;
    lives[node] = {own ? bytes[node] : 0, node, node};
    lives[alias[node]].last = node;
    for (const int input : graph.nodes[node].inputs) lives[alias[input]].last = node;
  }
  for (const int output : graph.outputs) lives[alias[output]].last = nodes - 1;
  return lives;
}

int largest_batch(size_t room, int batch, const std::function<size_t(int)>& bytes) {
  int fits = 0, too_many = batch;
  while (too_many - fits > 1) {
    const int images = fits + (too_many - fits) / 2;
    (bytes(images) <= room ? fits : too_many) = images;
  }
  return fits;
}

namespace {

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

bool any_overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const ByteRange& of_a) {
    return std::any_of(b.begin(), b.end(), [&](const ByteRange& of_b) { return overlap(of_a, of_b); });
  });
}

}  // namespace

bool independent(const Traffic& a, const Traffic& b) {
  return !any_overlap(a.writes, b.writes) && !any_overlap(a.writes, b.reads) && !any_overlap(a.reads, b.writes);
}

Traffic traffic_of(const Int8Graph& graph, int node, const std::function<ByteRange(int node)>& output) {
  Traffic traffic{.reads = {}, .writes = {output(node)}};
  for (const int input : graph.nodes[node].inputs) traffic.reads.push_back(output(input));
  return traffic;
}

Traffic traffic_of(const Int8Graph& graph, const NodeGroup& group, const std::function<ByteRange(int node)>& output) {
  const int first = group.nodes.front(), last = group.nodes.back();
  Traffic traffic = traffic_of(graph, first, output);
  if (group.kind != GroupKind::expand_reduce) traffic.writes.clear();
  traffic.writes.push_back(output(last));
  const std::vector<int>& inputs = graph.nodes[last].inputs;  // after the first comes the residual
  for (size_t i = 1; i < inputs.size(); ++i) traffic.reads.push_back(output(inputs[i]));
  return traffic;
}

}  // namespace octet
