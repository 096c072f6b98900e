// In builds without protobuf.
#include "src/common/error.h"
#include "src/onnx/export.h"
#include "src/onnx/import.h"

namespace octet {
namespace {

constexpr const char* kMissing = "this octet was built without ONNX; build it with -DOCTET_ONNX=ON";

}  // namespace

ImportedNetwork import_onnx(const std::string& path) { throw usage_error(path + ": " + kMissing); }

ImportedInt8 import_qdq(const std::string& path) { throw usage_error(path + ": " + kMissing); }

std::string write_qdq(const Int8Graph&, const OnnxOptions&) { throw usage_error(kMissing); }

std::string write_float(const Graph&, const TensorFile&, const Preprocessing&, int) { throw usage_error(kMissing); }

}  // namespace octet
