// SPDX-License-Identifier: Apache-2.0
// calibrate.channel_scales: functions whose channels differ get a scale for each, and the whole run knows them.
#include <ATen/ops/logspace.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "src/base/progress.h"
#include "src/train/repair/channel_scales.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/measure.h"
#include "trainers/run/pipeline.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::tiny_recipe;

/// A network with two SiLUs. The channels before and behind the first differ by a factor of 10 to the `decades`, which
/// the layer behind it undoes.
Recipe uneven(const std::string& folder, double decades = 3) {
  Recipe recipe = tiny_recipe();
  recipe.model.graph[2] = {"silu1", "silu", {}, {}};
  recipe.model.graph[5] = {"silu2", "silu", {}, {}};
  recipe.train.epochs = 0;
  recipe.qat.epochs = 0;
  recipe.calibrate.images = 96;
  recipe.model.weights = folder + "/uneven.safetensors";
  const ModelSpec spec{.name = "graph", .input = {1, 8, 8}, .classes = 4, .graph = recipe.model.graph};
  Weights weights = initial_weights(build_model(spec), 3);
  const c10::NoGradGuard no_grad;
  const at::Tensor factors = at::logspace(-decades / 2, decades / 2, 8);
  weights.at("bn1.weight").mul_(factors);
  weights.at("conv2.weight").div_(factors.view({1, 8, 1, 1}));
  weights.at("fc.weight").mul_(10);  // so that classes are told apart
  save_weights(weights, recipe.model.weights);
  return recipe;
}

/// What the int8 network of a run loses on its validation images.
double lost_by(const octet::Run& run) {
  QuantizedModel model = load_quantized(run);
  const std::vector<at::Tensor> x = validation_inputs(run, 32);
  return OutputErrors(model, x, float_outputs(model, x)).lost();
}

int scaled_functions(const octet::Run& run) {
  const QuantizedModel model = load_quantized(run);
  int count = 0;
  for (const Node& node : model.prepared().graph.nodes) count += node.op == Op::lookup && node.groups > 1;
  return count;
}

/// Memory of the host that gives out `most` tensors with gradients, while it lives.
class FewGradients : public c10::Allocator {
 public:
  explicit FewGradients(long most) : most_(most), before_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, kPriority);
  }
  ~FewGradients() override { c10::SetCPUAllocator(before_, kPriority); }
  c10::DataPtr allocate(size_t bytes) override {
    if (c10::GradMode::is_enabled() && ++asked > most_) throw c10::OutOfMemoryError({"a test", "", 0}, "no memory");
    return before_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return before_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  long asked = 0;

 private:
  static constexpr uint8_t kPriority = 100;
  long most_;
  c10::Allocator* before_;
};

TEST(ChannelScalesOfARun, LoseLessAndAreKeptFromCalibrationToTheProof) {
  const Folder folder("channel_scales");
  Recipe recipe = uneven(folder.path());
  const RunDirectory plain{folder.path() + "/plain"}, scaled{folder.path() + "/scaled"},
      trained{folder.path() + "/trained"};
  const Report without = train(recipe, plain, {}).value();
  recipe.calibrate.channel_scales = ScaleChannels::on;
  const Report with = train(recipe, scaled, {}).value();
  EXPECT_TRUE(with.comparison.identical());
  EXPECT_EQ(read_file(plain.float_weights()), read_file(scaled.float_weights()));
  EXPECT_EQ(with.rows.front().evaluation.loss, without.rows.front().evaluation.loss);
  const octet::Run before = open_run(uneven(folder.path()), plain), run = open_run(recipe, scaled);
  EXPECT_EQ(scaled_functions(before), 0);
  EXPECT_GE(scaled_functions(run), 1);
  EXPECT_LT(lost_by(run), 0.3 * lost_by(before));

  recipe.qat.epochs = 2;
  recipe.qat.distill_weight = 1;  // the float network alone teaches, and the quantized one gives nearly the same
  recipe.qat.learning_rate = 1e-4;
  recipe.qat.freeze_batch_norm = 0;  // as the teacher's
  std::vector<double> losses;
  RunStart options;
  options.epoch_done = [&](const EpochMetrics& epoch) { losses.push_back(epoch.train_loss); };
  EXPECT_TRUE(train(recipe, trained, options).value().comparison.identical());
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_LT(losses.front(), 0.05);
  const octet::Run end = open_run(recipe, trained);
  EXPECT_EQ(scaled_functions(end), scaled_functions(run));
  const Weights weights = load_quantized(end).weights(), start = load_quantized(run).weights();
  EXPECT_TRUE(weights.at("silu1.input_scale").equal(start.at("silu1.input_scale")));  // is not trained
  for (const char* name : {"conv1.weight", "bn1.weight", "conv2.weight"})
    EXPECT_FALSE(weights.at(name).equal(start.at(name))) << name;
}

TEST(ChannelScalesOfARun, AreTakenByAutoForALargeGainWithEightBits) {
  const Folder folder("channel_scales_auto");
  Recipe recipe = uneven(folder.path());
  recipe.calibrate.channel_scales = ScaleChannels::automatic;
  const RunDirectory large{folder.path() + "/large"}, few_bits{folder.path() + "/few_bits"},
      little{folder.path() + "/little"};
  const Report report = train(recipe, large, {}).value();
  EXPECT_TRUE(report.comparison.identical());
  EXPECT_GE(scaled_functions(open_run(recipe, large)), 1);
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), [](const std::string& note) {
    return note.find("calibrate.channel_scales auto: 2 functions: ") != std::string::npos;
  }));
  recipe.quant.activation_bits = 4;
  train(recipe, few_bits, {});
  EXPECT_EQ(scaled_functions(open_run(recipe, few_bits)), 0);
  Recipe even = uneven(folder.path(), 0);
  even.calibrate.channel_scales = ScaleChannels::automatic;
  train(even, little, {});
  EXPECT_EQ(scaled_functions(open_run(even, little)), 0);
}

TEST(ChannelScalesOfARun, AllFunctionsAreTriedWhereThoseThatDifferMostGainNothing) {
  const Folder folder("channel_scales_all");
  const octet::Run run = open_run(uneven(folder.path()), {});
  const Weights weights = starting_weights(run);
  QuantizedModel model = make_quantized(run, weights);
  ChannelScales scales(model);
  for (const at::Tensor& x : validation_inputs(run, 32)) scales.see(x);
  const auto scaled = [](const Weights& of) { return of.count("silu1.input_scale") + of.count("silu2.input_scale"); };
  std::vector<size_t> tried;
  const auto best = scales.best(run.graph, weights, [&](const Graph&, const Weights& of) {
    tried.push_back(scaled(of));
    return scaled(of) == 2 ? 0.1 : 1.0;
  });
  EXPECT_EQ(tried, (std::vector<size_t>{0, 1, 1, 2, 2}));
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(scaled(best->weights), 2u);
}

/// Joint ranges are the best without scales; when scales are tried there is no memory for them any more.
TEST(ChannelScalesOfARun, AreTriedWithoutJointRangesWhereTheseDoNotFit) {
  const Folder folder("channel_scales_memory");
  Recipe recipe = uneven(folder.path(), 0.5);
  recipe.quant.activation_bits = 4;
  recipe.calibrate.channel_scales = ScaleChannels::on;
  const octet::Run run = open_run(recipe, {folder.path() + "/run"});
  const Weights weights = starting_weights(run);
  long enough = 0;
  {
    QuantizedModel model = make_quantized(run, copies_of(weights));
    FewGradients memory(1 << 30);
    ASSERT_TRUE(calibrate(model, run).taken.joint());
    enough = memory.asked;
  }
  QuantizedModel model = make_quantized(run, copies_of(weights));
  FewGradients memory(enough);
  testing::internal::CaptureStderr();
  calibrate_as_recipe(model, run);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_GT(memory.asked, enough);
  const std::string word = "calibrate.channel_scales: joint left out: ";
  const size_t first = said.find(word);
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(word, first + 1), std::string::npos) << said;  // told once
  EXPECT_NE(said.find("calibrate.channel_scales: calibrating with them"), std::string::npos) << said;
}

TEST(ChannelScalesOfARun, AreLeftOutWhereTheyDoNotPay) {
  const Folder folder("channel_scales_none");
  Recipe recipe = tiny_recipe();  // has no function
  recipe.calibrate.channel_scales = ScaleChannels::on;
  recipe.qat.epochs = 0;
  const RunDirectory directory{folder.path() + "/run"};
  EXPECT_TRUE(train(recipe, directory, {}).value().comparison.identical());
  EXPECT_EQ(scaled_functions(open_run(recipe, directory)), 0);
}

}  // namespace
}  // namespace octet
