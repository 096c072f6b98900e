#include "tools/octet/trained.h"

#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/measure.h"

namespace octet::cli {

TrainedSide trained_side(const Recipe& recipe, const RunDirectory& directory, const std::string& device,
                         const Int8Graph& graph) {
  return explain_failures([&] {
    const Run run = open_run(recipe, directory, choose_device(device));
    const QuantizedModel model = load_quantized(run);
    return TrainedSide{trained_programs(run, model), derived_constants(run, model, graph)};
  });
}

std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe& recipe,
                                                                                   const RunDirectory& directory,
                                                                                   const std::string& device) {
  return explain_failures([&] {
    const Run run = open_run(recipe, directory, choose_device(device));
    const QuantizedModel quantized = load_quantized(run);
    std::vector<std::pair<std::string, std::unique_ptr<Program>>> programs;
    programs.emplace_back("float", float_program(run.graph, load_float(run), run.preprocessing));
    if (recipe.qat.float_control)
      programs.emplace_back("float_control", float_program(run.graph, load_float_control(run), run.preprocessing));
    programs.emplace_back("simulation", simulation_program(quantized, run.preprocessing));
    programs.emplace_back("qat_graph", qat_graph_program(quantized, run.preprocessing));
    return programs;
  });
}

}  // namespace octet::cli
