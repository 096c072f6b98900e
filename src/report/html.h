// HTML as text: escaping, the page around the report, its style sheet, the colours of its charts.
#pragma once

#include <string>
#include <string_view>

namespace octet {

/// Text for element content and quoted attributes: & < > " ' escaped; control characters (illegal in XML) and broken
/// UTF-8 become U+FFFD.
std::string html_escape(std::string_view text);

/// Escaped, and allowed to break after . _ and /: layer names and run names are long words.
std::string html_breakable(std::string_view text);

/// A whole page around `body` (HTML, already escaped). Well-formed as XML too; loads nothing but, where
/// `reload_seconds` is not 0, itself.
std::string html_page(std::string_view title, std::string_view body, int reload_seconds = 0);

/// What makes a browser load the page again begins so.
inline constexpr std::string_view kReload = "<meta http-equiv=\"refresh\"";

/// Okabe & Ito's palette (2008): told apart with every kind of colour vision.
namespace colour {
inline constexpr const char* kBlue = "#0072b2";
inline constexpr const char* kOrange = "#e69f00";
inline constexpr const char* kGreen = "#009e73";
inline constexpr const char* kVermillion = "#d55e00";
inline constexpr const char* kSky = "#56b4e9";
inline constexpr const char* kGrey = "#7a828c";
}  // namespace colour

}  // namespace octet
