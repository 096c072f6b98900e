// SPDX-License-Identifier: Apache-2.0
// Trained weights, when ../shared/data is here: real distributions instead of random ones.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/source_dir.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

TEST(Pretrained, ResNet20GivesTheEnginesBytesInEveryScheme) {
  const std::string path = shared_data() + "/weights/resnet20-12fca82f.th";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  ModelSpec spec;
  spec.name = "resnet20";
  spec.shortcut = 'A';
  const Graph graph = build_model(spec);
  Weights weights = initial_weights(graph, 1);
  load_weights(weights, graph, path);
  constexpr int kBatch = 4;
  const auto images = test::random_images(spec.input, kBatch, 5);
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    QuantSpec quant;
    quant.activation = scheme;
    const QuantizedModel model = test::calibrated(graph, weights, quant, CalibrationMethod::entropy);
    const Int8Graph int8 = model.convert(preprocessing, {});
    const auto expected = test::all_bytes(*qat_graph_program(model, preprocessing), int8, images, kBatch);
    for (const char* engine : {"reference", "cpu"}) {
      const auto program = find_engine(engine).compile(int8, {.max_batch = kBatch});
      const auto bytes = test::all_bytes(*program, int8, images, kBatch);
      for (const auto& [node, data] : expected) EXPECT_TRUE(data == bytes.at(node)) << engine << " node " << node;
    }
  }
}

}  // namespace
}  // namespace octet
