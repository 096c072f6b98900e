// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/eval/compare.h"
#include "src/eval/derive_constants.h"

namespace octet {

std::string WrongConstant::text() const {
  const std::string place = index < 0 ? what : fmt::format("{} {}", what, index);
  return fmt::format("'{}': {} is {:.9g}, the trained weights give {:.9g}", node, place, stored, expected);
}

std::string describe(const DerivedConstants& c) {
  constexpr size_t kShown = 10;
  if (!c.derived)
    return "constants: not derived again from what was trained; octet compare RUN does, in a build with training";
  if (c.wrong == 0) {
    return fmt::format(
        "constants: {} multipliers and biases, {} table entries, {} weights and {} bounds and scales of edges derived "
        "again in double from what was trained: none is wrong",
        with_thousands(c.multipliers), with_thousands(c.table_entries), with_thousands(c.weights),
        with_thousands(c.edges));
  }
  std::string text = fmt::format("constants: {} of {} do not follow from what was trained", with_thousands(c.wrong),
                                 with_thousands(c.count()));
  for (size_t i = 0; i < std::min(kShown, c.first.size()); ++i) text += (i == 0 ? ": " : "; ") + c.first[i].text();
  if (c.first.size() > kShown) text += fmt::format("; and others in {} more places", c.first.size() - kShown);
  return text;
}

namespace {

/// Returns "; reference: over the first 100" for each program that did not see all images.
std::string shorter_comparisons(const Comparison& c) {
  std::string text;
  for (size_t p = 0; p < c.program_images.size(); ++p) {
    if (c.program_images[p] == c.images) continue;
    text += fmt::format("; {}: over the first {}", c.programs[p + 1], with_thousands(c.program_images[p]));
  }
  return text;
}

/// Returns "; cudnn promises no equal codes: 56 of 1,000 codes and logits differ (5.600 %), ..." for each program that
/// does not promise equal codes.
std::string inexact_programs(const Comparison& c) {
  std::string text;
  for (size_t p = 0; p < c.exact.size(); ++p) {
    if (c.exact[p]) continue;
    int largest = 0;
    for (const LayerDifference& layer : c.layers) {
      if (!layer.is_logits) largest = std::max(largest, layer.largest_lsb[p]);
    }
    const long codes = c.codes(p), differing = c.differing_codes(p);
    text += fmt::format(
        "; {} promises no equal codes: {} of {} codes and {} differ ({}), codes by at most {} LSB{}", c.programs[p + 1],
        with_thousands(differing), with_thousands(codes), c.answers > 0 ? "logits" : "outputs",
        percent(codes == 0 ? 0 : static_cast<double>(differing) / static_cast<double>(codes), 3),
        with_thousands(largest), c.answers > 0 ? ", and " + counted(c.differing_predictions[p], "prediction") : "");
  }
  return text;
}

std::string verdict_on_codes(const Comparison& c) {
  if (c.codes() == 0 || c.programs.size() < 2) return "nothing was compared";
  const int first = c.first_differing_layer();
  const auto exact = std::count(c.exact.begin(), c.exact.end(), true);
  if (!c.promised())
    return fmt::format("nothing promised equal codes{}{}", shorter_comparisons(c), inexact_programs(c));
  if (first < 0) {
    return fmt::format("identical: 0 of {} codes differ in {} programs over {}{}{}", with_thousands(c.codes()),
                       exact + 1, counted(c.images, "image"), shorter_comparisons(c), inexact_programs(c));
  }
  const LayerDifference& layer = c.layers[first];
  std::string text = fmt::format("BROKEN: first at {}:", layer.layer);
  const char* separator = " ";
  for (size_t p = 0; p < layer.differing.size(); ++p) {
    if (layer.differing[p] == 0 || !c.exact[p]) continue;
    text += fmt::format("{}{} differs from {} in {}, largest {} {}", separator, c.programs[p + 1], c.programs[0],
                        counted(layer.differing[p], layer.is_logits ? "logit" : "code"),
                        with_thousands(layer.largest_lsb[p]), layer.is_logits ? "ULP" : "LSB");
    separator = "; ";
  }
  return text + shorter_comparisons(c) + inexact_programs(c);
}

}  // namespace

int Comparison::first_differing_layer() const {
  for (size_t i = 0; i < layers.size(); ++i) {
    for (size_t p = 0; p < exact.size(); ++p) {
      if (exact[p] && layers[i].differing[p] > 0) return static_cast<int>(i);
    }
  }
  return -1;
}

bool Comparison::promised() const { return std::find(exact.begin(), exact.end(), true) != exact.end(); }

bool Comparison::identical() const {
  return promised() && codes() > 0 && first_differing_layer() < 0 && constants.wrong == 0;
}

long Comparison::codes() const {
  long sum = 0;
  for (const auto& layer : layers) sum += layer.codes;
  return sum;
}

long Comparison::codes(size_t program) const {
  long sum = 0;
  for (const auto& layer : layers) sum += layer.shown_by(program) ? layer.codes : 0;
  return images == 0 ? 0 : sum / images * program_images[program];
}

long Comparison::differing_codes() const {
  long sum = 0;
  for (size_t p = 0; p < exact.size(); ++p) sum += exact[p] ? differing_codes(p) : 0;
  return sum;
}

long Comparison::differing_codes(size_t program) const {
  long sum = 0;
  for (const auto& layer : layers) sum += layer.differing[program];
  return sum;
}

std::string verdict(const Comparison& c) {
  const DerivedConstants& constants = c.constants;
  if (constants.wrong == 0) return verdict_on_codes(c);
  return fmt::format("BROKEN: {} of {} constants do not follow from what was trained, first at {}; codes: {}",
                     with_thousands(constants.wrong), with_thousands(constants.count()), constants.first.front().node,
                     verdict_on_codes(c));
}

namespace {

/// Returns how far a further program is off: "3 LSB", "2 ULP", or for floats of one that does not promise equal codes
/// the first program's signal to what it differs by: "31.2 dB".
std::string largest(const Comparison& c, const LayerDifference& layer, size_t p) {
  if (layer.differing[p] == 0) return "";
  if (layer.is_logits && !c.exact[p]) return decibels(10 * std::log10(layer.signal[p] / layer.noise[p]));
  return fmt::format("{} {}", with_thousands(layer.largest_lsb[p]), layer.is_logits ? "ULP" : "LSB");
}

}  // namespace

std::string describe(const Comparison& c) {
  std::vector<Column> columns = {{"", Align::left}, {"layer", Align::left}, {"codes"}};
  for (size_t p = 1; p < c.programs.size(); ++p) {
    columns.push_back({c.programs[p] + (c.exact[p - 1] ? "" : " (inexact)")});
    columns.push_back({"largest", Align::left});
  }
  TextTable table(columns);
  const int first = c.first_differing_layer();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const LayerDifference& layer = c.layers[i];
    bool differs = false;
    std::vector<std::string> cells;
    for (size_t p = 0; p < layer.differing.size(); ++p) {
      differs = differs || (c.exact[p] && layer.differing[p] > 0);
      cells.push_back(layer.shown_by(p) ? with_thousands(layer.differing[p]) : "not shown");
      cells.push_back(largest(c, layer, p));
    }
    const char* mark = static_cast<int>(i) == first ? "first >>" : differs ? "!" : "";
    cells.insert(cells.begin(), {mark, layer.layer, with_thousands(layer.codes)});
    table.add_row(std::move(cells));
  }
  std::vector<std::string> predictions = {"", "predictions", with_thousands(c.images * c.answers)};
  for (const long n : c.differing_predictions) {
    predictions.push_back(with_thousands(n));
    predictions.push_back("");
  }
  if (c.answers > 0) table.add_row(std::move(predictions));
  const std::string against = c.programs.empty() ? "" : c.programs[0];
  return fmt::format("codes that differ from {}, layer by layer\n\n{}\n{}\n{}\n", against, table.render(),
                     describe(c.constants), verdict(c));
}

}  // namespace octet
