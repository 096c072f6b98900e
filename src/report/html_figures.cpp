// SPDX-License-Identifier: Apache-2.0
// The sections of report.html that are charts: training curves, layers, confusion.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/report.h"
#include "src/report/svg.h"

namespace octet {
namespace {

constexpr size_t kMostHeatMapClasses = 20;
constexpr size_t kMostPairs = 20;

struct Curve {
  const char* name;
  const char* colour;
  bool dashed;
  std::function<std::optional<double>(const EpochMetrics&)> value;  ///< empty: the epoch has none
  double factor = 1;
};

/// Returns one chart of all phases, one after the other along the x axis; each phase is a named band. A line goes
/// straight from one epoch that has a value to the next that has one.
std::string curves(const Report& report, const std::string& title, const std::vector<Curve>& wanted) {
  LineChart chart{.title = title, .x_label = "epoch", .y_label = title};
  const auto& epochs = report.epochs;
  for (size_t i = 0; i < epochs.size(); ++i) {
    if (i == 0 || epochs[i].phase != epochs[i - 1].phase) {
      chart.bands.push_back({epochs[i].phase, static_cast<double>(i) + 0.5, 0, chart.bands.size() % 2 == 1});
    }
    chart.bands.back().hi = static_cast<double>(i) + 1.5;
  }
  for (const Curve& curve : wanted) {
    Line line{curve.name, curve.colour, curve.dashed, {}, {}};
    for (size_t i = 0; i < epochs.size(); ++i) {
      const std::optional<double> value = curve.value(epochs[i]);
      if (!value) continue;
      line.x.push_back(static_cast<double>(i) + 1);
      line.y.push_back(curve.factor * *value);
    }
    chart.lines.push_back(std::move(line));
  }
  return svg_lines(chart);
}

std::string sqnr_charts(const Report& report) {
  BarChart chart{.title = "Signal to quantization noise of every layer's output",
                 .axis_label = "SQNR of the output, dB"};
  for (const ReportLayer& shown : report.layers) {
    const LayerStatistics& layer = shown.statistics;
    chart.bars.push_back({.label = layer.name, .value = layer.sqnr_db, .tooltip = layer.name + " (" + layer.op + ")"});
  }
  return decibel_figures(chart);
}

std::string layer_card(const ReportLayer& shown) {
  const LayerStatistics& layer = shown.statistics;
  std::string html =
      fmt::format("<div class=\"layer\"><h3>{}</h3><p>{}", html_breakable(layer.name), html_escape(layer.op));
  for (const LayerKernel& k : shown.kernels) {
    html += "<br/>" + html_escape(k.program) + (k.engine == k.program ? "" : ", run by " + html_escape(k.engine)) +
            " \xC2\xB7 " + html_breakable(k.kernel);
  }
  if (!layer.qparams.empty()) html += "<br/>" + html_escape(layer.qparams);
  if (!layer.weight_codes.empty()) html += "<br/>weight codes " + html_escape(layer.weight_codes);
  html += "</p><div class=\"pair\">";
  const auto histogram = [&](const std::string& what, const Histogram& values, const char* hue, double db) {
    if (values.counts.empty()) return;
    const std::string bad = values.not_finite > 0 ? "; not finite: " + counted(values.not_finite, "value") : "";
    html += figure(svg_histogram(values, layer.name + ", " + what, hue), what + ", " + decibels(db) + bad);
  };
  histogram("weights", layer.weights, colour::kGrey, layer.weight_sqnr_db);
  histogram("activations", layer.activations, colour::kBlue, layer.sqnr_db);
  return html + "</div></div>\n";
}

struct Pair {
  size_t label, predicted;
  long count;
  double share;  ///< of the label's images
};

std::vector<Pair> most_confused(const std::vector<long>& confusion, size_t classes) {
  std::vector<Pair> pairs;
  for (size_t label = 0; label < classes; ++label) {
    long images = 0;
    for (size_t p = 0; p < classes; ++p) images += confusion[label * classes + p];
    for (size_t p = 0; p < classes; ++p) {
      const long count = confusion[label * classes + p];
      if (p != label && count > 0)
        pairs.push_back({label, p, count, static_cast<double>(count) / static_cast<double>(images)});
    }
  }
  const size_t kept = std::min(pairs.size(), kMostPairs);
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<long>(kept), pairs.end(),
                    [](const Pair& a, const Pair& b) {
                      return std::tie(b.count, a.label, a.predicted) < std::tie(a.count, b.label, b.predicted);
                    });
  pairs.resize(kept);
  return pairs;
}

std::string pairs_table(const Report& report, const std::vector<long>& confusion, size_t classes) {
  std::string html =
      "<table><thead><tr><th scope=\"col\">label</th><th scope=\"col\" class=\"left\">taken for</th>"
      "<th scope=\"col\">images</th><th scope=\"col\">of the label's</th></tr></thead><tbody>\n";
  for (const Pair& pair : most_confused(confusion, classes)) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"left\">{}</td><td>{}</td><td>{}</td></tr>\n",
                        html_escape(class_label(report, pair.label)), html_escape(class_label(report, pair.predicted)),
                        with_thousands(pair.count), percent(pair.share, 1));
  }
  return html + "</tbody></table>";
}

/// Returns what the last epoch of each phase took: "float 12,000 images/s, 0.4 % of the time waiting for images, 2.13
/// GB of GPU memory".
std::string training_costs(const Report& report) {
  std::string text;
  for (size_t i = 0; i < report.epochs.size(); ++i) {
    const EpochMetrics& m = report.epochs[i];
    if (i + 1 < report.epochs.size() && report.epochs[i + 1].phase == m.phase) continue;
    text += fmt::format("{}{} {} images/s, {} of the time waiting for images", text.empty() ? "" : "; ",
                        html_escape(m.phase), whole_number(m.images_per_second), percent(m.data_wait_share, 1));
    if (m.gpu_memory_bytes > 0)
      text += fmt::format(", {:.2f} GB of GPU memory", static_cast<double>(m.gpu_memory_bytes) / 1e9);
  }
  return text;
}

/// Returns a table of the processes that trained together, for the last epoch of each phase.
std::string ranks_table(const Report& report) {
  const auto memory = [](long bytes) {  // none on a CPU
    return bytes > 0 ? fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9) : "–";
  };
  std::string rows;
  for (size_t i = 0; i < report.epochs.size(); ++i) {
    const EpochMetrics& m = report.epochs[i];
    if (i + 1 < report.epochs.size() && report.epochs[i + 1].phase == m.phase) continue;
    for (size_t rank = 0; rank < m.ranks.size(); ++rank) {
      const RankMetrics& r = m.ranks[rank];
      rows += fmt::format(
          "<tr><th scope=\"row\">{}</th><td data-label=\"process\">{}</td><td data-label=\"images/s\">{}</td>"
          "<td data-label=\"exchanging\">{}</td><td data-label=\"waiting\">{}</td><td data-label=\"GPU "
          "memory\">{}</td></tr>\n",
          html_escape(m.phase), rank, whole_number(r.images_per_second), percent(r.exchange_share, 1),
          percent(r.data_wait_share, 1), memory(r.gpu_memory_bytes));
    }
  }
  if (rows.empty()) return "";
  return "<table id=\"ranks\" class=\"stack\"><thead><tr><th scope=\"col\">phase</th><th scope=\"col\">process</th><th "
         "scope=\"col\">images/s</th><th scope=\"col\">exchanging</th><th scope=\"col\">waiting for images</th><th "
         "scope=\"col\">GPU memory</th></tr></thead><tbody>\n" +
         rows +
         "</tbody></table>\n<p class=\"note\">Exchanging: gradients and statistics with the other processes, waiting "
         "for slower ones included.</p>\n";
}

/// Returns the curves of what networks are judged by: top-1; the share of right pixels and mean IoU; boxes' IoU and AP.
std::string score_curves(const Report& report) {
  const auto curve = [&](const char* axis, const std::vector<Curve>& lines, const char* caption) {
    return figure(curves(report, axis, lines), caption);
  };
  const Curve training{"training", colour::kGrey, true, &EpochMetrics::train_top1, 100};
  const Curve validation{"validation", colour::kBlue, false, &EpochMetrics::validation_top1, 100};
  switch (report.labels) {
    case Labels::image:
      break;
    case Labels::pixels:
      return curve("pixels, %", {training, validation}, "<b>Pixels</b> that are right") +
             curve("mean IoU, %", {{"validation", colour::kBlue, false, &EpochMetrics::validation_mean_iou, 100}},
                   "<b>Mean IoU</b>: intersection over union, a class at a time");
    case Labels::boxes:
      return curve("AP, %",
                   {{"AP", colour::kBlue, false, &EpochMetrics::validation_ap, 100},
                    {"AP50", colour::kSky, false, validation.value, 100}},
                   "<b>AP</b> on the validation images: COCO's, and with boxes that overlap by half") +
             curve("IoU, %", {training}, "<b>Overlap</b> of the boxes that are trained and their labels");
  }
  return curve("top-1, %", {training, validation}, "<b>Top-1</b>");
}

}  // namespace

std::string training_section(const Report& report) {
  if (report.epochs.empty()) return "";
  return "<section id=\"training\"><h2>Training</h2>\n<p>Epochs of all phases in order; each phase is named on the "
         "chart. In the last epoch: " +
         training_costs(report) + ".</p>\n" + ranks_table(report) + "<div class=\"figures\">\n" +
         figure(curves(report, "loss",
                       {{"training", colour::kGrey, true, &EpochMetrics::train_cross_entropy},
                        {"validation", colour::kBlue, false, &EpochMetrics::validation_loss}}),
                "<b>Loss</b> (cross-entropy, without label smoothing)") +
         score_curves(report) +
         figure(
             curves(report, "learning rate", {{"learning rate", colour::kOrange, false, &EpochMetrics::learning_rate}}),
             "<b>Learning rate</b> at the end of the epoch") +
         figure(curves(report, "images/s", {{"training", colour::kGreen, false, &EpochMetrics::images_per_second}}),
                "<b>Training speed</b>") +
         "</div></section>\n";
}

std::string layers_section(const Report& report) {
  if (report.layers.empty()) return "";
  std::string html =
      "<section id=\"layers\"><h2>Layers</h2>\n<p>Signal to quantization noise: what quantization leaves of a layer's "
      "output, float against fake-quantized. 6 dB are one bit.</p>\n<div class=\"figures\">\n" +
      sqnr_charts(report) + "</div>\n";
  html +=
      "<h3>Weights and activations</h3>\n<p class=\"note\">Counts on a square-root scale; numbers under a chart are "
      "the "
      "ends of its range.</p>\n<div class=\"multiples\">\n";
  for (const ReportLayer& layer : report.layers) {
    const LayerStatistics& l = layer.statistics;
    if (!l.weights.counts.empty() || !l.activations.counts.empty()) html += layer_card(layer);
  }
  return html + "</div></section>\n";
}

namespace {

std::string segment_classes(const Report& report, const Evaluation& before, const Evaluation& after) {
  const auto classes = static_cast<size_t>(before.task.classes());
  const std::vector<double> floats = class_ious(before.overlaps, classes), codes = class_ious(after.overlaps, classes);
  TextTable table({{"class", Align::left}, {"IoU float"}, {"IoU " + after.name}});
  const auto share = [](double iou) { return std::isnan(iou) ? "–" : percent(iou); };
  for (size_t c = 0; c < floats.size(); ++c)
    if (!std::isnan(floats[c]) || !std::isnan(codes[c]))  // no label, but one of the networks may find it
      table.add_row({class_label(report, c), share(floats[c]), share(codes[c])});
  return html_section("classes", "Classes", html_table(table));
}

}  // namespace

std::string classes_section(const Report& report) {
  const Row* row = int8_row(report);
  if (!row) return "";
  const Evaluation& before = report.rows.front().evaluation;
  if (!row->evaluation.overlaps.empty()) return segment_classes(report, before, row->evaluation);
  if (row->evaluation.boxes.empty()) return "";
  const auto count = static_cast<int>(before.task.classes());
  const AveragePrecision floats = average_precision(before.boxes, count);
  const AveragePrecision codes = average_precision(row->evaluation.boxes, count);
  constexpr size_t kMostCurves = 20;
  const std::string& int8 = row->evaluation.name;
  TextTable table({{"class", Align::left}, {"boxes"}, {"AP float"}, {"AP " + int8}, {"AP50 float"}, {"AP50 " + int8}});
  std::string charts;
  std::vector<double> recalls;
  for (int r = 0; r <= 100; ++r) recalls.push_back(r);
  for (size_t c = 0; c < floats.of_class.size(); ++c) {
    const AveragePrecision::OfClass &a = floats.of_class[c], &b = codes.of_class[c];
    if (a.labels == 0) continue;
    const std::string name = class_label(report, c);
    table.add_row({name, with_thousands(a.labels), percent(a.ap), percent(b.ap), percent(a.ap50), percent(b.ap50)});
    if (c >= kMostCurves) continue;
    const auto line = [&](const std::string& network, const char* hue, bool dashed, const auto& precision) {
      Line drawn{network, hue, dashed, recalls, {}};
      for (const double share : precision) drawn.y.push_back(100 * share);
      return drawn;
    };
    charts += figure(svg_lines({.title = "Precision by recall: " + name,
                                .x_label = "recall, %",
                                .y_label = "precision, %",
                                .lines = {line(before.name, colour::kGrey, true, a.precision50),
                                          line(int8, colour::kBlue, false, b.precision50)}}),
                     html_escape(name));
  }
  TextTable sizes({{"network", Align::left}, {"AP"}, {"AP50"}, {"AP75"}, {"small"}, {"medium"}, {"large"}});
  const auto share = [](double value) { return std::isnan(value) ? std::string("-") : percent(value); };
  for (const auto& [network, ap] : {std::pair(&before.name, &floats), std::pair(&int8, &codes)})
    sizes.add_row({*network, share(ap->ap), share(ap->ap50), share(ap->ap75), share(ap->ap_of_size[0]),
                   share(ap->ap_of_size[1]), share(ap->ap_of_size[2])});
  return "<section id=\"classes\"><h2>Classes</h2>\n" + html_table(table) + html_table(sizes) +
         "<p class=\"note\">Small, medium, large: AP of objects of up to 32 x 32 pixels of the image, up to 96 x 96, "
         "and "
         "more.</p>\n" +
         "<p class=\"note\">Precision by recall with boxes that overlap by half, the best at that recall or a higher "
         "one.</p>\n<div class=\"figures\">\n" +
         charts + "</div></section>\n";
}

std::string confusion_section(const Report& report) {
  const Row* row = int8_row(report);
  if (!row || row->evaluation.confusion.empty()) return "";
  const auto& confusion = row->evaluation.confusion;
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(confusion.size()))));
  std::string html =
      fmt::format("<section id=\"confusion\"><h2>Confusion</h2>\n<p class=\"lead\">What {} takes for what.</p>\n",
                  html_escape(row->evaluation.name));
  if (classes > kMostHeatMapClasses) return html + pairs_table(report, confusion, classes) + "</section>\n";
  HeatMap map{"Confusion matrix", {}, confusion};
  for (size_t i = 0; i < classes; ++i) map.labels.push_back(class_label(report, i));
  return html + "<div class=\"figures wide\">" + figure(svg_heat_map(map)) + "</div></section>\n";
}

}  // namespace octet
