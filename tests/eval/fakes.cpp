// SPDX-License-Identifier: Apache-2.0
#include "tests/eval/fakes.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <thread>

namespace octet::testing {

FakeDataset::FakeDataset(size_t size, int classes, std::chrono::milliseconds read_time)
    : size_(size), read_time_(read_time) {
  for (int i = 0; i < classes; ++i) names_.push_back(fmt::format("class {}", i));
}

octet::Image FakeDataset::read(size_t index) const {
  if (read_time_.count() > 0) std::this_thread::sleep_for(read_time_);
  octet::Image image{2, 2, 1, std::vector<uint8_t>(4)};
  std::iota(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(4 * index));
  return image;
}

EvaluationSet all_of(const FakeDataset& dataset) {
  EvaluationSet set;
  set.dataset = &dataset;
  set.indices.resize(dataset.size());
  std::iota(set.indices.begin(), set.indices.end(), size_t{0});
  set.transform.channels = 1;
  set.transform.height = set.transform.width = 2;
  set.workers = 1;
  return set;
}

Int8Graph fake_graph(int classes) {
  Int8Graph graph;
  graph.name = "fake";
  const QParams u8{0.5f, 0, 0, 255}, s8{0.5f, 0, -128, 127};
  const auto add = [&](const char* name, Int8Op op, Shape shape, const QParams& out) {
    Int8Node node;
    node.name = name;
    node.op = op;
    node.shape = shape;
    node.out = out;
    if (!graph.nodes.empty()) node.inputs = {static_cast<int>(graph.nodes.size()) - 1};
    graph.nodes.push_back(node);
  };
  add("input", Int8Op::input, {1, 2, 2}, u8);
  add("layer1.0.conv1", Int8Op::conv2d, {3, 2, 2}, s8);
  add("pool", Int8Op::avg_pool, {2, 1, 1}, u8);
  add("fc", Int8Op::linear, {classes, 1, 1}, s8);
  graph.nodes.back().float_output = true;
  graph.outputs = {static_cast<int>(graph.nodes.size()) - 1};
  return graph;
}

void FakeProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) {
  batches.push_back(batch);
  const long pixels = graph_.input_shape().elements();
  const int last = static_cast<int>(graph_.nodes.size()) - 1;
  const auto give = [&](int node, const void* values, size_t bytes) {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (graph_.outputs[i] != node) continue;
      std::memcpy(outputs[i], values, bytes);
      if (change_output) change_output(i, outputs[i]);
    }
  };
  for (int node = 0; node < last; ++node) {
    const long elements = graph_.nodes[node].shape.elements();
    std::vector<uint8_t> codes(batch * elements);
    for (int i = 0; i < batch; ++i) {
      for (long e = 0; e < elements; ++e) {
        codes[i * elements + e] = static_cast<uint8_t>(images[i * pixels + e % pixels] * (node + 1) + 31 * e);
      }
      if (change) change(node, images_ + i, &codes[i * elements]);
      if (change_by_image) change_by_image(node, images[i * pixels] / 4, &codes[i * elements]);
    }
    give(node, codes.data(), codes.size());
    if (!tap || node == hidden_node) continue;
    tap(node, codes.data(), codes.size() - (node == short_node ? 1 : 0));
    if (node == doubled_node) tap(node, codes.data(), codes.size());
  }
  const int classes = graph_.nodes.back().shape.c;
  std::vector<float> logits(static_cast<size_t>(batch) * classes);
  for (int i = 0; i < batch; ++i) {
    for (int k = 0; k < classes; ++k)
      logits[i * classes + k] = static_cast<float>((images[i * pixels] / 4 + k) % classes);
    if (change_logits) change_logits(images_ + i, &logits[i * classes]);
  }
  give(last, logits.data(), sizeof(float) * logits.size());
  if (tap) tap(last, logits.data(), sizeof(float) * logits.size());
  images_ += batch;
}

}  // namespace octet::testing
