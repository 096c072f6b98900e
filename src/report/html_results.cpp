// Headline, evaluation table, comparison.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/common/text_table.h"
#include "src/report/headline.h"
#include "src/report/html.h"
#include "src/report/html_sections.h"
#include "src/report/results.h"

namespace octet {
namespace {

constexpr const char* kDash = "\xE2\x80\x93";

std::string table_cell(const std::string& label, const std::string& text) {
  return fmt::format("<td data-label=\"{}\">{}</td>", label, html_escape(text));
}

std::string evaluation_row(const Row& row, bool ships) {
  const Evaluation& e = row.evaluation;
  const ScoreNames& names = score_names(e.task.labels);
  const auto or_dash = [](bool known, std::string text) { return known ? std::move(text) : std::string(kDash); };
  return fmt::format("<tr{}><th scope=\"row\">{}</th>", ships ? " class=\"ship\"" : "", html_escape(e.name)) +
         table_cell(names.score, percent(e.score())) + table_cell(names.second, percent(e.second())) +
         table_cell("loss", fmt::format("{:.4f}", e.loss)) +
         table_cell("bytes", or_dash(row.bytes > 0, human_bytes(static_cast<double>(row.bytes)))) +
         table_cell("images/s", or_dash(e.images_per_second > 0, decimal(e.images_per_second))) +
         table_cell("median", or_dash(e.latency_runs > 0, human_seconds(e.latency_median_ms / 1e3))) +
         table_cell("p99", or_dash(e.latency_runs > 0, human_seconds(e.latency_p99_ms / 1e3))) +
         table_cell("differing", or_dash(row.differing >= 0, with_thousands(row.differing))) + "</tr>\n";
}

std::string comparison_row(const LayerDifference& layer, const std::vector<bool>& exact, bool first) {
  bool differs = false;
  std::string cells;
  for (size_t p = 0; p < layer.differing.size(); ++p) {
    differs = differs || (exact[p] && layer.differing[p] > 0);
    const std::string text =
        layer.differing[p] == 0
            ? "0"
            : fmt::format("{} <small>\xE2\x89\xA4 {} {}</small>", with_thousands(layer.differing[p]),
                          with_thousands(layer.largest_lsb[p]), layer.is_logits ? "ULP" : "LSB");
    cells += fmt::format("<td>{}</td>", text);
  }
  return fmt::format("<tr{}><th scope=\"row\">{}{}</th><td>{}</td>{}</tr>\n", differs ? " class=\"broken\"" : "",
                     html_breakable(layer.layer), first ? " <span class=\"bad-text\">first to differ</span>" : "",
                     with_thousands(layer.codes), cells);
}

}  // namespace

std::string headline_cards(const Report& report) {
  if (report.rows.empty()) return "";
  return html_cards(result_cards(report));
}

std::string accuracy_section(const Report& report) {
  if (report.rows.empty()) return "";
  const ScoreNames& names = score_names(report.labels);
  std::string html = fmt::format(
      "<section id=\"accuracy\"><h2>Accuracy, size and speed</h2>\n<table class=\"stack\"><thead><tr>"
      "<th scope=\"col\">network</th><th scope=\"col\">{}</th><th scope=\"col\">{}</th>"
      "<th scope=\"col\">loss</th><th scope=\"col\">bytes</th><th scope=\"col\">images/s</th>"
      "<th scope=\"col\">median</th><th scope=\"col\">p99</th><th scope=\"col\">differing</th></tr></thead><tbody>\n",
      names.score, names.second);
  const Row* int8_row = headline(report).int8_row;
  for (const Row& row : report.rows) html += evaluation_row(row, &row == int8_row);
  html += fmt::format(
      "</tbody></table>\n<p class=\"note\">{} multiply-adds an image; {}. images/s: of the network alone, in batches; "
      "median, p99: latency of one image; differing: predictions other than the QAT graph's.</p>\n",
      human_count(static_cast<double>(report.multiply_adds)),
      counted(report.rows.front().evaluation.images, "test image") + html_escape(shorter_rows(report)));
  for (const std::string& sentence : accuracy_sentences(headline(report)))
    html += fmt::format("<p>{}.</p>\n", html_escape(sentence));
  for (const std::string& note : report.notes) {
    html += fmt::format("<p class=\"note\"><b>Note:</b> {}.</p>\n", html_escape(note));
  }
  return html + "<div class=\"figures wide\"><figure>" + svg_bars(accuracy_chart(report)) +
         "</figure></div></section>\n";
}

std::string comparison_section(const Report& report) {
  const Comparison& c = report.comparison;
  if (c.codes() == 0) return "";
  std::string html = fmt::format(
      "<section id=\"codes\"><h2>Codes, layer by layer</h2>\n<p class=\"lead {}\">{}</p>\n"
      "<p>Every code of every layer, held against <b>{}</b>; the last layer's float logits by their bits.</p>\n"
      "<p class=\"{}\">{}.</p>\n"
      "<table><thead><tr><th scope=\"col\">layer</th><th scope=\"col\">codes</th>",
      c.identical() ? "good-text"
      : c.broken()  ? "bad-text"
                    : "",
      html_escape(verdict(c)), html_escape(c.programs[0]), c.constants.wrong > 0 ? "bad-text" : "note",
      html_escape(describe(c.constants)));
  for (size_t p = 1; p < c.programs.size(); ++p) {
    html += fmt::format("<th scope=\"col\">{}{}</th>", html_escape(c.programs[p]),
                        c.exact[p - 1] ? "" : " <small>promises no equal codes</small>");
  }
  html += "</tr></thead><tbody>\n";
  const int first = c.first_differing_layer();
  for (size_t i = 0; i < c.layers.size(); ++i)
    html += comparison_row(c.layers[i], c.exact, static_cast<int>(i) == first);
  html += fmt::format("<tr><th scope=\"row\">predictions</th><td>{}</td>", with_thousands(c.images * c.answers));
  for (const long n : c.differing_predictions) html += fmt::format("<td>{}</td>", with_thousands(n));
  return html + "</tr>\n</tbody></table></section>\n";
}

}  // namespace octet
