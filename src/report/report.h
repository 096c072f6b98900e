// report.json, report.html and report.svg of a run: plain data in, documents out. Keys of report.json:
// src/report/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/eval/compare.h"
#include "src/eval/evaluate.h"
#include "src/quant/layer_statistics.h"

namespace octet {

struct Row {  ///< one line of the evaluation table
  Evaluation evaluation;
  long bytes = 0;       ///< weights on disk; 0: not applicable
  long differing = -1;  ///< predictions that differ from the QAT graph; -1: not applicable
};

/// Fills in `differing` where there is a row "qat_graph"; that row's own stays.
void count_differing(std::vector<Row>& rows);

struct LayerKernel {
  std::string program;  ///< the engine of the row
  std::string engine;   ///< that ran the layer there: `program`, or its fallback
  std::string kernel;   ///< as that engine names it, or "merged into NODE" (src/engine/fusion.h)
};

struct ReportLayer {
  LayerStatistics statistics;
  std::vector<LayerKernel> kernels;  ///< of the report's first engine, then of its others on a GPU
};

/// Notes at each layer what ran it in the program of engine `program`.
void add_kernels(std::vector<ReportLayer>& layers, const std::string& program, const std::vector<LayerInfo>& infos);

/// Of one of several processes that train together.
struct RankMetrics {
  double images_per_second = 0, data_wait_share = 0;
  double exchange_share = 0;  ///< of the time, in exchanges; waiting for slower processes included
  long gpu_memory_bytes = 0;
};

struct EpochMetrics {              ///< one line of metrics.jsonl
  std::string phase;               ///< "float", "qat"
  int epoch = 0;                   ///< from 1, within the phase
  double train_loss = 0;           ///< what was minimized, label smoothing included
  double train_cross_entropy = 0;  ///< without label smoothing: the same quantity as validation_loss
  double train_top1 = 0, validation_loss = 0, validation_top1 = 0;  ///< top1 of pixels' labels: the share of those
  double learning_rate = 0;
  double images_per_second = 0, data_wait_share = 0, seconds = 0;
  long gpu_memory_bytes = 0;                  ///< the most that training held; 0: trained on the CPU
  std::optional<double> validation_mean_iou;  ///< of pixels' labels
  std::vector<RankMetrics> ranks;             ///< none: one process
};

/// A test picture with the classes of its pixels: as they are, and as two networks see them.
struct ReportPicture {
  std::string name;  ///< "synthetic scenes test[3]"
  Image image;
  std::vector<int> truth, before, int8;  ///< [height, width]; kNoLabel in truth: nobody knows
};

struct RunState {
  std::string text;      ///< at the page's top: "qat: epoch 3 of 10 done, 12:04:05 UTC"; "": a run that is done
  bool running = false;  ///< the page asks the browser to load it again every few seconds
  // Of a run that goes on: by these the page itself says when no word has come for too long.
  int64_t written = 0;   ///< seconds since 1970; 0: the page does not say it
  int64_t patience = 0;  ///< seconds
  std::string overdue;   ///< what it says then: "process 4711 on host may have ended"
};

struct Report {
  RunState state;
  Labels labels = Labels::image;  ///< what has a class, and so which scores the report shows
  std::string title, model, recipe, recipe_hash, command, machine;  ///< recipe: YAML text
  std::vector<std::string> notes;  ///< what a reader must know to judge the numbers, a sentence each
  std::map<std::string, std::string> versions;
  uint64_t seed = 0;
  long multiply_adds = 0;
  std::vector<Row> rows;
  std::vector<EpochMetrics> epochs;
  std::vector<ReportLayer> layers;
  std::vector<std::string> class_names;  ///< empty: classes are shown by number
  std::vector<ReportPicture> pictures;   ///< of pixels' labels
  Comparison comparison;                 ///< default: not compared
  double seconds = 0;                    ///< of the whole run
};

std::string report_json(const Report& report);  ///< one document, two-space indent, ends in a newline
/// Self-contained: inline SVG and CSS, legible on a phone and on paper. Of a run that goes on: what there is so far.
std::string report_html(const Report& report);
/// What report_html() wrote of a run that went on, once it has ended without a word: the page says `why`, and is not
/// loaded again and again. nullopt: `page` is not of a run that goes on.
std::optional<std::string> ended_page(const std::string& page, const std::string& why);
/// Its results as one picture that stands alone, on a ground of its own: for a README, light or dark.
std::string report_svg(const Report& report);
std::string report_table(const Report& report);  ///< the evaluation table as text for the terminal

}  // namespace octet
