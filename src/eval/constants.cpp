#include "src/eval/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/common/text_table.h"

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

}  // namespace octet
