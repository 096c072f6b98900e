// SPDX-License-Identifier: Apache-2.0
// A small graph, a data set in memory and programs whose codes are simple functions of the pixels.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "src/eval/evaluate.h"

namespace octet::testing {

/// 2x2 images of one channel; image i has pixels 4i, 4i+1, 4i+2, 4i+3 and label i % classes.
class FakeDataset : public Dataset {
 public:
  FakeDataset(size_t size, int classes, std::chrono::milliseconds read_time = {});
  size_t size() const override { return size_; }
  int channels() const override { return 1; }
  int label(size_t index) const override { return static_cast<int>(index) % static_cast<int>(names_.size()); }
  Image read(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t index) const override { return "fake[" + std::to_string(index) + "]"; }

 private:
  size_t size_;
  std::vector<std::string> names_;
  std::chrono::milliseconds read_time_;
};

/// All images of the data set, in order.
EvaluationSet all_of(const FakeDataset& dataset);

/// input u8 [1,2,2] > layer1.0.conv1 s8 [3,2,2] > pool u8 [2,1,1] > fc logits [classes].
Int8Graph fake_graph(int classes);

/// Runs fake_graph(), also with more outputs: each is a fixed function of the pixels, so that two of them agree in
/// every byte.
class FakeProgram : public Program {
 public:
  explicit FakeProgram(const Int8Graph& graph) : graph_(graph) {}
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override;
  std::vector<LayerInfo> layers() const override { return {}; }
  size_t arena_bytes() const override { return 0; }

  /// May change the codes of one image's output of a node, as stored; `image` counts from the first run.
  std::function<void(int node, long image, uint8_t* codes)> change;
  std::function<void(int node, int image, uint8_t* codes)> change_by_image;  ///< its number in the data set
  std::function<void(long image, float* logits)> change_logits;
  /// May change what run() gives as output `index`, after the tap has seen the node.
  std::function<void(size_t index, void* values)> change_output;
  int hidden_node = -1;   ///< never shown to the tap
  int doubled_node = -1;  ///< shown twice
  int short_node = -1;    ///< shown one byte short

  std::vector<int> batches;  ///< sizes of all runs

 private:
  const Int8Graph& graph_;
  long images_ = 0;
};

/// Calls a function for every run.
class FunctionProgram : public Program {
 public:
  using Function = std::function<void(const uint8_t* images, int batch, float* logits)>;
  explicit FunctionProgram(Function function) : function_(std::move(function)) {}
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap&) override {
    function_(images, batch, static_cast<float*>(outputs[0]));
  }
  std::vector<LayerInfo> layers() const override { return {}; }
  size_t arena_bytes() const override { return 0; }

 private:
  Function function_;
};

}  // namespace octet::testing
