// SPDX-License-Identifier: Apache-2.0
// The functions of import.h and export.h in a build without protobuf (-DOCTET_ONNX=OFF).
#include "src/base/error.h"
#include "src/net/onnx/onnx.h"

namespace octet {
namespace {

constexpr const char* kMissing = "this octet was built without ONNX; build it with -DOCTET_ONNX=ON";

}  // namespace

bool has_onnx() { return false; }

ImportedNetwork import_onnx(const std::string& path, const std::vector<std::string>&, int) {
  throw usage_error(path + ": " + kMissing);
}

void name_outputs(Int8Graph&, const std::vector<std::string>&) { throw usage_error(kMissing); }

std::string describe_onnx(const std::string&) { return std::string("an ONNX file; ") + kMissing; }

bool is_float_onnx(const std::string& path) { throw usage_error(path + ": " + kMissing); }

ShownCodes show_outputs(const std::string& path, std::vector<std::string>) {
  throw usage_error(path + ": " + kMissing);
}

ImportedInt8 import_qdq(const std::string& path, const std::vector<std::string>&) {
  throw usage_error(path + ": " + kMissing);
}

std::string write_qdq(const Int8Graph&, const OnnxOptions&, std::vector<std::string>*, std::vector<std::string>*) {
  throw usage_error(kMissing);
}

std::vector<std::string> tensorrt_faults(const std::string& path) { throw usage_error(path + ": " + kMissing); }

ShownCodes show_codes(const Int8Graph&) { throw usage_error(kMissing); }

ShownCodes show_codes(const ImportedInt8&, const std::string& path) { throw usage_error(path + ": " + kMissing); }

std::string write_float(const Graph&, const TensorFile&, const Preprocessing&, int) { throw usage_error(kMissing); }

}  // namespace octet
