// SPDX-License-Identifier: Apache-2.0
// Linear layers by cuBLASLt's product of int8 matrices and a kernel with the rule of kernels/core/quantize.h: exact,
// because the sums are int32.
#include <cublasLt.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <vector>

#include "kernels/operators/elementwise.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/memory_plan.h"
#include "src/engine/peers/peer.h"

namespace octet {
namespace {

constexpr int kProposals = 16;
constexpr size_t kMaxWorkspace = size_t{32} << 20;  // NVIDIA's documentation of cublasSetWorkspace, for Hopper

/// The functions that are used, from the library that cudnn_libraries() has loaded.
struct CublasLt {
#define OCTET_CUBLASLT(name) \
  decltype(&cublasLt##name) name = reinterpret_cast<decltype(&cublasLt##name)>(cublaslt_function("cublasLt" #name))
  OCTET_CUBLASLT(Create);
  OCTET_CUBLASLT(GetStatusString);
  OCTET_CUBLASLT(Matmul);
  OCTET_CUBLASLT(MatmulAlgoGetHeuristic);
  OCTET_CUBLASLT(MatmulDescCreate);
  OCTET_CUBLASLT(MatmulDescDestroy);
  OCTET_CUBLASLT(MatmulDescSetAttribute);
  OCTET_CUBLASLT(MatmulPreferenceCreate);
  OCTET_CUBLASLT(MatmulPreferenceDestroy);
  OCTET_CUBLASLT(MatmulPreferenceSetAttribute);
  OCTET_CUBLASLT(MatrixLayoutCreate);
  OCTET_CUBLASLT(MatrixLayoutDestroy);
#undef OCTET_CUBLASLT
};

const CublasLt& lt() {
  static const CublasLt kFunctions;
  return kFunctions;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw promise_error(fmt::format("cuBLASLt, {}: {}", what, lt().GetStatusString(status)));
}

/// Returns cuBLASLt's handle for the thread's current GPU. It is never freed, because at exit the CUDA runtime may be
/// gone before statics are.
cublasLtHandle_t handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;  // by GPU
  const std::scoped_lock lock(mutex);
  cublasLtHandle_t& of_gpu = handles[current_gpu()];
  if (of_gpu == nullptr) check(lt().Create(&of_gpu), "cublasLtCreate");
  return of_gpu;
}

struct FreeLayout {
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { lt().MatrixLayoutDestroy(layout); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, FreeLayout>;

/// Describes a dense row-major matrix [rows, columns]; cuBLASLt's matrices are column-major, so for it this is columns
/// x rows.
Layout layout(cudaDataType_t type, int rows, int columns) {
  cublasLtMatrixLayout_t made = nullptr;
  check(lt().MatrixLayoutCreate(&made, type, columns, rows, columns), "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

struct FreeProduct {
  void operator()(cublasLtMatmulDescOpaque_t* product) const { lt().MatmulDescDestroy(product); }
};
struct FreePreference {
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { lt().MatmulPreferenceDestroy(preference); }
};

/// sums[rows, outputs] = x[rows, inputs] * weight[outputs, inputs]^T, all dense, then the rounding rule; inputs and
/// outputs are padded to multiples of kPeerLanes. cuBLASLt computes sums^T = weight x^T with the first operand
/// transposed, the only form that its int8 kernels take.
class CublasLinear final : public FusedConv {
 public:
  CublasLinear(const LinearSpec& spec, const FusedConvTensors& tensors, const Stream& stream)
      : spec_(spec),
        lanes_(peer_lanes(spec.shape.out_c)),
        sums_bytes_(aligned(sizeof(int32_t) * spec.images * lanes_, kDeviceAlignment)) {
    const int rows = spec.images, inputs = spec.shape.in_stride;
    cublasLtMatmulDesc_t product = nullptr;
    check(lt().MatmulDescCreate(&product, CUBLAS_COMPUTE_32I, CUDA_R_32I), "cublasLtMatmulDescCreate");
    product_.reset(product);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(lt().MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
          "cublasLtMatmulDescSetAttribute");
    weight_ = layout(CUDA_R_8I, lanes_, inputs);
    x_ = layout(CUDA_R_8I, rows, inputs);
    sums_ = layout(CUDA_R_32I, rows, lanes_);
    choose(fmt::format("int8 product of {}x{} and {}x{}", rows, inputs, inputs, lanes_), tensors, stream);
  }

  std::string name() const override { return fmt::format("fastest of {}", proposals_); }
  /// The sums, and the product's own work space after them.
  size_t workspace_bytes() const override { return sums_bytes_ + plan_.workspaceSize; }

  void launch(const FusedConvTensors& t, CudaStream stream) const override {
    auto* sums = static_cast<int32_t*>(t.workspace);
    multiply(plan_, t, sums, static_cast<uint8_t*>(t.workspace) + sums_bytes_, stream);
    kernels::cuda_rescale_sums({spec_.images, spec_.shape.out_c, lanes_, spec_.shape.out_stride}, spec_.y, sums,
                               t.multiplier, t.bias, t.y, stream);
  }

 private:
  using Plan = cublasLtMatmulHeuristicResult_t;

  void multiply(const Plan& plan, const FusedConvTensors& t, int32_t* sums, void* workspace, CudaStream stream) const {
    const int32_t one = 1, zero = 0;
    check(lt().Matmul(handle(), product_.get(), &one, t.weight, weight_.get(), t.x, x_.get(), &zero, sums, sums_.get(),
                      sums, sums_.get(), &plan.algo, workspace, plan.workspaceSize, stream),
          "cublasLtMatmul");
  }

  /// Times cuBLASLt's proposals and keeps the fastest; `what` names the product in errors.
  void choose(const std::string& what, const FusedConvTensors& tensors, const Stream& stream) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, FreePreference> owned(preference);
    check(lt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kMaxWorkspace,
                                            sizeof(kMaxWorkspace)),
          "cublasLtMatmulPreferenceSetAttribute");
    std::vector<Plan> plans(kProposals);
    check(lt().MatmulAlgoGetHeuristic(handle(), product_.get(), weight_.get(), x_.get(), sums_.get(), sums_.get(),
                                      preference, kProposals, plans.data(), &proposals_),
          what.c_str());
    plans.resize(proposals_);
    std::erase_if(plans, [](const Plan& plan) { return plan.state != CUBLAS_STATUS_SUCCESS; });
    if (plans.empty()) throw promise_error("cuBLASLt has no plan for an " + what);

    std::vector<std::string> names;
    for (size_t plan = 0; plan < plans.size(); ++plan) names.push_back(fmt::format("cuBLASLt's proposal {}", plan));
    const DeviceBuffer sums(sums_bytes_, "sums of a linear layer");
    plan_ = plans[fastest_candidate(names, {.slow_ratio = kPlanSlowRatio}, [&](size_t candidate, double slow_ms) {
      const Plan& plan = plans[candidate];
      return time_library_plan(stream, "cuBLASLt", fmt::format("{}, {}", names[candidate], what), plan.workspaceSize,
                               slow_ms, [&](void* workspace) {
                                 multiply(plan, tensors, reinterpret_cast<int32_t*>(sums.data()), workspace,
                                          stream.get());
                               });
    })];
  }

  LinearSpec spec_;
  int lanes_;          ///< outputs, padded
  size_t sums_bytes_;  ///< rounded up, so that the work space after the sums is aligned
  std::unique_ptr<cublasLtMatmulDescOpaque_t, FreeProduct> product_;
  Layout weight_, x_, sums_;
  Plan plan_{};
  int proposals_ = 0;
};

}  // namespace

std::shared_ptr<const FusedConv> cudnn_linear(const LinearSpec& spec, const FusedConvTensors& tensors,
                                              const Stream& stream) {
  return std::make_shared<CublasLinear>(spec, tensors, stream);
}

}  // namespace octet
