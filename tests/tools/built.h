// SPDX-License-Identifier: Apache-2.0
// The program that tests start, and for what it was built. Functions, for the reason in tests/source_dir.h: builds with
// and without LibTorch share the objects of all tests that both have.
#pragma once

#include <string>

namespace octet::test {

std::string octet_program();  ///< the path of build/octet
bool built_for_training();    ///< with LibTorch
bool built_for_cuda();
std::string fork_library();  ///< the path of fork_before_main.cpp's library; "": a start takes no time worth one

}  // namespace octet::test
