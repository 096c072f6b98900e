// SPDX-License-Identifier: Apache-2.0
// Counts what a test program allocates on the host: linked in, it replaces every operator new.
#pragma once

namespace octet::test {

/// Returns the number of allocations since the program began.
long allocations();

}  // namespace octet::test
