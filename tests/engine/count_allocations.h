// Counts what a test program allocates on the host: linked in, it replaces every operator new.
#pragma once

namespace octet::test {

/// Since the program began.
long allocations();

}  // namespace octet::test
