// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/nvjpeg.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <numeric>
#include <type_traits>

#include "src/base/error.h"
#include "src/cuda/stream.h"

namespace octet {
namespace {

// What is used of nvJPEG's interface (nvjpeg.h of CUDA 13), whose header need not be installed. Handles are pointers,
// and every function returns a status, 0 for success.
using Handle = void*;
constexpr int kPlanes = 4;
struct Output {
  unsigned char* channel[kPlanes];
  size_t pitch[kPlanes];
};
enum Backend { kGpuHybrid = 2, kHardware = 3 };
enum Format { kLuminance = 2, kInterleavedRgb = 5 };
constexpr unsigned kInterpolated = 1 << 5;  // colours that were halved are interpolated, as libjpeg does

constexpr const char* kLibrary = "libnvjpeg.so.13";

struct Functions {
  std::string why_not;
  int (*version)(int part, int* value) = nullptr;
  int (*create)(int backend, void* device_memory, void* pinned_memory, unsigned flags, Handle* handle) = nullptr;
  int (*destroy)(Handle handle) = nullptr;
  int (*engines)(Handle handle, unsigned* engines, unsigned* cores) = nullptr;
  int (*create_state)(Handle handle, Handle* state) = nullptr;
  int (*destroy_state)(Handle state) = nullptr;
  int (*create_header)(Handle handle, Handle* header) = nullptr;
  int (*destroy_header)(Handle header) = nullptr;
  int (*parse_header)(Handle handle, const unsigned char* data, size_t bytes, Handle header) = nullptr;
  int (*size)(Handle header, unsigned* width, unsigned* height) = nullptr;
  int (*is_supported)(Handle handle, Handle header, int* answer) = nullptr;  // 0: yes
  int (*begin_batches)(Handle handle, Handle state, int batch, int threads, int format) = nullptr;
  int (*decode)(Handle handle, Handle state, const unsigned char* const* data, const size_t* bytes, Output* outputs,
                CudaStream stream) = nullptr;
};

Functions load() {
  Functions f;
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    f.why_not = fmt::format(
        "{}; install it (pip install 'nvidia-nvjpeg==13.0.*') and name its folder in "
        "LD_LIBRARY_PATH",
        ::dlerror());
    return f;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (!function) f.why_not = fmt::format("{} has no {}: it is not nvJPEG 13", kLibrary, name);
  };
  find(f.version, "nvjpegGetProperty");
  find(f.create, "nvjpegCreateEx");
  find(f.destroy, "nvjpegDestroy");
  find(f.engines, "nvjpegGetHardwareDecoderInfo");
  find(f.create_state, "nvjpegJpegStateCreate");
  find(f.destroy_state, "nvjpegJpegStateDestroy");
  find(f.create_header, "nvjpegJpegStreamCreate");
  find(f.destroy_header, "nvjpegJpegStreamDestroy");
  find(f.parse_header, "nvjpegJpegStreamParseHeader");
  find(f.size, "nvjpegJpegStreamGetFrameDimensions");
  find(f.is_supported, "nvjpegDecodeBatchedSupported");
  find(f.begin_batches, "nvjpegDecodeBatchedInitialize");
  find(f.decode, "nvjpegDecodeBatched");
  return f;
}

const Functions& functions() {
  static const Functions kFunctions = load();
  return kFunctions;
}

void check(int status, const char* what) {
  if (status != 0) throw promise_error(fmt::format("nvJPEG: {}: status {}", what, status));
}

}  // namespace

std::string why_no_nvjpeg() { return functions().why_not; }

struct NvJpeg::State {
  struct Lane {
    Handle state = nullptr;
    int batch = 0;  ///< for which it was begun
  };

  ~State() {
    const Functions& f = functions();
    for (const Lane& lane : lanes)
      if (lane.state) f.destroy_state(lane.state);
    if (header) f.destroy_header(header);
    if (handle) f.destroy(handle);
  }

  /// Makes the arrays of the files that nvJPEG can decode, and notes the others.
  void gather(std::span<const EncodedJpeg> files, Refused& refused) {
    data.clear(), bytes.clear(), outputs.clear();
    for (size_t i = 0; i < files.size(); ++i) {
      const EncodedJpeg& file = files[i];
      if (!decodes(file)) {
        refused.files.push_back(i);
        continue;
      }
      data.push_back(file.data);
      bytes.push_back(file.bytes);
      outputs.push_back({{file.pixels}, {static_cast<size_t>(file.width) * channels}});
    }
  }

  /// Whether nvJPEG decodes the file to as many pixels as there is memory for: it reads the header by itself.
  bool decodes(const EncodedJpeg& file) const {
    const Functions& f = functions();
    unsigned width = 0, height = 0;
    if (f.parse_header(handle, file.data, file.bytes, header) != 0 || f.size(header, &width, &height) != 0)
      return false;
    if (static_cast<int>(width) != file.width || static_cast<int>(height) != file.height) return false;
    int unsupported = 0;
    return !hardware || (f.is_supported(handle, header, &unsupported) == 0 && unsupported == 0);
  }

  int channels = 3;
  bool hardware = false;
  Handle handle = nullptr, header = nullptr;
  std::vector<Lane> lanes;
  std::vector<const unsigned char*> data;
  std::vector<size_t> bytes;
  std::vector<Output> outputs;
};

NvJpeg::NvJpeg(int channels, int lanes) : state_(std::make_unique<State>()) {
  const Functions& f = functions();
  if (!f.why_not.empty()) throw promise_error(f.why_not);
  State& s = *state_;
  s.channels = channels;
  s.hardware = f.create(kHardware, nullptr, nullptr, kInterpolated, &s.handle) == 0;
  if (!s.hardware) {
    s.handle = nullptr;
    check(f.create(kGpuHybrid, nullptr, nullptr, kInterpolated, &s.handle), "starting");
  }
  check(f.create_header(s.handle, &s.header), "preparing to read headers");
  s.lanes.resize(static_cast<size_t>(lanes));
  for (State::Lane& lane : s.lanes) check(f.create_state(s.handle, &lane.state), "preparing to decode");
}

NvJpeg::~NvJpeg() = default;

std::string NvJpeg::describe() const {
  int major = 0, minor = 0;
  functions().version(0, &major);
  functions().version(1, &minor);
  unsigned engines = 0, cores = 0;
  if (state_->hardware) functions().engines(state_->handle, &engines, &cores);
  const std::string who = state_->hardware ? fmt::format("{} engines of the GPU", engines)
                                           : "the GPU's cores: no JPEG engine, or no libnvcuvid.so.1";
  return fmt::format("nvJPEG {}.{} by {}", major, minor, who);
}

NvJpeg::Refused NvJpeg::decode(int lane_number, std::span<const EncodedJpeg> files, CudaStream stream) {
  constexpr int kThreads = 8;  // of the host, which decode a part of each file where there are no engines
  const Functions& f = functions();
  State& s = *state_;
  State::Lane& lane = s.lanes.at(static_cast<size_t>(lane_number));
  Refused refused{{}, "refused by nvJPEG"};
  s.gather(files, refused);
  const int batch = static_cast<int>(s.data.size());
  if (batch == 0) return refused;
  int status = 0;
  if (lane.batch != batch)
    status = f.begin_batches(s.handle, lane.state, batch, kThreads, s.channels == 1 ? kLuminance : kInterleavedRgb);
  lane.batch = batch;
  if (status == 0) status = f.decode(s.handle, lane.state, s.data.data(), s.bytes.data(), s.outputs.data(), stream);
  if (status == 0) return refused;
  lane.batch = 0;  // a batch that failed is begun anew
  Event ended;     // what was enqueued before it failed
  ended.record(stream);
  ended.wait("decoding JPEG files");
  refused.files.resize(files.size());
  std::iota(refused.files.begin(), refused.files.end(), size_t{0});
  refused.why = fmt::format("in batches with a file at which nvJPEG fails (status {})", status);
  return refused;
}

}  // namespace octet
