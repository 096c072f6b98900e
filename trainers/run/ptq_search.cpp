// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/ptq_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/train/repair/output_error.h"
#include "src/train/repair/quantization_noise.h"
#include "trainers/run/auto_ranges.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

std::string name_of(const Run& run) {
  return fmt::format("{} {}", name_in(kActivationSchemes, run.recipe.quant.activation),
                     name_or_auto(kCalibrationMethods, run.recipe.calibrate.method));
}

/// Returns the values of an enum's table of names, in its order. Value: the enum, or an optional one.
template <typename Value, typename E, size_t N>
std::vector<Value> all_of(const std::array<Named<E>, N>& table) {
  std::vector<Value> values;
  for (const Named<E>& row : table) values.push_back(row.value);
  return values;
}

double noise_of(const LogitsLoss& loss) { return std::pow(10.0, -loss.sqnr_db / 10); }

void require_candidates(const std::vector<int>& bits) {
  const bool fall = std::adjacent_find(bits.begin(), bits.end(), std::less_equal<>()) == bits.end();
  if (bits.size() >= 2 && fall && bits.front() <= 8 && bits.back() >= 2) return;
  throw usage_error(fmt::format("bits {}: name at least two of 8 to 2, falling, as in 8,4", fmt::join(bits, ",")));
}

void set_general_bits(QuantRecipe& quant, BitCostKind cost, int bits) {
  quant.weight_bits = bits;
  if (cost == BitCostKind::operations) quant.activation_bits = bits;
}

/// How plans are judged.
struct Judge {
  std::function<double()> of_float;
  std::function<double(const Run& run, const std::string& plan, QuantizedModel& model)> of_plan;
};

class Search {
 public:
  Search(const Run& run, const Weights& weights, const BitSearchOptions& options, std::vector<at::Tensor> images,
         Judge judge)
      : run_(run),
        weights_(weights),
        options_(options),
        images_(std::move(images)),
        judge_(std::move(judge)),
        fused_(fuse(run.graph)) {
    require_candidates(options.bits);
    set_general_bits(run_.recipe.quant, options.cost, options.bits.front());
    spec_ = quant_spec(run_.recipe.quant);
    choices_ = bit_choices(fused_, spec_, options.cost == BitCostKind::operations);
    if (choices_.empty())
      throw usage_error("nothing to search: first and last layer and quant.layers pin the bits of every layer");
    for (const BitChoice& choice : choices_) {
      const std::string& name = fused_.nodes[choice.node].name;
      if (name.find_first_of("*?") != std::string::npos)
        throw usage_error(
            fmt::format("'{}': a plan names layers in quant.layers, where * and ? match other names; name "
                        "the layer without them",
                        name));
    }
    costs_.emplace(fused_, spec_, choices_, options.bits);
  }

  BitSearch run() {
    measure_noise();
    steps_ = bit_steps(choices_, [&](const BitLevels& levels) {
      const BitCost cost = (*costs_)(levels);
      return options_.cost == BitCostKind::size ? cost.weight_bytes : cost.bit_operations;
    });
    for (const BitChoice& choice : choices_) {
      result_.searched.push_back({fused_.nodes[choice.node].name, choice.what, {}});
      for (size_t level = 1; level < choice.noise.size(); ++level)
        result_.searched.back().alone_db.push_back(-10 * std::log10(choice.noise[level]));
    }
    result_.steps = steps_.size();
    result_.float_score = judge_.of_float();
    for (const size_t step : spread()) measured(step);
    const std::optional<size_t> chosen = options_.mean_bits       ? step_of_bits()
                                         : options_.accuracy_drop ? step_of_score()
                                                                  : std::nullopt;
    for (auto& [step, plan] : plans_) {
      if (chosen == step) result_.chosen = result_.plans.size();
      result_.plans.push_back(std::move(plan));
    }
    return std::move(result_);
  }

 private:
  /// Measures the noise of each choice at each candidate. A node's weights and its edge are quantized together; the
  /// noise of both with the most bits is subtracted again.
  void measure_noise() {
    Progress progress("sensitivity", static_cast<long>(choices_.size() * options_.bits.size()), "choices");
    long seen = 0;
    // Returns the noise of each choice in `of`, in the network quantized as `quant` says.
    const auto noises = [&](const QuantRecipe& quant, const std::vector<size_t>& of) {
      Run run = run_;
      run.recipe.quant = quant;
      QuantizedModel model = calibrated(run, weights_);
      std::vector<std::vector<int>> groups;
      for (const size_t c : of) groups.push_back(nodes_of(model.prepared().graph, fused_.nodes[choices_[c].node].name));
      const std::vector<LogitsLoss> losses = each_alone(model, images_, groups, [&] {
        progress.update(++seen);
        throw_if_interrupted();
      });
      if (quant == run_.recipe.quant) base_noise_ = noise_of(all_quantized(model, images_));
      std::vector<double> result;
      for (const LogitsLoss& loss : losses) result.push_back(noise_of(loss));
      return result;
    };
    std::vector<size_t> all(choices_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const std::vector<double> base = noises(run_.recipe.quant, all);
    for (BitChoice& choice : choices_) choice.noise = {0};
    for (const int bits : std::vector<int>(options_.bits.begin() + 1, options_.bits.end())) {
      for (const BitChoice::What what : {BitChoice::What::weights, BitChoice::What::edge}) {
        std::vector<size_t> of;
        std::copy_if(all.begin(), all.end(), std::back_inserter(of),
                     [&](size_t c) { return choices_[c].what == what; });
        if (of.empty()) continue;
        QuantRecipe quant = run_.recipe.quant;
        (what == BitChoice::What::edge ? quant.activation_bits : quant.weight_bits) = bits;
        const std::vector<double> fewer = noises(quant, of);
        for (size_t i = 0; i < of.size(); ++i) choices_[of[i]].noise.push_back(std::max(0.0, fewer[i] - base[of[i]]));
      }
    }
  }

  /// Returns the layer and the node that residual_bits puts after it, whose codes convolutions read.
  static std::vector<int> nodes_of(const Graph& graph, const std::string& name) {
    std::vector<int> nodes;
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      const Node& node = graph.nodes[n];
      const bool narrowed = node.op == Op::requantize && !nodes.empty() && node.inputs[0] == nodes.front();
      if (node.name == name || narrowed) nodes.push_back(n);
    }
    return nodes;
  }

  /// Returns steps at about equal distances in cost, including both ends.
  std::vector<size_t> spread() const {
    std::vector<size_t> chosen;
    const double first = steps_.front().cost, last = steps_.back().cost;
    size_t step = 0;
    for (int p = 0; p < options_.points; ++p) {
      const double wanted = first + (last - first) * p / std::max(1, options_.points - 1);
      while (step + 1 < steps_.size() && steps_[step].cost > wanted) ++step;
      if (chosen.empty() || chosen.back() != step) chosen.push_back(step);
    }
    return chosen;
  }

  const MeasuredPlan& measured(size_t step) {
    if (const auto known = plans_.find(step); known != plans_.end()) return known->second;
    const BitStep& s = steps_[step];
    MeasuredPlan plan{.step = step,
                      .layers = layers_of(fused_, choices_, s.levels, options_.bits),
                      .levels = s.levels,
                      .cost = (*costs_)(s.levels),
                      .predicted_db = -10 * std::log10(base_noise_ + s.noise)};
    Run run = run_;
    run.recipe = with_plan(run.recipe, options_, plan.layers);
    QuantizedModel model = calibrated(run, weights_);
    plan.score = judge_.of_plan(run, fmt::format("{:.2f} bits", plan.cost.weight_bits), model);
    return plans_.emplace(step, std::move(plan)).first->second;
  }

  std::optional<size_t> step_of_bits() {
    for (size_t step = 0; step < steps_.size(); ++step) {
      if ((*costs_)(steps_[step].levels).weight_bits > *options_.mean_bits) continue;
      measured(step);
      return step;
    }
    return std::nullopt;
  }

  /// Bisects between the cheapest measured plan that keeps accuracy_drop and the next one, which does not.
  std::optional<size_t> step_of_score() {
    const auto keeps = [&](size_t step) {
      return 100 * (result_.float_score - measured(step).score) <= *options_.accuracy_drop;
    };
    std::vector<size_t> known;
    for (const auto& [step, plan] : plans_) known.push_back(step);
    const auto good = std::find_if(known.rbegin(), known.rend(), keeps);
    if (good == known.rend()) return std::nullopt;
    return last_that_keeps(*good, good == known.rbegin() ? *good + 1 : *std::prev(good), keeps);
  }

  Run run_;
  const Weights& weights_;
  const BitSearchOptions& options_;
  const std::vector<at::Tensor> images_;  // on which the SQNR is measured
  const Judge judge_;
  Graph fused_;
  QuantSpec spec_;
  std::vector<BitChoice> choices_;
  std::optional<BitCosts> costs_;
  double base_noise_ = 0;  // with the most bits everywhere
  std::vector<BitStep> steps_;
  std::map<size_t, MeasuredPlan> plans_;  // by step
  BitSearch result_;
};

}  // namespace

QuantizedModel calibrated(const Run& run, const Weights& weights, CalibrationPass* pass) {
  QuantizedModel model = make_quantized(run, copies_of(weights));
  calibrate_as_recipe(model, run, pass);
  return model;
}

bool PtqResult::better_than(const PtqResult& other) const {
  if (!refused.empty() || !other.refused.empty()) return refused.empty();
  return score != other.score ? score > other.score : loss < other.loss;
}

PtqChoice choose_ptq(Run run, const Weights& weights, bool all, const CompileInt8& compile) {
  std::vector<ActivationScheme> activations = {run.recipe.quant.activation};
  std::vector<std::optional<CalibrationMethod>> methods = {run.recipe.calibrate.method};
  if (all) {
    activations = all_of<ActivationScheme>(kActivationSchemes);
    methods = all_of<std::optional<CalibrationMethod>>(kCalibrationMethods);
    methods.push_back(std::nullopt);
  }
  PtqChoice choice;
  const std::unique_ptr<Program> network = float_program(run.graph, weights, run.preprocessing);
  choice.float_validation = measure(run, "float", *network, run.data.validation_images()).evaluation.score();
  std::optional<Error> refusal;
  std::optional<QuantizedModel> model;  // the chosen one
  CalibrationPass pass;                 // what is tried differs in the codes that the float values get
  if (std::count(methods.begin(), methods.end(), std::nullopt) > 0) pass.images.x = images_for_joint_ranges(run);
  for (const ActivationScheme activation : activations) {
    for (const std::optional<CalibrationMethod>& method : methods) {
      run.recipe.quant.activation = activation;
      run.recipe.calibrate.method = method;
      PtqResult result{.activation = activation, .method = method};
      QuantizedModel tried = calibrated(run, weights, &pass);
      Int8Graph graph = to_int8(run, tried);
      std::unique_ptr<Program> program;
      try {
        program = compile(run, graph);
      } catch (const Error& error) {
        if (error.code() != ExitCode::promise) throw;
        refusal = error;
        result.refused = error.what();
        say(fmt::format("{}: {}", name_of(run), error.what()));
      }
      if (program) {
        const Evaluation e = measure(run, name_of(run), *program, run.data.validation_images()).evaluation;
        result.score = e.score();
        result.loss = e.loss;
      }
      choice.results.push_back(result);
      const bool first = choice.results.size() == 1;
      if (!first && !result.better_than(choice.results[choice.chosen])) continue;
      choice.chosen = choice.results.size() - 1;
      choice.graph = std::move(graph);
      model.emplace(std::move(tried));
    }
  }
  const PtqResult& chosen = choice.results[choice.chosen];
  if (!chosen.refused.empty()) throw Error(*refusal);

  // From here on the test images are read, and nothing is chosen any more.
  run.recipe.quant.activation = chosen.activation;
  run.recipe.calibrate.method = chosen.method;
  choice.float_test = measure(run, "float", *network, run.data.test_images()).evaluation;
  choice.int8_test = measure(run, name_of(run), *compile(run, choice.graph), run.data.test_images()).evaluation;
  const std::string key = score_names(run.data.task().labels).key;
  choice.graph.accuracies = {{"float_" + key, choice.float_test.score()}, {"int8_" + key, choice.int8_test.score()}};
  choice.lost = paired(choice.float_test, choice.int8_test);
  if (choice.lost.is_loss()) {
    run.recipe.qat.epochs = 0;  // not trained, whatever the recipe does after calibration
    choice.diagnosis = diagnose(run, *model);
  }
  return choice;
}

Recipe with_plan(Recipe recipe, const BitSearchOptions& options, const std::vector<LayerBits>& layers) {
  set_general_bits(recipe.quant, options.cost, options.bits.front());
  for (const LayerBits& layer : layers)
    recipe.quant.layers.push_back({layer.match, layer.weight_bits, layer.activation_bits});
  return recipe;
}

BitSearch search_bits(const Run& run, const Weights& weights, const BitSearchOptions& options,
                      const CompileInt8& compile) {
  const auto score = [&](const std::string& name, Program& program) {
    return measure(run, name, program, run.data.validation_images()).evaluation.score();
  };
  const Judge judge = {[&] { return score("float", *float_program(run.graph, weights, run.preprocessing)); },
                       [&](const Run& planned, const std::string& plan, QuantizedModel& model) {
                         return score(plan, *compile(planned, to_int8(planned, model)));
                       }};
  return Search(run, weights, options, validation_inputs(run, options.images), judge).run();
}

BitSearch search_bits_unlabelled(const Run& run, const Weights& weights, const BitSearchOptions& options,
                                 const std::vector<at::Tensor>& images) {
  QuantizedModel floats = make_quantized(run, weights);
  const FloatOutputs wanted = float_outputs(floats, images);
  const Judge judge = {[] { return 1.0; },
                       [&](const Run&, const std::string&, QuantizedModel& model) {
                         return 1 - OutputErrors(model, images, wanted).lost();
                       }};
  return Search(run, weights, options, images, judge).run();
}

}  // namespace octet
