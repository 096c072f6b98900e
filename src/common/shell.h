// Commands in messages, as a shell takes them.
#pragma once

#include <string>

namespace octet {

/// The word itself, or in single quotes if a shell would read it otherwise.
std::string shell_word(const std::string& word);

}  // namespace octet
