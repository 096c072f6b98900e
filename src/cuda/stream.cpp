// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/stream.h"

#include "src/cuda/check.h"

namespace octet {

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a CUDA stream");
  stream_.reset(stream);
}

void Stream::wait(const char* what) const { check_cuda(cudaStreamSynchronize(stream_.get()), what); }

void Stream::Destroy::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }

Event::Event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "making a CUDA event");
  event_.reset(event);
}

void Event::record(CudaStream stream) { check_cuda(cudaEventRecord(event_.get(), stream), "recording a CUDA event"); }

void Event::wait(const char* what) const { check_cuda(cudaEventSynchronize(event_.get()), what); }

void Event::hold(CudaStream stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "making a CUDA stream wait");
}

bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status != cudaErrorNotReady) check_cuda(status, "asking a CUDA event");
  return status == cudaSuccess;
}

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, start.event_.get(), event_.get()), "reading CUDA events");
  return milliseconds;
}

void Event::Destroy::operator()(CUevent_st* event) const { cudaEventDestroy(event); }

CapturedGraph::CapturedGraph(const Stream& stream, const std::function<void()>& launches) {
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "starting a CUDA graph");
  cudaGraph_t graph = nullptr;
  try {
    launches();
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream.get(), &graph), "ending a CUDA graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(status, "instantiating a CUDA graph");
  graph_.reset(executable);
}

void CapturedGraph::replay(CudaStream stream) const {
  check_cuda(cudaGraphLaunch(graph_.get(), stream), "launching a CUDA graph");
}

void CapturedGraph::Destroy::operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }

}  // namespace octet
