// The sections of report.html, in reading order. Each returns HTML, or "" when the report has nothing to show there.
#pragma once

#include <string>

#include "src/report/report.h"

namespace octet {

std::string headline_cards(const Report& report);      ///< what int8 cost and brought, on four cards
std::string accuracy_section(const Report& report);    ///< evaluation table, accuracy bars
std::string pictures_section(const Report& report);    ///< of pixels' labels: test pictures, truth and answers
std::string comparison_section(const Report& report);  ///< the verdict, differing codes by layer
std::string training_section(const Report& report);    ///< loss, score and learning rate by epoch
std::string layers_section(const Report& report);      ///< SQNR bars, histograms
std::string confusion_section(const Report& report);   ///< heat map, or the most confused pairs
std::string run_section(const Report& report);         ///< recipe, versions, machine, command

}  // namespace octet
