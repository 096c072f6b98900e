// SPDX-License-Identifier: Apache-2.0
// The report of a run: plain data in, documents out. src/report/README.md lists the keys of report.json.
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

/// A row of the evaluation table.
struct Row {
  Evaluation evaluation;
  long bytes = 0;       ///< of the weights on disk; 0: not applicable
  long differing = -1;  ///< predictions that differ from the QAT graph's; -1: not applicable
};

/// Sets `differing` of all rows but "qat_graph", if there is one of that name.
void count_differing(std::vector<Row>& rows);

struct LayerKernel {
  std::string program;  ///< the engine of the row
  std::string engine;   ///< the engine that runs the layer there: `program`, or its fallback
  std::string kernel;   ///< the engine's name for the kernel, or "merged into NODE" (src/engine/fusion.h)
};

struct ReportLayer {
  LayerStatistics statistics;
  std::vector<LayerKernel> kernels;  ///< of the report's first engine, then of its other engines on a GPU
};

/// Adds to each layer the kernel that runs it in the program of engine `program`.
void add_kernels(std::vector<ReportLayer>& layers, const std::string& program, const std::vector<LayerInfo>& infos);

/// The speed of one of several processes that train together.
struct RankMetrics {
  double images_per_second = 0, data_wait_share = 0;
  double exchange_share = 0;  ///< share of the time spent in exchanges, waiting for slower processes included
  long gpu_memory_bytes = 0;
};

/// A line of metrics.jsonl. For segmentations, top1 is the share of pixels that are right; for detectors in training
/// the mean IoU of boxes and their labels, in validation AP50. An epoch that was not validated (train.val_interval) has
/// no value of validation.
struct EpochMetrics {
  std::string phase;               ///< "float", "qat"
  int epoch = 0;                   ///< from 1, within the phase
  double train_loss = 0;           ///< what was minimized, label smoothing included
  double train_cross_entropy = 0;  ///< without label smoothing, comparable with validation_loss
  double train_top1 = 0;
  std::optional<double> validation_loss, validation_top1;
  double learning_rate = 0;
  double images_per_second = 0, data_wait_share = 0, seconds = 0;
  long gpu_memory_bytes = 0;                  ///< peak of the training process; 0: trained on the CPU
  std::optional<double> validation_mean_iou;  ///< of segmentations
  std::optional<double> validation_ap;        ///< of detectors
  std::vector<RankMetrics> ranks;             ///< empty if a single process trained
};

/// A test image with the classes of its pixels: the labels, and the predictions of two networks.
struct ReportMasks {
  std::string name;  ///< "synthetic scenes test[3]"
  Image image;
  std::vector<int> truth, before, int8;  ///< [height, width]; kNoLabel in truth: unknown
  double before_iou = 0, int8_iou = 0;   ///< mean intersection over union of this image alone
};

/// The least score of boxes that are drawn.
inline constexpr double kShownScore = 0.3;

/// A test image with boxes drawn: the labels, and what two networks found.
struct ReportBoxes {
  std::string name;
  Image truth, before, int8;
  double before_ap = 0, int8_ap = 0;  ///< of this image alone
};

/// Where a run stands whose page is looked at while it goes on.
struct RunState {
  std::string text;      ///< at the page's top: "qat: epoch 3 of 10 done, 12:04:05 UTC"; "": a run that is done
  bool running = false;  ///< the page asks the browser to load it again every few seconds
  // By these the page of a running run itself tells the reader when there has been no news for too long:
  int64_t written = 0;   ///< time of writing, in seconds since 1970; 0: the page does not check
  int64_t patience = 0;  ///< in seconds
  std::string overdue;   ///< what it says then: "process 4711 on host may have ended"
};

/// How much the scores of a report's networks differ, and whether it could be chance.
struct Differences {
  Paired lost;                 ///< baseline compared with int8; points above 0: int8 is worse
  Paired ptq_lost;             ///< float compared with PTQ; points above 0: PTQ is worse
  Paired control_lost;         ///< float compared with float_control; points above 0: training on made it worse
  double qat_points_back = 0;  ///< 100 * (int8's score - PTQ's), if the network was trained after PTQ
};

struct Report {
  RunState state;
  Labels labels = Labels::image;                                    ///< decides which scores the report shows
  std::string title, model, recipe, recipe_hash, command, machine;  ///< recipe: YAML text
  std::vector<std::string> notes;  ///< what a reader must know to judge the numbers, a sentence each
  std::map<std::string, std::string> versions;
  uint64_t seed = 0;
  long multiply_adds = 0;
  std::vector<Row> rows;
  /// differences() of the rows, which take seconds for detectors and segmentations, computed once for all that is
  /// written of the report; nullopt: computed wherever they are asked for.
  std::optional<Differences> differences;
  std::vector<EpochMetrics> epochs;
  std::vector<ReportLayer> layers;
  std::vector<std::string> class_names;  ///< empty: classes are shown by number
  std::vector<ReportMasks> masks;        ///< of segmentations, the worst first
  std::vector<ReportBoxes> boxes;        ///< of detectors, the worst first
  Comparison comparison;                 ///< default: not compared
  double seconds = 0;                    ///< duration of the whole run
};

/// Returns the row of that name, or nullptr.
const Row* find_row(const Report& report, const std::string& name);

/// Returns whether a row of that name is an engine's; LibTorch computes the others.
bool is_engine_row(const std::string& name);

/// Returns the row of the int8 network that ships: the first engine's; without one "qat_graph", then "ptq".
const Row* int8_row(const Report& report);

/// The float network compared with the int8 network that ships. Ratios and differences are 0 when a side is unknown.
struct Headline : Differences {
  const Row* float_row = nullptr;  ///< "float"
  const Row* baseline = nullptr;   ///< "float_control", trained for as many epochs as int8; without one "float"
  const Row* int8_row = nullptr;   ///< int8_row()
  const Row* ptq_row = nullptr;    ///< "ptq"
  bool qat = false;                ///< the int8 network was trained after PTQ
  double size_ratio = 0;           ///< float bytes / int8 bytes
  double speed_up = 0;             ///< int8 images/s / float images/s
  bool both() const { return float_row && int8_row; }
  bool ptq_alone() const { return ptq_row && !qat; }
  /// The float control is worse than int8 and than the network it began with: it says nothing about int8.
  bool control_ruined() const { return control_lost.is_loss() && lost.is_gain(); }
};

/// The pointers of the result point into `report`.
Headline headline(const Report& report);

/// Returns how much the rows of a report differ, computed anew.
Differences differences(const Report& report);

/// Describes the difference between two networks: "float 91.73 % -> int8 91.70 %: -0.03 points of top-1, no difference
/// that 10,000 images show (95 % interval -0.13 to +0.07; 14 only float has right, 11 only int8)". Only if the
/// difference is significant (Paired::told_apart) it says that `cause` ("quantization") "costs" or "gains" points.
/// Segmentations are described in points of mean IoU.
/// lost: paired(before, after).
std::string difference_sentence(const Evaluation& before, const Evaluation& after, const Paired& lost,
                                const std::string& cause);

/// Returns difference_sentence() of baseline and int8 and, where PTQ lost something, how much that was and how much QAT
/// got back; of a ruined float control, that it is no measure.
/// Returns nothing without a float and an int8 row.
std::vector<std::string> accuracy_sentences(const Headline& headline);

/// Returns "; reference: the first 100" for each row that saw fewer images than the first row; "" if there is none.
std::string shorter_rows(const Report& report);

/// Returns the name of a class, or its number where names are missing.
std::string class_label(const Report& report, size_t index);

/// Returns report.json: one document, indented by two spaces, that ends in a newline.
std::string report_json(const Report& report);
/// Returns report.html, which is self-contained (inline SVG and CSS) and legible on a phone and on paper. Of a running
/// run it shows what there is so far.
std::string report_html(const Report& report);
/// Returns the page of a running run that has ended without news, changed so that it says `why` and no longer loads
/// itself again; nullopt if `page` is not that of a running run.
std::optional<std::string> ended_page(const std::string& page, const std::string& why);
/// Returns why a run has not made a file that it makes at its end, and the cure, to follow "this run has no int8
/// checkpoint yet". The reason is what the run's page `page_file` says of its state, if there is one.
std::string why_unfinished(const std::string& page_file, const std::string& run);
/// Returns report.svg: the results as one image with a white background, for a README.
std::string report_svg(const Report& report);
/// Returns the evaluation table as text for the terminal.
std::string report_table(const Report& report);

}  // namespace octet
