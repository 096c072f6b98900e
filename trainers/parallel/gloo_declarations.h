// SPDX-License-Identifier: Apache-2.0
// Declarations that LibTorch's ProcessGroupGloo.hpp needs from Gloo's headers. LibTorch's wheel has the Gloo library
// (in libtorch_cpu), but not these headers; trainers/CMakeLists.txt writes gloo/*.h that include this file. Only names
// and the interface of Store: nothing here is called by octet.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
