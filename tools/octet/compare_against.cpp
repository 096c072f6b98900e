#include "tools/octet/compare_against.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/common/error.h"
#include "src/common/random.h"
#include "src/data/memory_dataset.h"
#include "src/engine/engine_choice.h"
#include "src/onnx/shown_codes.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/onnx_runtime.h"
#include "tools/octet/target.h"

namespace octet::cli {
namespace {

constexpr int kRandomPictures = 16, kRandomBatch = 8;

MemoryDataset random_pictures(const Shape& shape, int count) {
  MemoryImages images{.name = "random pictures", .height = shape.h, .width = shape.w, .channels = shape.c};
  images.pixels.resize(static_cast<size_t>(shape.elements()) * static_cast<size_t>(count));
  Random random({1});
  for (uint8_t& pixel : images.pixels) pixel = static_cast<uint8_t>(random.below(256));
  images.labels.assign(static_cast<size_t>(count), 0);
  images.class_names = {"none"};
  return MemoryDataset(std::move(images));
}

/// Of an .onnx file the very file runs; of a checkpoint what octet export --onnx writes.
ShownCodes model_of(const std::string& checkpoint, const Int8Graph& graph) {
  return checkpoint.ends_with(".onnx") ? show_codes(import_qdq(checkpoint), checkpoint) : show_codes(graph);
}

struct Subject {
  const std::string& checkpoint;
  const Int8Graph& graph;
  const std::vector<std::string>& engines;
  const CompileOptions& compile;
};

Comparison count(const Subject& subject, const std::vector<std::string>& against, const EvaluationSet& pictures) {
  std::vector<OwnedProgram> programs;
  add_engines(subject.graph, subject.engines, subject.compile, programs);
  const ShownCodes model = model_of(subject.checkpoint, subject.graph);
  for (const std::string& name : against)
    programs.push_back(
        {name, start_onnx_runtime(subject.graph, model, name, subject.compile.threads), 0, false, shown_by(model)});
  return octet::compare(subject.graph, named(programs), pictures, subject.compile.max_batch);
}

Comparison count_random(const Common& common, const MeasureOptions& options, const std::vector<std::string>& against) {
  if (!common.set.empty() || !options.checkpoint.empty())
    throw usage_error("compare: --set and --checkpoint are for a run directory; a file is compared as it is");
  const Checkpoint checkpoint = open_checkpoint(options.run);
  const std::vector<std::string> engines =
      resolve_engines(options.engines.empty() ? std::vector<std::string>{"cpu"} : options.engines, devices(common));
  CompileOptions compile;
  compile.max_batch = kRandomBatch;
  compile.threads = options.threads.value_or(0);
  compile.fallback = options.fallback.value_or("none");
  check_fallback("compare: ", compile.fallback, engines);
  const Shape& shape = checkpoint.graph.input_shape();
  const MemoryDataset pictures = random_pictures(shape, options.images > 0 ? options.images : kRandomPictures);
  EvaluationSet set{.name = "random", .dataset = &pictures, .indices = {}, .transform = {}};
  set.transform.channels = shape.c;
  set.transform.height = shape.h;
  set.transform.width = shape.w;
  for (size_t i = 0; i < pictures.size(); ++i) set.indices.push_back(i);
  return count({checkpoint.file, checkpoint.graph, engines, compile}, against, set);
}

}  // namespace

void add_engines(const Int8Graph& graph, std::vector<std::string> engines, const CompileOptions& options,
                 std::vector<OwnedProgram>& programs) {
  const auto is_exact = [](const std::string& name) { return find_engine(name).exact(); };
  std::stable_partition(engines.begin(), engines.end(), is_exact);
  for (const std::string& name : engines)
    programs.push_back({name, find_engine(name).compile(graph, options), 0, is_exact(name)});
}

Comparison compare_against(const Common& common, const MeasureOptions& options,
                           const std::vector<std::string>& against) {
  if (!std::filesystem::is_directory(options.run)) return count_random(common, options, against);
  const MeasuredRun run = open_measured_run(common, options, {"cpu"});
  return count({run.checkpoint, run.graph, run.engines, run.compile}, against, run.data.test_images(options.images));
}

}  // namespace octet::cli
