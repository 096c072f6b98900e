// SPDX-License-Identifier: Apache-2.0
/* octet's runner: reads an int8.safetensors and runs it on the CPU, or on a GPU if the library was built for one. Plain
 * C, for any language; octet.hpp is the same in C++. No function throws or ends the process.
 *
 * A function that fails returns a status other than OCTET_OK, and octet_last_error() describes the failure. A pointer
 * that must not be NULL and is NULL gives OCTET_USAGE; functions say where NULL has a meaning. */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCTET_API __attribute__((visibility("default")))

typedef enum octet_status {
  OCTET_OK = 0,
  OCTET_PROMISE = 1, /* the engine cannot run this network, or not on this machine */
  OCTET_USAGE = 2,   /* an argument is wrong */
  OCTET_DATA = 3,    /* a file is missing or damaged */
  OCTET_FAILED = 4   /* anything else, such as too little memory or a GPU that failed */
} octet_status;

typedef enum octet_type { OCTET_FLOAT32 = 0, OCTET_INT8 = 1, OCTET_UINT8 = 2 } octet_type;

/* An input or output of one image, [height, width, channels] without gaps. In a batch the images follow each other. */
typedef struct octet_tensor {
  const char* name;
  int32_t height, width, channels;
  octet_type type;
  float scale; /* of OCTET_INT8 and OCTET_UINT8: value = scale * (code - zero_point); 1 and 0 for OCTET_FLOAT32 */
  int32_t zero_point;
} octet_tensor;

typedef struct octet_description {
  const char* name;
  const char* engine; /* the engine that runs the network: "cpu", or "cuda:1" if octet_load was asked for that */
  int32_t max_batch;
  /* Pixels 0 .. 255 of an image, which the network normalizes itself. For a network that was quantized with tensors
   * (octet quantize --tensors) the bytes of its input's codes: clamp(rint(value / scale) + zero_point, 0, 255). */
  octet_tensor input;
  int32_t outputs;
  const octet_tensor* output; /* [outputs]; the only output of a classifier is float32 [1, 1, classes] */
  int32_t classes;            /* number of class names; 0 if the checkpoint has none */
  const char* const* class_names;
  int32_t box_classes; /* of a detector whose boxes octet_boxes gives; 0: the network gives none */
  int32_t max_boxes;   /* the most boxes of an image that octet_boxes gives */
} octet_description;

/* A network and its memory. Only one thread at a time may use it, not necessarily the one that loaded it. Several
 * threads may load, run and free different networks concurrently. */
typedef struct octet_network octet_network;

/* Loads a network. engine: "auto" (or NULL) is the fastest engine on this machine that promises equal bytes; else
 * "cuda", "cpu" or "reference". ("cudnn" and "cutlass" run only some of a network's nodes and are refused.) max_batch:
 * the most images of a batch; memory is allocated for them. threads: 0 for all cores. *network is NULL unless OCTET_OK.
 *
 * Several GPUs: "cuda:1" is the second GPU that CUDA shows to this process (CUDA_VISIBLE_DEVICES). "cuda", and "auto"
 * if it takes a GPU, is the one that is current in the calling thread: the first, unless cudaSetDevice() or PyTorch has
 * chosen another. A network stays on its GPU whichever thread uses it, and no function changes which GPU is current in
 * the caller's thread.
 *
 * Cost: engine cpu packs the weights, measures nothing, and is ready for all batch sizes. Engine cuda times the kernels
 * that could do each piece of work for max_batch images, and records a CUDA graph of the fastest. It keeps its choices
 * in files (octet_keep_kernels), so that this happens once for each network, batch size and GPU. On an H200 the first
 * load of a process, which includes CUDA's start, takes 1.7 s for 1 image and 1.9 s for 128 (ResNet-50) without kept
 * choices, then 0.6 s; MobileNetV2 takes 1.6 and 2.0 s, then 0.5 s. A second network loads in 0.03 to 0.2 s. The first
 * octet_run of another batch size does the same for that size: 1.1 to 1.3 s, or 0.02 to 0.07 s with kept choices.
 * Graphs of 8 batch sizes, the last used, are kept: run each size once before answers are urgent, or fill batches up to
 * max_batch. */
OCTET_API octet_status octet_load(const char* checkpoint, const char* engine, int32_t max_batch, int32_t threads,
                                  octet_network** network);
OCTET_API void octet_free(octet_network* network); /* NULL is nothing to free */

/* Returns the description of a network, which lives as long as the network; NULL for NULL. */
OCTET_API const octet_description* octet_describe(const octet_network* network);

/* Reads a JPEG, PNG, BMP or WebP file as the network's input, height * width * channels bytes. The image is turned
 * (EXIF), resized and cropped as the checkpoint says, as in validation. OCTET_USAGE for a network that was quantized
 * with tensors, whose checkpoint says nothing about images. */
OCTET_API octet_status octet_read_picture(const octet_network* network, const char* file, uint8_t* pixels);

/* Returns what users may not expect of the image that octet_read_picture read last in this thread, a line a fact: that
 * only its centre is seen, that it is not turned as its EXIF data says, that it is nearly black. "" if there is nothing
 * to say. It stays until the next image. */
OCTET_API const char* octet_picture_note(void);

/* Runs a batch. images: uint8 [batch, height, width, channels], 1 <= batch <= max_batch. outputs: memory for [batch,
 * height, width, channels] of each output, in the order of octet_description::output. The same images give the same
 * bytes on every engine, in every batch, on every machine. */
OCTET_API octet_status octet_run(octet_network* network, const uint8_t* images, int32_t batch, void* const* outputs);

/* A whole image, of any size: a file, or pixels. */
typedef struct octet_picture {
  const char* file;      /* JPEG, PNG, BMP or WebP; NULL: the image is `pixels` */
  const uint8_t* pixels; /* [height, width, channels of the network's input]; colour is RGB, also for networks of BGR */
  int32_t height, width;
} octet_picture;

/* A box in pixels of the whole image: (0, 0) is the upper left corner of its upper left pixel. */
typedef struct octet_box {
  int32_t class_index; /* octet_description::class_names has its name */
  float score;         /* 0 to 1 */
  float x, y;          /* the upper left corner */
  float width, height;
} octet_box;

/* Finds boxes in an image by a detector whose checkpoint says how its outputs become boxes (octet quantize --preset
 * yolox or yolo): fits the image to the input, runs the network, decodes, leaves out boxes that overlap a better one of
 * their class, and clips to the image. boxes: memory for `capacity` boxes, which gets those of the highest scores, the
 * highest first; *count: how many. score_threshold: boxes of a lower score are left out; negative: the checkpoint's
 * threshold. OCTET_USAGE for other networks. An image that a file says to turn (EXIF) is turned first. */
OCTET_API octet_status octet_boxes(octet_network* network, const octet_picture* picture, float score_threshold,
                                   octet_box* boxes, int32_t capacity, int32_t* count);

/* Gives the class of each pixel of an image by a network of segmentation, whose only output is float logits of each
 * pixel: fits the image to the input, runs the network, and takes the class of the highest logit at a pixel's place.
 * *height, *width: of the image, after a file that says so (EXIF) was turned. mask: memory for `capacity` bytes, which
 * gets the classes row by row, 255 where the input does not show the image (its centre is cut out); NULL: the network
 * does not run, only the size is told. OCTET_USAGE for other networks and too small a capacity. */
OCTET_API octet_status octet_mask(octet_network* network, const octet_picture* picture, uint8_t* mask, int64_t capacity,
                                  int32_t* height, int32_t* width);

/* Sets the folder in which engine cuda keeps the kernels that it has found the fastest, for all networks of this
 * process from now on. The folder is made when needed; any number of processes may share its small files. NULL: the
 * default $XDG_CACHE_HOME/octet/kernels, else $HOME/.cache/octet/kernels, which the program octet uses too. "": no
 * folder, so every process measures again; the same happens, without an error, if the folder cannot be read or written.
 * Files depend on the GPU, its driver and octet's version: those of another machine are never used. */
OCTET_API octet_status octet_keep_kernels(const char* folder);

/* Returns the message of the last call in this thread that failed, or "" if none did. It stays until the next failure.
 */
OCTET_API const char* octet_last_error(void);

OCTET_API const char* octet_version(void); /* "0.1.0", semantic */

#ifdef __cplusplus
}
#endif
#endif
