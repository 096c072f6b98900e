/* octet's runner: reads an int8.safetensors and runs it on the CPU, or on a GPU where the library was built for one.
 * Plain C, for any language; octet.hpp is the same in C++. No function throws, none ends the process.
 *
 * What fails returns a status other than OCTET_OK, and octet_last_error() says what, in words for people. A pointer
 * that is NULL where something must be is such a failure (OCTET_USAGE), unless its function says what NULL means. */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCTET_API __attribute__((visibility("default")))

typedef enum octet_status {
  OCTET_OK = 0,
  OCTET_PROMISE = 1, /* the engine cannot run this network, or the machine not this engine */
  OCTET_USAGE = 2,   /* a wrong argument */
  OCTET_DATA = 3,    /* a missing or damaged file */
  OCTET_FAILED = 4   /* anything else: no memory, a GPU that failed */
} octet_status;

typedef enum octet_type { OCTET_FLOAT32 = 0, OCTET_INT8 = 1, OCTET_UINT8 = 2 } octet_type;

/* One image's input or output, [height, width, channels] without gaps; a batch is images one behind the other. */
typedef struct octet_tensor {
  const char* name;
  int32_t height, width, channels;
  octet_type type;
  float scale; /* OCTET_INT8, OCTET_UINT8: value = scale * (code - zero_point); else 1 and 0 */
  int32_t zero_point;
} octet_tensor;

typedef struct octet_description {
  const char* name;
  const char* engine; /* the one that runs: "cpu"; "cuda:1" where octet_load was asked for that */
  int32_t max_batch;
  octet_tensor input; /* pixels 0 .. 255, as pictures have them; normalization is in the network */
  int32_t outputs;
  const octet_tensor* output; /* [outputs]; a classifier's only one is float32 [1, 1, classes] */
  int32_t classes;            /* names known; 0: none */
  const char* const* class_names;
} octet_description;

/* A network and its memory. For one thread at a time, which need not be the one that loaded it; several networks may be
 * loaded, run and freed by several threads at once. */
typedef struct octet_network octet_network;

/* engine: "auto" (or NULL) is the fastest here that promises equal bytes; or "cuda", "cpu", "reference".
 * ("cudnn" and "cutlass" run only some of a network's nodes, and are refused.) max_batch: memory is taken for so many
 * images. threads: 0 for all cores. *network is NULL unless OCTET_OK.
 *
 * Several GPUs: "cuda:1" is the second of those that CUDA shows to this process (CUDA_VISIBLE_DEVICES). "cuda", and
 * "auto" where it takes a GPU, is the one that is current in the calling thread: the first, unless cudaSetDevice() or
 * PyTorch has chosen another. A network stays on its GPU in whatever thread it is used, and no function changes which
 * GPU is current in the caller's thread.
 *
 * What it costs: engine cpu packs the weights and measures nothing; all batch sizes are ready. Engine cuda times the
 * kernels that could do each piece of work, for max_batch images, and records a CUDA graph of the fastest. What it has
 * chosen it keeps in files (octet_keep_kernels), so that this is done once for each network, batch size and GPU. On an
 * H200 the first load of a process, CUDA's own start in it, takes 1.7 s for 1 image and 1.9 s for 128 (ResNet-50)
 * where nothing has been kept, then 0.6 s; MobileNetV2 1.6 and 2.0 s, then 0.5 s. A second network loads in 0.03 to
 * 0.2 s. The first octet_run of another batch size does the same for that size: 1.1 to 1.3 s, kept 0.02 to 0.07 s. Its
 * graph is kept beside those of the 7 sizes last used: run each size once before answers are urgent, or fill batches up
 * to max_batch. */
OCTET_API octet_status octet_load(const char* checkpoint, const char* engine, int32_t max_batch, int32_t threads,
                                  octet_network** network);
OCTET_API void octet_free(octet_network* network); /* NULL is nothing to free */

/* Lives as long as the network. NULL for NULL. */
OCTET_API const octet_description* octet_describe(const octet_network* network);

/* A JPEG, PNG, BMP or WebP file as the network's input, turned (EXIF), resized and cut as the checkpoint says, which is
   as in validation: height * width * channels bytes. */
OCTET_API octet_status octet_read_picture(const octet_network* network, const char* file, uint8_t* pixels);

/* images: uint8 [batch, height, width, channels], 1 <= batch <= max_batch. outputs: memory for [batch, height, width,
 * channels] of each output, in the order of octet_description::output. The same images give the same bytes on every
 * engine, in every batch, on every machine. */
OCTET_API octet_status octet_run(octet_network* network, const uint8_t* images, int32_t batch, void* const* outputs);

/* Where engine cuda keeps which kernels it has found the fastest: in `folder`, made when it is needed, in small files
 * that any number of processes may share. NULL: the folder that it has unless this function is called,
 * $XDG_CACHE_HOME/octet/ kernels or else $HOME/.cache/octet/kernels, which the program octet shares. "": nowhere, and
 * every process measures anew; so it is, without an error, where a folder cannot be read or written. For all of this
 * process's networks, from now on. A file depends on the GPU, its driver and octet's version: another machine's are
 * never taken. */
OCTET_API octet_status octet_keep_kernels(const char* folder);

/* Of this thread's last call that failed; "" when none did. Until its next call that fails. */
OCTET_API const char* octet_last_error(void);

OCTET_API const char* octet_version(void); /* "0.1.0", semantic */

#ifdef __cplusplus
}
#endif
#endif
