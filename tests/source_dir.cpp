#include "tests/source_dir.h"

namespace octet {

std::string source_dir() { return OCTET_SOURCE_DIR; }

}  // namespace octet
