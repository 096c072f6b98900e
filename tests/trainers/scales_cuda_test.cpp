// SPDX-License-Identifier: Apache-2.0
// Fixed and observed ranges, and statistics computed anew, on the GPU.
#include <gtest/gtest.h>

#include "src/train/model/device.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/loop/train.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::kGpu;
using testing_trainers::tiny_recipe;

TEST(ScalesCuda, FixedOnesAreTheCalibratedOnesInEveryBitAndObservedOnesMove) {
  OCTET_NEEDS_GPU();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    for (const EdgeScales scales : {EdgeScales::fixed, EdgeScales::observed}) {
      const Folder folder("scales_cuda");
      Recipe recipe = tiny_recipe();
      recipe.qat.precision = precision;
      recipe.qat.epochs = 4;  // 16 steps, recorded ones too
      recipe.quant.scales = scales;
      if (scales == EdgeScales::fixed)
        recipe.quant.observer = ObserverKind::histogram;  // refused only where it would have to follow
      CalibratedRun c(recipe, folder.path(), kGpu);
      const std::vector<QParams> before = c.model.edges();
      const at::Tensor weight = c.weights.at("conv1.weight").detach().clone();
      train_qat(c.run, c.model, false);
      EXPECT_FALSE(weight.equal(c.weights.at("conv1.weight"))) << "nothing was trained";
      EXPECT_EQ(c.model.edges() == before, scales == EdgeScales::fixed) << name_in(kPrecisions, precision);
    }
  }
}

TEST(ScalesCuda, WithEmaTheRunResumesAndEndsAlike) {
  OCTET_NEEDS_GPU();
  std::vector<QParams> edges[2];
  for (const int stopped : {0, 1}) {
    const Folder folder("scales_cuda_ema");
    Recipe recipe = tiny_recipe();
    recipe.cuda.deterministic = true;
    recipe.quant.scales = EdgeScales::observed;
    recipe.qat.ema = 0.9;
    {
      CalibratedRun c(recipe, folder.path(), kGpu);
      int steps = 0;
      if (stopped == 0) train_qat(c.run, c.model, false);
      if (stopped == 1) EXPECT_THROW(train_qat(c.run, c.model, false, [&] { return ++steps == 5; }), Error);
      edges[stopped] = c.model.edges();
    }
    if (stopped == 0) continue;
    auto run = open_run(recipe, {folder.path()}, kGpu);
    QuantizedModel model = make_quantized(run, starting_weights(run));
    calibrate(model, run);
    train_qat(run, model, true);
    edges[1] = model.edges();
  }
  EXPECT_EQ(edges[0], edges[1]);
}

/// Convolutions add in another order, and here and there a value takes the neighbouring code.
TEST(ObservedRangesCuda, AreTheCpus) {
  OCTET_NEEDS_GPU();
  const Folder folder("observed_cuda"), other("observed_cpu");
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = EdgeScales::observed;
  CalibratedRun gpu(recipe, folder.path(), kGpu), cpu(recipe, other.path());
  gpu.model.load_state(cpu.model.state());
  for (CalibratedRun* c : {&gpu, &cpu}) observe_again(c->model, c->run.data, 32);
  EXPECT_EQ(gpu.model.edges()[0], cpu.model.edges()[0]);
  for (size_t n = 0; n + 1 < cpu.model.edges().size(); ++n)
    EXPECT_NEAR(gpu.model.edges()[n].scale / cpu.model.edges()[n].scale, 1, 0.02) << n;
}

}  // namespace
}  // namespace octet
