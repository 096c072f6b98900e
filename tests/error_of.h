// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "src/base/error.h"

namespace octet {

/// The message of the octet::Error that `body` throws; "" if it throws none.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace octet
