// SPDX-License-Identifier: Apache-2.0
// Where octet's sources and the shared data lie, for tests that read recipes, READMEs and scripts. A function, so that
// the path stands in one object file and other checkouts share the rest of the tests in ccache.
#pragma once

#include <string>

namespace octet {

std::string source_dir();

/// Folder of the shared data sets and weights, "" if this machine has none.
std::string shared_data();

}  // namespace octet
