// SPDX-License-Identifier: Apache-2.0
// The page report.html, with the sections that are text and tables.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include "src/base/files.h"
#include "src/base/text.h"
#include "src/report/html.h"
#include "src/report/report.h"

namespace octet {
namespace {

constexpr const char* kDash = "\xE2\x80\x93";

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

/// Returns the evaluation table and the accuracy bars.
std::string accuracy_section(const Report& report) {
  if (report.rows.empty()) return "";
  const std::vector<std::string> columns = evaluation_columns(report);
  std::string html =
      "<section id=\"accuracy\"><h2>Accuracy, size and speed</h2>\n<table class=\"stack\"><thead><tr>"
      "<th scope=\"col\">network</th>";
  for (const std::string& column : columns) html += fmt::format("<th scope=\"col\">{}</th>", column);
  html += "</tr></thead><tbody>\n";
  const Row* shipped = int8_row(report);
  for (const Row& row : report.rows) {
    html += fmt::format("<tr{}><th scope=\"row\">{}</th>", &row == shipped ? " class=\"ship\"" : "",
                        html_escape(row.evaluation.name));
    const std::vector<std::string> cells = evaluation_cells(row, kDash);
    for (size_t c = 0; c < columns.size(); ++c)
      html += fmt::format("<td data-label=\"{}\">{}</td>", columns[c], html_escape(cells[c]));
    html += "</tr>\n";
  }
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

/// Returns the verdict, and the differing codes by layer.
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

std::string definition(const std::string& term, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escape(term), html_escape(text));
}

/// Returns links to the sections that are there.
std::string navigation(const std::string& sections) {
  std::string html = "<nav>";
  const std::pair<const char*, const char*> links[] = {
      {"accuracy", "Accuracy"}, {"images", "Images"}, {"codes", "Codes"},         {"classes", "Classes"},
      {"training", "Training"}, {"layers", "Layers"}, {"confusion", "Confusion"}, {"run", "The run"}};
  for (const auto& [id, name] : links) {
    if (sections.find(fmt::format("<section id=\"{}\"", id)) == std::string::npos) continue;
    html += fmt::format("<a href=\"#{}\">{}</a> ", id, name);
  }
  return html + "</nav>\n";
}

constexpr int kReloadSeconds = 10;

constexpr std::string_view kState = "<p class=\"state";  // of a run that is not done
constexpr std::string_view kRunning = "<p class=\"state running\"", kParagraphEnd = "</p>\n";
constexpr std::string_view kScript = "<script>\n", kScriptEnd = "</script>\n";

std::string stopped_line(const std::string& text) {
  return fmt::format("<p class=\"state\">{}{}", html_escape(text), kParagraphEnd);
}

/// Returns the line of a running run's state, and a script that adds to it when the page was not written for too long:
/// only a script knows the time. It has neither < nor &, because the page is XML, too.
std::string running_line(const RunState& state) {
  const std::string text = html_escape(state.text) + std::string(kParagraphEnd);
  if (state.written == 0) return fmt::format("{}>{}", kRunning, text);
  return fmt::format(R"({} data-overdue="{}">{}{}const silent = Date.now() / 1000 - {};
if (silent > {}) {{
  const line = document.querySelector("p.state");
  line.classList.remove("running");
  line.append(" No word for " + Math.round(silent / 60) + " min: " + line.dataset.overdue);
}}
{})",
                     kRunning, html_escape(state.overdue), text, kScript, state.written, state.patience, kScriptEnd);
}

std::string state_line(const RunState& state) {
  if (state.text.empty()) return "";
  return state.running ? running_line(state) : stopped_line(state.text);
}

/// The text before, between and after two marks.
struct Parts {
  std::string before, between, after;
};
/// Splits `page` at the first `begin` and the first `end` after it; nullopt if they are not there.
std::optional<Parts> split(const std::string& page, std::string_view begin, std::string_view end) {
  const size_t from = page.find(begin);
  if (from == std::string::npos) return std::nullopt;
  const size_t to = page.find(end, from + begin.size());
  if (to == std::string::npos) return std::nullopt;
  return Parts{page.substr(0, from), page.substr(from + begin.size(), to - from - begin.size()),
               page.substr(to + end.size())};
}

/// Returns recipe, versions, machine and command.
std::string run_section(const Report& report) {
  std::string html = "<section id=\"run\"><h2>The run</h2>\n<dl>\n";
  html += definition("model", report.model);
  html += definition("machine", report.machine);
  html += definition("time", report.seconds > 0 ? human_seconds(report.seconds) : "");
  html += definition("seed", std::to_string(report.seed));
  html += definition("recipe hash", report.recipe_hash);
  for (const auto& [name, version] : report.versions) html += definition(name, version);
  html += "</dl>\n";
  if (!report.command.empty())
    html += "<h3>Command</h3>\n<pre class=\"command\">" + html_escape(report.command) + "</pre>\n";
  if (!report.recipe.empty()) {
    html += "<h3>Recipe, with every default</h3>\n<pre class=\"recipe\">" + html_escape(report.recipe) + "</pre>\n";
  }
  return html + "</section>\n";
}

}  // namespace

std::string report_html(const Report& report) {
  const std::string sections = accuracy_section(report) + images_section(report) + comparison_section(report) +
                               classes_section(report) + training_section(report) + layers_section(report) +
                               confusion_section(report) + run_section(report);
  const std::string body = fmt::format(
      "<header><h1>{}</h1>\n<p class=\"sub\">{}</p>\n{}{}{}</header>\n<main>\n{}</main>\n",
      html_breakable(report.title), html_escape(fmt::format("{}, trained for int8 and checked by octet", report.model)),
      state_line(report.state), report.rows.empty() ? "" : html_cards(result_cards(report)), navigation(sections),
      sections);
  return html_page(report.title, body, report.state.running ? kReloadSeconds : 0);
}

std::optional<std::string> ended_page(const std::string& page, const std::string& why) {
  const std::optional<Parts> line = split(page, kRunning, kParagraphEnd);
  if (!line) return std::nullopt;
  const std::string head = [&] {  // without the element that loads the page again
    const std::optional<Parts> reload = split(line->before, kReload, "/>\n");
    return reload ? reload->before + reload->after : line->before;
  }();
  const std::string rest =
      line->after.starts_with(kScript) ? split(line->after, kScript, kScriptEnd)->after : line->after;
  return head + stopped_line(why) + rest;
}

std::string why_unfinished(const std::string& page_file, const std::string& run) {
  const std::string resume = fmt::format("finish it with octet train {} --resume", shell_word(run));
  const std::string page = std::filesystem::exists(page_file) ? read_file(page_file) : "";
  const std::optional<Parts> line = split(page, kState, kParagraphEnd);
  if (!line) return "; " + resume;
  const std::string state = html_unescape(line->between.substr(line->between.find('>') + 1));
  // A training that diverged, and what can be resumed, say so with the command.
  const bool has_cure = state.find("diverged") != std::string::npos || state.find("--resume") != std::string::npos;
  const std::string running = line->between.starts_with(" running") ? "if its process has ended, " : "";
  return fmt::format(". {}{}", state, has_cure ? "" : fmt::format("; {}{}", running, resume));
}

}  // namespace octet
