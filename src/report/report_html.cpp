#include <fmt/format.h>

#include <optional>
#include <string_view>

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

constexpr std::string_view kRunning = "<p class=\"state running\"", kParagraphEnd = "</p>\n";
constexpr std::string_view kScript = "<script>\n", kScriptEnd = "</script>\n";

std::string stopped_line(const std::string& text) {
  return fmt::format("<p class=\"state\">{}{}", html_escape(text), kParagraphEnd);
}

/// The line, and a script that adds to it when no word has come for too long: nothing else on a page knows the time.
/// Neither < nor & stands in it: the page is XML, too.
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

/// Takes `page` apart at the first `begin` and the `end` behind it, both of which it takes out, too; nullopt: not
/// there.
struct Parts {
  std::string before, between, after;
};
std::optional<Parts> split(const std::string& page, std::string_view begin, std::string_view end) {
  const size_t from = page.find(begin);
  if (from == std::string::npos) return std::nullopt;
  const size_t to = page.find(end, from + begin.size());
  if (to == std::string::npos) return std::nullopt;
  return Parts{page.substr(0, from), page.substr(from + begin.size(), to - from - begin.size()),
               page.substr(to + end.size())};
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

std::optional<std::string> ended_page(const std::string& page, const std::string& why) {
  const std::optional<Parts> line = split(page, kRunning, kParagraphEnd);
  if (!line) return std::nullopt;
  const std::string head = [&] {  // not loaded again
    const std::optional<Parts> reload = split(line->before, kReload, "/>\n");
    return reload ? reload->before + reload->after : line->before;
  }();
  const std::string rest =
      line->after.starts_with(kScript) ? split(line->after, kScript, kScriptEnd)->after : line->after;
  return head + stopped_line(why) + rest;
}

}  // namespace octet
