// What is UTF-8: for text that others wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octet {

/// Bytes of the valid sequence at the start of `text`, which is not empty; 0: broken (RFC 3629: no overlong forms, no
/// surrogates, nothing beyond U+10FFFF).
size_t utf8_length(std::string_view text);

/// A text file's contents without the byte order mark (U+FEFF) that some editors put before them.
std::string without_byte_order_mark(std::string text);

/// A name that a file gave, for a terminal: '?' for every control character and for every byte that is no UTF-8.
std::string printable(std::string_view text);

/// The same of a message of several lines, which keeps their ends. Every way out to a terminal goes through it, for
/// names from files stand in messages as the files have them.
std::string printable_lines(std::string_view text);

}  // namespace octet
