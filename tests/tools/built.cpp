// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/built.h"

namespace octet::test {

std::string octet_program() { return OCTET_PROGRAM; }
bool built_for_training() { return OCTET_TRAINING; }
bool built_for_cuda() { return OCTET_CUDA; }
std::string fork_library() { return OCTET_FORK_LIBRARY; }

}  // namespace octet::test
