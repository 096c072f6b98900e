// Where octet's sources lie, for tests that read recipes, READMEs and scripts. A function, so that the path stands in
// one object file and other checkouts share the rest of the tests in ccache.
#pragma once

#include <string>

namespace octet {

std::string source_dir();

}  // namespace octet
