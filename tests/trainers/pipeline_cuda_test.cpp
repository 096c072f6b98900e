// SPDX-License-Identifier: Apache-2.0
// The whole job on the GPU, and what its run directory says about it.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/files.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::tiny_recipe;

TEST(PipelineCuda, TrainsCalibratesAndKeepsThePromise) {
  OCTET_NEEDS_GPU();
  const Folder folder("pipeline_cuda");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();
  recipe.train.precision = recipe.qat.precision = Precision::fp16;
  recipe.evaluate.engines.clear();
  for (const Engine* engine : exact_engines()) recipe.evaluate.engines.emplace_back(engine->name());
  const Report report = train(recipe, directory, {.machine = "test", .device = {at::kCUDA, 0}}).value();
  EXPECT_TRUE(report.comparison.identical());
  for (const Row& row : report.rows) {
    const auto& engines = recipe.evaluate.engines;
    const bool engine = std::find(engines.begin(), engines.end(), row.evaluation.name) != engines.end();
    EXPECT_EQ(row.differing, engine ? 0 : row.differing) << row.evaluation.name;
  }
  EXPECT_NE(read_file(directory.environment()).find(gpu_status().name), std::string::npos);
  const std::vector<EpochMetrics> epochs = read_metrics(directory.metrics());
  ASSERT_EQ(epochs.size(), 4u);
  for (const EpochMetrics& epoch : epochs) {
    EXPECT_GT(epoch.gpu_memory_bytes, 0);
    EXPECT_LE(epoch.data_wait_share, 1);
  }
}

}  // namespace
}  // namespace octet
