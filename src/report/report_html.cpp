#include <fmt/format.h>

#include "src/common/text_table.h"
#include "src/report/html.h"
#include "src/report/html_sections.h"
#include "src/report/report.h"

namespace octet {
namespace {

std::string definition(const std::string& term, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escape(term), html_escape(text));
}

/// Links to the sections that are there.
std::string navigation(const std::string& sections) {
  std::string html = "<nav>";
  const std::pair<const char*, const char*> links[] = {
      {"accuracy", "Accuracy"}, {"pictures", "Pictures"},   {"codes", "Codes"}, {"training", "Training"},
      {"layers", "Layers"},     {"confusion", "Confusion"}, {"run", "The run"}};
  for (const auto& [id, name] : links) {
    if (sections.find(fmt::format("<section id=\"{}\"", id)) == std::string::npos) continue;
    html += fmt::format("<a href=\"#{}\">{}</a> ", id, name);
  }
  return html + "</nav>\n";
}

constexpr int kReloadSeconds = 10;

std::string state_line(const RunState& state) {
  if (state.text.empty()) return "";
  return fmt::format("<p class=\"state{}\">{}</p>\n", state.running ? " running" : "", html_escape(state.text));
}

}  // namespace

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

std::string report_html(const Report& report) {
  const std::string sections = accuracy_section(report) + pictures_section(report) + comparison_section(report) +
                               training_section(report) + layers_section(report) + confusion_section(report) +
                               run_section(report);
  const std::string body = fmt::format(
      "<header><h1>{}</h1>\n<p class=\"sub\">{}</p>\n{}{}{}</header>\n<main>\n{}</main>\n",
      html_breakable(report.title), html_escape(fmt::format("{}, trained for int8 and checked by octet", report.model)),
      state_line(report.state), headline_cards(report), navigation(sections), sections);
  return html_page(report.title, body, report.state.running ? kReloadSeconds : 0);
}

}  // namespace octet
