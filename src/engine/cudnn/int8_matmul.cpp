#include "src/engine/cudnn/int8_matmul.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <vector>

#include "src/common/error.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/fastest_candidate.h"
#include "src/engine/cuda/timing.h"
#include "src/engine/cudnn/libraries.h"
#include "src/engine/cudnn/library_plan.h"

namespace octet {
namespace {

constexpr int kProposals = 16;
constexpr int kTimedReplays = 5;
constexpr double kSlowRatio = 3;  ///< times the best so far: measured only once
constexpr size_t kMostWorkspace = size_t{32}
                                  << 20;  // what NVIDIA's documentation of cublasSetWorkspace advises for Hopper

/// The functions used, from the library that libraries.h has loaded.
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

/// Of the thread's current GPU, as cuBLASLt wants it; never freed: at exit the CUDA runtime may be gone before statics
/// are.
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

/// cuBLASLt's matrices are column-major: a dense row-major [rows, columns] is its columns x rows.
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

}  // namespace

// As cuBLASLt sees it: sums^T = weight x^T with the first operand transposed, the one form its int8 kernels take.
struct Int8Matmul::State {
  std::unique_ptr<cublasLtMatmulDescOpaque_t, FreeProduct> product;
  Layout weight, x, sums;
  cublasLtMatmulHeuristicResult_t chosen{};
  int proposals = 0;

  void launch(const cublasLtMatmulHeuristicResult_t& plan, const Int8MatmulTensors& t, CudaStream stream) const {
    const int32_t one = 1, zero = 0;
    check(lt().Matmul(handle(), product.get(), &one, t.weight, weight.get(), t.x, x.get(), &zero, t.sums, sums.get(),
                      t.sums, sums.get(), &plan.algo, t.workspace, plan.workspaceSize, stream),
          "cublasLtMatmul");
  }
};

Int8Matmul::Int8Matmul(const Int8MatmulShape& shape, const Int8MatmulTensors& tensors, const Stream& stream)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  cublasLtMatmulDesc_t product = nullptr;
  check(lt().MatmulDescCreate(&product, CUBLAS_COMPUTE_32I, CUDA_R_32I), "cublasLtMatmulDescCreate");
  s.product.reset(product);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(lt().MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute");
  s.weight = layout(CUDA_R_8I, shape.outputs, shape.inputs);
  s.x = layout(CUDA_R_8I, shape.rows, shape.inputs);
  s.sums = layout(CUDA_R_32I, shape.rows, shape.outputs);

  cublasLtMatmulPreference_t preference = nullptr;
  check(lt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, FreePreference> owned(preference);
  check(lt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kMostWorkspace,
                                          sizeof(kMostWorkspace)),
        "cublasLtMatmulPreferenceSetAttribute");
  std::vector<cublasLtMatmulHeuristicResult_t> plans(kProposals);
  const std::string what =
      fmt::format("int8 product of {}x{} and {}x{}", shape.rows, shape.inputs, shape.inputs, shape.outputs);
  check(lt().MatmulAlgoGetHeuristic(handle(), product, s.weight.get(), s.x.get(), s.sums.get(), s.sums.get(),
                                    preference, kProposals, plans.data(), &s.proposals),
        what.c_str());
  plans.resize(s.proposals);
  std::erase_if(plans, [](const auto& plan) { return plan.state != CUBLAS_STATUS_SUCCESS; });
  if (plans.empty()) throw promise_error("cuBLASLt has no plan for an " + what);

  std::vector<std::string> names;
  for (size_t plan = 0; plan < plans.size(); ++plan) names.push_back(fmt::format("cuBLASLt's proposal {}", plan));
  s.chosen = plans[fastest_candidate(names, {.slow_ratio = kSlowRatio}, [&](size_t candidate, double slow_ms) {
    const auto time = [&] {
      const DeviceBuffer scratch(plans[candidate].workspaceSize, "cuBLASLt's work space");
      Int8MatmulTensors with_scratch = tensors;
      with_scratch.workspace = scratch.data();
      const auto run = [&] { s.launch(plans[candidate], with_scratch, stream.get()); };
      run();  // outside of the capture: the first launch may load code
      stream.wait("a plan of cuBLASLt");
      return time_launches(stream, run, {kTimedReplays, slow_ms});
    };
    return time_plan(stream, fmt::format("{}, {}", names[candidate], what), time);
  })];
}

Int8Matmul::~Int8Matmul() = default;

std::string Int8Matmul::name() const { return fmt::format("fastest of {}", state_->proposals); }

size_t Int8Matmul::workspace_bytes() const { return state_->chosen.workspaceSize; }

void Int8Matmul::launch(const Int8MatmulTensors& tensors, CudaStream stream) const {
  state_->launch(state_->chosen, tensors, stream);
}

}  // namespace octet
