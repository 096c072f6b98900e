// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/cudnn_networks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/base/error.h"
#include "src/engine/lowering.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

int dense(int channels) { return channels; }

/// One image of one node, from the codes that the trace has for its inputs.
void run_reference(const Int8Graph& graph, const Trace& trace, int node, int batch, int image, void* y) {
  const Lowering lowering{graph, dense};
  const auto input = [&](size_t index) {
    const std::vector<uint8_t>& codes = trace.nodes[graph.nodes[node].inputs[index]];
    return codes.data() + codes.size() / batch * image;
  };
  kernels::conv2d_int8_reference(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                 lowering.conv2d_weights(node), input(0),
                                 graph.nodes[node].inputs.size() > 1 ? input(1) : nullptr, y);
}

}  // namespace

Int8Graph residual_network(uint64_t seed) {
  Random random(seed);
  const double channels = 16.0 * random.between(1, 8), inner = random.between(5, 100);
  const double kernel = random.pick({1, 3, 5});
  const char* activation = random.chance(50) ? "relu" : "relu6";
  const int size = random.between(7, 20);
  ModelSpec spec{.name = "graph", .input = {32, size, size}, .classes = 10};
  spec.graph = {
      {"wide", "conv2d", {}, {{"out_channels", channels}, {"kernel", 1}}},
      {"relu_1", "relu", {}, {}},
      {"narrow", "conv2d", {}, {{"out_channels", inner}, {"kernel", kernel}, {"pad", (kernel - 1) / 2}}},
      {"relu_2", "relu", {}, {}},
      {"back", "conv2d", {}, {{"out_channels", channels}, {"kernel", 3}, {"pad", 1}}},
      {"sum", "add", {"back", "relu_1"}, {}},
      {"relu_3", activation, {}, {}},
      {"strided", "conv2d", {}, {{"out_channels", 48}, {"kernel", 3}, {"stride", 2}, {"pad", 1}}},
      {"pool", "global_avg_pool", {}, {}},
      {"fc", "linear", {}, {{"out_channels", 10}, {"bias", 1}}},
  };
  return random_int8_graph(build_model(spec), {.activation = ActivationScheme::symmetric_s8}, seed);
}

Int8Graph zoo_network(const char* model, int size, uint64_t seed) {
  const ModelSpec spec{.name = model, .input = {3, size, size}, .classes = 10, .stem = "imagenet"};
  return random_int8_graph(build_model(spec), {.activation = ActivationScheme::symmetric_s8}, seed);
}

LayerDifference layer_difference(const Int8Graph& graph, const Trace& trace, int batch) {
  LayerDifference found;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    if (graph.nodes[node].op != Int8Op::conv2d) continue;
    std::vector<int8_t> expected(graph.nodes[node].shape.elements());
    for (int image = 0; image < batch; ++image) {
      run_reference(graph, trace, node, batch, image, expected.data());
      const uint8_t* actual = trace.nodes[node].data() + expected.size() * image;
      for (size_t i = 0; i < expected.size(); ++i) {
        const int lsb = std::abs(static_cast<int8_t>(actual[i]) - expected[i]);
        found.differing += lsb != 0;
        found.largest = std::max(found.largest, lsb);
      }
      found.codes += static_cast<long>(expected.size());
    }
  }
  return found;
}

PeerRun run_peer(const char* engine, const CompileOptions& options, const Int8Graph& graph, uint64_t seed) {
  constexpr int kImages = 2;
  const auto program = find_engine(engine).compile(graph, options);
  const std::vector<uint8_t> images = random_images(graph, kImages, seed);
  PeerRun run{.shown = trace(*program, graph, images, kImages)};
  run.found = layer_difference(graph, run.shown, kImages);
  std::printf("%s: %ld of %ld codes differ, by at most %d LSB\n", graph.name.c_str(), run.found.differing,
              run.found.codes, run.found.largest);
  EXPECT_EQ(outputs_of(*program, graph, images, kImages), run.shown.outputs) << "a CUDA graph of the same launches";
  return run;
}

std::vector<uint8_t> logits_of_last_codes(const Int8Graph& graph, const Trace& trace, int batch) {
  const size_t image_bytes = graph.nodes.back().image_bytes();
  std::vector<uint8_t> logits(image_bytes * batch);
  for (int image = 0; image < batch; ++image) {
    run_reference(graph, trace, static_cast<int>(graph.nodes.size()) - 1, batch, image,
                  logits.data() + image_bytes * image);
  }
  return logits;
}

std::string reason(const char* engine, const Int8Graph& graph, const std::string& name) {
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (graph.nodes[node].name == name) return find_engine(engine).supports(graph, static_cast<int>(node)).reason;
  }
  return "no such node";
}

void expect_needs_fallback(const char* engine) {
  const Int8Graph graph = residual_network(1);
  try {
    find_engine(engine).compile(graph, {});
    FAIL() << "an input node was compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    const std::string what = error.what();
    EXPECT_NE(what.find("cannot run node '" + graph.nodes[0].name + "'"), std::string::npos) << what;
    EXPECT_NE(what.find("--fallback cuda"), std::string::npos) << what;
  }
}

void expect_refuses_unknown_options(const char* engine) {
  const Int8Graph graph = residual_network(1);
  for (const CompileOptions& options :
       {CompileOptions{.fallback = "cpu"}, CompileOptions{.kernels = "mma", .fallback = "cuda"}}) {
    try {
      find_engine(engine).compile(graph, options);
      FAIL() << "compiled with " << options.fallback << " and " << options.kernels;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    }
  }
}

}  // namespace octet::test
