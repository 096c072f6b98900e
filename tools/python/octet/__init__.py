# SPDX-License-Identifier: Apache-2.0
"""octet's runner in Python: numpy and ctypes over liboctet_runtime (include/octet/octet.h), nothing to compile.

    import octet
    network = octet.load("int8.safetensors")
    logits = network(images)          # uint8 [N, H, W, C] -> float32 [N, classes]

octet.quantize (quantization.py) makes such a file of a float network; it starts the program octet.
"""
import collections
import ctypes
import os
import pathlib
import threading
import warnings

import numpy as np

__license__ = "Apache-2.0"
__all__ = ["Box", "Error", "Network", "keep_kernels", "load", "quantize", "version"]
_SONAME = "liboctet_runtime.so.0.1"
_MOST = 2**31 - 1  # of an int32
_TYPES = {0: np.float32, 1: np.int8, 2: np.uint8}  # octet_type


class Error(RuntimeError):
    """What the library refuses, in its words. status: 1 a promise that cannot be kept, 2 usage, 3 data or file, 4 other."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("height", ctypes.c_int32), ("width", ctypes.c_int32), ("channels", ctypes.c_int32),
                ("type", ctypes.c_int), ("scale", ctypes.c_float), ("zero_point", ctypes.c_int32)]

    @property
    def shape(self):
        return self.height, self.width, self.channels


class _Description(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("engine", ctypes.c_char_p), ("max_batch", ctypes.c_int32), ("input", _Tensor),
                ("outputs", ctypes.c_int32), ("output", ctypes.POINTER(_Tensor)), ("classes", ctypes.c_int32),
                ("class_names", ctypes.POINTER(ctypes.c_char_p)), ("box_classes", ctypes.c_int32), ("max_boxes", ctypes.c_int32)]


class _Picture(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("pixels", ctypes.c_void_p), ("height", ctypes.c_int32), ("width", ctypes.c_int32)]


class _Box(ctypes.Structure):
    _fields_ = [("class_index", ctypes.c_int32), ("score", ctypes.c_float), ("x", ctypes.c_float), ("y", ctypes.c_float),
                ("width", ctypes.c_float), ("height", ctypes.c_float)]


# What a detector found, in pixels of the image; x and y are the upper left corner. name: "class 7" where the checkpoint has none.
Box = collections.namedtuple("Box", "class_index name score x y width height")


def _open():
    """OCTET_RUNTIME's library, the one of this module's installation, or the one that the loader finds."""
    installed = pathlib.Path(__file__).resolve().parents[3] / _SONAME
    library = ctypes.CDLL(os.environ.get("OCTET_RUNTIME") or (str(installed) if installed.exists() else _SONAME))
    pointer, text, whole = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
    for name, result, arguments in (
            ("octet_load", ctypes.c_int, [text, text, whole, whole, ctypes.POINTER(pointer)]),
            ("octet_free", None, [pointer]),
            ("octet_describe", ctypes.POINTER(_Description), [pointer]),
            ("octet_read_picture", ctypes.c_int, [pointer, text, pointer]),
            ("octet_picture_note", text, []),
            ("octet_boxes", ctypes.c_int, [pointer, ctypes.POINTER(_Picture), ctypes.c_float, ctypes.POINTER(_Box), whole,
                                           ctypes.POINTER(whole)]),
            ("octet_mask", ctypes.c_int, [pointer, ctypes.POINTER(_Picture), pointer, ctypes.c_int64, ctypes.POINTER(whole),
                                          ctypes.POINTER(whole)]),
            ("octet_run", ctypes.c_int, [pointer, pointer, whole, ctypes.POINTER(pointer)]),
            ("octet_keep_kernels", ctypes.c_int, [text]),
            ("octet_last_error", text, []),
            ("octet_version", text, [])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _open()


def _check(status):
    if status != 0:
        raise Error(status, _library.octet_last_error().decode())


def _whole(name, value, lowest):
    """An int32 for C: ctypes would take any int and keep 32 bits of it."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not lowest <= value <= _MOST:
        raise ValueError(f"{name}: {value!r}; takes a whole number, {lowest} to {_MOST}")
    return int(value)


def version():
    return _library.octet_version().decode()


def keep_kernels(folder):
    """The folder in which engine cuda keeps which kernels were the fastest, for all networks loaded from now on. "" keeps none;
    None is where they are kept unless this is called: $XDG_CACHE_HOME/octet/kernels or ~/.cache/octet/kernels."""
    _check(_library.octet_keep_kernels(None if folder is None else os.fsencode(folder)))


def load(checkpoint, engine="auto", max_batch=64, threads=0):
    """The network of an int8.safetensors. engine: auto (the fastest here), cuda, cpu, reference; "cuda:1" is the second GPU,
    "cuda" the thread's current one, as torch.cuda.set_device() chose it. max_batch: memory is taken for so many images, 1 or
    more. threads: 0 for all cores. Raises ValueError for other numbers, Error for what the library refuses."""
    return Network(checkpoint, engine, max_batch, threads)


class Network:
    """Call it with images, uint8 [N, H, W, C] of any N. Threads may share it; they take turns."""

    def __init__(self, checkpoint, engine, max_batch, threads):
        self._handle = ctypes.c_void_p()
        self._turn = threading.Lock()
        max_batch, threads = _whole("max_batch", max_batch, 1), _whole("threads", threads, 0)
        _check(_library.octet_load(os.fsencode(checkpoint), engine.encode(), max_batch, threads, ctypes.byref(self._handle)))
        about = self._about = _library.octet_describe(self._handle).contents
        self.name = about.name.decode()
        self.engine = about.engine.decode()
        self.input_shape = about.input.shape
        self.class_names = [about.class_names[i].decode() for i in range(about.classes)]
        self.outputs = {tensor.name.decode(): tensor for tensor in about.output[:about.outputs]}

    def __del__(self):
        if self._handle:
            _library.octet_free(self._handle)

    def __call__(self, images):
        """A classifier's logits, float32 [N, classes]; else a list of [N, H, W, C], one an output: codes or float32."""
        images = np.asarray(images)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != self.input_shape:
            wanted = ", ".join(map(str, self.input_shape))
            raise ValueError(f"images: {images.dtype} {list(images.shape)}; the network reads uint8 [N, {wanted}]")
        images = np.ascontiguousarray(images)
        tensors = list(self.outputs.values())
        results = [np.empty((len(images), *tensor.shape), _TYPES[tensor.type]) for tensor in tensors]
        with self._turn:
            for first in range(0, len(images), self._about.max_batch):
                part = images[first:first + self._about.max_batch]
                memory = (ctypes.c_void_p * len(results))(*(result[first:].ctypes.data for result in results))
                _check(_library.octet_run(self._handle, part.ctypes.data, len(part), memory))
        if len(results) == 1 and results[0].dtype == np.float32 and results[0].shape[1:3] == (1, 1):
            return results[0][:, 0, 0]
        return results

    def boxes(self, image, score_threshold=None):
        """A detector's boxes in one whole image, a list of Box, the highest score first. image: a file, or pixels of any size, uint8
        [height, width, channels], in colour RGB. score_threshold: boxes of a lower score are left out; None: the checkpoint's."""
        picture = self._picture(image)
        found, count = (_Box * max(self._about.max_boxes, 1))(), ctypes.c_int32()
        threshold = -1 if score_threshold is None else max(float(score_threshold), 0)
        with self._turn:
            _check(_library.octet_boxes(self._handle, picture, threshold, found, len(found), count))
        return [Box(b.class_index, self.class_names[b.class_index] if self.class_names else f"class {b.class_index}", b.score, b.x,
                    b.y, b.width, b.height) for b in found[:count.value]]

    def mask(self, image):
        """The class of each pixel of one whole image by a network of segmentation, uint8 [height, width] of the image; 255 where the
        network does not see it. image: as boxes() takes it."""
        picture, height, width = self._picture(image), ctypes.c_int32(), ctypes.c_int32()
        with self._turn:
            _check(_library.octet_mask(self._handle, picture, None, 0, height, width))
            mask = np.empty((height.value, width.value), np.uint8)
            _check(_library.octet_mask(self._handle, picture, mask.ctypes.data, mask.size, height, width))
        return mask

    def _picture(self, image):
        """A whole image for C, which keeps what it points to."""
        if isinstance(image, (str, os.PathLike)):
            return _Picture(os.fsencode(image), None, 0, 0)
        image = np.ascontiguousarray(image)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self.input_shape[2]:
            raise ValueError(f"image: {image.dtype} {list(image.shape)}; takes uint8 [height, width, {self.input_shape[2]}]")
        picture = _Picture(None, image.ctypes.data, *image.shape[:2])
        picture.kept = image
        return picture

    def codes(self, inputs):
        """What a network that was quantized with tensors reads, uint8 [N, H, W, C], of such tensors, float [N, C, H, W]."""
        scale, zero_point = np.float32(self._about.input.scale), self._about.input.zero_point
        codes = np.rint(np.asarray(inputs, np.float32) / scale) + np.float32(zero_point)
        return np.ascontiguousarray(np.clip(codes, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1))

    def read_picture(self, file):
        """A JPEG, PNG, BMP or WebP file as validation sees it, uint8 [H, W, C]. Warns of what users may not expect: that only the
        centre is seen, that the file is not turned as its EXIF data says, that it is nearly black."""
        pixels = np.empty(self.input_shape, np.uint8)
        _check(_library.octet_read_picture(self._handle, os.fsencode(file), pixels.ctypes.data))
        if note := _library.octet_picture_note():
            warnings.warn(note.decode(), stacklevel=2)
        return pixels


from octet.quantization import quantize  # noqa: E402: it raises Error
