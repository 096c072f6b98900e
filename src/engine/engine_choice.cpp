#include "src/engine/engine_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "src/common/error.h"

namespace octet {
namespace {

constexpr const char* kAuto = "auto";

bool allowed(const Engine& engine, EngineDevices devices) { return devices == EngineDevices::any || !engine.on_gpu(); }

void check_usable(const std::string& name, EngineDevices devices) {
  if (const Support here = usable(find_engine(name), devices); !here.ok)
    throw usage_error(here.reason +
                      ": name others, or auto for those that can (in a recipe: --set evaluate.engines=[auto])");
}

}  // namespace

EngineChoice parse_engine(const std::string& name) {
  const size_t colon = name.find(':');
  const Engine& engine = find_engine(name.substr(0, colon));
  if (colon == std::string::npos) return {&engine};
  if (!engine.on_gpu())
    throw usage_error(fmt::format("engine '{}': {} runs on no GPU and takes no number", name, engine.name()));
  EngineChoice choice{&engine};
  const char *begin = name.data() + colon + 1, *end = name.data() + name.size();
  const auto [last, failed] = std::from_chars(begin, end, choice.gpu);
  if (failed != std::errc() || last != end || choice.gpu < 0)
    throw usage_error(fmt::format("engine '{0}': behind the colon stands the number of a GPU, 0 for the first: {1}:0",
                                  name, engine.name()));
  return choice;
}

Support usable(const Engine& engine, EngineDevices devices) {
  if (!allowed(engine, devices))
    return {false, fmt::format("engine {} runs on a GPU, --device cpu excludes it", engine.name())};
  Support here = engine.available();
  if (!here.ok) here.reason = fmt::format("engine {} cannot run on this machine ({})", engine.name(), here.reason);
  return here;
}

std::vector<std::string> resolve_engines(const std::vector<std::string>& names, EngineDevices devices) {
  std::vector<std::string> engines;
  const auto named = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : names) {
    if (name != kAuto) {
      check_usable(name, devices);
      engines.push_back(name);
      continue;
    }
    for (const Engine* engine : exact_engines()) {
      const std::string found(engine->name());
      if (allowed(*engine, devices) && !named(names, found)) engines.push_back(found);
    }
  }
  return engines;
}

const Engine& preferred_engine(EngineDevices devices) { return find_engine(resolve_engines({kAuto}, devices).front()); }

}  // namespace octet
