// SPDX-License-Identifier: Apache-2.0
// The C functions of include/octet/octet.h: the checkpoint, the engine and the memory of one network behind a pointer.
// No exception leaves this file.
#include <octet/octet.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/data/transform.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/engine/kernel_cache.h"
#include "src/net/checkpoint.h"

struct octet_network {
  octet::Int8Graph graph;
  std::string engine;
  std::unique_ptr<octet::Program> program;
  std::vector<octet_tensor> outputs;
  std::vector<const char*> class_names;
  std::optional<octet::OutputBuffers> image_outputs;  ///< of octet_boxes() and octet_mask(), made by the first call
  octet_description description{};
};

namespace {

thread_local std::string last_text;
thread_local const char* last_error = "";
thread_local std::string picture_note;

/// Keeps the message for octet_last_error() and returns `status`.
octet_status fail(octet_status status, const char* what) noexcept {
  try {
    last_text = octet::printable_lines(what);
    last_error = last_text.c_str();
  } catch (...) {
    last_error = "out of memory";  // there was none for the message either
  }
  return status;
}

octet_status status_of(octet::ExitCode code) {
  switch (code) {
    case octet::ExitCode::promise:
      return OCTET_PROMISE;
    case octet::ExitCode::usage:
      return OCTET_USAGE;
    case octet::ExitCode::data:
      return OCTET_DATA;
    default:
      return OCTET_FAILED;
  }
}

/// Calls work() and turns exceptions into statuses.
template <typename Work>
octet_status guarded(const Work& work) noexcept {
  try {
    work();
    return OCTET_OK;
  } catch (const octet::Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(OCTET_FAILED, "out of memory");
  } catch (const std::exception& error) {
    return fail(OCTET_FAILED, error.what());
  } catch (...) {
    return fail(OCTET_FAILED, "an error without a description");
  }
}

void require(const void* argument, const char* what) {
  if (argument == nullptr) throw octet::usage_error(std::string(what) + " is NULL");
}

/// Returns the engine that octet_load() was asked for, after "auto" has been resolved.
octet::EngineChoice engine_of(const std::string& name) {
  const octet::EngineChoice choice = octet::parse_engine(name);
  if (const octet::Support machine = choice.engine->available_on(choice.gpu); !machine.ok)
    throw octet::promise_error(
        fmt::format("octet_load: engine '{}' cannot run on this machine ({}); 'auto' is the fastest that can", name,
                    machine.reason));
  return choice;
}

/// Sets the default folder for kept kernels, at the first call only: a program that is linked to the library but does
/// not use it writes nothing.
void keep_kernels_from_now_on() {
  static std::once_flag begun;
  std::call_once(begun, [] { octet::set_kernel_cache(octet::kernel_cache_folder()); });
}

octet_tensor describe_node(const octet::Int8Node& node) {
  octet_tensor tensor{node.name.c_str(), node.shape.h, node.shape.w, node.shape.c, OCTET_FLOAT32, 1, 0};
  if (node.float_output) return tensor;
  tensor.type = node.out.is_signed() ? OCTET_INT8 : OCTET_UINT8;
  tensor.scale = node.out.scale;
  tensor.zero_point = node.out.zero_point;
  return tensor;
}

/// Returns the input as octet_run() takes it: pixels, or the bytes of codes where those of tensors were calibrated on.
octet_tensor describe_input(const octet::Int8Graph& graph) {
  octet_tensor input = describe_node(graph.nodes.front());
  const bool pixels = graph.preprocessing.fit != octet::Fit::tensor;
  input.scale = pixels ? 1 : input.scale;
  input.zero_point = pixels ? 0 : input.zero_point + (input.type == OCTET_INT8 ? 128 : 0);
  input.type = OCTET_UINT8;
  return input;
}

/// Keeps the notes of an image for octet_picture_note().
void keep_notes(const std::vector<std::string>& notes) {
  picture_note = octet::printable_lines(fmt::format("{}", fmt::join(notes, "\n")));
}

/// Returns the image that a caller of `function` gives.
octet::Image whole_image(const octet::Int8Graph& graph, const octet_picture& picture, const std::string& function) {
  std::vector<std::string> notes;
  keep_notes(notes);
  if (picture.file != nullptr) {
    octet::Image image = octet::image_for(graph, picture.file, notes);
    keep_notes(notes);
    return image;
  }
  require(picture.pixels, (function + ": the picture's file and its pixels").c_str());
  if (picture.height < 1 || picture.width < 1)
    throw octet::usage_error(fmt::format("{}: pixels of {}x{}", function, picture.height, picture.width));
  const int channels = graph.input_shape().c;
  const size_t bytes = static_cast<size_t>(picture.height) * static_cast<size_t>(picture.width) * channels;
  return {picture.height, picture.width, channels, {picture.pixels, picture.pixels + bytes}};
}

/// Runs the network on an image and returns its outputs.
const octet::OutputBuffers& run_on(octet_network& network, const octet::Image& image) {
  const octet::Int8Graph& graph = network.graph;
  const octet::Image input =
      octet::evaluation_image(image, octet::evaluation_transform(graph.input_shape(), graph.preprocessing));
  if (!network.image_outputs) network.image_outputs.emplace(graph, 1);
  network.program->run(input.pixels.data(), 1, network.image_outputs->memory());
  return *network.image_outputs;
}

/// Fills in the description. Its pointers point into `network`, which must not move afterwards.
void describe_network(octet_network& network, int max_batch) {
  const octet::Int8Graph& graph = network.graph;
  for (const int output : graph.outputs) network.outputs.push_back(describe_node(graph.nodes[output]));
  for (const std::string& name : graph.class_names) network.class_names.push_back(name.c_str());
  network.description = {.name = graph.name.c_str(),
                         .engine = network.engine.c_str(),
                         .max_batch = max_batch,
                         .input = describe_input(graph),
                         .outputs = static_cast<int32_t>(network.outputs.size()),
                         .output = network.outputs.data(),
                         .classes = static_cast<int32_t>(network.class_names.size()),
                         .class_names = network.class_names.data(),
                         .box_classes = graph.boxes ? octet::box_classes(graph) : 0,
                         .max_boxes = graph.boxes ? graph.boxes->max_boxes : 0};
}

}  // namespace

octet_status octet_load(const char* checkpoint, const char* engine, int32_t max_batch, int32_t threads,
                        octet_network** network) {
  if (network != nullptr) *network = nullptr;
  return guarded([&] {
    require(network, "octet_load: network");
    require(checkpoint, "octet_load: checkpoint");
    auto loaded = std::make_unique<octet_network>();
    loaded->graph = octet::read_checkpoint(checkpoint);
    loaded->engine = engine == nullptr ? "auto" : engine;
    if (loaded->engine == "auto") loaded->engine = octet::preferred_engine().name();
    const octet::EngineChoice choice = engine_of(loaded->engine);
    keep_kernels_from_now_on();
    loaded->program =
        choice.engine->compile(loaded->graph, {.max_batch = max_batch, .threads = threads, .gpu = choice.gpu});
    describe_network(*loaded, max_batch);
    *network = loaded.release();
  });
}

void octet_free(octet_network* network) { delete network; }

const octet_description* octet_describe(const octet_network* network) {
  return network == nullptr ? nullptr : &network->description;
}

octet_status octet_read_picture(const octet_network* network, const char* file, uint8_t* pixels) {
  return guarded([&] {
    require(network, "octet_read_picture: network");
    require(file, "octet_read_picture: file");
    require(pixels, "octet_read_picture: pixels");
    picture_note.clear();
    std::vector<std::string> notes;
    const octet::Image image = octet::network_image(network->graph, file, notes);
    keep_notes(notes);
    std::copy(image.pixels.begin(), image.pixels.end(), pixels);
  });
}

const char* octet_picture_note(void) { return picture_note.c_str(); }

octet_status octet_run(octet_network* network, const uint8_t* images, int32_t batch, void* const* outputs) {
  return guarded([&] {
    require(network, "octet_run: network");
    require(images, "octet_run: images");
    require(outputs, "octet_run: outputs");
    for (size_t i = 0; i < network->outputs.size(); ++i)
      require(outputs[i], fmt::format("octet_run: outputs[{}], '{}',", i, network->outputs[i].name).c_str());
    network->program->run(images, batch, std::span<void* const>(outputs, network->outputs.size()));
  });
}

octet_status octet_boxes(octet_network* network, const octet_picture* picture, float score_threshold, octet_box* boxes,
                         int32_t capacity, int32_t* count) {
  if (count != nullptr) *count = 0;
  return guarded([&] {
    require(network, "octet_boxes: network");
    require(picture, "octet_boxes: picture");
    require(boxes, "octet_boxes: boxes");
    require(count, "octet_boxes: count");
    if (capacity < 1) throw octet::usage_error(fmt::format("octet_boxes: memory for {} boxes", capacity));
    const octet::Int8Graph& graph = network->graph;
    octet::require_boxes(graph);
    octet::require_images(graph);
    octet::BoxOptions options = octet::box_options(*graph.boxes);
    if (!(score_threshold < 0)) options.score_threshold = score_threshold;
    options.max_boxes = std::min(options.max_boxes, capacity);
    const octet::Image image = whole_image(graph, *picture, "octet_boxes");
    const octet::OutputBuffers& outputs = run_on(*network, image);
    for (const octet::Detection& d : octet::decode_boxes(graph, outputs.all(), 0, {image.height, image.width}, options))
      boxes[(*count)++] = {d.class_index,
                           static_cast<float>(d.score),
                           static_cast<float>(d.box.x),
                           static_cast<float>(d.box.y),
                           static_cast<float>(d.box.width),
                           static_cast<float>(d.box.height)};
  });
}

octet_status octet_mask(octet_network* network, const octet_picture* picture, uint8_t* mask, int64_t capacity,
                        int32_t* height, int32_t* width) {
  return guarded([&] {
    require(network, "octet_mask: network");
    require(picture, "octet_mask: picture");
    require(height, "octet_mask: height");
    require(width, "octet_mask: width");
    const octet::Int8Graph& graph = network->graph;
    octet::require_masks(graph);
    octet::require_images(graph);
    const octet::Image image = whole_image(graph, *picture, "octet_mask");
    *height = image.height;
    *width = image.width;
    if (mask == nullptr) return;
    if (const int64_t pixels = int64_t{image.height} * image.width; capacity < pixels)
      throw octet::usage_error(fmt::format("octet_mask: memory for {} of {} pixels", capacity, pixels));
    const auto* logits = reinterpret_cast<const float*>(run_on(*network, image)[0].data());
    const octet::Image classes = octet::decode_mask(graph, logits, {image.height, image.width});
    std::copy(classes.pixels.begin(), classes.pixels.end(), mask);
  });
}

octet_status octet_keep_kernels(const char* folder) {
  return guarded([&] {
    keep_kernels_from_now_on();
    octet::set_kernel_cache(folder == nullptr ? octet::kernel_cache_folder() : folder);
  });
}

const char* octet_last_error() { return last_error; }

const char* octet_version() { return OCTET_VERSION; }
