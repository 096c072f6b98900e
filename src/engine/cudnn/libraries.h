// cuDNN and cuBLASLt are loaded when they are first asked for: a program built with them starts where they are missing.
#pragma once

#include <string>

#include "src/engine/engine.h"

namespace octet {

/// Loads the libraries once. Not ok: the reason names the library's fault and the cure. Never throws.
const Support& cudnn_libraries();

/// "cuDNN 9.19.0", once cudnn_libraries() is ok.
const std::string& cudnn_version();

/// Address of a function of libcublasLt; throws Error(promise) when it lacks it. Once cudnn_libraries() is ok.
void* cublaslt_function(const char* name);

}  // namespace octet
